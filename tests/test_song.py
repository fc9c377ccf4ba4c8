"""The loop over windows: carry, join, batch, resumption and progress, on the tiny model."""

import pytest
import torch
from watching import watched

from mm3 import Carry, SongCondition, encode_song, solve_song
from mm3.demo import demo_hidden
from mm3.noise import window_noise
from mm3.song import solve_window

STEPS = 2
LENGTHS = [689, 689, 689]


@pytest.fixture(scope="module")
def condition(dit, hidden):
    with torch.inference_mode():
        return encode_song(dit.condition_encoder, hidden)


@pytest.fixture(scope="module")
def whole(dit, condition):
    with torch.inference_mode():
        return solve_song(dit.transformer, condition, seed=9, steps=STEPS)


def part(condition, *windows):
    return SongCondition(tuple(condition.windows[index] for index in windows), condition.frames)


def short_batch(dit, rows=2, frames=30):
    return encode_song(dit.condition_encoder, torch.cat([demo_hidden(frames, seed) for seed in range(rows)]))


def test_windows_are_cut_from_the_frames_before_they_are_encoded(dit, hidden, condition):
    assert [window.shape for window in condition.windows] == [(1, 32, length) for length in LENGTHS]
    assert condition.frames == 400 and condition.batch == 1
    for window, start in zip(condition.windows, (0, 100, 200), strict=True):
        assert torch.equal(window, dit.condition_encoder.aligned_condition(hidden[:, start : start + 200]))


def test_encoding_the_song_in_one_piece_would_give_other_values_at_about_105_steps(dit, hidden, condition):
    one_piece = dit.condition_encoder.aligned_condition(hidden)[..., 344:1033]
    differ = ((one_piece - condition.windows[1]).abs().amax(dim=(0, 1)) > 1e-5).sum()
    assert 90 <= differ <= 120


def test_scale_multiplies_the_encoded_condition_and_not_the_frames(dit, hidden, condition):
    scaled = encode_song(dit.condition_encoder, hidden, scale=torch.full((1, 1, 1), 0.5))
    assert torch.equal(scaled.windows[2], 0.5 * condition.windows[2])


def test_rows_of_a_batch_are_encoded_as_if_alone(dit):
    both = short_batch(dit).windows[0]
    for row in range(2):
        assert torch.equal(both[row : row + 1], encode_song(dit.condition_encoder, demo_hidden(30, row)).windows[0])


def test_joined_latent_has_the_published_length(whole):
    assert whole[0].shape == (1, 128, 1379)
    assert whole[0].dtype == torch.float32 and whole[0].device.type == "cpu"


def test_song_is_the_windows_solved_in_order_each_pinned_to_the_one_before(dit, condition, whole):
    carry, latents = None, []
    for index, window in enumerate(condition.windows):
        if carry is not None:
            window = torch.cat((carry.condition, window[..., 172:]), dim=-1)
        prompt = None if carry is None else carry.latent
        latent, _ = solve_window(
            dit.transformer,
            window,
            seed=9,
            index=index,
            steps=STEPS,
            carry=None if prompt is None else Carry(prompt, window[..., :172]),
        )
        carry = Carry(latent[..., 345:517], window[..., 345:517])
        latents.append(latent)
    assert torch.equal(latents[1][..., :172], latents[0][..., 345:517])
    expected = torch.cat((latents[0][..., :431], latents[1][..., 86:431], latents[2][..., 86:]), dim=-1)
    assert torch.equal(whole[0], expected)
    assert torch.equal(whole[1].latent, carry.latent) and torch.equal(whole[1].condition, carry.condition)


def test_the_field_sees_the_carried_condition_over_the_pinned_steps(dit, condition):
    with watched(dit.transformer) as seen:
        _, carry = solve_window(dit.transformer, condition.windows[0], seed=0, index=0, steps=1, guidance=1.0)
        solve_window(dit.transformer, condition.windows[1], seed=0, index=1, steps=1, guidance=1.0, carry=carry)
    _, given = seen[1]
    assert torch.equal(given[..., :172], condition.windows[0][..., 345:517])
    assert torch.equal(given[..., 172:], condition.windows[1][..., 172:])
    assert not torch.equal(given[..., :172], condition.windows[1][..., :172])


