"""int8 convrot files: kept int8, and equal to the floats that they stand for."""

import pytest
import torch
from layout_writers import comfy_dit, write_folder, write_state
from quant_writers import WIDE_TRANSFORMER, int8, int8_rows, json_bytes, rotation
from safetensors.torch import save_file
from test_checkpoint import randn, velocity

from mm3.checkpoint import CheckpointError, open_checkpoint
from mm3.demo import official_states
from mm3.load import load_dit
from mm3.quant import PackedLinear, PackedWeight
from mm3.quant.scaled import ScaledRows, hadamard

QKV = "diffusion_transformer.transformer.layers.0.self_attn.to_qkv"


@pytest.fixture(scope="module")
def states():
    return official_states(transformer=WIDE_TRANSFORMER)


def comfy_int8(states, path, **options):
    """Comfy-Org's names: (checkpoint, the DiT of the floats that it stands for)."""
    stored, meant = int8(comfy_dit(states), **options)
    floats = open_checkpoint(write_state(path / "floats.safetensors", meant))
    return open_checkpoint(write_state(path / "int8.safetensors", stored)), load_dit(floats)


def official_int8(states, path, **options):
    """One file with official names and separate projections, the condition encoder in a file of its own."""
    stored, meant = int8(states["transformer"], **options)
    folders = [
        write_folder(path / kind, {"condition_encoder": states["condition_encoder"], "transformer": state})
        for kind, state in (("int8", stored), ("floats", meant))
    ]
    return open_checkpoint(folders[0]), load_dit(open_checkpoint(folders[1]))


VARIANTS = {"Comfy-Org names": comfy_int8, "official names": official_int8}


def packed_layers(dit):
    return {name: layer for name, layer in dit.named_modules() if isinstance(layer, PackedLinear)}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("options", [{}, {"flat": True}, {"group": 64}, {"group": 0}], ids=str)
def test_an_int8_file_equals_its_dequantised_weights(variant, options, states, tmp_path):
    checkpoint, floats = variant(states, tmp_path, **options)
    dit = load_dit(checkpoint)
    packed = packed_layers(dit)
    assert len(packed) == 2 * 4 and all(layer.weight.dtype == torch.int8 for layer in packed.values())
    assert (velocity(dit) - velocity(floats)).abs().max() <= 1e-5 * velocity(floats).abs().max()
    for name, layer in packed.items():
        meant = floats.get_submodule(name).weight
        unpacked = PackedWeight(layer.packing, layer.weight, layer.scale).unpack(torch.float32)
        assert (unpacked - meant).abs().max() <= 2e-7 * meant.abs().max(), name


def test_fused_and_separate_projections_are_kept_alike(states, tmp_path):
    fused, separate = (
        load_dit(variant(states, tmp_path / name)[0]) for name, variant in (("a", comfy_int8), ("b", official_int8))
    )
    for name, layer in packed_layers(fused).items():
        other = separate.get_submodule(name)
        assert torch.equal(layer.weight, other.weight) and torch.equal(layer.scale, other.scale), name
    assert torch.equal(velocity(fused), velocity(separate))


def test_wide_weights_cost_one_byte_and_the_rest_float32(states, tmp_path):
    checkpoint, floats = comfy_int8(states, tmp_path)
    kept = {name: value.dtype for name, value in load_dit(checkpoint).named_parameters()}
    assert set(kept.values()) == {torch.int8, torch.float32}
    wide = sum(value.numel() for name, value in floats.named_parameters() if kept[name] == torch.int8)
    assert wide == 2 * (256 * 768 + 256 * 256 + 256 * 1024 + 512 * 256)


def test_checkpoint_tells_that_it_is_packed(states, tmp_path):
    checkpoint, _ = comfy_int8(states, tmp_path)
    transformer = checkpoint.component("transformer")
    assert transformer.packed and transformer.dtype == torch.int8
    assert not checkpoint.component("condition_encoder").packed


