"""The block formats of GGUF files, decoded in torch: rows of blocks, each with its scales and its small integers.

Products and differences are taken in the order of ggml's reference, so that the values are the same bit for bit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


def _half(blocks: Tensor, at: int) -> Tensor:
    """(n, bytes) -> (n, 1): the float16 that begins at a byte, as float32."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _fields(packed: Tensor, bits: int, run: int) -> Tensor:
    """(n, bytes) -> (n, bytes * 8 / bits): the fields of each `run` bytes, all lowest ones first."""
    runs = packed.unflatten(1, (-1, run))
    mask = (1 << bits) - 1
    return torch.stack([(runs >> shift) & mask for shift in range(0, 8, bits)], dim=2).flatten(1)


def _scaled(scales: Tensor, values: Tensor, minima: Tensor | None = None) -> Tensor:
    """(n, groups), (n, values), (n, groups) -> (n, values): each group of values times its scale, less its minimum."""
    groups = scales[:, :, None] * values.unflatten(1, (scales.shape[1], -1)).float()
    return (groups if minima is None else groups - minima[:, :, None]).flatten(1)


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_fields(blocks[:, 2:], 4, 16).to(torch.int8) - 8).float()


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _fields(blocks[:, 4:], 4, 16).float() + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    values = _fields(blocks[:, 6:], 4, 16) | _fields(blocks[:, 2:6], 1, 1) << 4
    return _half(blocks, 0) * (values.to(torch.int8) - 16).float()


def _q5_1(blocks: Tensor) -> Tensor:
    values = _fields(blocks[:, 8:], 4, 16) | _fields(blocks[:, 4:8], 1, 1) << 4
    return _half(blocks, 0) * values.float() + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return blocks[:, 2:].view(torch.int8).float() * _half(blocks, 0)


def _q2_k(blocks: Tensor) -> Tensor:
    scales, values = blocks[:, :16], _fields(blocks[:, 16:80], 2, 32)
    return _scaled(_half(blocks, 80) * (scales & 15).float(), values, _half(blocks, 82) * (scales >> 4).float())


def _q3_k(blocks: Tensor) -> Tensor:
    scales = _fields(blocks[:, 96:104], 4, 8) | _fields(blocks[:, 104:108], 2, 4) << 4
    unset = _fields(blocks[:, :32], 1, 32) ^ 1  # a bit that is not set takes 4 away
    values = _fields(blocks[:, 32:96], 2, 32).to(torch.int8) - (unset << 2).to(torch.int8)
    return _scaled(_half(blocks, 108) * (scales.to(torch.int8) - 32).float(), values)


def _six_bit_scales(packed: Tensor) -> tuple[Tensor, Tensor]:
    """(n, 12) -> (n, 8) scales and (n, 8) minima."""
    scales, minima, both = packed.split(4, dim=1)
    return (
        torch.cat((scales & 63, both & 15 | scales >> 2 & 48), dim=1).float(),
        torch.cat((minima & 63, both >> 4 | minima >> 2 & 48), dim=1).float(),
    )


def _q4_k(blocks: Tensor) -> Tensor:
    scales, minima = _six_bit_scales(blocks[:, 4:16])
    return _scaled(_half(blocks, 0) * scales, _fields(blocks[:, 16:], 4, 32), _half(blocks, 2) * minima)


def _q5_k(blocks: Tensor) -> Tensor:
    scales, minima = _six_bit_scales(blocks[:, 4:16])
    values = _fields(blocks[:, 48:], 4, 32) | _fields(blocks[:, 16:48], 1, 32) << 4
    return _scaled(_half(blocks, 0) * scales, values, _half(blocks, 2) * minima)


def _q6_k(blocks: Tensor) -> Tensor:
    values = _fields(blocks[:, :128], 4, 64) | _fields(blocks[:, 128:192], 2, 32) << 4
    scales = blocks[:, 192:208].view(torch.int8).float()
    return _scaled(_half(blocks, 208) * scales, values.to(torch.int8) - 32)


@dataclass(frozen=True)
class BlockType:
    """`values` weights in `size` bytes, decoded by `(n, size) uint8 -> (n, values) float32`."""

    name: str
    values: int
    size: int
    decode: Callable[[Tensor], Tensor]


def _plain(name: str, dtype: torch.dtype) -> BlockType:
    return BlockType(name, 1, dtype.itemsize, lambda blocks: blocks.clone().view(dtype).float())  # aligned


BLOCK_TYPES = {
    kind.name: kind
    for kind in (
        _plain("F32", torch.float32),
        _plain("F16", torch.float16),
        _plain("BF16", torch.bfloat16),
        BlockType("Q4_0", 32, 18, _q4_0),
        BlockType("Q4_1", 32, 20, _q4_1),
        BlockType("Q5_0", 32, 22, _q5_0),
        BlockType("Q5_1", 32, 24, _q5_1),
        BlockType("Q8_0", 32, 34, _q8_0),
        BlockType("Q2_K", 256, 84, _q2_k),
        BlockType("Q3_K", 256, 110, _q3_k),
        BlockType("Q4_K", 256, 144, _q4_k),
        BlockType("Q5_K", 256, 176, _q5_k),
        BlockType("Q6_K", 256, 210, _q6_k),
    )
}
