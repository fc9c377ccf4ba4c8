"""The layers that modules are built from: torch.nn, or a host's namespace with the same names."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn

Device = torch.device | str | None


class Operations(Protocol):
    """A namespace of layer classes with the signatures of torch.nn.

    One that computes in float16 should have a `RangedLinear` too, a subclass of ours, as `torch.nn` is given one.
    """

    @property
    def Linear(self) -> Callable[..., nn.Module]: ...  # noqa: N802 - torch's own names

    @property
    def Conv1d(self) -> Callable[..., nn.Module]: ...  # noqa: N802

    @property
    def ConvTranspose1d(self) -> Callable[..., nn.Module]: ...  # noqa: N802

    @property
    def LayerNorm(self) -> Callable[..., nn.Module]: ...  # noqa: N802
