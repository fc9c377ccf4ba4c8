"""Float16 where the values that it works on leave its range."""

import pytest
import torch
from diffusers.models import MiniMaxMusic3Transformer1DModel as Reference
from torch.nn.functional import linear

from mm3 import MiniMaxMusic3Transformer1DModel, TransformerBlock, TransformerConfig, remap_transformer_state
from mm3.flow import guided, solve
from mm3.quant import PackedLinear, PackedWeight
from mm3.quant.scaled import ScaledRows
from mm3.ranged import RangedLinear, ranged_linear

CONFIG = TransformerConfig(condition_channels=32, width=128, depth=12, ff_width=192, fourier_features=32)
LARGEST = torch.finfo(torch.float16).max


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def relative(result, expected):
    return float((result - expected).double().norm() / expected.double().norm())


@pytest.mark.parametrize("size", [0.0, 1e-20, 1e-6, 1.0, 1e6, 1e20])
def test_rows_of_any_size_are_multiplied_to_the_precision_of_float16(size):
    x, weight = randn(7, 512) * size, (randn(64, 512, seed=1) * 0.05).half()
    result = ranged_linear(x, weight)
    assert result.dtype == torch.float32
    assert (result - x @ weight.float().T).norm() <= 5e-4 * (x @ weight.float().T).norm()


@pytest.mark.parametrize("spread", [1, 3], ids=["even", "heavy-tailed"])
def test_a_product_that_fits_is_as_exact_as_in_plain_float16(spread):
    x, weight = randn(64, 2048) ** spread, (randn(256, 2048, seed=1) * 0.02).half()
    expected = x.double() @ weight.double().T
    assert relative(ranged_linear(x, weight), expected) <= 1.02 * relative(linear(x.half(), weight), expected)


def test_a_large_row_costs_the_others_and_the_bias_nothing():
    x, weight, bias = randn(2, 512), (randn(64, 512, seed=1) * 0.05).half(), randn(64, seed=2)
    alone = ranged_linear(x[1:], weight, bias)
    x[0] *= 1e9
    both = ranged_linear(x, weight, bias)
    assert torch.equal(both[1:], alone)
    assert torch.equal(ranged_linear(torch.zeros(1, 512), weight, bias)[0], bias)


def test_layers_of_stored_and_of_packed_weights_agree_beyond_the_range():
    values = torch.randint(-127, 128, (64, 256), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    weight = PackedWeight(ScaledRows(), values, torch.full((64, 1), 2.0**-3))
    x, bias = randn(5, 256) * 1e6, randn(64, seed=1)
    plain = RangedLinear(256, 64)
    plain.load_state_dict({"weight": weight.unpack(torch.float16), "bias": bias}, assign=True)
    packed = PackedLinear(weight, bias, ranged=True)
    assert plain(x).abs().max() > LARGEST
    assert torch.equal(packed(x), plain(x))
    assert relative(packed(x), x @ weight.unpack(torch.float32).T + bias) <= 5e-4


def test_only_the_layers_that_add_to_the_stream_are_ranged_and_only_in_float16():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        block = TransformerBlock(128, head_dim=64, inner_dim=192, dtype=torch.bfloat16, compute_dtype=dtype)
        ranged = {name for name, layer in block.named_modules() if isinstance(layer, RangedLinear)}
        assert ranged == ({"attn.to_out", "ff_out"} if dtype == torch.float16 else set())


@pytest.fixture(scope="module")
def reference():
    torch.manual_seed(0)
    return Reference(
        in_channels=CONFIG.latent_channels,
        condition_dim=CONFIG.condition_channels,
        num_layers=CONFIG.depth,
        num_attention_heads=CONFIG.heads,
        ff_inner_dim=CONFIG.ff_width,
        fourier_embedding_dim=CONFIG.fourier_features,
    ).eval()


def loaded(state, dtype):
    model = MiniMaxMusic3Transformer1DModel(CONFIG, dtype=dtype)
    model.load_state_dict(remap_transformer_state(state))
    return model.eval()


@pytest.mark.parametrize("layer", ["attn.to_out.0", "ff_in", "ff_out"])
def test_one_layer_scaled_until_plain_float16_is_infinite_does_not_overflow(layer, reference):
    state = {name: value.half().float() for name, value in reference.state_dict().items()}
    plain = Reference.from_config(reference.config).half().eval()
    x, t, condition = randn(2, 128, 20), torch.tensor([0.25, 0.5]), randn(2, 32, 20, seed=1)
    inputs = (x.half(), t.half(), condition.mT.half())
    plain.load_state_dict(state)
    assert plain(*inputs, return_dict=False)[0].isfinite().all()
    while plain(*inputs, return_dict=False)[0].isfinite().all():
        for name in state:
            if name.startswith(f"transformer_blocks.5.{layer}."):
                state[name] *= 2
        plain.load_state_dict(state)
    assert all(parameter.isfinite().all() for parameter in plain.parameters())
    noise = x[:1]
    latents = [
        solve(guided(loaded(state, dtype), condition[:1], 1.7), noise, 8) for dtype in (torch.float16, torch.float32)
    ]
    assert latents[1].abs().max() > 100
    assert relative(*latents) <= 5e-3
