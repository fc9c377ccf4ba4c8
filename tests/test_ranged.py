"""Float16 where the values that it works on leave its range."""

from types import SimpleNamespace

import pytest
import torch
from gguf_writers import write_gguf
from layout_writers import comfy_dit, write_state
from oracles import reference_transformer
from quant_writers import WIDE_TRANSFORMER, int8, is_wide
from torch.nn.functional import linear

from mm3 import MiniMaxMusic3Transformer1DModel, TransformerBlock, TransformerConfig, remap_transformer_state
from mm3.checkpoint import open_checkpoint
from mm3.demo import official_states
from mm3.flow import guided, solve
from mm3.load import load_dit
from mm3.quant import PackedLinear, PackedWeight
from mm3.quant.scaled import ScaledRows
from mm3.ranged import RangedLinear, ranged_linear
from mm3.rope import rope_tables

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
    before = ranged_linear(x, weight, bias)
    x[0] *= 1e9
    assert torch.equal(ranged_linear(x, weight, bias)[1], before[1])
    assert torch.equal(ranged_linear(torch.zeros(1, 512), weight, bias)[0], bias)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_stays_so_and_leaves_the_others_alone(value):
    x, weight = randn(3, 512), (randn(64, 512, seed=1) * 0.05).half()
    before = ranged_linear(x, weight)
    x[1, 7] = value
    result = ranged_linear(x, weight)
    assert not result[1].isfinite().any()
    assert torch.equal(result[::2], before[::2])


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


@pytest.mark.parametrize("kind", ["int8", "Q4_K"])
def test_packed_layers_are_ranged_where_those_that_they_stand_for_are(kind, tmp_path):
    state = comfy_dit(official_states(transformer=WIDE_TRANSFORMER))
    path = tmp_path / ("dit.gguf" if kind == "Q4_K" else "dit.safetensors")
    if kind == "Q4_K":
        write_gguf(path, state, lambda name: kind if is_wide(name) else "F32")
    else:
        write_state(path, int8(state)[0])
    for dtype in (torch.bfloat16, torch.float16):
        block = load_dit(open_checkpoint(path), dtype=dtype).transformer.transformer_blocks[1]
        layers = {
            "to_qkv": block.attn.to_qkv,
            "to_out": block.attn.to_out,
            "ff_in": block.ff_in,
            "ff_out": block.ff_out,
        }
        assert all(isinstance(layer, PackedLinear) for layer in layers.values())
        ranged = {name for name, layer in layers.items() if layer.ranged}
        assert ranged == ({"to_out", "ff_out"} if dtype == torch.float16 else set())


def test_a_namespace_without_a_ranged_layer_still_computes():
    operations = SimpleNamespace(**{name: getattr(torch.nn, name) for name in ("Linear", "Conv1d", "LayerNorm")})
    block = TransformerBlock(128, head_dim=64, inner_dim=192, dtype=torch.float16, operations=operations)
    for seed, parameter in enumerate(block.parameters()):
        parameter.data = (randn(*parameter.shape, seed=seed) * 0.05).to(parameter.dtype)
    out = block(randn(1, 6, 128), *rope_tables(6, 32, torch.device("cpu")))
    assert out.dtype == torch.float32 and out.isfinite().all()


@pytest.fixture(scope="module")
def reference():
    torch.manual_seed(0)
    return reference_transformer(CONFIG)


def loaded(state, dtype):
    model = MiniMaxMusic3Transformer1DModel(CONFIG, dtype=dtype)
    model.load_state_dict(remap_transformer_state(state))
    return model.eval()


@pytest.mark.parametrize("layer", ["attn.to_out.0", "ff_in", "ff_out"])
def test_one_layer_scaled_until_plain_float16_is_infinite_does_not_overflow(layer, reference):
    state = {name: value.half().float() for name, value in reference.state_dict().items()}
    plain = reference_transformer(CONFIG).half()
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
