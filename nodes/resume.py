"""Where a run of windows begins: at the start of a song, in a latent, or at its end."""

from dataclasses import dataclass

from ..mm3 import Carry, SongCondition
from ..mm3.ranges import handover
from ..mm3.run import repeated
from ..mm3.timing import latent_seconds, stated
from ..mm3.windows import CARRY, HOP, OVERLAP, windows_in
from . import host, types
from .latents import end_of, first_window_of, latent_samples


@dataclass(frozen=True)
class Start:
    """Where a run begins: what its first window is pinned to, its place in the song, and a line that says so."""

    carry: Carry | None
    window: int
    text: str = ""


def resume(previous: types.Latent | None, condition: SongCondition, channels: int) -> Start:
    """Begin at the window that the condition begins with, or, where that is the song's first, at the latent's end.

    The latent always comes from the samples. The condition is the one that these were made with, where the LATENT
    still tells; else that of the encoder, and only then the condition's own frames stand in for it.
    """
    if previous is None:
        return Start(None, condition.first_window)
    samples = latent_samples(previous, channels).float().cpu()
    length, first = samples.shape[-1], first_window_of(previous)
    step = handover(length, first, condition.first_window)
    end = end_of(previous) if step == length - OVERLAP else None
    window = condition.first_window or (end[1] if end else first + windows_in(length))
    pinned = samples[..., step : step + CARRY]
    own = condition.windows[0][..., :CARRY]
    origin = first * HOP + step
    text = (
        f"takes over {stated(origin, origin + CARRY)}, new from {latent_seconds(origin + CARRY):.2f} s; its frames "
        f"begin {latent_seconds(length - step):.2f} s before the end of previous_latent"
    )
    if end is not None and end[0].condition.shape[1:] == own.shape[1:]:
        return Start(Carry(pinned, end[0].condition), window, text)
    if condition.before is not None:
        return Start(Carry(pinned, condition.before), window, text)
    host.log.warning(
        "MM3: previous_latent does not carry the condition of its own end (it was loaded, edited or made elsewhere); "
        "the frames of the new condition stand in for it over the first 2 s."
    )
    return Start(Carry(pinned, own), window, f"{text}; the new frames stand in for those of the 2 s taken over")


def matched(start: Start, condition: SongCondition) -> tuple[Start, SongCondition]:
    """As many songs on one side as on the other."""
    if start.carry is None:
        return start, condition
    latent, kept = start.carry.latent, start.carry.condition
    songs = max(latent.shape[0], condition.batch)
    if not {latent.shape[0], condition.batch, kept.shape[0]} <= {1, songs}:
        raise ValueError(
            f"previous_latent holds {latent.shape[0]} songs, the condition {condition.batch}. Connect the same number "
            "of both, or one song on one side."
        )
    carry = Carry(*(repeated(side, songs // side.shape[0]) for side in (latent, kept)))
    return Start(carry, start.window, start.text), condition.repeated(songs // condition.batch)
