"""Scaled fp8 files: kept in one byte, and equal to the floats that they stand for."""

import pytest
import torch
from layout_writers import comfy_dit, write_folder, write_state
from quant_writers import float8, is_wide, json_bytes
from test_checkpoint import velocity

from mm3.checkpoint import CheckpointError, open_checkpoint
from mm3.demo import official_states
from mm3.load import load_dit
from mm3.quant import PackedLinear

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
VARIANTS = {
    "one scale": {},
    "a scale a row": {"per_row": True},
    "the older name": {"end": ".scale_weight"},
    "scales of inputs": {"beside": (".input_scale",)},
    "older scales of inputs": {"end": ".scale_weight", "beside": (".scale_input",)},
}


@pytest.fixture(scope="module")
def states():
    return official_states()


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("official", [True, False], ids=["official", "Comfy-Org"])
def test_a_scaled_fp8_file_equals_the_floats_it_stands_for(dtype, options, official, states, tmp_path):
    state = states["transformer"] if official else comfy_dit(states)
    checkpoints = []
    for kind, written in zip(("fp8", "floats"), float8(state, dtype, **options), strict=True):
        if official:
            rest = {"condition_encoder": states["condition_encoder"]}
            checkpoints.append(open_checkpoint(write_folder(tmp_path / kind, {"transformer": written} | rest)))
        else:
            checkpoints.append(open_checkpoint(write_state(tmp_path / f"{kind}.safetensors", written)))
    dit, floats = map(load_dit, checkpoints)
    assert torch.equal(velocity(dit), velocity(floats))
    packed = [layer for layer in dit.modules() if isinstance(layer, PackedLinear)]
    assert len(packed) == 2 * 4 and all(layer.weight.dtype == dtype for layer in packed)


def test_a_marker_of_scaled_fp8_is_passed_over(states, tmp_path):
    stored, _ = float8(comfy_dit(states, "model.diffusion_model."), E4M3, end=".scale_weight")
    stored["model.diffusion_model.scaled_fp8"] = torch.empty(2, dtype=E4M3)
    assert load_dit(open_checkpoint(write_state(tmp_path / "fp8.safetensors", stored)))


@pytest.mark.parametrize("as_bytes", [False, True])
def test_comfy_quant_names_fp8_too(as_bytes, states, tmp_path):
    stored, meant = float8(comfy_dit(states), E4M3)
    for name in [name for name in stored if is_wide(name)]:
        stored[name.replace(".weight", ".comfy_quant")] = json_bytes({"format": "float8_e4m3fn"})
        if as_bytes:
            stored[name] = stored[name].view(torch.uint8)
    dit = load_dit(open_checkpoint(write_state(tmp_path / "fp8.safetensors", stored)))
    floats = load_dit(open_checkpoint(write_state(tmp_path / "floats.safetensors", meant)))
    assert torch.equal(velocity(dit), velocity(floats))


def test_thin_weights_may_be_scaled_as_well(states, tmp_path):
    """They are float32 in memory, so they are unpacked."""
    stored, meant = comfy_dit(states), comfy_dit(states)
    for name in ("preprocess_conv", "transformer.project_in", "to_timestep_embed.2"):
        base = f"diffusion_transformer.{name}"
        stored[f"{base}.weight"], scale = stored[f"{base}.weight"].mul(8).to(E4M3), torch.tensor(0.125)
        stored[f"{base}.weight_scale"] = scale
        meant[f"{base}.weight"] = stored[f"{base}.weight"].float() * scale
    dit = load_dit(open_checkpoint(write_state(tmp_path / "fp8.safetensors", stored)))
    floats = load_dit(open_checkpoint(write_state(tmp_path / "floats.safetensors", meant)))
    assert torch.equal(velocity(dit), velocity(floats))


def test_scales_of_blocks_are_refused(states, tmp_path):
    stored, _ = float8(comfy_dit(states), E4M3)
    name = next(name for name in stored if name.endswith(".weight_scale"))
    stored[name] = torch.ones(3, 2)
    with pytest.raises(CheckpointError, match=r"\[3, 2\].*one scale or one a row"):
        open_checkpoint(write_state(tmp_path / "fp8.safetensors", stored))
