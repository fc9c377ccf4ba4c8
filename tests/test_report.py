"""The report on a song's windows, on audio and frames made to be loud and quiet at known places."""

import pytest
import torch

from mm3.demo import demo_hidden
from mm3.report import dbfs, quiet_frames, silent_stretches, window_report, window_sounds
from mm3.timing import latent_seconds
from mm3.windows import joined_length, plan

LENGTH = joined_length(400)  # three windows


@pytest.fixture
def audio():
    """A square wave of amplitude 0.1, silent from 10 to 11 s, with one sample at 0.5."""
    audio = torch.full((2, LENGTH * 512), 0.1)
    audio[:, ::2] = -0.1
    audio[:, 441_000:485_100] = 0.0
    audio[0, 10_000] = 0.5
    return audio


@pytest.mark.parametrize("frames", [1, 200, 201, 300, 301, 399, 400, 750, 1500, 9000])
def test_windows_supply_each_step_of_a_song_once(frames):
    windows, sounds = plan(frames), window_sounds(joined_length(frames), None)
    assert len(sounds) == len(windows)
    assert [sound.number for sound in sounds] == [window.index + 1 for window in windows]
    reached = 0
    for window, sound in zip(windows, sounds, strict=True):
        assert sound.steps.start == reached == 345 * window.index + window.kept.start
        reached = sound.steps.stop
        assert reached == 345 * window.index + window.kept.stop
    assert reached == joined_length(frames)


def test_loudness_is_that_of_the_part_a_window_supplies(audio):
    first, second, third = window_sounds(LENGTH, audio)
    assert [first.peak, second.peak, third.peak] == pytest.approx([dbfs(0.5), -20.0, -20.0], abs=1e-3)
    assert first.rms == pytest.approx(-20.0, abs=0.01)
    assert second.rms == pytest.approx(-20.0, abs=0.01)  # it supplies 5.00 to 9.01 s
    silent = 44_100 / ((LENGTH - 776) * 512)
    assert third.rms == pytest.approx(dbfs(0.1 * (1 - silent) ** 0.5), abs=0.01)
    assert dbfs(1.0) == 0.0 and dbfs(0.0) == float("-inf")


def test_silence_of_half_a_second_is_found_where_it_is(audio):
    assert silent_stretches(audio) == [(10.0, 11.0)]
    audio[:, 100_000:115_000] = 0.0  # a third of a second
    assert silent_stretches(audio) == [(10.0, 11.0)]
    assert silent_stretches(torch.zeros(2, 44_100)) == [(0.0, 1.0)]
    assert silent_stretches(torch.zeros(2, 100)) == []


def test_frames_far_below_the_song_are_quiet_and_ordinary_ones_are_not():
    hidden = demo_hidden(400)[0]
    assert quiet_frames(hidden) == []
    hidden[250:275] *= 0.01
    hidden[100:105] *= 0.01  # too short to be heard as a gap
    assert quiet_frames(hidden) == [(250, 275)]


def test_report_says_whether_silence_came_with_the_conditioning(audio):
    hidden = demo_hidden(400)[0]
    text = window_report(LENGTH, audio, hidden)
    assert (
        "\nwindow, seconds: RMS, peak in dBFS\n1, 0.00 to 5.00 s: -20.0, -6.0\n2, 5.00 to 9.01 s: -20.0, -20.0\n3, "
        in text
    )
    assert "SILENT 10.00 to 11.00 s, and the conditioning is not quiet there" in text
    assert text.splitlines()[1] == "the conditioning has no quiet stretch"
    hidden[250:275] *= 0.01
    text = window_report(LENGTH, audio, hidden)
    assert "SILENT 10.00 to 11.00 s, and the conditioning is quiet there, too" in text
    assert "quiet in the conditioning: 10.02 to 11.02 s" in text


def test_report_without_audio_or_frames_gives_the_spans():
    lines = window_report(LENGTH).splitlines()
    assert [line.split(",")[0] for line in lines] == ["window", "1", "2", "3"]
    assert lines[-1] == f"3, 9.01 to {latent_seconds(LENGTH):.2f} s"


def test_report_on_a_later_run_counts_in_the_song(audio):
    text = window_report(LENGTH, audio, first_window=5)
    assert "\n6, 20.03 to 25.03 s: " in text
    assert "SILENT 30.03 to 31.03 s" in text
    assert "no silence of half a second" in window_report(LENGTH, audio + 0.2)
