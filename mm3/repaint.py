"""Some windows of a finished song solved again, pinned to what is kept on both sides."""

from collections.abc import Callable

import torch
from torch import Tensor

from .flow import DEFAULT_GUIDANCE, DEFAULT_STEPS
from .run import Carry, SongCondition
from .song import solve_song
from .transformer import MiniMaxMusic3Transformer1DModel
from .windows import CARRY, HOP, OVERLAP, WINDOW, carried, joined_length


def repaint(
    transformer: MiniMaxMusic3Transformer1DModel,
    condition: SongCondition,
    latent: Tensor,
    run: slice,
    *,
    seed: int,
    steps: int = DEFAULT_STEPS,
    guidance: float = DEFAULT_GUIDANCE,
    batched: bool = True,
    device: torch.device | str = "cpu",
    on_step: Callable[[int, int], None] | None = None,
) -> tuple[Tensor, Carry]:
    """Solve the windows `run` of a song again: (B, 128, T) -> (B, 128, T), float32 on the CPU, and its carry.

    The first window of the run is pinned as ever. The last is pinned to the 172 steps that follow, in the latent and
    in the condition of the window that they came from. What is pinned, and what lies outside, stays bit for bit.

    Args:
        transformer: The velocity field, on `device`.
        condition: The whole song.
        latent: The whole song, as the sampler joined it.
        run: Windows to solve, with start and stop.
        seed: Row b draws the noise of `seed + b`.
        steps: Euler steps per window.
        guidance: Guidance weight.
        batched: As for `solve_song`.
        on_step: As for `solve_song`.

    Raises:
        ValueError: If the condition is not the whole song, or the latent not as long as it.
        NonFiniteError: If a latent is not finite.
    """
    require_whole_song(condition, latent)
    latent = latent.float().cpu()
    condition = condition.repeated(latent.shape[0] // condition.batch)
    first, last = run.start, run.stop - 1
    solved, _ = solve_song(
        transformer,
        condition.part(first, last),
        seed=seed,
        steps=steps,
        guidance=guidance,
        carry=_beginning(condition, latent, first),
        ending=_ending(condition, latent, last),
        batched=batched,
        device=device,
        on_step=on_step,
    )
    start = HOP * first
    latent = torch.cat((latent[..., :start], solved, latent[..., start + solved.shape[-1] :]), dim=-1)
    return latent, Carry(latent[..., carried(latent.shape[-1])], end_condition(condition))


def require_whole_song(condition: SongCondition, latent: Tensor) -> None:
    """Raise ValueError unless a latent (B, 128, T) is the song of a whole condition."""
    if not condition.whole:
        raise ValueError(
            "the condition is a part of the song, expected the whole. Set start and end to 0 in MM3 Condition Encoder."
        )
    given, expected = latent.shape[-1], joined_length(condition.frames)
    if given != expected:
        raise ValueError(
            f"the latent has {given} steps, this condition makes a song of {expected}. Connect the latent that MM3 DiT "
            "Euler Sampler made of this condition, or MM3 Join Latents with all of its parts."
        )
    if condition.batch not in (1, latent.shape[0]):
        raise ValueError(
            f"the latent holds {latent.shape[0]} songs, the condition {condition.batch}. Connect the same number of "
            "both, or the condition of one song."
        )


def end_condition(condition: SongCondition) -> Tensor:
    """(B, 2048, 172): the condition that the last window of a run hands on."""
    run = condition.part(len(condition.windows) - 1, len(condition.windows) - 1)
    window = run.windows[0]
    if run.before is not None:
        window = torch.cat((run.before, window[..., CARRY:]), dim=-1)
    return window[..., carried(window.shape[-1])]


def _beginning(condition: SongCondition, latent: Tensor, first: int) -> Carry | None:
    before = condition.part(first, first).before
    start = HOP * first
    return None if before is None else Carry(latent[..., start : start + CARRY], before)


def _ending(condition: SongCondition, latent: Tensor, last: int) -> Carry | None:
    if last == len(condition.windows) - 1:
        return None
    end = HOP * last + WINDOW
    return Carry(latent[..., end - CARRY : end], condition.windows[last + 1][..., CARRY:OVERLAP])
