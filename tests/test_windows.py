"""Windows of a song in integers: the published figures, and every length from 1 to 9000 frames."""

import pytest

from mm3.windows import carried, joined_length, kept, plan

EVERY_LENGTH = range(1, 9001)


def reference_starts(frames):
    if frames <= 200:
        return [0]
    starts, start = [], 0
    while start < frames - 100:
        starts.append(start)
        start += 100
    return starts


@pytest.fixture(scope="module")
def plans():
    return {frames: plan(frames) for frames in EVERY_LENGTH}


@pytest.mark.parametrize(
    ("frames", "count"),
    [(1, 1), (200, 1), (201, 2), (300, 2), (301, 3), (400, 3), (500, 4), (750, 7), (1500, 14), (9000, 89)],
)
def test_a_song_has_the_published_number_of_windows(frames, count):
    assert len(plan(frames)) == count


@pytest.mark.parametrize(
    ("frames", "spans"),
    [
        (1, [(0, 1)]),
        (200, [(0, 200)]),
        (201, [(0, 200), (100, 201)]),
        (300, [(0, 200), (100, 300)]),
        (301, [(0, 200), (100, 300), (200, 301)]),
        (400, [(0, 200), (100, 300), (200, 400)]),
    ],
)
def test_windows_cover_the_published_frames(frames, spans):
    windows = plan(frames)
    assert [(window.start, window.end) for window in windows] == spans
    assert [window.index for window in windows] == list(range(len(spans)))
    assert [window.last for window in windows] == [False] * (len(spans) - 1) + [True]


def test_starts_follow_the_reference_for_every_length(plans):
    for frames, windows in plans.items():
        assert [window.start for window in windows] == reference_starts(frames)


def test_windows_end_after_200_frames_or_with_the_song(plans):
    for frames, windows in plans.items():
        assert [window.end for window in windows] == [min(window.start + 200, frames) for window in windows]
        assert windows[-1].end == frames


def test_last_window_is_never_shorter_than_half(plans):
    lasts = {windows[-1].frames for windows in plans.values() if len(windows) > 1}
    assert lasts == set(range(101, 201))


def test_only_the_last_window_is_shorter_than_200_frames(plans):
    assert {window.frames for windows in plans.values() for window in windows[:-1]} == {200}


def test_only_the_last_window_is_marked_last(plans):
    for windows in plans.values():
        assert [window.last for window in windows].index(True) == len(windows) - 1


@pytest.mark.parametrize("frames", [0, -1])
def test_a_song_without_frames_is_refused(frames):
    with pytest.raises(ValueError, match=str(frames)):
        plan(frames)


@pytest.mark.parametrize(("frames", "latents"), [(1, 3), (20, 68), (100, 344), (199, 685), (200, 689)])
def test_a_window_has_the_published_length(frames, latents):
    assert plan(frames)[0].length == latents


@pytest.mark.parametrize(("length", "start", "stop"), [(689, 345, 517), (344, 0, 172), (400, 56, 228)])
def test_carry_is_the_first_half_of_the_overlap(length, start, stop):
    assert carried(length) == slice(start, stop)
    assert stop - start == 172


@pytest.mark.parametrize(("length", "stop"), [(343, 171), (172, 0), (100, 0), (1, 0)])
def test_a_window_shorter_than_the_overlap_carries_what_it_has(length, stop):
    assert carried(length) == slice(0, stop)


@pytest.mark.parametrize(
    ("first", "last", "bounds"),
    [(True, True, (0, 689)), (True, False, (0, 431)), (False, False, (86, 431)), (False, True, (86, 689))],
)
def test_a_window_keeps_the_published_steps(first, last, bounds):
    assert kept(689, first=first, last=last) == slice(*bounds)


@pytest.mark.parametrize(
    ("frames", "latents"),
    [
        (1, 3),
        (200, 689),
        (300, 1034),
        (301, 1037),
        (400, 1379),
        (750, 2586),
        (1500, 5174),
        (7500, 25874),
        (9000, 31049),
    ],
)
def test_a_joined_song_has_the_published_length(frames, latents):
    assert joined_length(frames) == latents


def test_join_has_no_gap_and_no_overlap_for_any_length(plans):
    for windows in plans.values():
        origin = reached = 0
        for window in windows:
            assert origin + window.kept.start == reached
            reached = origin + window.kept.stop
            origin += window.length - 344  # the next window's first step is this one's first overlapping step
        assert reached == origin + 344


def test_both_windows_hold_the_carried_steps_around_every_cut(plans):
    for windows in (plans[201], plans[300], plans[9000]):
        for window, following in zip(windows, windows[1:], strict=False):
            carry = carried(window.length)
            assert (window.kept.stop, following.kept.start) == (carry.start + 86, 86)
            assert following.length >= 172


@pytest.fixture(scope="module")
def joined():
    return {frames: joined_length(frames) for frames in EVERY_LENGTH}


def test_joined_length_is_the_sum_of_what_the_windows_keep_for_every_length(joined, plans):
    for frames, windows in plans.items():
        last = max(1, int(windows[-1].frames * 441 / 128))
        expected = last if len(windows) == 1 else 431 + 345 * (len(windows) - 2) + last - 86
        assert joined[frames] == expected


def test_a_joined_song_is_never_shorter_than_one_piece_and_at_most_one_step_longer_per_window(joined, plans):
    for frames, windows in plans.items():
        assert 0 <= joined[frames] - max(1, int(frames * 441 / 128)) < len(windows)
