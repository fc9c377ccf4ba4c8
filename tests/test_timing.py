"""The three clocks: frames, latent steps and samples, against the published formula in floats."""

import pytest

from mm3 import timing


def published_length(frames):
    return max(1, int(frames * 44100 / 24000 * 960 / 512))


@pytest.mark.parametrize(("frames", "latents"), [(1, 3), (20, 68), (100, 344), (199, 685), (200, 689)])
def test_aligned_length_has_the_published_values(frames, latents):
    assert timing.aligned_length(frames) == latents


def test_aligned_length_equals_the_published_formula_for_every_song():
    assert [timing.aligned_length(frames) for frames in range(1, 9001)] == [
        published_length(frames) for frames in range(1, 9001)
    ]


def test_aligned_length_is_truncated_and_never_rounded():
    assert 199 * 441 / 128 == pytest.approx(685.617, abs=1e-3)
    assert timing.aligned_length(199) == 685


def test_aligned_length_is_an_integer_and_at_least_one():
    assert timing.aligned_length(0) == 1
    assert isinstance(timing.aligned_length(7500), int)


def test_clocks_are_those_of_the_release():
    assert (timing.FRAME_RATE, timing.SAMPLE_RATE, timing.LATENT_HOP) == (25, 44_100, 512)
    assert timing.MAX_FRAMES == 9_000


def test_one_frame_is_24000_hertz_of_960_samples_in_latent_steps():
    assert timing.frame_seconds(1) == pytest.approx(960 / 24000)
    assert timing.latent_seconds(44_100) == pytest.approx(512.0)


def test_a_full_window_covers_eight_seconds_less_than_one_latent_step():
    assert timing.frame_seconds(200) == 8.0
    assert 0 <= timing.frame_seconds(200) - timing.latent_seconds(689) < 512 / 44_100


def test_six_minutes_are_nine_thousand_frames():
    assert timing.frame_seconds(9_000) == 360.0
