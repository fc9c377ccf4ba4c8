"""Which windows answer a range of seconds. Times are those of the audio; everything inside is counted in integers.

Windows begin every 345 latent steps (4.005 s). A time snaps to one as if it were up to half a second later or
earlier, so that multiples of four seconds mean what they seem to mean in every song.
"""

from .timing import latent_seconds, latents_at, stated
from .windows import CARRY, HOP, OVERLAP, WINDOW, joined_length, plan

_SLACK = 43


def run_between(frames: int, start: float, end: float = 0.0) -> slice:
    """Windows of a song from the last that begins by `start` to the first that ends at `end`; 0 is the song's end.

    Raises:
        ValueError: If the song has nothing between the two.
    """
    begin, until = _steps(frames, start, end)
    return _windows(frames, (begin + _SLACK) // HOP, until, until - _SLACK - WINDOW)


def repaint_between(frames: int, start: float, end: float = 0.0) -> slice:
    """The fewest windows whose steps between their pins cover the range from `start` to `end`.

    Raises:
        ValueError: If the song has nothing between the two.
    """
    begin, until = _steps(frames, start, end)
    return _windows(frames, (begin + _SLACK - CARRY) // HOP, until, until - _SLACK - WINDOW + CARRY)


def steps_of(frames: int, run: slice) -> slice:
    """Latent steps of a joined song that a run of windows covers."""
    window = plan(frames)[run.stop - 1]
    return slice(HOP * run.start, HOP * window.index + window.length)


def fresh_steps(frames: int, run: slice) -> slice:
    """Latent steps of a run that are not pinned to the windows around it."""
    steps = steps_of(frames, run)
    at_end = run.stop == len(plan(frames))
    return slice(steps.start + (CARRY if run.start else 0), steps.stop - (0 if at_end else CARRY))


def numbered(run: slice) -> str:
    """The windows of a run, counted from 1 on, for people to read."""
    first, last = run.start + 1, run.stop
    return f"window {first}" if first == last else f"windows {first} to {last}"


def cut_length(length: int, until: float, first_window: int = 0) -> int:
    """How many of `length` steps reach to the last window end by `until`: at least one window; 0 keeps all.

    Args:
        length: Latent steps of a run of windows.
        until: Seconds in the song.
        first_window: Index of the first of these windows in the song.
    """
    if until == 0:
        return length
    windows = (latents_at(until) - HOP * first_window + _SLACK - WINDOW) // HOP
    return min(length, WINDOW + HOP * max(0, windows))


def handover(length: int, first_window: int, next_window: int) -> int:
    """Step of a latent at which window `next_window` of the song begins; 0 continues from the latent's end.

    Raises:
        ValueError: If the latent does not reach over the overlap with that window.
    """
    if length < OVERLAP:
        raise ValueError(
            f"previous_latent has {length} latent steps, at least {OVERLAP} (4 s) are needed to continue from it."
        )
    step = HOP * (next_window - first_window) if next_window else length - OVERLAP
    if step < 0 or step + OVERLAP > length:
        origin, needed = HOP * first_window, HOP * next_window
        raise ValueError(
            f"previous_latent is {stated(origin, origin + length)} of the song, the condition begins at "
            f"{latent_seconds(needed):.2f} s and needs it from there to {latent_seconds(needed + OVERLAP):.2f} s. Set "
            "another start in MM3 Condition Encoder, or first join what lies between with MM3 Join Latents."
        )
    return step


def _steps(frames: int, start: float, end: float) -> tuple[int, int]:
    length = joined_length(frames)
    begin, until = latents_at(start), min(length, latents_at(end)) if end else length
    if not 0 <= begin < until:
        given = f"start {start:g} s and end {end:g} s" if end else f"start {start:g} s"
        raise ValueError(
            f"{given}: there is nothing between in a song of {latent_seconds(length):.2f} s. "
            "Choose a start before the end; end 0 is the end of the song."
        )
    return begin, until


def _windows(frames: int, first: int, until: int, excess: int) -> slice:
    """From window `first` to the one that reaches `excess` steps further than window 0."""
    final = len(plan(frames)) - 1
    last = final if until == joined_length(frames) else min(final, -(-excess // HOP))
    first = min(max(0, first), final)
    return slice(first, 1 + max(first, last))
