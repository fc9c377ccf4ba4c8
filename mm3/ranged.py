"""Products in float16 whose inputs and results need not fit into float16."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from .operations import Operations

# The largest input of a row is brought to at most this, so that results 500,000 times as large still fit. Lower would
# cost digits of inputs that are small beside it.
_PEAK = 2.0**-3
_TINY = 2.0**-100


def ranged_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`(..., C_in), (C_out, C_in), (C_out,) -> (..., C_out)`: a float16 product between float32 values.

    Each row of `x` is scaled by a power of two, and its result scaled back: as exact as a product that fits float16 for
    weights of ordinary size (0.001 and more). A row that is not finite gives none that is.

    Args:
        x: Float32 or float16, up to 1e37.
        weight: Float16.
        bias: Float32, or None.
    """
    scale = _powers_of_two(x)
    product = linear((x / scale).to(weight.dtype), weight).float().mul_(scale)
    return product if bias is None else product.add_(bias)


class RangedLinear(nn.Linear):
    """Linear layer of float16 products: `(..., C_in) -> (..., C_out)`, float32 out; see `ranged_linear`."""

    ranged = True

    def forward(self, x: Tensor) -> Tensor:
        return ranged_linear(x, self.weight.half(), None if self.bias is None else self.bias.float())


def residual_linear(operations: Operations, compute_dtype: torch.dtype) -> Callable[..., nn.Module]:
    """The layer whose results are added to a float32 stream: ranged for float16, if the namespace has such a layer."""
    if compute_dtype != torch.float16:
        return operations.Linear
    return RangedLinear if operations is nn else getattr(operations, "RangedLinear", operations.Linear)


def is_ranged(layer: nn.Module) -> bool:
    """Whether a layer takes inputs beyond float16's range, and gives float32."""
    return getattr(layer, "ranged", False)


def _powers_of_two(x: Tensor) -> Tensor:
    """`(..., C) -> (..., 1)`: the powers of two that bring the rows of `x` below the peak."""
    largest = torch.linalg.vector_norm(x, math.inf, dim=-1, keepdim=True, dtype=torch.float32)
    return (largest.clamp_min(_TINY) / _PEAK).log2().ceil().exp2()
