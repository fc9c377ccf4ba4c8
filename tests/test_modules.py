"""The public names that this library keeps, with the attributes and behaviour that are documented for them."""

import inspect

import pytest
import torch

import mm3
from mm3.demo import CONDITION_ENCODER, demo_hidden, official_states
from mm3.rope import rope_tables

NAMES = {
    "Attention",
    "FourierFeatures",
    "MiniMaxMusic3ConditionEncoder",
    "MiniMaxMusic3FlowMatchingDiT",
    "MiniMaxMusic3Transformer1DModel",
    "TimestepEmbedding",
    "TransformerBlock",
    "remap_transformer_state",
}


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_documented_names_are_public():
    assert set(mm3.__all__) >= NAMES
    assert all(inspect.getdoc(getattr(mm3, name)) for name in mm3.__all__)


def test_release_sizes_are_the_defaults():
    transformer = mm3.MiniMaxMusic3Transformer1DModel(device="meta")
    assert len(transformer.transformer_blocks) == 36
    assert transformer.preprocess_conv.weight.shape == (2304, 2304, 1)
    assert transformer.proj_in.weight.shape == (2048, 2304)
    assert transformer.transformer_blocks[35].attn.num_heads == 32
    assert sum(parameter.numel() for parameter in transformer.parameters()) == 2_431_905_920
    encoder = mm3.MiniMaxMusic3ConditionEncoder(device="meta")
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 25_167_881
    assert encoder.config.input_width == 32_768


def test_transformer_has_the_documented_parts(dit):
    transformer = dit.transformer
    for name in ("preprocess_conv", "postprocess_conv", "proj_in", "proj_out"):
        assert getattr(transformer, name).bias is None
    block = transformer.transformer_blocks[0]
    assert {name for name, _ in block.named_children()} == {"attn", "ff_in", "ff_out", "norm1", "norm2"}
    assert (block.norm1.eps, block.norm2.eps) == (1e-5, 1e-5)
    assert isinstance(transformer.time_embed.act, torch.nn.SiLU)
    assert transformer.time_embed.linear_1.bias is not None and transformer.time_embed.linear_2.bias is not None
    assert transformer.attention_backend_name == block.attn.backend_name == "TORCH_SDPA"


def test_fourier_features_are_cosines_and_then_sines():
    features = mm3.FourierFeatures(1, 4)
    features.weight.data = torch.tensor([[0.5], [2.0]])
    # At one half the angles are pi / 2 and 2 pi, at a quarter pi / 4 and pi.
    assert (features(torch.tensor([[0.5]])) - torch.tensor([[0.0, 1.0, 1.0, 0.0]])).abs().max() <= 1e-5
    assert (features(torch.tensor([[0.25]])) - torch.tensor([[0.7071, -1.0, 0.7071, 0.0]])).abs().max() <= 1e-4


def test_feed_forward_multiplies_value_with_the_gate_in_the_second_half(dit):
    x = randn(1, 3, 128)
    block = mm3.TransformerBlock(128, head_dim=64, inner_dim=192).eval()
    block.load_state_dict(dit.transformer.transformer_blocks[0].state_dict())
    block.attn.to_out.weight.data.zero_()
    value, gate = block.ff_in(block.norm2(x)).split(192, dim=-1)
    expected = x + block.ff_out(value * gate * torch.sigmoid(gate))
    out = block(x, *rope_tables(3, 32, x.device))
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


def test_velocity_has_the_shape_of_the_latent_and_depends_on_time_and_condition(dit):
    x, condition, t = randn(2, 128, 9), randn(2, 32, 9, seed=1), torch.tensor([0.0, 0.5])
    velocity = dit.transformer(x, t, condition)
    assert velocity.shape == (2, 128, 9)
    assert (dit.transformer(x, t + 0.25, condition) - velocity).abs().amax(dim=(1, 2)).min() > 1e-3
    assert (dit.transformer(x, t, condition * 0) - velocity).abs().amax(dim=(1, 2)).min() > 1e-3


def test_condition_is_a_softmax_mix_of_layers_and_a_convolution_over_frames(dit):
    encoder, hidden = dit.condition_encoder, demo_hidden(11).float()
    state = official_states()["condition_encoder"]
    weights = state["layer_weight_logits"].exp() / state["layer_weight_logits"].exp().sum()
    mixed = sum(w * hidden[..., 24 * i : 24 * (i + 1)] for i, w in enumerate(weights)) * state["layer_scale"]
    expected = torch.nn.functional.conv1d(mixed.mT, state["proj.weight"], state["proj.bias"], padding=1)
    assert encoder.condition(hidden).shape == (1, 32, 11)
    assert (encoder.condition(hidden) - expected).abs().max() <= 1e-5
    assert torch.equal(dit.condition(hidden), encoder.condition(hidden))


@pytest.mark.parametrize("frames", [1, 20, 199, 200])
def test_aligned_condition_repeats_the_nearest_earlier_frame(dit, frames):
    hidden = demo_hidden(frames).float()
    length = dit.condition_encoder.aligned_mel_length(frames)
    assert length == {1: 3, 20: 68, 199: 685, 200: 689}[frames] == dit.aligned_mel_length(frames)
    sources = [step * frames // length for step in range(length)]
    aligned = dit.condition_encoder.aligned_condition(hidden)
    assert torch.equal(aligned, dit.condition(hidden)[..., sources])
    assert torch.equal(aligned, dit.aligned_condition(hidden))


def test_condition_of_silence_is_not_zero(dit):
    silence = torch.zeros(1, 4, CONDITION_ENCODER.input_width)
    assert dit.aligned_condition(silence).abs().amax() > 1e-2


@pytest.mark.parametrize("shape", [(1, 4, 191), (4, 192), (1, 1, 4, 192)])
def test_condition_of_another_shape_is_refused_with_both_shapes(dit, shape):
    with pytest.raises(ValueError, match="192") as error:
        dit.condition_encoder.condition(torch.zeros(shape))
    assert str(list(shape)) in str(error.value)
