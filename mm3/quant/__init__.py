"""Weights kept in fewer bits than they are computed in, and the layer that unpacks them at use."""

from .linear import PackedLinear
from .weight import PackedWeight, Packing

__all__ = ["PackedLinear", "PackedWeight", "Packing"]
