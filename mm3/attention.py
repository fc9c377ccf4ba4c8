"""The attention that the blocks are given: torch's own by default, the host's where there is one."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

SDPA_NAME = "TORCH_SDPA"


@dataclass(frozen=True)
class AttentionBackend:
    """A named attention function on `(B, T, H, D) x 3 -> (B, T, H, D)`, scaled by D ** -0.5, without a mask."""

    name: str
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`(B, T, H, D) x 3 -> (B, T, H, D)` by torch's scaled dot product attention."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v).transpose(1, 2)


def attend(backend: AttentionBackend | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention by `backend`; float32 always goes through SDPA, which no low-precision kernel replaces."""
    if backend is None or q.dtype == torch.float32:
        return sdpa(q, k, v)
    return backend.attend(q, k, v)


def describe(backend: AttentionBackend | None) -> str:
    """The attention path that runs, for the log."""
    if backend is None:
        return SDPA_NAME
    return f"{SDPA_NAME}(float32)/{backend.name}(lower precision)"
