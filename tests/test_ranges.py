"""Seconds to windows and steps, in integers, for songs of every length."""

import pytest

from mm3.ranges import cut_length, fresh_steps, handover, repaint_between, run_between, steps_of
from mm3.timing import latent_seconds, latents_at, stated
from mm3.windows import first_step, frame_at, joined_length, plan

SONGS = [1, 100, 200, 201, 300, 301, 399, 400, 750, 1500, 7500, 8901, 9000]


def test_every_latent_step_of_six_minutes_is_found_again_by_its_seconds():
    assert all(latents_at(latent_seconds(step)) == step for step in range(31050))
    assert all(latents_at(float(f"{latent_seconds(step):.2f}")) == step for step in range(31050))


def test_every_frame_of_six_minutes_is_found_again_by_its_first_step():
    steps = [first_step(frame) for frame in range(9000)]
    assert [frame_at(step) for step in steps] == list(range(9000))
    assert all(frame_at(step - 1) == frame - 1 for frame, step in enumerate(steps) if frame)


def test_windows_begin_where_their_first_frame_is_heard():
    assert [first_step(window.start) for window in plan(9000)] == [345 * index for index in range(89)]


def test_the_last_step_of_a_song_is_in_its_last_frame():
    for frames in range(1, 9001):
        assert 0 <= frames - 1 - frame_at(joined_length(frames) - 1) <= 1


@pytest.mark.parametrize("frames", SONGS)
def test_multiples_of_four_seconds_begin_and_end_windows(frames):
    windows = plan(frames)
    for window in windows:
        assert run_between(frames, 4.0 * window.index) == slice(window.index, len(windows))
        assert run_between(frames, 0.0, 8.0 + 4.0 * window.index).stop == window.index + 1


@pytest.mark.parametrize("frames", SONGS)
def test_a_run_covers_what_was_asked_within_half_a_second(frames):
    length = joined_length(frames)
    for start, end in spans(latent_seconds(length)):
        steps = steps_of(frames, run_between(frames, start, end))
        assert steps.start <= latents_at(start) + 43
        assert steps.stop >= min(length, latents_at(end)) - 43
        assert latents_at(start) - steps.start < 345 + 344 and steps.stop <= length


@pytest.mark.parametrize("frames", SONGS)
def test_a_repaint_covers_what_was_asked_within_half_a_second_and_no_window_more_than_it_needs(frames):
    length, count = joined_length(frames), len(plan(frames))
    for start, end in spans(latent_seconds(length)):
        run = repaint_between(frames, start, end)
        fresh = fresh_steps(frames, run)
        begin, until = latents_at(start) + 43, min(length, latents_at(end)) - 43
        assert 0 <= run.start < run.stop <= count
        assert fresh.start <= begin and fresh.stop >= until
        if run.stop - run.start > 1:
            assert fresh_steps(frames, slice(run.start + 1, run.stop)).start > begin
            assert fresh_steps(frames, slice(run.start, run.stop - 1)).stop < until


def spans(seconds):
    points = [seconds * share for share in (0.0, 0.13, 0.31, 0.5, 0.77, 0.98)]
    ends = [*points, seconds, seconds + 9]
    return [(start, end) for start in points for end in ends if latents_at(start) < latents_at(min(end, seconds))]


def test_a_range_without_end_reaches_the_end_of_the_song():
    assert run_between(1500, 20.0) == run_between(1500, 20.0, 60.0) == run_between(1500, 20.0, 400.0) == slice(5, 14)
    assert repaint_between(1500, 50.0) == slice(12, 14)


def test_fresh_steps_leave_two_seconds_to_each_neighbour():
    assert fresh_steps(1500, slice(4, 6)) == slice(345 * 4 + 172, 345 * 5 + 517)
    assert fresh_steps(1500, slice(0, 1)) == slice(0, 517)
    assert fresh_steps(1500, slice(13, 14)) == slice(345 * 13 + 172, 5174)
    assert fresh_steps(1500, slice(0, 14)) == slice(0, 5174)


@pytest.mark.parametrize(("start", "end"), [(70.0, 0.0), (20.0, 20.0), (20.0, 10.0), (-1.0, 5.0)])
@pytest.mark.parametrize("between", [run_between, repaint_between])
def test_a_range_without_music_is_refused(between, start, end):
    with pytest.raises(ValueError, match=rf"start {start:g} s.*song of 60.07 s.*Choose a start"):
        between(1500, start, end)


@pytest.mark.parametrize(
    ("until", "kept"), [(0.0, 5174), (8.0, 689), (1.0, 689), (11.0, 689), (12.0, 1034), (24.0, 2069), (99.0, 5174)]
)
def test_a_cut_falls_on_the_end_of_a_window(until, kept):
    assert cut_length(5174, until) == kept


def test_a_cut_counts_seconds_of_the_song_also_in_a_later_run():
    assert cut_length(2069, 24.0, first_window=3) == 345 * 4 + 689 - 345 * 3


def test_a_run_begins_where_its_window_does_or_four_seconds_before_the_end():
    assert handover(5174, 0, 5) == 345 * 5
    assert handover(2069, 3, 5) == 345 * 2
    assert handover(5174, 0, 0) == 5174 - 344
    assert handover(345 * 5 + 344, 0, 5) == handover(345 * 5 + 344, 0, 0)


@pytest.mark.parametrize(("length", "first", "following"), [(345 * 5 + 343, 0, 5), (5174, 6, 5), (689, 0, 15)])
def test_a_latent_that_does_not_reach_the_window_is_refused(length, first, following):
    with pytest.raises(ValueError, match=f"previous_latent is {stated(345 * first, 345 * first + length)}.*start"):
        handover(length, first, following)
    with pytest.raises(ValueError, match=r"343 latent steps, at least 344 \(4 s\)"):
        handover(343, 0, 0)
