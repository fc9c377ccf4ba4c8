"""One tensor in a file, and the names and shapes of all tensors in a safetensors file."""

import ctypes
import json
from dataclasses import dataclass
from io import FileIO
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
_PIECE = 1 << 15  # elements: what torch converts on one thread, in the cache of a core; threads would wait at each


@dataclass(frozen=True)
class StoredTensor:
    """One tensor in a file. `shape` may add or leave out axes of length 1 against the file."""

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def parameters(self) -> int:
        return torch.Size(self.shape).numel()

    def read(self) -> Tensor:
        """The tensor on the CPU, of this shape and dtype."""
        raise NotImplementedError

    def copy_into(self, out: Tensor) -> None:
        """Write the values to `out`, which is contiguous, in its dtype."""
        out.copy_(self.read())


@dataclass(frozen=True)
class PlainTensor(StoredTensor):
    """One tensor whose values lie in a row in the file, from the byte `start` on."""

    start: int

    def read(self) -> Tensor:
        """The tensor on the CPU, in memory of its own."""
        out = torch.empty(self.shape, dtype=self.dtype)
        self.copy_into(out)
        return out

    def copy_into(self, out: Tensor) -> None:
        """Write the values to `out`, which is contiguous, in its dtype. At most a piece is held beside it."""
        # Read rather than mapped: mapped pages count as memory until they are let go, and fault one by one.
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.start)
            if out.dtype == self.dtype:
                self._fill(out.view(-1), file)
                return
            values = torch.empty(min(self.parameters, _PIECE), dtype=self.dtype)
            for piece in out.view(-1).split(len(values)):
                self._fill(values[: len(piece)], file)
                piece.copy_(values[: len(piece)])

    def _fill(self, values: Tensor, file: FileIO) -> None:
        view = memoryview((ctypes.c_char * values.nbytes).from_address(values.data_ptr())).cast("B")
        while view:
            count = file.readinto(view)
            if not count:
                raise CheckpointError(f"{self.path.name} became shorter while it was read. Download it again.")
            view = view[count:]


def read_safetensors_header(path: Path) -> dict[str, StoredTensor]:
    """Names, shapes and dtypes of a safetensors file; no tensor data is read.

    Raises:
        CheckpointError: If the file is not a whole safetensors file, or holds a dtype that is not known here.
    """
    try:
        with safe_open(path, framework="pt") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
            starts = _starts(path)
            return {
                key: _stored(path, key, part.get_shape(), part.get_dtype(), starts[key]) for key, part in slices.items()
            }
    except (SafetensorError, OSError) as error:
        fault = _size_fault(path) or str(error)
        raise CheckpointError(f"{path.name} is not a complete safetensors file: {fault}. Download it again.") from error


def _starts(path: Path) -> dict[str, int]:
    """The first byte of every tensor in a file whose header is known to be sound."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        entries = json.loads(file.read(length))
    base = _LENGTH_BYTES + length
    return {name: base + entry["data_offsets"][0] for name, entry in entries.items() if name != "__metadata__"}


def _stored(path: Path, key: str, shape: list[int], dtype: str, start: int) -> PlainTensor:
    if dtype not in _DTYPES:
        raise CheckpointError(
            f"{path.name}: tensor {shown([key])} has the unknown dtype {dtype}, which some quantised files use. "
            "Take an fp32, fp16, bf16, fp8, int8 convrot or GGUF file."
        )
    return PlainTensor(path, key, tuple(shape), _DTYPES[dtype], start)


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
