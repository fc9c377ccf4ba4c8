"""The header of a GGUF file, strictly checked: nothing in it is taken on trust.

The `gguf` package is not needed: its reader believes the lengths in a header, and does not return on some files.
"""

import struct
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..quant.blocks import BLOCK_TYPES
from ..quant.rows import row_bytes
from .errors import CheckpointError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = "general.alignment"
_LONGEST_HEADER = 1 << 24
_LONGEST_NAME = 256
_MOST_ENTRIES = 1 << 14
_MOST_AXES = 4

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

_TYPES = {
    **{0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0"},
    **{10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 30: "BF16"},
}
_OTHER_TYPES = {24: "I8, as in Q8_CR files", 39: "MXFP4", 40: "NVFP4"}
_ADVICE = "Use an F32, F16, BF16, Q8_0, Q2_K to Q6_K, Q4_0, Q4_1, Q5_0 or Q5_1 file."


class Entry(NamedTuple):
    """One tensor: `type` is the name of a block type, `offset` where its bytes begin in the file."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return row_bytes(self.type, self.shape[-1]) * prod(self.shape[:-1])


def read_entries(path: Path) -> list[Entry]:
    """The tensors of a GGUF file; none of their data is read.

    Raises:
        CheckpointError: If the file is not a whole GGUF file, or holds a type that is not known here.
    """
    try:
        with path.open("rb") as file:
            return _Header(path, file).entries()
    except (struct.error, UnicodeDecodeError, OSError) as error:
        raise CheckpointError(f"{path.name} is not a complete GGUF file ({error}). Download it again.") from error


class _Header:
    """A position in the header of a file. Nothing is read or skipped that is not there."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._size = path.stat().st_size

    def entries(self) -> list[Entry]:
        if self._file.read(len(_MAGIC)) != _MAGIC:
            raise self._fault("it does not begin as one")
        version, count, settings = self._values("<IQQ")
        if version not in _VERSIONS:
            raise self._fault(f"version {version}, expected 2 or 3")
        if not 0 < count <= _MOST_ENTRIES or settings > _MOST_ENTRIES:
            raise self._fault(f"{count} tensors and {settings} settings")
        alignment = self._alignment(settings)
        unplaced = [self._entry() for _ in range(count)]
        return self._placed(unplaced, _padded(self._file.tell(), alignment), alignment)

    def _placed(self, entries: list[Entry], start: int, alignment: int) -> list[Entry]:
        """Entries with offsets in the file. Each begins where the one before ends, and the last ends the file."""
        end = 0
        for entry in entries:
            if entry.offset != _padded(end, alignment):
                raise self._fault(f"{entry.name} is at {entry.offset}, expected {_padded(end, alignment)}")
            end = entry.offset + entry.size
        if not start + end <= self._size <= _padded(start + end, alignment):
            raise self._fault(f"{self._size} bytes, expected {start + end}")
        if len({entry.name for entry in entries}) < len(entries):
            raise self._fault("a name is there twice")
        return [entry._replace(offset=start + entry.offset) for entry in entries]

    def _entry(self) -> Entry:
        """A tensor, its offset counted from the first. Axes are stored fastest first."""
        name = self._name()
        (axes,) = self._values("<I")
        if not 0 < axes <= _MOST_AXES:
            raise self._fault(f"{name} has {axes} axes")
        *axis_lengths, number, offset = self._values(f"<{axes}QIQ")
        shape = tuple(reversed(axis_lengths))
        if number not in _TYPES:
            other = _OTHER_TYPES.get(number, f"number {number}")
            raise CheckpointError(f"{self._path.name}: {name} has the GGUF type {other}, not known here. {_ADVICE}")
        if not all(shape) or shape[-1] % BLOCK_TYPES[_TYPES[number]].values:
            raise self._fault(f"{name} of shape {list(shape)} is no {_TYPES[number]}")
        return Entry(name, shape, _TYPES[number], offset)

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