@pytest.mark.parametrize("split", [1, 2])
def test_resuming_by_carry_equals_the_whole_run_bit_for_bit(dit, condition, whole, split):
    head, carry = solve_song(dit.transformer, part(condition, *range(split)), seed=9, steps=STEPS)
    rest, end = solve_song(
        dit.transformer, part(condition, *range(split, 3)), seed=9, steps=STEPS, carry=carry, first_window=split
    )
    # The first run could not know that more would follow, and the second starts at its window's first step.
    assert torch.equal(rest[..., :172], carry.latent)
    assert torch.equal(torch.cat((head[..., :-258], rest[..., 86:]), dim=-1), whole[0])
    assert torch.equal(end.latent, whole[1].latent) and torch.equal(end.condition, whole[1].condition)


def test_a_window_number_selects_the_noise(dit, condition):
    one, other = (
        solve_song(dit.transformer, part(condition, 0), seed=9, steps=1, first_window=index)[0] for index in (0, 1)
    )
    assert not torch.equal(one, other)
    with watched(dit.transformer) as seen:
        solve_song(dit.transformer, part(condition, 0), seed=9, steps=1, first_window=7)
    latent, _ = seen[0]
    assert torch.equal(latent[:1], window_noise(9, 7, 128, 689))


def test_second_run_equals_the_first(dit, condition, whole):
    again, carry = solve_song(dit.transformer, condition, seed=9, steps=STEPS)
    assert torch.equal(again, whole[0]) and torch.equal(carry.latent, whole[1].latent)


@pytest.mark.parametrize("seed", [3, 2**64 - 1])
def test_row_of_a_batch_equals_its_own_run_bit_for_bit(dit, seed):
    hidden = torch.cat([demo_hidden(201, row) for row in range(2)])
    batch, carry = solve_song(dit.transformer, encode_song(dit.condition_encoder, hidden), seed=seed, steps=STEPS)
    assert batch.shape == (2, 128, 431 + 347 - 86) and carry.latent.shape == (2, 128, 172)
    for row in range(2):
        alone = encode_song(dit.condition_encoder, hidden[row : row + 1])
        latent, own = solve_song(dit.transformer, alone, seed=(seed + row) % 2**64, steps=STEPS)
        assert torch.equal(batch[row : row + 1], latent)
        assert torch.equal(carry.latent[row : row + 1], own.latent)


def test_equal_rows_differ_by_their_noise(dit):
    condition = encode_song(dit.condition_encoder, demo_hidden(30).expand(2, -1, -1))
    latent, _ = solve_song(dit.transformer, condition, seed=0, steps=STEPS)
    assert (latent[0] - latent[1]).abs().max() > 0.1


def test_each_row_is_pinned_to_its_own_carry(dit):
    condition = short_batch(dit, frames=60)
    latents = torch.randn(2, 128, 172, generator=torch.Generator().manual_seed(1))
    carry = Carry(latents, torch.zeros(2, 32, 172))
    latent, _ = solve_song(dit.transformer, condition, seed=0, steps=STEPS, carry=carry, first_window=1)
    assert torch.equal(latent[..., :172], latents)


def test_no_input_is_modified(dit, hidden):
    given = hidden.clone()
    condition = encode_song(dit.condition_encoder, given, scale=torch.full((1, 1, 1), 0.5))
    carry = Carry(torch.ones(1, 128, 172), torch.ones(1, 32, 172))
    windows = [window.clone() for window in condition.windows]
    latent, handed = solve_song(dit.transformer, condition, seed=0, steps=1, carry=carry, first_window=1)
    for result in (latent, handed.latent, handed.condition):
        result.zero_()
    assert torch.equal(given, hidden)
    assert all(torch.equal(one, other) for one, other in zip(condition.windows, windows, strict=True))
    assert torch.equal(carry.latent, torch.ones(1, 128, 172)) and torch.equal(carry.condition, torch.ones(1, 32, 172))


def test_guidance_one_branch_at_a_time_equals_both_at_once(dit):
    condition = short_batch(dit)
    both, apart = (
        solve_song(dit.transformer, condition, seed=1, steps=4, batched=batched)[0] for batched in (True, False)
    )
    assert (both - apart).abs().max() <= 1e-5
