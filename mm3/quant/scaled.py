"""int8 and float8 values with a scale for every row, rotated or not."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .weight import row_slices


@dataclass(frozen=True)
class ScaledRows:
    """Values times the scale of their row.

    If `group` is not 0, every group of so many columns was multiplied by a Hadamard matrix before it was rounded (which
    spreads outliers), and is multiplied by it again here: the matrix is its own inverse.
    """

    group: int = 0

    def shape(self, values: Tensor) -> tuple[int, int]:
        """(rows, columns) of the weight."""
        return values.shape[0], values.shape[1]

    def unpack(self, values: Tensor, scale: Tensor | None, dtype: torch.dtype) -> Tensor:
        """`(rows, columns), (rows, 1) -> (rows, columns)`, in `dtype`."""
        if scale is None:
            raise ValueError("scaled rows need a scale")
        out = torch.empty(values.shape, dtype=dtype, device=values.device)
        rotation = hadamard(self.group, values.device) if self.group else None
        for rows in row_slices(out):
            part = values[rows].float()
            if rotation is not None:  # before the scale: sums of small integers, exact in float32 and in TF32
                part = (part.unflatten(-1, (-1, self.group)) @ rotation).flatten(-2)
            out[rows] = part * scale[rows]
        return out


def is_hadamard_size(size: int) -> bool:
    """Whether `hadamard` has this size: a power of 4."""
    return size > 1 and size & (size - 1) == 0 and size.bit_length() % 2 == 1


def hadamard(size: int, device: torch.device | str | None = None) -> Tensor:
    """The symmetric orthogonal matrix (size, size) that int8 convrot files are rotated by, float32.

    Raises:
        ValueError: If the size is not a power of 4.
    """
    if not is_hadamard_size(size):
        raise ValueError(f"a regular Hadamard matrix has a power of 4 rows, got {size}")
    base = 1.0 - 2.0 * torch.eye(4, device=device).flip(1)
    matrix = base
    while matrix.shape[0] < size:
        matrix = torch.kron(matrix, base)
    return matrix * size**-0.5
