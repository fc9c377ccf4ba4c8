"""Partial rotary position embedding: the leading channels of a head turn, the others pass."""

import torch
from torch import Tensor

_BASE = 10_000.0


def rope_tables(length: int, rotary_width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(cos, sin) of shape (length, 1, rotary_width) in float32, for positions 0 .. length-1."""
    exponents = torch.arange(0, rotary_width, 2, device=device).float() / rotary_width
    positions = torch.arange(length, device=device).float()
    angles = torch.outer(positions, 1.0 / _BASE**exponents)
    angles = torch.cat((angles, angles), dim=-1)[:, None]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`(..., T, H, D) -> (..., T, H, D)`: channel i turns with channel i + rotary_width / 2, computed in float32."""
    width = cos.shape[-1]
    turning, passing = x[..., :width], x[..., width:]
    first, second = turning.float().chunk(2, dim=-1)
    turned = turning * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned.to(x.dtype), passing), dim=-1)
