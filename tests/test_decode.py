"""Decoding in tiles equals decoding in one piece, with the context that the decoder's reach asks for."""

import pytest
import torch

from mm3 import MiniMaxMusic3Vocoder, VocoderConfig, decode

LENGTH = 45


@pytest.fixture(scope="module")
def latent():
    return torch.randn(1, 128, LENGTH, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def one_shot(vocoder, latent):
    with torch.inference_mode():
        return vocoder(latent)


@pytest.fixture(scope="module")
def double():
    """The release's strides and kernels, narrow, in float64: a change of one sample in 10^15 shows."""
    vocoder = MiniMaxMusic3Vocoder(VocoderConfig(latent_channels=2, input_width=4, width=32)).double()
    generator = torch.Generator().manual_seed(0)
    for name, parameter in vocoder.named_parameters():
        values = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = 0.5 + values if name.endswith("alpha") else (values - 0.5) * parameter[0].numel() ** -0.5
    return vocoder.requires_grad_(False)


def with_context(vocoder, latent, start, end, context):
    """Samples of latent steps [start, end), decoded from a slice with this context."""
    left = max(0, start - context)
    audio = vocoder(latent[..., left : min(end + context, latent.shape[-1])])
    return audio[..., (start - left) * 512 : (end - left) * 512]


@pytest.mark.parametrize("tile", [7, 20, 31, 44, 45, 46, 10_000])
def test_tiles_of_any_size_equal_one_piece(vocoder, latent, one_shot, tile):
    assert (decode(vocoder, latent, tile=tile) - one_shot).abs().max() <= 1e-6


@pytest.mark.parametrize(("tile", "tiles"), [(7, 7), (20, 3), (22, 3), (23, 2), (44, 2), (45, 1), (10_000, 1)])
def test_pieces_are_as_few_as_the_tile_allows_and_of_one_length(vocoder, latent, tile, tiles):
    lengths, counts = [], []
    hook = vocoder.register_forward_hook(lambda _, given, __: lengths.append(given[0].shape[-1]))
    decode(vocoder, latent, tile=tile, on_tile=lambda done, total: counts.append((done, total)))
    hook.remove()
    assert counts == [(done, tiles) for done in range(1, tiles + 1)]
    assert len(lengths) == tiles and len(set(lengths)) == 1
    assert lengths[0] <= tile + 2 * vocoder.config.context


def test_no_latent_steps_are_no_samples(vocoder, latent):
    assert decode(vocoder, latent[..., :0]).shape == (1, 2, 0)


def test_tiles_of_a_single_step_equal_one_piece(vocoder, latent):
    piece = latent[..., :25]
    assert (decode(vocoder, piece, tile=1) - vocoder(piece)).abs().max() <= 1e-6


@pytest.mark.parametrize("context", [0, 4])
def test_too_little_context_is_heard(vocoder, latent, one_shot, context):
    tile = with_context(vocoder, latent, 15, 30, context)
    assert (tile - one_shot[..., 15 * 512 : 30 * 512]).abs().max() > 1e-5


def test_twelve_steps_of_context_are_enough(vocoder, latent, one_shot):
    tile = with_context(vocoder, latent, 15, 30, 12)
    assert (tile - one_shot[..., 15 * 512 : 30 * 512]).abs().max() <= 1e-6


def test_context_of_the_release_covers_the_measured_reach_and_is_at_most_twelve(double):
    latent = torch.randn(1, 2, 41, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    pushed = latent.clone()
    pushed[..., 20] += 1.0
    changed = (double(pushed) != double(latent)).any(dim=1)[0].nonzero().flatten() // 512 - 20
    reach = int(changed.abs().max())
    assert 8 < reach <= VocoderConfig().context <= 12
    assert double.config.context == VocoderConfig().context


def test_joining_latents_and_decoding_once_equals_joining_decoded_windows(vocoder):
    """Two windows that share the carried 172 steps; crops of 86 and 258 latent steps, in samples."""
    generator = torch.Generator().manual_seed(2)
    first, second = (torch.randn(1, 128, length, generator=generator) for length in (400, 360))
    second[..., :172] = first[..., 56:228]
    once = decode(vocoder, torch.cat((first[..., :142], second[..., 86:]), dim=-1))
    audio = torch.cat((vocoder(first)[..., : -258 * 512], vocoder(second)[..., 86 * 512 :]), dim=-1)
    assert once.shape == audio.shape
    assert (once - audio).abs().max() <= 1e-6


def test_audio_is_float32_on_the_cpu_for_a_latent_of_any_float_dtype(vocoder, latent):
    audio = decode(vocoder, latent.bfloat16())
    assert audio.shape == (1, 2, LENGTH * 512) and audio.dtype == torch.float32 and audio.device.type == "cpu"
    assert torch.equal(audio, decode(vocoder, latent.bfloat16().float()))


def test_rows_of_a_batch_are_decoded_as_if_alone(vocoder, latent):
    rows = torch.cat((latent, latent.flip(-1), -latent))
    audio = decode(vocoder, rows, tile=23)
    assert audio.shape == (3, 2, LENGTH * 512)
    for row in range(3):
        assert torch.equal(audio[row : row + 1], decode(vocoder, rows[row : row + 1], tile=23))


class Loud:
    """A decoder of one sample per latent step that passes the latent through."""

    config = VocoderConfig(latent_channels=2, width=2, strides=())

    def __call__(self, latent):
        return latent


def test_samples_beyond_full_scale_are_clamped_and_others_left_as_they_are():
    latent = torch.tensor([[[-3.0, -1.0, -0.25, 0.0], [0.125, 1.0, 1.5, 9.0]]])
    expected = torch.tensor([[[-1.0, -1.0, -0.25, 0.0], [0.125, 1.0, 1.0, 1.0]]])
    assert torch.equal(decode(Loud(), latent, tile=3), expected)


def test_latent_is_not_modified(vocoder, latent):
    before = latent.clone()
    decode(vocoder, latent, tile=13).zero_()
    assert torch.equal(latent, before)


@pytest.mark.parametrize("tile", [0, -1])
def test_an_empty_tile_is_refused(vocoder, latent, tile):
    with pytest.raises(ValueError, match=str(tile)):
        decode(vocoder, latent, tile=tile)


def test_progress_counts_tiles_of_all_rows_and_an_exception_from_it_passes_through(vocoder, latent):
    told = []
    decode(vocoder, latent.expand(2, -1, -1), tile=20, on_tile=lambda done, total: told.append((done, total)))
    assert told == [(done, 6) for done in range(1, 7)]

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decode(vocoder, latent, tile=25, on_tile=stop)
