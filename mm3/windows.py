"""Which frames each window solves, which latent steps it hands on, and which it keeps. Integers only.

A song longer than one window is solved in windows of 200 frames that start every 100. Neighbours share about 344
latent steps: the first 172 of them are carried over and pinned, and the cut lies in their middle, at step 86.
"""

from dataclasses import dataclass

from .timing import aligned_length, frames_before, steps_before

WINDOW_FRAMES = 200
HOP_FRAMES = 100
OVERLAP = 344
CARRY = OVERLAP // 2
CUT = CARRY // 2
WINDOW = aligned_length(WINDOW_FRAMES)
HOP = WINDOW - OVERLAP


@dataclass(frozen=True)
class Window:
    """One window of a song: its place in the order and its frames [start, end)."""

    index: int
    start: int
    end: int
    last: bool

    @property
    def frames(self) -> int:
        return self.end - self.start

    @property
    def length(self) -> int:
        """Latent steps of the window."""
        return aligned_length(self.frames)

    @property
    def kept(self) -> slice:
        """Latent steps of this window that the joined song keeps."""
        return kept(self.length, first=self.index == 0, last=self.last)


def plan(frames: int) -> list[Window]:
    """Windows that cover `frames` frames, in the order in which they are solved.

    Raises:
        ValueError: If there is no frame.
    """
    if frames < 1:
        raise ValueError(f"a song has at least 1 frame, got {frames}")
    starts = [0] if frames <= WINDOW_FRAMES else list(range(0, frames - HOP_FRAMES, HOP_FRAMES))
    return [
        Window(index, start, min(start + WINDOW_FRAMES, frames), last=start == starts[-1])
        for index, start in enumerate(starts)
    ]


def carried(length: int) -> slice:
    """Latent steps of a window of `length` steps that are handed to the next: the first half of the overlap."""
    start = max(0, length - OVERLAP)
    return slice(start, max(start, length - CARRY))


def kept(length: int, *, first: bool, last: bool) -> slice:
    """Latent steps that the joined song keeps of a window of `length` steps."""
    return slice(0 if first else CUT, length if last else length - (OVERLAP - CUT))


def windows_in(length: int) -> int:
    """How many windows a joined song of `length` latent steps is made of."""
    return 1 + max(0, -(-(length - WINDOW) // HOP))


def joined_length(frames: int) -> int:
    """Latent steps of the whole song. Slightly more than `aligned_length(frames)` when windows are joined."""
    slices = (window.kept for window in plan(frames))
    return sum(part.stop - part.start for part in slices)


def first_step(frame: int) -> int:
    """First latent step of a joined song in which `frame` is heard. Every 100 frames are 345 steps, without drift."""
    hops, rest = divmod(frame, HOP_FRAMES)
    return HOP * hops + steps_before(rest)


def frame_at(step: int) -> int:
    """Frame that is heard at a latent step of a joined song."""
    hops, rest = divmod(step, HOP)
    return HOP_FRAMES * hops + frames_before(rest)
