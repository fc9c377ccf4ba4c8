"""A window's leading steps pinned to the latent of the window before."""

import pytest
import torch

from mm3.flow import solve

LEFT = 4


@pytest.fixture
def noise():
    return torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def prompt():
    return torch.randn(2, 3, LEFT, generator=torch.Generator().manual_seed(1))


def linear(x, t):
    return 0.7 * x + t[:, None, None]


def watched(noise, prompt, steps):
    seen = []

    def velocity(x, t):
        seen.append(x.clone())
        return linear(x, t)

    return solve(velocity, noise, steps, prompt=prompt), seen


@pytest.mark.parametrize("steps", [1, 5, 30])
def test_velocity_sees_the_prompt_on_its_straight_path_at_every_step(noise, prompt, steps):
    _, seen = watched(noise, prompt, steps)
    assert len(seen) == steps
    for step, x in enumerate(seen):
        t = step / steps
        expected = (1 - (1 - 1e-6) * t) * noise[..., :LEFT] + t * prompt
        assert (x[..., :LEFT] - expected).abs().max() <= 1e-6


def test_noise_of_pinned_steps_never_vanishes_entirely():
    _, seen = watched(torch.full((1, 1, 2), 1e6), torch.zeros(1, 1, 1), 4)
    assert [float(x[0, 0, 0]) for x in seen] == pytest.approx([1e6, 750000.25, 500000.5, 250000.75], abs=0.1)


@pytest.mark.parametrize("steps", [1, 5])
def test_result_holds_the_prompt_exactly(noise, prompt, steps):
    result, _ = watched(noise, prompt, steps)
    assert torch.equal(result[..., :LEFT], prompt)


def test_steps_after_the_prompt_are_solved_as_without_one(noise, prompt):
    pinned, _ = watched(noise, prompt, 5)
    assert torch.equal(pinned[..., LEFT:], solve(linear, noise, 5)[..., LEFT:])


def test_a_prompt_of_the_whole_length_is_the_result(noise):
    prompt = torch.ones_like(noise)
    result, seen = watched(noise, prompt, 3)
    assert torch.equal(result, prompt)
    assert (seen[0] - noise).abs().max() == 0


def test_an_empty_prompt_pins_nothing(noise):
    assert torch.equal(solve(linear, noise, 3, prompt=noise[..., :0]), solve(linear, noise, 3))


def test_noise_and_prompt_are_not_written_to(noise, prompt):
    before = noise.clone(), prompt.clone()
    result, _ = watched(noise, prompt, 3)
    result.zero_()
    assert torch.equal(noise, before[0]) and torch.equal(prompt, before[1])


def test_on_step_is_told_every_step_and_the_latent_after_it(noise):
    told = []
    result = solve(linear, noise, 4, on_step=lambda step, latent: told.append((step, latent.clone())))
    assert [step for step, _ in told] == [0, 1, 2, 3]
    assert torch.equal(told[-1][1], result)
    assert torch.equal(told[0][1], noise + linear(noise, torch.zeros(2)) / 4)


def test_raising_from_on_step_ends_the_solve_at_once(noise):
    calls = []

    def stop(step, latent):
        if step == 1:
            raise KeyboardInterrupt

    def velocity(x, t):
        calls.append(float(t[0]))
        return linear(x, t)

    with pytest.raises(KeyboardInterrupt):
        solve(velocity, noise, 8, on_step=stop)
    assert calls == [0.0, 0.125]
