"""Products in float16 whose inputs and results need not fit into float16."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from .operations import Operations

# Inputs are brought below this, so that results 500,000 times the largest of them still fit. Lower would cost digits of
# inputs that are small beside the largest.
_PEAK = 2.0**-3
_TINY = 2.0**-100


def ranged_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`(..., C_in), (C_out, C_in), (C_out,) -> (..., C_out)`: a float16 product between float32 values.

    Each row of `x` is scaled by a power of two, and its result scaled back: as exact as a float16 product that fits.

    Args:
        x: Float32 or float16, of any size.
        weight: Float16.
        bias: Float32, or None.
    """
    scale = _powers_of_two(x)
    product = linear((x / scale).to(weight.dtype), weight).float().mul_(scale)
    return product if bias is None else product.add_(bias)


class RangedLinear(nn.Linear):
    """Linear layer of float16 products: `(..., C_in) -> (..., C_out)`, float32 out; see `ranged_linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return ranged_linear(x, self.weight.half(), None if self.bias is None else self.bias.float())


def residual_linear(operations: Operations, compute_dtype: torch.dtype) -> Callable[..., nn.Module]:
    """The layer whose results are added to a float32 stream: a ranged one for float16, the host's where it has one."""
    if compute_dtype != torch.float16:
        return operations.Linear
    return getattr(operations, "RangedLinear", RangedLinear)


def _powers_of_two(x: Tensor) -> Tensor:
    """`(..., C) -> (..., 1)`: the powers of two that bring the rows of `x` below the peak."""
    largest = torch.linalg.vector_norm(x, math.inf, dim=-1, keepdim=True, dtype=torch.float32)
    return (largest.clamp_min(_TINY) / _PEAK).log2().ceil().exp2()
