"""From stored quantised tensors to the packed weights of linear layers."""

from collections.abc import Iterable

import torch

from ..quant import PackedWeight
from ..quant.rows import BlockRows
from .errors import dtype_name
from .files import StoredTensor
from .fuse import Recipe
from .gguf import GGUFTensor
from .scales import ScaledTensor


def is_packed(recipe: Recipe) -> bool:
    """Whether any part of a parameter is stored in fewer bits than it stands for."""
    return any(isinstance(part, ScaledTensor) or isinstance(part, GGUFTensor) and part.packed for part in recipe.parts)


def stored_as(recipes: Iterable[Recipe]) -> str:
    """What the values are stored as, for people: the commonest dtype, or the quantisations, the commonest first."""
    counts: dict[str, int] = {}
    packed = False
    for recipe in recipes:
        packed = packed or is_packed(recipe)
        for part in recipe.parts:
            counts[_label(part)] = counts.get(_label(part), 0) + part.parameters
    ordered = sorted(counts, key=counts.__getitem__, reverse=True)
    return ", ".join(ordered) if packed else ordered[0]


def _label(part: StoredTensor) -> str:
    name = dtype_name(part.dtype)
    if isinstance(part, ScaledTensor):
        return f"{name} convrot" if part.packing.group else f"scaled {name}"
    return part.type if isinstance(part, GGUFTensor) and part.packed else name


def packed_weight(recipe: Recipe) -> PackedWeight | None:
    """The parameter as it is stored, rows of its parts one below the other; None if it is not packed, or not alike."""
    if not is_packed(recipe):
        return None
    scaled = [part for part in recipe.parts if isinstance(part, ScaledTensor)]
    blocks = [part for part in recipe.parts if isinstance(part, GGUFTensor)]
    if len(scaled) == len(recipe.parts) and len({(part.dtype, part.packing) for part in scaled}) == 1:
        return _scaled_rows(scaled)
    if len(blocks) == len(recipe.parts):
        return _block_rows(blocks)
    return None


def _scaled_rows(parts: list[ScaledTensor]) -> PackedWeight:
    rows, columns = sum(part.shape[0] for part in parts), parts[0].shape[1]
    values = torch.empty(rows, columns, dtype=parts[0].dtype)
    for view, part in zip(values.split([part.shape[0] for part in parts]), parts, strict=True):
        view.copy_(part.values())
    return PackedWeight(parts[0].packing, values, torch.cat([part.scales() for part in parts]))


def _block_rows(parts: list[GGUFTensor]) -> PackedWeight:
    values = [part.bytes() for part in parts]
    packing = BlockRows(parts[0].columns, tuple((part.type, part.rows) for part in parts))
    return PackedWeight(packing, values[0] if len(values) == 1 else torch.cat(values))
