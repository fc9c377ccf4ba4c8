"""Noise of a window: the seed derivation of vllm-omni, and draws that depend on nothing but seed and window."""

import hashlib
import struct

import pytest
import torch

from mm3.noise import window_noise, window_seed

LARGEST = 2**64 - 1

# Made with a BLAKE2b written out from RFC 7693.
GOLDEN = {
    (0, 0): 1172308609478234070,
    (0, 1): 5227974074385879887,
    (7, 0): 492056280515100207,
    (42, 10): 6725730542408927430,
    (2**32, 88): 8380922590266333512,
    (LARGEST, 0): 843188456837015319,
    (LARGEST, 3): 9044108560896886111,
}


def published_seed(seed, index):
    """In one message: 8 bytes of seed, then length and text of `dit` and of the window's number."""
    number = str(index)
    message = struct.pack(f"<QI3sI{len(number)}s", seed, 3, b"dit", len(number), number.encode())
    digest = hashlib.blake2b(message, digest_size=8, person=b"minimax-ttm").digest()
    return struct.unpack("<Q", digest)[0] % 2**63


@pytest.mark.parametrize(("place", "expected"), GOLDEN.items())
def test_window_seed_has_the_golden_value(place, expected):
    assert window_seed(*place) == expected


def test_window_seed_equals_the_published_derivation():
    seeds = [0, 1, 255, 256, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, LARGEST]
    for seed in seeds:
        for index in (0, 1, 9, 10, 88, 100):
            assert window_seed(seed, index) == published_seed(seed, index)


def test_window_seed_has_63_bits_and_is_a_seed_that_torch_takes():
    values = [window_seed(seed, index) for seed in range(40) for index in range(40)]
    assert all(0 <= value < 2**63 for value in values)
    assert max(values) >= 2**62
    assert len(set(values)) == len(values)


def test_a_seed_past_64_bits_wraps_around():
    assert window_seed(LARGEST + 1, 5) == window_seed(0, 5)
    assert window_seed(LARGEST + 8, 5) == window_seed(7, 5)


def test_noise_has_the_golden_values():
    noise = window_noise(0, 0, 128, 689)
    assert noise.shape == (1, 128, 689)
    assert noise.dtype == torch.float32 and noise.device.type == "cpu"
    assert noise[0, :2, :3].tolist() == [
        pytest.approx([0.4769, -1.2616, 1.7232], abs=1e-4),
        pytest.approx([1.4861, -0.1411, -0.5159], abs=1e-4),
    ]


def test_noise_is_one_draw_of_a_generator_of_its_own():
    generator = torch.Generator().manual_seed(492056280515100207)
    assert torch.equal(window_noise(7, 0, 128, 689), torch.randn((1, 128, 689), generator=generator))


def test_noise_is_standard_normal():
    noise = window_noise(3, 2, 128, 689)
    assert abs(float(noise.mean())) < 0.02
    assert abs(float(noise.std()) - 1) < 0.02


def test_noise_is_the_same_at_every_call_and_in_any_order():
    first = [window_noise(LARGEST, index, 16, 50) for index in (0, 1, 2)]
    again = [window_noise(LARGEST, index, 16, 50) for index in (2, 1, 0)]
    for one, other in zip(first, reversed(again), strict=True):
        assert torch.equal(one, other)


def test_noise_differs_between_windows_and_between_seeds():
    draws = [window_noise(seed, index, 16, 50) for seed in (0, 1) for index in (0, 1)]
    for place, one in enumerate(draws):
        for other in draws[place + 1 :]:
            assert abs(float(torch.corrcoef(torch.stack((one.flatten(), other.flatten())))[0, 1])) < 0.15


def test_global_generator_is_neither_used_nor_advanced():
    before = torch.get_rng_state()
    drawn = window_noise(5, 0, 16, 50)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert torch.equal(window_noise(5, 0, 16, 50), drawn)
    torch.set_rng_state(before)
