"""What stays in float32 when the wide products run in half precision."""

import pytest
import torch

from mm3 import TransformerBlock
from mm3.checkpoint import open_checkpoint
from mm3.load import load_dit
from mm3.rope import rope_tables

HALVES = [torch.bfloat16, torch.float16]
WIDE = ("attn.to_qkv.weight", "attn.to_out.weight", "ff_in.weight", "ff_in.bias", "ff_out.weight", "ff_out.bias")


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def inputs(channels=32):
    return randn(2, 128, 40), torch.tensor([0.25, 0.5]), randn(2, channels, 40, seed=1)


@pytest.fixture(scope="module", params=HALVES, ids=str)
def half(request, checkpoint):
    return request.param, load_dit(open_checkpoint(checkpoint), dtype=request.param)


def test_only_the_wide_weights_of_blocks_are_in_half_precision(half):
    dtype, dit = half
    for name, parameter in dit.named_parameters():
        wide = "transformer_blocks" in name and name.endswith(WIDE)
        assert parameter.dtype == (dtype if wide else torch.float32), name
    assert sum(parameter.dtype == dtype for parameter in dit.parameters()) == 2 * len(WIDE)


def test_wide_weights_are_those_of_the_file_rounded_once(half, dit):
    dtype, rounded = half
    for name, parameter in rounded.state_dict().items():
        assert torch.equal(parameter, dit.state_dict()[name].to(parameter.dtype))


def test_residual_stream_into_and_out_of_every_block_is_float32(half):
    _, dit = half
    seen = []
    hooks = [
        block.register_forward_hook(lambda _, given, out: seen.append((given[0].dtype, out.dtype)))
        for block in dit.transformer.transformer_blocks
    ]
    velocity = dit.transformer(*inputs())
    for hook in hooks:
        hook.remove()
    assert seen == [(torch.float32, torch.float32)] * 2
    assert velocity.dtype == torch.float32


def test_norms_compute_in_float32_and_wide_products_in_half_precision(half):
    dtype, dit = half
    block, seen = dit.transformer.transformer_blocks[1], {}
    hooks = [
        module.register_forward_hook(
            lambda _, given, out, name=name: seen.update({name: (given[0].dtype, out.dtype)}),
        )
        for name, module in block.named_modules()
        if name in ("norm1", "norm2", "attn.to_qkv", "attn.to_out", "ff_in", "ff_out")
    ]
    dit.transformer(*inputs())
    for hook in hooks:
        hook.remove()
    assert {seen[name] for name in ("norm1", "norm2")} == {(torch.float32, torch.float32)}
    assert {seen[name] for name in ("attn.to_qkv", "ff_in")} == {(dtype, dtype)}
    # What is added to the residual stream may leave float16's range; bfloat16 has that of float32.
    added = torch.float32 if dtype == torch.float16 else dtype
    assert (seen["attn.to_out"], seen["ff_out"]) == ((dtype, added), (added, added))


def test_condition_is_float32_even_for_half_precision_frames(half, hidden):
    _, dit = half
    assert dit.aligned_condition(hidden[:, :20]).dtype == torch.float32
    assert torch.equal(dit.aligned_condition(hidden[:, :20]), dit.aligned_condition(hidden[:, :20].float()))


def test_half_precision_velocity_is_near_that_of_float32(half, dit):
    dtype, rounded = half
    expected = dit.transformer(*inputs())
    error = (rounded.transformer(*inputs()) - expected).norm() / expected.norm()
    assert 0 < error < (1e-2 if dtype == torch.bfloat16 else 2e-3)


def test_residual_stream_may_leave_the_range_of_float16():
    block = TransformerBlock(128, head_dim=64, inner_dim=192, dtype=torch.float16)
    for seed, parameter in enumerate(block.parameters()):
        parameter.data = (randn(*parameter.shape, seed=seed) * 0.05).to(parameter.dtype)
    x = randn(1, 6, 128) * 1e6
    assert x.abs().max() > torch.finfo(torch.float16).max
    out = block(x, *rope_tables(6, 32, x.device))
    assert out.isfinite().all()
    assert 0 < (out - x).abs().max() < 100


def test_compute_dtype_is_that_of_the_weights_unless_another_is_given():
    sizes = {"head_dim": 64, "inner_dim": 192, "device": "meta"}
    assert TransformerBlock(128, **sizes, dtype=torch.bfloat16).compute_dtype == torch.bfloat16
    block = TransformerBlock(128, **sizes, dtype=torch.float8_e4m3fn, compute_dtype=torch.bfloat16)
    assert (block.compute_dtype, block.ff_in.weight.dtype) == (torch.bfloat16, torch.float8_e4m3fn)


def test_the_input_projections_are_multiplied_out_where_the_solve_is_not_where_the_weights_are(dit, monkeypatch):
    """A host keeps weights on the CPU and brings them over at use; what is asked of a layer decides where."""
    places = []

    def embed(inputs):
        places.append(inputs.device.type)
        return inputs.transpose(1, 2)

    monkeypatch.setattr(dit.transformer, "_embed", embed)
    dit.transformer.field(torch.device("meta"))
    dit.transformer.embed_condition(torch.empty(1, 32, 5, device="meta"))
    assert places == ["meta", "meta"]
    assert all(parameter.device.type == "cpu" for parameter in dit.transformer.parameters())
