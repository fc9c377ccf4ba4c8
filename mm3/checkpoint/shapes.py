"""Shapes that some layouts write in another way: axes of length 1 left out, and channels last."""

import re
from collections.abc import Mapping

from .errors import CheckpointError

# A tensor that some layouts flatten -> its shape, with its own length for None.
_FLATTENED = ((r"(^|\.)alpha$", (1, None, 1)),)

# A convolution of each component and the length of its kernel, which is its last axis.
_KERNELS = {
    "transformer": ("preprocess_conv.weight", 1),
    "condition_encoder": ("proj.weight", 3),
    "vocoder": ("dec_in_proj.weight", 1),
}


def restored_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor with the axes of length 1 that some layouts leave out."""
    for pattern, whole in _FLATTENED:
        if len(shape) == 1 and re.search(pattern, name):
            return tuple(shape[0] if axis is None else axis for axis in whole)
    return shape


def refuse_channels_last(component: str, shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Let only kernels through whose last axis is the kernel's.

    Raises:
        CheckpointError: If the kernels are stored as MLX does, channels last.
    """
    name, kernel = _KERNELS[component]
    shape = shapes.get(name, ())
    if len(shape) == 3 and shape[1] == kernel != shape[2]:
        raise CheckpointError(
            f"{where} is made for MLX: its convolutions are stored channels last ({name} is {list(shape)}). "
            "Take the official folder or the Comfy-Org files."
        )
