"""From stored quantised tensors to the packed weights of linear layers."""

import torch

from ..quant import PackedWeight
from .fuse import Recipe
from .scales import ScaledTensor


def is_packed(recipe: Recipe) -> bool:
    """Whether any part of a parameter is stored in fewer bits than it stands for."""
    return any(isinstance(part, ScaledTensor) for part in recipe.parts)


def packed_weight(recipe: Recipe) -> PackedWeight | None:
    """The parameter as it is stored, rows of its parts one below the other; None if that is not one packing."""
    scaled = [part for part in recipe.parts if isinstance(part, ScaledTensor)]
    kinds = {(part.dtype, part.packing) for part in scaled}
    if len(scaled) < len(recipe.parts) or len(kinds) != 1:
        return None
    values = torch.empty(recipe.shape, dtype=scaled[0].dtype)
    for view, part in zip(values.split([part.shape[0] for part in scaled]), scaled, strict=True):
        view.copy_(part.values())
    return PackedWeight(scaled[0].packing, values, torch.cat([part.scales() for part in scaled]))
