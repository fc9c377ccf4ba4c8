"""Shapes that GGUF files lose: axes of length 1, and kernels laid flat."""

import dataclasses
import re

from .gguf import GGUFTensor

_KERNELS = {
    re.compile(r"(pre|post)process_conv\.weight|dec_in_proj\.weight|.*\.conv2\.weight"): 1,
    re.compile(r"proj\.weight"): 3,
    re.compile(r"conv_(in|out)\.weight|.*\.conv1\.weight"): 7,
}
_ALPHA = re.compile(r"(.*\.)?alpha")


def with_rank(name: str, tensor: GGUFTensor) -> GGUFTensor:
    """The tensor in the shape that the parameter of this official name has; as it is if that cannot be told."""
    return dataclasses.replace(tensor, shape=_shape(name, tensor.shape))


def _shape(name: str, stored: tuple[int, ...]) -> tuple[int, ...]:
    long = tuple(axis for axis in stored if axis > 1)
    if _ALPHA.fullmatch(name) and len(long) == 1:
        return (1, *long, 1)
    if name == "time_proj.weight" and len(stored) == 1:
        return (*stored, 1)
    kernel = next((size for pattern, size in _KERNELS.items() if pattern.fullmatch(name)), None)
    if kernel == 1 and len(long) == 2:
        return (*long, 1)
    if kernel and kernel > 1 and len(stored) == 2 and stored[1] % kernel == 0:
        rows, columns = stored
        return (1, rows, kernel) if columns == kernel else (rows, columns // kernel, kernel)
    return stored
