"""A packed weight: stored values, and the packing that tells what they stand for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_VALUES_AT_ONCE = 1 << 24
_VALUES_AT_ONCE_ON_CPU = 1 << 20  # what its caches hold


class Packing(Protocol):
    """How stored values stand for a weight. Holds no tensor; equal packings read equal values alike."""

    def shape(self, values: Tensor) -> tuple[int, int]:
        """(rows, columns) of the weight that `values` stand for."""

    def unpack(self, values: Tensor, scale: Tensor | None, dtype: torch.dtype) -> Tensor:
        """The weight, (rows, columns), computed in float32 and rounded once to `dtype`."""


@dataclass(frozen=True)
class PackedWeight:
    """The weight of one linear layer. `scale` is (rows, 1) float32, or None if the values carry their own."""

    packing: Packing
    values: Tensor
    scale: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.packing.shape(self.values)

    def unpack(self, dtype: torch.dtype) -> Tensor:
        """The weight, (rows, columns), in `dtype`."""
        return self.packing.unpack(self.values, self.scale, dtype)


def row_slices(weight: Tensor) -> Iterator[slice]:
    """Slices that cover all rows, each small enough that its float32 copies do not count beside the model."""
    values = _VALUES_AT_ONCE_ON_CPU if weight.device.type == "cpu" else _VALUES_AT_ONCE
    rows, columns = weight.shape
    step = max(1, values // columns)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
