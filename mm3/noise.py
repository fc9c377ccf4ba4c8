"""Noise of a window: drawn on the CPU from a seed of its own, so that audio does not depend on the device."""

from hashlib import blake2b

import torch
from torch import Tensor

_PERSON = b"minimax-ttm"
_SEED_MASK = (1 << 64) - 1


def window_seed(seed: int, index: int) -> int:
    """63-bit seed of window `index` of the song with this seed (the derivation of vllm-omni)."""
    digest = blake2b(digest_size=8, person=_PERSON)
    digest.update((seed & _SEED_MASK).to_bytes(8, "little"))
    for part in (b"dit", str(index).encode()):
        digest.update(len(part).to_bytes(4, "little"))
        digest.update(part)
    return int.from_bytes(digest.digest(), "little") & ((1 << 63) - 1)


def window_noise(seed: int, index: int, channels: int, length: int) -> Tensor:
    """Standard normal noise (1, channels, length), float32 on the CPU."""
    generator = torch.Generator().manual_seed(window_seed(seed, index))
    return torch.randn((1, channels, length), generator=generator)
