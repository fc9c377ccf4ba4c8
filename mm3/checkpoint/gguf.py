"""Tensors of GGUF files, one at a time out of the file."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..quant.rows import BlockRows, row_bytes
from .errors import CheckpointError
from .files import StoredTensor
from .gguf_header import read_entries

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


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


def read_gguf(path: Path) -> dict[str, StoredTensor]:
    """Names, shapes and types of a GGUF file; no tensor data is read.

    Raises:
        CheckpointError: If the file is not a whole GGUF file, or holds a type that is not known here.
    """
    return {
        entry.name: GGUFTensor(
            path,
            entry.name,
            entry.shape,
            _PLAIN.get(entry.type, torch.uint8),
            entry.type,
            entry.shape[-1],
            entry.offset,
        )
        for entry in read_entries(path)
    }
