"""The decoder's layers against their formulas, and how its two audio channels lie in the latent."""

import torch

from mm3.config import VocoderConfig
from mm3.demo import VOCODER
from mm3.vocoder import DecoderBlock, Snake


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_snake_adds_the_squared_sine_over_alpha():
    snake, x = Snake(3), randn(2, 3, 5)
    snake.alpha.data = torch.tensor([0.5, -2.0, 7.0])[None, :, None]
    alpha = snake.alpha.double()
    expected = x.double() + torch.sin(alpha * x.double()) ** 2 / (alpha + 1e-9)
    assert (snake(x) - expected).abs().max() <= 1e-5


def test_snake_of_alpha_zero_is_finite_and_the_identity():
    snake, x = Snake(1), randn(1, 1, 5)
    snake.alpha.data = torch.zeros(1, 1, 1)
    assert torch.equal(snake(x), x)


def test_snake_does_not_write_to_its_input():
    snake, x = Snake(1), randn(1, 1, 5)
    snake.alpha.data = torch.ones(1, 1, 1)
    before = x.clone()
    snake(x)
    assert torch.equal(x, before)


def test_every_stride_of_the_release_stretches_exactly():
    for stride in (8, 4, 2):
        block = DecoderBlock(4, stride)
        for parameter in block.parameters():
            parameter.data.fill_(0.1)
        assert block(randn(1, 4, 11)).shape == (1, 2, 11 * stride)


def test_units_of_a_stage_are_dilated_by_one_three_and_nine():
    block = DecoderBlock(4, 2, device="meta")
    units = (block.res_unit1, block.res_unit2, block.res_unit3)
    assert [unit.conv1.dilation for unit in units] == [(1,), (3,), (9,)]
    assert [unit.conv1.kernel_size + unit.conv2.kernel_size for unit in units] == [(7, 1)] * 3


def test_release_makes_512_samples_of_a_latent_step():
    assert VocoderConfig().hop == 512 == VOCODER.hop


def test_output_is_exactly_512_samples_per_latent_step_in_the_range_of_audio(vocoder):
    for length in (1, 2, 13):
        audio = vocoder(10 * randn(1, 128, length))
        assert audio.shape == (1, 2, 512 * length) and audio.dtype == torch.float32
        assert audio.abs().max() <= 1


def test_first_half_of_the_latent_channels_is_left_and_the_second_is_right(vocoder):
    latent = randn(2, 128, 9)
    audio = vocoder(latent)
    swapped = vocoder(torch.cat((latent[:, 64:], latent[:, :64]), dim=1))
    torch.testing.assert_close(swapped, audio.flip(1), rtol=0, atol=1e-6)
    silenced = latent.clone()
    silenced[:, 64:] = 0
    changed = (vocoder(silenced) - audio).abs().amax(dim=(0, 2))
    assert changed[0] <= 1e-6 < 1e-2 < changed[1]
