"""GGUF files: names, shapes and types from a strictly checked header, and one tensor at a time out of the file.

The `gguf` package is not needed: its reader takes the lengths in a header on trust, and does not return on some files.
"""

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from ..quant.blocks import BLOCK_TYPES
from ..quant.rows import BlockRows, row_bytes
from .errors import CheckpointError
from .files import StoredTensor

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = "general.alignment"
_LONGEST_HEADER = 1 << 24
_LONGEST_NAME = 256
_MOST_TENSORS = 1 << 14
_MOST_AXES = 4

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_TYPES = {
    **{0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0"},
    **{10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 30: "BF16"},
}
_OTHER_TYPES = {24: "I8, as in Q8_CR files", 39: "MXFP4", 40: "NVFP4"}
_ADVICE = "Use an F32, F16, BF16, Q8_0, Q2_K to Q6_K, Q4_0, Q4_1, Q5_0 or Q5_1 file."


@dataclass(frozen=True)
class GGUFTensor(StoredTensor):
    """One tensor in a GGUF file; `dtype` is uint8 if its type packs weights into blocks."""

    type: str
    columns: int  # of a row of blocks, whatever shape the rows are given
    offset: int

    @property
    def packed(self) -> bool:
        return self.type not in _PLAIN

    @property
    def rows(self) -> int:
        return self.parameters // self.columns

    def bytes(self) -> Tensor:
        """The bytes as stored, (bytes,) uint8, in memory of their own.

        Raises:
            CheckpointError: If the file has become shorter.
        """
        buffer = bytearray(row_bytes(self.type, self.columns) * self.rows)
        with self.path.open("rb") as file:
            file.seek(self.offset)
            if file.readinto(buffer) != len(buffer):
                raise CheckpointError(f"{self.path.name} ends within {self.key}. Download it again.")
        return torch.frombuffer(buffer, dtype=torch.uint8)

    def read(self) -> Tensor:
        """The tensor in `dtype`, or unpacked to float32."""
        if not self.packed:
            return self.bytes().view(self.dtype).reshape(self.shape)
        rows = BlockRows(self.columns, ((self.type, self.rows),))
        return rows.unpack(self.bytes(), None, torch.float32).reshape(self.shape)


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF files do."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_gguf(path: Path) -> dict[str, GGUFTensor]:
    """Names, shapes and types of a GGUF file; no tensor data is read.

    Raises:
        CheckpointError: If the file is not a whole GGUF file, or holds a type that is not known here.
    """
    try:
        with path.open("rb") as file:
            return _Header(path, file).tensors()
    except (struct.error, UnicodeDecodeError, OSError) as error:
        raise CheckpointError(f"{path.name} is not a complete GGUF file ({error}). Download it again.") from error


class _Header:
    """A position in the header of a file. Nothing is read or skipped that is not there."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._size = path.stat().st_size

    def tensors(self) -> dict[str, GGUFTensor]:
        if self._file.read(len(_MAGIC)) != _MAGIC:
            raise self._fault("it does not begin as one")
        version, count, settings = self._values("<IQQ")
        if version not in _VERSIONS:
            raise self._fault(f"version {version}, expected 2 or 3")
        if not 0 < count <= _MOST_TENSORS:
            raise self._fault(f"{count} tensors")
        alignment = self._alignment(settings)
        entries = [self._entry() for _ in range(count)]
        start = _padded(self._file.tell(), alignment)
        tensors: dict[str, GGUFTensor] = {}
        end = 0
        for name, shape, kind, offset in entries:
            if offset != _padded(end, alignment):
                raise self._fault(f"{name} is at {offset}, expected {_padded(end, alignment)}")
            if name in tensors:
                raise self._fault(f"{name} is there twice")
            tensors[name] = self._tensor(name, shape, kind, start + offset)
            end = offset + row_bytes(_TYPES[kind], shape[-1]) * tensors[name].rows
        if not start + end <= self._size <= _padded(start + end, alignment):
            raise self._fault(f"{self._size} bytes, expected {start + end}")
        return tensors

    def _tensor(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> GGUFTensor:
        if kind not in _TYPES:
            other = _OTHER_TYPES.get(kind, f"number {kind}")
            raise CheckpointError(f"{self._path.name}: {name} has the GGUF type {other}, not known here. {_ADVICE}")
        block = BLOCK_TYPES[_TYPES[kind]]
        if not all(shape) or shape[-1] % block.values:
            raise self._fault(f"{name} of shape {list(shape)} is no {block.name}")
        dtype = _PLAIN.get(block.name, torch.uint8)
        return GGUFTensor(self._path, name, shape, dtype, block.name, shape[-1], offset)

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        """(name, shape, type, offset) of a tensor. Axes are stored fastest first."""
        name = self._name()
        (axes,) = self._values("<I")
        if not 0 < axes <= _MOST_AXES:
            raise self._fault(f"{name} has {axes} axes")
        *dims, kind, offset = self._values(f"<{axes}QIQ")
        if prod(dims) > self._size * 8:
            raise self._fault(f"{name} has {prod(dims)} values")
        return name, tuple(reversed(dims)), kind, offset

    def _alignment(self, settings: int) -> int:
        """Reads past the key-value pairs, and returns the one that matters."""
        alignment = 32
        for _ in range(settings):
            name = self._name()
            (kind,) = self._values("<I")
            if name == _ALIGNMENT and kind == 4:
                (alignment,) = self._values("<I")
            else:
                self._skip_value(kind)
        if alignment < 8 or alignment & (alignment - 1):
            raise self._fault(f"alignment {alignment}")
        return alignment

    def _skip_value(self, kind: int) -> None:
        if kind in _SCALARS:
            self._skip(struct.calcsize(_SCALARS[kind]))
        elif kind == _STRING:
            self._skip(*self._values("<Q"))
        elif kind == _ARRAY:
            item, count = self._values("<IQ")
            if item in _SCALARS:
                self._skip(count * struct.calcsize(_SCALARS[item]))
            elif item == _STRING and count * 8 <= _LONGEST_HEADER:
                for _ in range(count):
                    self._skip(*self._values("<Q"))
            else:
                raise self._fault(f"an array of {count} values of type {item}")
        else:
            raise self._fault(f"a value of type {kind}")

    def _name(self) -> str:
        (length,) = self._values("<Q")
        if not 0 < length <= _LONGEST_NAME:
            raise self._fault(f"a name of {length} bytes")
        return self._read(length).decode("utf-8")

    def _values(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._read(struct.calcsize(layout)))

    def _read(self, count: int) -> bytes:
        self._require(count)
        return self._file.read(count)

    def _skip(self, count: int) -> None:
        self._require(count)
        self._file.seek(count, 1)

    def _require(self, count: int) -> None:
        if self._file.tell() + count > min(self._size, _LONGEST_HEADER):
            raise self._fault("its header does not end")

    def _fault(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self._path.name} is not a complete GGUF file: {what}. Download it again.")


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
