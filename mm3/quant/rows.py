"""Rows of blocks, as GGUF files hold them; several types below one another where projections were fused."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .blocks import BLOCK_TYPES
from .weight import row_slices


@dataclass(frozen=True)
class BlockRows:
    """`columns` weights a row; `types` are (name of a block type, how many rows), from the first row on."""

    columns: int
    types: tuple[tuple[str, int], ...]

    def shape(self, values: Tensor) -> tuple[int, int]:
        """(rows, columns) of the weight."""
        return sum(rows for _, rows in self.types), self.columns

    def unpack(self, values: Tensor, scale: Tensor | None, dtype: torch.dtype) -> Tensor:
        """`(bytes,) -> (rows, columns)`, in `dtype`."""
        out = torch.empty(self.shape(values), dtype=dtype, device=values.device)
        start, byte = 0, 0
        for name, rows in self.types:
            end = byte + row_bytes(name, self.columns) * rows
            _unpack_rows(name, values[byte:end].unflatten(0, (rows, -1)), out[start : start + rows])
            start, byte = start + rows, end
        return out


def row_bytes(name: str, columns: int) -> int:
    """Bytes of a row of whole blocks."""
    kind = BLOCK_TYPES[name]
    return columns // kind.values * kind.size


def _unpack_rows(name: str, packed: Tensor, out: Tensor) -> None:
    kind = BLOCK_TYPES[name]
    for rows in row_slices(out):
        blocks = packed[rows].unflatten(1, (-1, kind.size)).flatten(0, 1)
        out[rows] = kind.decode(blocks).view(-1, out.shape[1])
