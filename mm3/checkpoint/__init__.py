"""Checkpoint files of the acoustic stage: found out, renamed, checked and read one tensor at a time."""

from .checkpoint import COMPONENTS, Checkpoint, open_checkpoint, peek
from .component import Component
from .errors import CheckpointError
from .fuse import fold_weight_norm, remap_transformer_state

__all__ = [
    "COMPONENTS",
    "Checkpoint",
    "CheckpointError",
    "Component",
    "fold_weight_norm",
    "open_checkpoint",
    "peek",
    "remap_transformer_state",
]
