"""A linear layer that keeps its weight packed."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ..ranged import ranged_linear
from .weight import PackedWeight


class PackedLinear(nn.Module):
    """`(..., in_features) -> (..., out_features)`; unpacks its weight at each use, in the input's dtype and place.

    The packed values, the scale and the bias are parameters, which a host may keep elsewhere. A `ranged` layer stands
    for a `RangedLinear`: it multiplies in float16, from and to float32.
    """

    weight: nn.Parameter
    scale: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, weight: PackedWeight, bias: Tensor | None = None, *, ranged: bool = False) -> None:
        super().__init__()
        self.packing = weight.packing
        self.ranged = ranged
        self.out_features, self.in_features = weight.shape
        self.weight = nn.Parameter(weight.values, requires_grad=False)
        self.register_parameter("scale", _parameter(weight.scale))
        self.register_parameter("bias", _parameter(bias))

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight.to(x.device), self.bias)

    def product(self, x: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
        """The layer's output, with `values` on the device of `x`."""
        scale = None if self.scale is None else self.scale.to(x.device)
        weight = self.packing.unpack(values, scale, torch.float16 if self.ranged else x.dtype)
        multiply = ranged_linear if self.ranged else linear
        return multiply(
            x, weight, None if bias is None else bias.to(x.device, torch.float32 if self.ranged else x.dtype)
        )

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {self.packing}"


def _parameter(value: Tensor | None) -> nn.Parameter | None:
    return None if value is None else nn.Parameter(value.to(torch.float32), requires_grad=False)
