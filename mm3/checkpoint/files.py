"""One tensor in a file, and the names and shapes of all tensors in a safetensors file."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .errors import CheckpointError, shown

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class StoredTensor:
    """One tensor in a safetensors file. `read` maps the file for the time of the call's result only.

    `shape` may add or leave out axes of length 1 against the file.
    """

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def parameters(self) -> int:
        return torch.Size(self.shape).numel()

    def read(self) -> Tensor:
        """The tensor on the CPU, a view of the mapped file."""
        with safe_open(self.path, framework="pt") as file:
            return file.get_tensor(self.key).reshape(self.shape)


def read_safetensors_header(path: Path) -> dict[str, StoredTensor]:
    """Names, shapes and dtypes of a safetensors file; no tensor data is read.

    Raises:
        CheckpointError: If the file is not a whole safetensors file, or holds a dtype that is not known here.
    """
    try:
        with safe_open(path, framework="pt") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
            return {key: _stored(path, key, part.get_shape(), part.get_dtype()) for key, part in slices.items()}
    except (SafetensorError, OSError) as error:
        fault = _size_fault(path) or str(error)
        raise CheckpointError(f"{path.name} is not a complete safetensors file: {fault}. Download it again.") from error


def _stored(path: Path, key: str, shape: list[int], dtype: str) -> StoredTensor:
    if dtype not in _DTYPES:
        raise CheckpointError(
            f"{path.name}: tensor {shown([key])} has the unknown dtype {dtype}, which some quantised files use. "
            "Take an F32, F16 or BF16 file."
        )
    return StoredTensor(path, key, tuple(shape), _DTYPES[dtype])


def _size_fault(path: Path) -> str | None:
    """How the size of the file differs from what its header promises, or None if it does not or cannot be told."""
    held = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            start = _LENGTH_BYTES + length
            if start > held:
                return f"it is cut off, or no safetensors file at all: {held:,} bytes, its header alone takes {start:,}"
            entries = json.loads(file.read(length))
        promised = start + max(entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None
    if promised == held:
        return None
    if promised > held:
        return f"it is cut off after {held:,} of {promised:,} bytes"
    return f"{held - promised:,} bytes follow its {promised:,}"
