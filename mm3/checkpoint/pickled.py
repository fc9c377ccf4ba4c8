"""Torch's zip files (.pth, .pt): the tensors that their pickle lists, read without running any of it.

`torch.load(mmap=True, weights_only=True)` would keep every page it touched until the last tensor is let go, and trusts
the sizes in the pickle. Here the pickle is a list of names, sizes and records, checked against the archive, and each
tensor is read by itself.
"""

import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from .errors import CheckpointError, shown
from .files import PlainTensor, StoredTensor
from .pickle_names import PickleError, TensorView
from .unpickle import tensors_of_pickle

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LONGEST_PICKLE = 1 << 27
_ZIP_ERRORS = (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, EOFError, OSError, struct.error)


@dataclass(frozen=True)
class TransposedTensor(StoredTensor):
    """One tensor whose axes lie in another order in the file, from the byte `start` on."""

    start: int
    view: TensorView

    def read(self) -> Tensor:
        """The tensor on the CPU, in memory of its own."""
        row = PlainTensor(self.path, self.key, (self.parameters,), self.dtype, self.start).read()
        return row.as_strided(self.view.shape, self.view.strides).reshape(self.shape)


def read_pickled_header(path: Path) -> dict[str, StoredTensor]:
    """Names, shapes and dtypes of a torch zip file; no tensor data is read and nothing is executed.

    Raises:
        CheckpointError: If the archive is not whole, or holds anything but plain tensors by name.
    """
    try:
        records = _records(path)
    except _ZIP_ERRORS as error:
        raise CheckpointError(
            f"{path.name} is not a complete torch file: it is cut off or no archive of tensors ({error}). "
            "Download it again."
        ) from error
    root = next((name.removesuffix("data.pkl") for name in records if name.endswith("/data.pkl")), None)
    if root is None:
        raise CheckpointError(f"{path.name} is a zip archive without tensors. Unpack it, or choose another file.")
    try:
        if records.get(f"{root}byteorder", (0, 0)) != (0, 0) and _bytes(path, records[f"{root}byteorder"]) != b"little":
            raise PickleError("its numbers are not little-endian")
        views = tensors_of_pickle(_bytes(path, records[f"{root}data.pkl"]))
        return {key: _stored(path, key, view, records, f"{root}data/") for key, view in views.items()}
    except PickleError as error:
        raise CheckpointError(
            f"{path.name} is a pickle that is not just tensors by name: {error}. "
            "It is not opened, because it could run code. Take a .safetensors file."
        ) from error


def _records(path: Path) -> dict[str, tuple[int, int]]:
    """(first byte, size) of every record that is stored as it is, by name."""
    records = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for record in archive.infolist():
            if record.compress_type != zipfile.ZIP_STORED:
                continue
            file.seek(record.header_offset)
            magic, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            start = record.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
            if magic != b"PK\x03\x04" or start + record.file_size > archive.start_dir:
                raise zipfile.BadZipFile(f"record {shown([record.filename])} is not where it should be")
            records[record.filename] = (start, record.file_size)
    return records


def _bytes(path: Path, record: tuple[int, int]) -> bytes:
    start, size = record
    if size > _LONGEST_PICKLE:
        raise PickleError(f"its list of tensors takes {size:,} bytes")
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)


def _stored(path: Path, key: str, view: TensorView, records: dict[str, tuple[int, int]], folder: str) -> StoredTensor:
    start, size = records.get(folder + view.record, (0, 0))
    if view.record_bytes != size or view.needed_bytes > size:
        raise CheckpointError(
            f"{path.name}: tensor {shown([key])} needs {max(view.record_bytes, view.needed_bytes):,} bytes, "
            f"its record holds {size:,}. Download it again."
        )
    first = start + view.offset * view.dtype.itemsize
    if view.contiguous:
        return PlainTensor(path, key, view.shape, view.dtype, first)
    return TransposedTensor(path, key, view.shape, view.dtype, first, view)
