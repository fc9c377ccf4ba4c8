"""Two runs of windows into one, by the reference's cut: each keeps half of the steps that both hold."""

import torch
from torch import Tensor

from .run import repeated
from .timing import latent_seconds, stated
from .windows import CARRY, CUT, HOP, OVERLAP


def join(previous: Tensor, following: Tensor, *, step: int | None = None) -> tuple[Tensor, int]:
    """Put `following` in the place of what `previous` (B, 128, T) holds from some step on.

    The place is found by the steps that both hold: the first 172 of `following` are those that it was pinned to.

    Args:
        previous: What is kept up to the cut.
        following: A run that continues it. A batch of one is repeated for the other's.
        step: Where to look first.

    Returns:
        The joined latent, float32 on the CPU, and the step of `previous` at which `following` begins.

    Raises:
        ValueError: If the two do not fit.
    """
    previous, following = _matched(previous.float().cpu(), following.float().cpu())
    found = find(previous, following, step=step)
    return torch.cat((previous[..., : found + CUT], following[..., CUT:]), dim=-1), found


def find(previous: Tensor, following: Tensor, *, step: int | None = None) -> int:
    """Step of `previous` at which `following` begins: the place asked for, the end, or any start of a window.

    Raises:
        ValueError: If there is no such step; names the nearest.
    """
    length = previous.shape[-1]
    if length < OVERLAP or following.shape[-1] <= CARRY:
        raise ValueError(
            f"the latents have {length} and {following.shape[-1]} steps, expected at least {OVERLAP} (4 s) and more "
            f"than {CARRY} (2 s). Give the first as previous_latent to the sampler that makes the second."
        )
    places = [length - OVERLAP, *range(length - length % HOP, -1, -HOP)]
    places = [place for place in [*([] if step is None else [step]), *places] if 0 <= place <= length - CARRY]
    head = following[..., :CARRY]
    apart = {place: _apart(previous[..., place : place + CARRY], head) for place in dict.fromkeys(places)}
    for place in apart:
        if apart[place] <= 1.0:
            return place
    nearest = min(apart, key=lambda place: apart[place])
    difference = (previous[..., nearest : nearest + CARRY] - head).abs().max()
    raise ValueError(
        f"the latents do not fit: the first {latent_seconds(CARRY):.2f} s of the second are nowhere in the first "
        f"(nearest at {stated(nearest, nearest + CARRY)}, {difference:.3g} apart). Give the first as previous_latent "
        "to the sampler that makes the second."
    )


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two latents are equal within the rounding of float16."""
    return one.shape == other.shape and _apart(one, other) <= 1.0


def _apart(one: Tensor, other: Tensor) -> float:
    """Greatest difference, as a share of what rounding to float16 may make. NaN is infinitely far from everything."""
    allowed = torch.maximum(one.abs(), other.abs()) * 2.0**-10 + 2.0**-24
    return float(((one - other).abs() / allowed).nan_to_num(nan=float("inf")).max())


def _matched(previous: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
    one, other = previous.shape[0], following.shape[0]
    if one != other and 1 not in (one, other):
        raise ValueError(f"the latents hold {one} and {other} songs. Connect the same number, or one song on one side.")
    rows = max(one, other)
    return repeated(previous, rows // one), repeated(following, rows // other)
