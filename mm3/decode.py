"""Latent to audio in tiles with enough context on each side that the joins are exact and memory stays flat."""

from collections.abc import Callable

import torch
from torch import Tensor

from .vocoder import MiniMaxMusic3Vocoder

# One hop of a song (4.0 s): a window of 8 s is two tiles.
DEFAULT_TILE = 345


def decode(
    vocoder: MiniMaxMusic3Vocoder,
    latent: Tensor,
    *,
    tile: int = DEFAULT_TILE,
    device: torch.device | str = "cpu",
    on_tile: Callable[[int, int], None] | None = None,
) -> Tensor:
    """`(B, 128, T) -> (B, 2, 512 T)`: float32 samples in [-1, 1] on the CPU, loudness untouched.

    Args:
        vocoder: On `device`.
        latent: Any device; moved tile by tile and row by row.
        tile: Latent steps decoded at once at most, besides their context.
        on_tile: Called with (tiles done, tiles in all); raising from it ends the decoding.

    Raises:
        ValueError: If `tile` is not positive.
    """
    if tile < 1:
        raise ValueError(f"a tile has at least 1 latent step, got {tile}")
    batch, _, length = latent.shape
    hop, context = vocoder.config.hop, vocoder.config.context
    audio = torch.empty(batch, 2, length * hop)
    # Pieces of one length: kernels are set up once, and memory that one piece leaves fits the next.
    tiles = -(-length // tile)
    tile = -(-length // tiles) if tiles else tile
    span = min(tile + 2 * context, length)
    places = [(row, start) for row in range(batch) for start in range(0, length, tile)]
    for done, (row, start) in enumerate(places, start=1):
        end = min(start + tile, length)
        left = min(max(0, start - context), length - span)
        piece = latent[row : row + 1, :, left : left + span]
        samples = vocoder(piece.to(device=device, dtype=torch.float32))[0]
        samples = samples[:, (start - left) * hop : (end - left) * hop]
        audio[row, :, start * hop : end * hop] = samples.clamp(-1.0, 1.0)
        if on_tile is not None:
            on_tile(done, len(places))
    return audio


def decode_bytes(vocoder: MiniMaxMusic3Vocoder, tile: int = DEFAULT_TILE) -> int:
    """Peak bytes that decoding one tile takes besides the weights, estimated from the widest activations."""
    config = vocoder.config
    peak, width, samples = config.width, config.width, 1
    for stride in config.strides:
        width, samples = width // 2, samples * stride
        peak = max(peak, width * samples)
    # Two stereo streams; about six float32 activations of the widest place live at once (measured: five, and the
    # convolution's workspace).
    return 2 * 4 * 6 * peak * (tile + 2 * config.context)
