"""Tensors on disk: which files make up a component, and one tensor at a time out of them."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .errors import CheckpointError

_SHARD = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors$")

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


@dataclass(frozen=True)
class StoredTensor:
    """One tensor in a safetensors file. `read` maps the file for the time of the call's result only."""

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
            return file.get_tensor(self.key)


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Names, shapes and dtypes of a safetensors file; no tensor data is read.

    Raises:
        CheckpointError: If the file is not a whole safetensors file, or holds a dtype that is not known here.
    """
    try:
        with safe_open(path, framework="pt") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
            return {key: _stored(path, key, part.get_shape(), part.get_dtype()) for key, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path.name} is not a complete safetensors file ({error}). Download it again."
        ) from error


def _stored(path: Path, key: str, shape: list[int], dtype: str) -> StoredTensor:
    if dtype not in _DTYPES:
        raise CheckpointError(f"{path.name}: tensor {key} has the unknown dtype {dtype}. Use an F32, F16 or BF16 file.")
    return StoredTensor(path, key, tuple(shape), _DTYPES[dtype])


def component_files(folder: Path) -> list[Path]:
    """The safetensors files that make up a component folder: by its index, by shard names, or the only one.

    Raises:
        CheckpointError: If there is none, one is missing, or there are several that do not belong together.
    """
    indexes = sorted(folder.glob("*.safetensors.index.json"))
    if indexes:
        return _require([folder / name for name in _index_names(indexes[0])])
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{folder} holds no .safetensors file. Download the component into this folder.")
    shards = shard_files(files[0])
    if set(files) - set(shards):
        names = ", ".join(file.name for file in files[:4])
        raise CheckpointError(f"{folder} holds several files ({names}). Keep the one to load, or choose it by name.")
    return shards


def shard_files(file: Path) -> list[Path]:
    """All shards of the set that a file belongs to by its name; the file alone if it is not one of several.

    Raises:
        CheckpointError: If a shard is missing.
    """
    shard = _SHARD.match(file.name)
    if shard is None:
        return [file]
    count = int(shard["count"])
    names = [f"{shard['stem']}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
    return _require([file.with_name(name) for name in names])


def _require(files: list[Path]) -> list[Path]:
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise CheckpointError(f"{files[0].parent} lacks {', '.join(missing)}. Download the missing part.")
    return files


def _index_names(index: Path) -> list[str]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(f"{index.name} is not a safetensors index: it has no weight_map. Download it again.")
    unique = sorted(set(names.values()))
    outside = [name for name in unique if Path(name).name != name]
    if outside:
        raise CheckpointError(f"{index.name} names {outside[0]!r}, which is not a plain file name. Download it again.")
    return unique


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file.

    Raises:
        CheckpointError: If it holds anything else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path.name} is not readable as JSON ({error}). Download it again.") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path.name} holds {type(value).__name__}, expected a JSON object. Download it again.")
    return value
