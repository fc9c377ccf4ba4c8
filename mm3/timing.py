"""The three clocks of a song: frames (25 per second), latent steps (44100/512) and samples (44,100). Integers only."""

FRAME_RATE = 25
SAMPLE_RATE = 44_100
LATENT_HOP = 512
MAX_FRAMES = 9_000

# One frame is 44100 / 24000 * 960 / 512 = 441 / 128 latent steps.
_LATENTS_PER_FRAME = (441, 128)


def aligned_length(frames: int) -> int:
    """Latent steps that `frames` frames cover when they are encoded as one piece: truncated, never rounded."""
    numerator, denominator = _LATENTS_PER_FRAME
    return max(1, frames * numerator // denominator)


def steps_before(frames: int) -> int:
    """Latent steps that begin before frame number `frames` does: rounded up, where `aligned_length` truncates."""
    numerator, denominator = _LATENTS_PER_FRAME
    return -(-frames * numerator // denominator)


def frames_before(latents: int) -> int:
    """Whole frames in `latents` latent steps: the frame that step number `latents` is in."""
    numerator, denominator = _LATENTS_PER_FRAME
    return latents * denominator // numerator


def latent_seconds(latents: int) -> float:
    """Duration in seconds of `latents` latent steps."""
    return latents * LATENT_HOP / SAMPLE_RATE


def frame_seconds(frames: int) -> float:
    """Duration in seconds of `frames` frames."""
    return frames / FRAME_RATE


def latents_at(seconds: float) -> int:
    """The latent step nearest to a time in the audio."""
    return round(seconds * SAMPLE_RATE / LATENT_HOP)


def stated(start: int, end: int) -> str:
    """Latent steps [start, end) in seconds, for people to read."""
    return f"{latent_seconds(start):.2f} to {latent_seconds(end):.2f} s"
