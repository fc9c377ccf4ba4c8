"""LATENTs: what is in them besides the samples, and what of it can be trusted."""

import torch
from torch import Tensor

from ..mm3 import Carry, TransformerConfig
from ..mm3.join import same
from ..mm3.windows import carried
from . import host, types

CARRY_KEY = "mm3_carry"
CHANNELS = TransformerConfig().latent_channels


def latent_samples(latent: types.Latent, channels: int) -> Tensor:
    """The samples of a LATENT, (B, channels, T).

    Raises:
        ValueError: If it is not a latent of this model.
    """
    samples = latent.get("samples")
    if not isinstance(samples, Tensor) or samples.ndim != 3 or samples.shape[1] != channels or not samples.numel():
        shape = list(samples.shape) if isinstance(samples, Tensor) else type(samples).__name__
        raise ValueError(
            f"the latent is {shape}, expected [songs, {channels}, latent steps]. Connect MM3 DiT Euler Sampler, or "
            "another latent of MiniMax Music 3."
        )
    return samples


def song_latent(samples: Tensor, carry: Carry | None, *, first_window: int, next_window: int) -> types.Latent:
    """A LATENT of windows `first_window` to `next_window` - 1 of a song, with what continues it where that is known."""
    kept: dict[str, object] = {"first_window": first_window, "steps": samples.shape[-1]}
    if carry is not None:
        kept |= {"latent": carry.latent, "condition": carry.condition, "next_window": next_window}
    return {"samples": samples.to(host.intermediate_device()), "type": "audio", CARRY_KEY: kept}


def first_window_of(latent: types.Latent) -> int:
    """Index in the song of the first window of a LATENT; 0 if it was not made here, or cut since."""
    kept, samples = latent.get(CARRY_KEY), latent["samples"]
    if not isinstance(kept, dict) or not isinstance(samples, Tensor) or kept.get("steps") != samples.shape[-1]:
        return 0
    return int(kept.get("first_window", 0))


def end_of(latent: types.Latent) -> tuple[Carry, int] | None:
    """What the last window of a LATENT hands on, and the index of the next: if the samples are still those.

    Songs may have been taken out of the batch or reordered since, and rounded to float16.
    """
    kept, samples = latent.get(CARRY_KEY), latent["samples"]
    if not isinstance(kept, dict) or not isinstance(samples, Tensor):
        return None
    saved, condition, next_window = (kept.get(key) for key in ("latent", "condition", "next_window"))
    if not (isinstance(saved, Tensor) and isinstance(condition, Tensor) and isinstance(next_window, int)):
        return None
    end = samples.float().cpu()[..., carried(samples.shape[-1])]
    if not end.numel():  # shorter than 2 s: it hands nothing on
        return None
    rows = [next((i for i, old in enumerate(saved) if same(old, row)), None) for row in end]
    chosen = [row for row in rows if row is not None]
    return (Carry(end, condition[torch.tensor(chosen)]), next_window) if len(chosen) == len(rows) else None
