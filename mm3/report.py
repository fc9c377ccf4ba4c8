"""What each window of a song sounds like, and whether silence in it came with the conditioning."""

from dataclasses import dataclass
from math import log10

import torch
from torch import Tensor

from .timing import FRAME_RATE, LATENT_HOP, SAMPLE_RATE, latent_seconds, stated
from .windows import CUT, HOP, first_step, kept, windows_in

SILENCE_DBFS = -50.0
QUIET_SHARE = 0.25
_SHORTEST = FRAME_RATE // 2
_FRAME_SAMPLES = SAMPLE_RATE // FRAME_RATE


@dataclass(frozen=True)
class WindowSound:
    """The part of a song that one window supplies: latent steps, and loudness in dBFS where there is audio."""

    number: int
    steps: slice
    rms: float | None
    peak: float | None


def window_sounds(length: int, audio: Tensor | None, first_window: int = 0) -> list[WindowSound]:
    """Windows of a latent of `length` steps in order; audio (channels, 512 * length) or None."""
    if audio is not None and not torch.isfinite(audio).all():
        raise ValueError("the audio holds values that are not finite. Decode the latent again.")
    count, sounds = windows_in(length), []
    for index in range(count):
        part = kept(length - HOP * index, first=index == 0, last=index == count - 1)
        stop = HOP * (index + 1) + CUT if index < count - 1 else length
        steps = slice(HOP * index + part.start, stop)
        heard = None if audio is None else audio[:, steps.start * LATENT_HOP : steps.stop * LATENT_HOP].float()
        rms = None if heard is None else dbfs(float(heard.square().mean().sqrt()))
        peak = None if heard is None else dbfs(float(heard.abs().max()))
        sounds.append(WindowSound(first_window + index + 1, steps, rms, peak))
    return sounds


def dbfs(amplitude: float) -> float:
    """Amplitude 1 is 0 dBFS; silence is minus infinity."""
    return 20.0 * log10(amplitude) if amplitude > 0.0 else float("-inf")


def silent_stretches(audio: Tensor) -> list[tuple[float, float]]:
    """(start, end) in seconds where audio (channels, N) stays below -50 dBFS for at least half a second."""
    frames = audio[:, : audio.shape[-1] // _FRAME_SAMPLES * _FRAME_SAMPLES].float().unflatten(-1, (-1, _FRAME_SAMPLES))
    loudness = frames.square().mean(dim=(0, 2)).sqrt()
    quiet = loudness < 10.0 ** (SILENCE_DBFS / 20.0)
    return [(start / FRAME_RATE, end / FRAME_RATE) for start, end in _stretches(quiet)]


def quiet_frames(hidden: Tensor) -> list[tuple[int, int]]:
    """[start, end) of the frames (F, C) whose norm stays below a quarter of the song's median for half a second."""
    norms = torch.cat([part.float().norm(dim=-1) for part in hidden.split(200)])
    return _stretches(norms < QUIET_SHARE * norms.median())


def window_report(
    length: int, audio: Tensor | None = None, hidden: Tensor | None = None, *, first_window: int = 0
) -> str:
    """The report on one song: a line for each silent or quiet stretch, and one for each window.

    Args:
        length: Latent steps.
        audio: (channels, 512 * length) or None.
        hidden: Frames (F, C) of the whole song or None.
        first_window: Index in the song of the first window.
    """
    origin = HOP * first_window
    quiet = None if hidden is None else [_seconds(start, end) for start, end in quiet_frames(hidden)]
    lines = [] if audio is None else _silences(audio, quiet, latent_seconds(origin))
    if quiet is not None:
        lines += [f"quiet in the conditioning: {start:.2f} to {end:.2f} s" for start, end in quiet]
        lines += [] if quiet else ["the conditioning has no quiet stretch"]
    lines.append("window, seconds" + ("" if audio is None else ": RMS, peak in dBFS"))
    for sound in window_sounds(length, audio, first_window):
        loud = "" if sound.rms is None else f": {sound.rms:.1f}, {sound.peak:.1f}"
        lines.append(f"{sound.number}, {stated(origin + sound.steps.start, origin + sound.steps.stop)}{loud}")
    return "\n".join(lines)


def _silences(audio: Tensor, quiet: list[tuple[float, float]] | None, origin: float) -> list[str]:
    lines = []
    for start, end in silent_stretches(audio):
        start, end = start + origin, end + origin
        came = quiet is not None and any(begin < end and start < until for begin, until in quiet)
        cause = (
            "" if quiet is None else f", and the conditioning is {'quiet there, too' if came else 'not quiet there'}"
        )
        lines.append(f"SILENT {start:.2f} to {end:.2f} s{cause}")
    return lines or ["no silence of half a second"]


def _seconds(start: int, end: int) -> tuple[float, float]:
    return latent_seconds(first_step(start)), latent_seconds(first_step(end))


def _stretches(quiet: Tensor) -> list[tuple[int, int]]:
    """[start, end) of the runs of true values of at least half a second."""
    padded = torch.nn.functional.pad(quiet.to(torch.int8), (1, 1))
    edges = padded.diff().nonzero().flatten().tolist()
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a >= _SHORTEST]
