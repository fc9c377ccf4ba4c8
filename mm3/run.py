"""A run of windows of a song: what is solved, and what one run hands to the next."""

from dataclasses import dataclass, replace

from torch import Tensor

from .windows import WINDOW, carried, plan


@dataclass(frozen=True)
class Carry:
    """What a window hands to the next: latent (B, 128, 172) and condition (B, 2048, 172), float32."""

    latent: Tensor
    condition: Tensor

    def row(self, index: int) -> "Carry":
        """That of one song of the batch."""
        return Carry(self.latent[index : index + 1], self.condition[index : index + 1])

    def repeated(self, times: int) -> "Carry":
        """The batch several times over."""
        return Carry(repeated(self.latent, times), repeated(self.condition, times))


@dataclass(frozen=True)
class SongCondition:
    """Aligned conditions of a run of windows, in order, each (B, 2048, T), float32 on the CPU.

    Attributes:
        windows: One condition a window.
        frames: Frames of the whole song.
        first_window: Index of the first of these windows in the song.
        before: (B, 2048, 172) of the window before the first, over the steps that it carries, or None if not known.
    """

    windows: tuple[Tensor, ...]
    frames: int
    first_window: int = 0
    before: Tensor | None = None

    @property
    def batch(self) -> int:
        return self.windows[0].shape[0]

    @property
    def whole(self) -> bool:
        """Whether the run is a song from its first frame to its last."""
        return self.first_window == 0 and len(self.windows) == len(plan(self.frames))

    def repeated(self, times: int) -> "SongCondition":
        """The batch several times over, without a copy of a single song."""
        before = None if self.before is None else repeated(self.before, times)
        windows = tuple(repeated(window, times) for window in self.windows)
        return replace(self, windows=windows, before=before)

    def part(self, first: int, last: int) -> "SongCondition":
        """Windows `first` to `last` of these, both included."""
        before = self.before if first == 0 else self.windows[first - 1][..., carried(WINDOW)]
        return SongCondition(self.windows[first : last + 1], self.frames, self.first_window + first, before)


def repeated(batch: Tensor, times: int) -> Tensor:
    """A batch several times over, without a copy of a single row."""
    if times == 1:
        return batch
    return batch.expand(times, -1, -1) if batch.shape[0] == 1 else batch.repeat(times, 1, 1)
