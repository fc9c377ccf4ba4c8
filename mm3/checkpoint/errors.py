"""The one error of this package, and names of tensors as its messages show them."""

from collections.abc import Iterable

import torch

_SHOWN = 4
_LONGEST = 100


class CheckpointError(ValueError):
    """A file or folder that cannot be loaded: says what it is, what was expected and what to do."""


def dtype_name(dtype: torch.dtype) -> str:
    """A dtype as people write it."""
    return str(dtype).removeprefix("torch.")


def shown(names: Iterable[str], separator: str = ", ") -> str:
    """The first few, shortened, and how many more there are. Names from a broken file may be anything."""
    names = list(names)
    first = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..." for name in names[:_SHOWN]]
    text = separator.join(first).encode("ascii", "backslashreplace").decode()
    return text + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
