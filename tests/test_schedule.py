"""Fewer steps by a time shift, and guidance for part of the solve."""

import pytest
import torch

from mm3 import encode_song, solve_song
from mm3.flow import guided, solve, time_grid

SHIFTS = [1.0, 1.5, 2.0, 3.0]


def test_a_shift_of_one_is_the_even_grid_exactly():
    assert time_grid(30, 1.0) == [step / 30 for step in range(30)]


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_shifted_grid_is_that_of_the_reference_s_shifted_sigmas(shift):
    """The scheduler's rule on sigma = 1 - t: s * sigma / (1 + (s - 1) * sigma)."""
    sigmas = torch.linspace(1, 1 / 12, 12, dtype=torch.float64)
    expected = 1 - shift * sigmas / (1 + (shift - 1) * sigmas)
    assert torch.allclose(torch.tensor(time_grid(12, shift), dtype=torch.float64), expected, atol=1e-12)


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_constant_velocity_is_solved_exactly_on_any_grid(shift):
    noise, velocity = torch.randn(1, 2, 5), torch.randn(1, 2, 5)
    assert torch.allclose(solve(lambda x, t: velocity, noise, 7, shift=shift), noise + velocity, atol=1e-5)


@pytest.mark.parametrize("shift", [1.5, 3.0])
def test_a_shift_spends_its_steps_near_the_noise(shift):
    """dx/dt = -4 (1 - t)^3 moves most at first: the shifted grid of as many steps errs less."""

    def error(shift: float) -> float:
        x = solve(lambda x, t: -4 * (1 - t[:, None, None]) ** 3 + 0 * x, torch.zeros(1, 1, 1), 12, shift=shift)
        return abs(float(x) + 1)

    assert error(shift) < error(1.0)


@pytest.mark.parametrize("shift", [0.0, -1.0])
def test_a_shift_that_is_not_positive_is_refused(shift):
    with pytest.raises(ValueError, match="must be positive"):
        time_grid(3, shift)


def counted(between):
    """Rows that the field is given at each of ten steps."""
    rows = []

    def field(x, t, condition):
        rows.append(x.shape[0])
        return x * 0

    solve(guided(field, torch.zeros(1, 1, 3), 1.7, between=between), torch.zeros(1, 1, 3), 10)
    return rows


def test_guidance_is_computed_only_between_its_times():
    assert counted((0.0, 1.0)) == [2] * 10
    assert counted((0.3, 0.7)) == [1] * 3 + [2] * 4 + [1] * 3
    assert counted((0.5, 0.5)) == [1] * 10


def test_guidance_over_the_whole_solve_is_the_reference_bit_for_bit(dit, hidden):
    condition = encode_song(dit.condition_encoder, hidden[:, :60])
    plain, _ = solve_song(dit.transformer, condition, seed=1, steps=4)
    stated, _ = solve_song(dit.transformer, condition, seed=1, steps=4, shift=1.0, guided_between=(0.0, 1.0))
    part, _ = solve_song(dit.transformer, condition, seed=1, steps=4, guided_between=(0.25, 1.0))
    assert torch.equal(plain, stated) and not torch.equal(plain, part)


def test_no_guidance_anywhere_is_weight_one(dit, hidden):
    condition = encode_song(dit.condition_encoder, hidden[:, :60])
    none, _ = solve_song(dit.transformer, condition, seed=1, steps=4, guided_between=(0.0, 0.0))
    one, _ = solve_song(dit.transformer, condition, seed=1, steps=4, guidance=1.0)
    assert torch.equal(none, one)
