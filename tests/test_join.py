"""Runs of windows put together again: any split, any order, from disk, rewound and branched."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm3 import Carry, encode_song, solve_song
from mm3.demo import demo_hidden
from mm3.join import find, join, same
from mm3.repaint import end_condition
from mm3.windows import joined_length, plan

FRAMES = 450  # four windows, the last shorter than a whole one
FEW = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SPLITS = st.lists(st.integers(1, 3), unique=True).map(sorted)


@pytest.fixture(scope="module")
def song():
    return demo_hidden(FRAMES)


@pytest.fixture(scope="module")
def condition(dit, song):
    with torch.inference_mode():
        return encode_song(dit.condition_encoder, song)


def solved(dit, condition, seed=9, carry=None, **options):
    return solve_song(dit.transformer, condition, seed=seed, steps=2, guidance=1.0, carry=carry, **options)


@pytest.fixture(scope="module")
def whole(dit, condition):
    with torch.inference_mode():
        return solved(dit, condition)


def runs(splits):
    bounds = [0, *splits, len(plan(FRAMES))]
    return [slice(first, stop) for first, stop in zip(bounds, bounds[1:], strict=False)]


def continued(dit, song, run, kept):
    """A run of its own encoding, pinned to what is kept of the song before it."""
    condition = encode_song(dit.condition_encoder, song, run=run)
    step = 345 * run.start
    carry = Carry(kept[..., step : step + 172], condition.before) if run.start else None
    return solved(dit, condition, carry=carry)[0]


def test_a_run_is_encoded_as_in_the_whole_song(dit, song, condition):
    run = encode_song(dit.condition_encoder, song, run=slice(2, 3))
    assert (run.first_window, run.frames, run.whole) == (2, FRAMES, False) and condition.whole
    assert torch.equal(run.before, condition.windows[1][..., 345:517])
    assert all(torch.equal(a, b) for a, b in zip(run.windows, condition.windows[2:3], strict=True))
    part = condition.part(2, 2)
    assert (part.first_window, len(part.windows)) == (2, 1) and torch.equal(part.before, run.before)


@FEW
@given(splits=SPLITS)
def test_any_split_into_runs_that_are_encoded_solved_and_joined_is_the_whole_song(dit, song, whole, splits):
    kept = None
    for run in runs(splits):
        latent = continued(dit, song, run, kept)
        kept = latent if kept is None else join(kept, latent)[0]
    assert torch.equal(kept, whole[0])


@FEW
@given(splits=SPLITS, order=st.randoms(use_true_random=False))
def test_parts_of_a_song_join_in_any_order(whole, splits, order):
    parts = [whole[0][..., 345 * run.start : (345 * (run.stop - 1) + 689)] for run in runs(splits)]
    while len(parts) > 1:
        place = order.randrange(len(parts) - 1)
        parts[place : place + 2] = [join(parts[place], parts[place + 1])[0]]
    assert torch.equal(parts[0], whole[0])


@FEW
@given(kept=st.integers(1, 3), earlier=st.integers(0, 3))
def test_no_step_is_lost_or_doubled_wherever_a_run_is_put(whole, kept, earlier):
    """The following run may begin at any window of what is kept: that is a rewind."""
    previous = whole[0][..., : 345 * (kept - 1) + 689]
    following = whole[0][..., 345 * min(kept, earlier) :]
    joined, step = join(previous, following)
    assert step == 345 * min(kept, earlier) and torch.equal(joined, whole[0])


@pytest.mark.parametrize("side", ["previous", "following", "both"])
def test_latents_of_half_precision_fit(whole, side):
    halves = {"previous": whole[0][..., :1034], "following": whole[0][..., 690:]}
    for name in halves:
        if side in (name, "both"):
            halves[name] = halves[name].half()
    joined, step = join(halves["previous"], halves["following"])
    assert step == 690 and joined.dtype == torch.float32
    assert joined.shape == whole[0].shape and same(joined, whole[0])


def test_a_song_of_one_joins_several_takes(whole):
    takes = torch.cat([whole[0][..., 690:]] * 3)
    takes[1:, :, 172:] += 1.0
    joined, _ = join(whole[0][..., :1034], takes)
    assert joined.shape == (3, 128, joined_length(FRAMES))
    assert torch.equal(joined[:1], whole[0]) and torch.equal(joined[1, :, :862], whole[0][0, :, :862])
    with pytest.raises(ValueError, match="hold 2 and 3 songs"):
        join(takes[:2], takes)


@pytest.mark.parametrize("change", [lambda x: x + 0.01, lambda x: x[..., 1:], lambda x: x * float("nan")])
def test_what_does_not_fit_is_refused_with_the_nearest_place(whole, change):
    with pytest.raises(ValueError, match=r"first 2.00 s of the second are nowhere in the first \(nearest at .* apart"):
        join(whole[0][..., :1034], change(whole[0][..., 690:]))


@pytest.mark.parametrize(("kept", "taken"), [(343, 689), (689, 172)])
def test_what_is_too_short_to_join_is_refused(kept, taken):
    with pytest.raises(ValueError, match=f"have {kept} and {taken} steps, expected at least 344"):
        join(torch.zeros(1, 128, kept), torch.zeros(1, 128, taken))


def test_the_place_asked_for_and_then_the_end_are_preferred():
    silence = torch.zeros(1, 128, 345 * 3 + 344)
    following = torch.zeros(1, 128, 400)
    assert find(silence, following) == 345 * 3
    assert find(silence, following, step=345) == 345
    assert find(silence, following, step=9999) == 345 * 3


def test_a_joined_song_carries_what_its_last_run_does(dit, song, condition, whole):
    assert torch.equal(end_condition(condition), whole[1].condition)
    assert torch.equal(end_condition(encode_song(dit.condition_encoder, song, run=slice(3, 4))), whole[1].condition)


def test_what_is_joined_is_not_written_to(whole):
    parts = whole[0][..., :1034].clone(), whole[0][..., 690:].clone()
    join(*parts)[0].zero_()
    assert torch.equal(parts[0], whole[0][..., :1034]) and torch.equal(parts[1], whole[0][..., 690:])


def test_a_list_of_seeds_gives_the_run_of_each(dit, condition):
    part = condition.part(0, 1)
    batch, carry = solved(dit, part.repeated(3), seed=[5, 2**64 - 1, 5])
    for row, seed in enumerate((5, 2**64 - 1, 5)):
        alone, own = solved(dit, part, seed=seed)
        assert torch.equal(batch[row : row + 1], alone) and torch.equal(carry.row(row).latent, own.latent)
        assert torch.equal(carry.row(row).condition, own.condition)
