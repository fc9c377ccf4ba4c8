"""Euler solve and guidance on velocities whose discrete answer is known in closed form."""

import pytest
import torch

from mm3.flow import guided, solve, time_grid


def tensor(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def affine_field(x, t, condition):
    """Depends on all three, and differently on rows."""
    return 0.5 * x + 2.0 * condition - 3.0 * t[:, None, None]


def test_time_grid_starts_at_noise_and_never_reaches_one():
    assert time_grid(4) == [0.0, 0.25, 0.5, 0.75]
    assert time_grid(1) == [0.0]
    assert all(max(time_grid(steps)) < 1 for steps in range(1, 200))
    assert time_grid(30)[29] == 29 / 30


@pytest.mark.parametrize("steps", [0, -1])
def test_a_solve_without_steps_is_refused(steps):
    with pytest.raises(ValueError, match=str(steps)):
        solve(lambda x, t: x, tensor(1, 2, 3), steps)
    with pytest.raises(ValueError, match=str(steps)):
        time_grid(steps)


@pytest.mark.parametrize("steps", [1, 2, 7, 30])
def test_a_constant_velocity_is_added_once_whatever_the_steps(steps):
    noise, constant = tensor(2, 3, 5), tensor(2, 3, 5, seed=1)
    result = solve(lambda x, t: constant, noise, steps)
    assert (result - (noise + constant)).abs().max() <= 5e-6


@pytest.mark.parametrize("steps", [1, 2, 7, 30])
@pytest.mark.parametrize("rate", [1.0, -1.0, 0.3])
def test_a_linear_velocity_gives_the_discrete_product(steps, rate):
    noise = tensor(1, 3, 5)
    result = solve(lambda x, t: rate * x, noise, steps)
    torch.testing.assert_close(result, noise * (1 + rate / steps) ** steps, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 3, 30])
def test_a_velocity_of_time_alone_gives_the_left_sum(steps):
    noise = tensor(2, 3, 5)
    result = solve(lambda x, t: (3 * t**2)[:, None, None].expand_as(x), noise, steps)
    left_sum = (steps - 1) * (2 * steps - 1) / (2 * steps**2)
    assert (result - noise - left_sum).abs().max() <= 1e-6


def test_velocity_is_asked_at_the_grid_once_per_step_and_for_every_row():
    asked = []
    solve(lambda x, t: asked.append(t.clone()) or torch.zeros_like(x), tensor(3, 2, 4), 5)
    assert torch.equal(torch.stack(asked), torch.tensor([0.0, 0.2, 0.4, 0.6, 0.8])[:, None].expand(5, 3))
    assert asked[0].dtype == torch.float32


def test_state_is_float32_even_if_the_velocity_is_not():
    result = solve(lambda x, t: torch.full_like(x, 1e-3, dtype=torch.bfloat16), torch.ones(1, 1, 2), 1)
    assert result.dtype == torch.float32
    assert (result > 1.0).all()


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 1.7, 4.0])
def test_guidance_is_w_conditional_plus_one_minus_w_unconditional(weight, batched):
    x, t, condition = tensor(2, 3, 5), torch.tensor([0.1, 0.7]), tensor(2, 3, 5, seed=1)
    conditional, unconditional = affine_field(x, t, condition), affine_field(x, t, torch.zeros_like(condition))
    expected = weight * conditional + (1 - weight) * unconditional
    velocity = guided(affine_field, condition, weight, batched=batched)(x, t)
    torch.testing.assert_close(velocity, expected, rtol=1e-5, atol=1e-5)


def test_batched_guidance_equals_sequential_guidance():
    x, t, condition = tensor(2, 3, 5), torch.tensor([0.1, 0.7]), tensor(2, 3, 5, seed=1)
    both, one_by_one = (guided(affine_field, condition, 1.7, batched=batched)(x, t) for batched in (True, False))
    assert (both - one_by_one).abs().max() <= 1e-6


@pytest.mark.parametrize(("batched", "batches"), [(True, [4] * 3), (False, [2] * 6)])
def test_guidance_runs_both_branches_in_one_forward_or_in_two(batched, batches):
    seen = []

    def field(x, t, condition):
        seen.append(x.shape[0])
        assert x.shape[0] == t.shape[0] == condition.shape[0]
        return affine_field(x, t, condition)

    solve(guided(field, tensor(2, 3, 5), 1.7, batched=batched), tensor(2, 3, 5), 3)
    assert seen == batches


def test_unconditional_branch_sees_zeros():
    seen = []
    velocity = guided(lambda x, t, c: seen.append(c) or x, tensor(1, 3, 5), 2.0)
    velocity(tensor(1, 3, 5), torch.zeros(1))
    assert torch.equal(seen[0], torch.cat((tensor(1, 3, 5), torch.zeros(1, 3, 5))))


@pytest.mark.parametrize("batched", [True, False])
def test_weight_one_calls_the_field_once_per_step_with_the_condition_alone(batched):
    condition, seen = tensor(2, 3, 5), []

    def field(x, t, given):
        seen.append((x.shape[0], torch.equal(given, condition)))
        return x

    solve(guided(field, condition, 1.0, batched=batched), tensor(2, 3, 5), 6)
    assert seen == [(2, True)] * 6
