"""Windows solved again between what is kept: bits outside, pins inside, and how smooth the seams are."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from watching import watched

from mm3 import SongCondition, encode_song, solve_song
from mm3.demo import demo_hidden
from mm3.flow import solve
from mm3.ranges import fresh_steps
from mm3.repaint import repaint
from mm3.windows import plan

FRAMES, WINDOWS, LENGTH = 450, 4, 345 * 3 + 516
FEW = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
OPTIONS = {"steps": 2, "guidance": 1.0}


@pytest.fixture(scope="module")
def condition(dit):
    with torch.inference_mode():
        return encode_song(dit.condition_encoder, demo_hidden(FRAMES))


@pytest.fixture(scope="module")
def whole(dit, condition):
    with torch.inference_mode():
        return solve_song(dit.transformer, condition, seed=9, **OPTIONS)


def repainted(dit, condition, latent, run, seed=10):
    return repaint(dit.transformer, condition, latent, run, seed=seed, **OPTIONS)


@FEW
@given(bounds=st.tuples(st.integers(0, WINDOWS - 1), st.integers(0, WINDOWS - 1)).map(sorted), seed=st.integers(0, 99))
def test_any_repaint_changes_its_steps_and_no_bit_outside(dit, condition, whole, bounds, seed):
    run = slice(bounds[0], bounds[1] + 1)
    latent, _ = repainted(dit, condition, whole[0], run, seed=seed + 10)
    fresh = fresh_steps(FRAMES, run)
    assert latent.shape == whole[0].shape
    assert torch.equal(latent[..., : fresh.start], whole[0][..., : fresh.start])
    assert torch.equal(latent[..., fresh.stop :], whole[0][..., fresh.stop :])
    changed = (latent != whole[0])[..., fresh].float().mean()
    assert changed > 0.99


@pytest.mark.parametrize("first", range(WINDOWS))
def test_a_repaint_to_the_end_with_the_old_seed_is_the_old_song(dit, condition, whole, first):
    latent, carry = repainted(dit, condition, whole[0], slice(first, WINDOWS), seed=9)
    assert torch.equal(latent, whole[0])
    assert torch.equal(carry.latent, whole[1].latent) and torch.equal(carry.condition, whole[1].condition)


def test_the_field_sees_both_pins_on_their_paths_and_their_own_conditions(dit, condition, whole):
    with watched(dit.transformer) as seen:
        repainted(dit, condition, whole[0], slice(1, 3))
    assert len(seen) == 2 * 2
    (_, beginning), (_, again), _, (last, end) = [(x[0], given[0]) for x, given in seen]
    assert torch.equal(beginning, again)
    assert torch.equal(beginning[:, :172], condition.windows[0][0, :, 345:517])
    assert torch.equal(beginning[:, 172:], condition.windows[1][0, :, 172:])
    assert torch.equal(end[:, 517:], condition.windows[3][0, :, 172:344])
    assert torch.equal(end[:, 172:517], condition.windows[2][0, :, 172:517])
    half_way = last[:, 517:] - 0.5 * whole[0][0, :, 345 * 2 + 517 : 345 * 2 + 689]  # time 1/2: half of it is noise
    assert half_way.std() == pytest.approx(0.5, abs=0.02)


def test_the_carry_is_that_of_the_new_end(dit, condition, whole):
    for run in (slice(1, 2), slice(2, 3), slice(2, 4)):
        latent, carry = repainted(dit, condition, whole[0], run)
        assert torch.equal(carry.latent, latent[..., LENGTH - 344 : LENGTH - 172])
        assert torch.equal(carry.condition, whole[1].condition)


def test_nothing_given_is_written_to_and_half_precision_stays_as_it_was(dit, condition, whole):
    given_latent = whole[0].half()
    before = given_latent.clone()
    latent, _ = repainted(dit, condition, given_latent, slice(2, 3))
    assert latent.dtype == torch.float32 and torch.equal(latent[..., :862], before[..., :862].float())
    latent.zero_()
    assert torch.equal(given_latent, before)


def test_takes_of_a_song_are_repainted_each_by_itself(dit, condition, whole):
    takes = torch.cat((whole[0], whole[0] + 1.0))
    both, _ = repainted(dit, condition, takes, slice(2, 3))
    for row in range(2):
        alone, _ = repainted(dit, condition, takes[row : row + 1], slice(2, 3), seed=10 + row)
        assert torch.equal(both[row : row + 1], alone)


def test_a_part_of_a_song_and_a_latent_of_another_length_are_refused(dit, condition, whole):
    with pytest.raises(ValueError, match="part of the song.*start and end to 0"):
        repainted(dit, condition.part(0, 2), whole[0], slice(1, 2))
    with pytest.raises(ValueError, match=f"has {LENGTH - 1} steps, .* a song of {LENGTH}"):
        repainted(dit, condition, whole[0][..., 1:], slice(1, 2))
    with pytest.raises(ValueError, match="holds 3 songs, the condition 2"):
        repainted(dit, condition.repeated(2), whole[0].repeat(3, 1, 1), slice(1, 2))


@pytest.mark.parametrize("steps", [1, 5])
def test_a_solve_pinned_on_both_sides_holds_both_exactly(steps):
    noise, pins = (torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    seen = []

    def velocity(x, t):
        seen.append((x.clone(), float(t[0])))
        return 0.7 * x

    result = solve(velocity, noise, steps, prompt=pins[..., :4], ending=pins[..., 7:])
    assert torch.equal(result[..., :4], pins[..., :4]) and torch.equal(result[..., 7:], pins[..., 7:])
    assert torch.equal(result[..., 4:7], solve(lambda x, t: 0.7 * x, noise, steps)[..., 4:7])
    for x, t in seen:
        for side in (slice(0, 4), slice(7, 9)):
            assert (x[..., side] - (1 - (1 - 1e-6) * t) * noise[..., side] - t * pins[..., side]).abs().max() <= 1e-6


class Smooth:
    """The exact flow to a smooth random signal (a stationary Gaussian process): what an ideal model would have learnt.

    It stands in for the transformer, whose random weights know nothing of smoothness.
    """

    compute_dtype = torch.float32
    config = SimpleNamespace(latent_channels=16)

    @cache  # noqa: B019 - one object, one or two lengths
    def spectrum(self, length):
        steps = torch.arange(length)
        return torch.linalg.eigh(torch.exp(-0.5 * ((steps[:, None] - steps) / 6.0) ** 2))

    def embed_condition(self, condition):
        return condition

    def field(self, device):
        return self.velocity

    def velocity(self, x, t, condition):
        values, vectors = self.spectrum(x.shape[-1])
        time = float(t[0])
        gain = (time * values - (1 - time)) / (time**2 * values + (1 - time) ** 2)
        return (x @ vectors) * gain @ vectors.T


@pytest.fixture(scope="module")
def songs():
    """Twelve songs by the ideal model, each with windows 2 and 3 of 5 solved again."""
    rows = tuple(torch.zeros(1, 1, window.length) for window in plan(600))
    model, condition = Smooth(), SongCondition(rows, 600).repeated(12)
    with torch.inference_mode():
        latent, _ = solve_song(model, condition, seed=1, guidance=1.0)
        again, _ = repaint(model, condition, latent, slice(1, 3), seed=100, guidance=1.0)
    return latent, again


def jump(latent, step):
    """How far each song moves across a seam between `step` - 1 and `step`."""
    return (latent[..., step] - latent[..., step - 1]).norm(dim=1)


def test_both_seams_of_a_repaint_are_as_smooth_as_the_reference_s_own(songs):
    """Pinning leaves a seam even in an ideal model: the reference's, between its windows, is the measure."""
    latent, again = songs
    fresh = fresh_steps(600, slice(1, 3))
    own = torch.stack([jump(latent, 345 * index + 172) for index in range(1, 5)])
    inside = torch.stack([jump(latent, step) for step in range(600, 800)])
    seams = {"left": jump(again, fresh.start), "right": jump(again, fresh.stop)}
    print(
        f"\nsteps inside a window {inside.mean():.2f}, own seams {own.mean():.2f} ({own.min():.2f} to {own.max():.2f})"
    )
    for side, seam in seams.items():
        print(f"repaint, {side}: {seam.mean():.2f} ({seam.min():.2f} to {seam.max():.2f})")
        assert 0.8 <= seam.mean() / own.mean() <= 1.2
        assert own.min() * 0.8 <= seam.min() and seam.max() <= own.max() * 1.2


@pytest.mark.parametrize("run", [slice(1, 2), slice(1, 3)])
def test_the_step_across_each_seam_is_within_the_spread_of_steps_elsewhere(dit, condition, whole, run):
    latent, _ = repainted(dit, condition, whole[0], run)
    fresh = fresh_steps(FRAMES, run)
    jumps = sorted(float(jump(latent, step)) for step in range(1, LENGTH))
    for seam in (fresh.start, fresh.stop):
        assert jumps[LENGTH // 200] <= float(jump(latent, seam)) <= jumps[-LENGTH // 200]