def test_half_precision_is_the_rounded_weight(states, tmp_path):
    checkpoint, floats = comfy_int8(states, tmp_path)
    layer = load_dit(checkpoint, dtype=torch.bfloat16).transformer.transformer_blocks[0].ff_in
    x = randn(5, 256).bfloat16()
    plain = floats.transformer.transformer_blocks[0].ff_in
    expected = torch.nn.functional.linear(x, plain.weight.bfloat16(), plain.bias.bfloat16())
    assert layer(x).dtype == torch.bfloat16
    assert (layer(x) - expected).abs().max() <= 2**-7 * expected.abs().max()


@pytest.mark.parametrize("size", [4, 16, 64, 256, 1024])
def test_rotation_is_the_definition_and_its_own_inverse(size):
    assert torch.equal(hadamard(size), rotation(size).float())
    assert torch.equal(hadamard(size) @ hadamard(size), torch.eye(size))


def test_unpacking_in_slices_equals_unpacking_at_once(monkeypatch):
    values, scale, _ = int8_rows(randn(70, 256))
    whole = ScaledRows(256).unpack(values, scale, torch.float32)
    monkeypatch.setattr("mm3.quant.weight._VALUES_AT_ONCE_ON_CPU", 256 * 16)
    assert torch.equal(ScaledRows(256).unpack(values, scale, torch.float32), whole)


def write_int8(states, path, change):
    """A file whose first layer was changed; `change` takes the state."""
    stored, _ = int8(comfy_dit(states))
    change(stored)
    save_file(stored, path / "int8.safetensors")
    return path / "int8.safetensors"


def setting(**settings):
    return lambda state: state.update({f"{QKV}.comfy_quant": json_bytes(settings)})


WRONG = {
    "another format": (setting(format="nvfp4"), ["nvfp4", "not known"]),
    "packed to four bits": (setting(format="convrot_w4a4"), ["convrot_w4a4", "not known"]),
    "a format for another dtype": (setting(format="float8_e4m3fn"), ["int8", "float8_e4m3fn"]),
    "no format": (setting(), ["{}", "not known"]),
    "a group that is no power of 4": (
        setting(format="int8_tensorwise", convrot=True, convrot_groupsize=128),
        ["groups of 128"],
    ),
    "a group wider than the rows": (
        setting(format="int8_tensorwise", convrot=True, convrot_groupsize=1024),
        ["groups of 1024", "[768, 256]"],
    ),
    "a group of text": (setting(format="int8_tensorwise", convrot=True, convrot_groupsize="wide"), ["wide"]),
    "settings that are not JSON": (
        lambda state: state.update({f"{QKV}.comfy_quant": torch.zeros(9, dtype=torch.uint8)}),
        ["comfy_quant is not a JSON object"],
    ),
    "no settings": (lambda state: state.pop(f"{QKV}.comfy_quant"), ["with scale tensors"]),
    "no scale": (lambda state: state.pop(f"{QKV}.weight_scale"), ["without", "weight_scale"]),
    "a scale too many": (
        lambda state: state.update({f"{QKV}.weight_scale": torch.ones(769)}),
        ["[769]", "[768, 256]"],
    ),
}


@pytest.mark.parametrize(("change", "words"), WRONG.values(), ids=WRONG)
def test_what_is_not_understood_is_refused_with_its_name(change, words, states, tmp_path):
    with pytest.raises(CheckpointError) as refusal:
        open_checkpoint(write_int8(states, tmp_path, change))
    assert all(word in str(refusal.value) for word in [QKV, *words])


def test_a_quantised_file_of_another_model_is_told_by_its_layout(tmp_path):
    state = {"model.layers.0.weight": torch.zeros(4, 4, dtype=torch.uint8)}
    state["model.layers.0.comfy_quant"] = json_bytes({"format": "nvfp4"})
    with pytest.raises(CheckpointError, match="is not a MiniMax Music 3 acoustic checkpoint"):
        open_checkpoint(write_state(tmp_path / "other.safetensors", state))


def test_a_scale_of_no_weight_is_unexpected(states, tmp_path):
    path = write_int8(states, tmp_path, lambda state: state.pop(f"{QKV}.weight".replace("layers.0", "layers.1")))
    with pytest.raises(CheckpointError, match=r"is quantised in ComfyUI's format .*1\.self_attn\.to_qkv"):
        load_dit(open_checkpoint(path))
