"""Quantised files through the command line."""

import pytest
import torch
from gguf_writers import write_gguf
from layout_writers import comfy_dit, write_state
from quant_writers import WIDE_TRANSFORMER, float8, int8, is_wide
from safetensors.torch import load_file

from mm3.__main__ import main
from mm3.demo import official_states, write_demo_hidden


def write_int8(folder, state):
    stored, meant = int8(state)
    return write_state(folder / "int8.safetensors", stored), meant


def write_float8(folder, state):
    stored, meant = float8(state, torch.float8_e4m3fn)
    return write_state(folder / "fp8.safetensors", stored), meant


def write_q5(folder, state):
    meant = write_gguf(folder / "q5.gguf", state, lambda name: "Q5_K" if is_wide(name) else "F32")
    return folder / "q5.gguf", meant


FILES = {"int8 convrot": write_int8, "scaled float8_e4m3fn": write_float8, "Q5_K": write_q5}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("write", FILES.values(), ids=FILES)
def test_render_gives_the_latent_of_the_dequantised_file(write, dtype, checkpoint, tmp_path):
    packed, meant = write(tmp_path, comfy_dit(official_states(transformer=WIDE_TRANSFORMER)))
    floats = write_state(tmp_path / "floats.safetensors", meant)
    hidden = write_demo_hidden(tmp_path / "hidden.safetensors", 4)
    latents = []
    for path in (packed, floats):
        out = [f"--out={tmp_path / 'song.wav'}", f"--latent-out={tmp_path / 'latent.safetensors'}"]
        options = [f"--checkpoint={path}", f"--vocoder={checkpoint}", f"--hidden={hidden}", *out]
        assert main(["render", *options, f"--dtype={dtype}", "--steps=2", "--device=cpu"]) == 0
        latents.append(load_file(tmp_path / "latent.safetensors")["samples"])
    # In half precision the floats are rounded once on the way, as the packed ones are.
    assert (latents[0] - latents[1]).abs().max() <= (1e-5 if dtype == "fp32" else 5e-3)


@pytest.mark.parametrize(("kind", "write"), FILES.items(), ids=FILES)
def test_inspect_names_the_quantisation(kind, write, tmp_path, capfd):
    path, _ = write(tmp_path, comfy_dit(official_states(transformer=WIDE_TRANSFORMER)))
    assert main(["inspect", str(path)]) == 0
    transformer, encoder = capfd.readouterr().out.split("condition_encoder:")
    assert f"Comfy-Org DiT layout, {kind}, float32, " in transformer and "complete" in transformer
    assert "float32, " in encoder and kind not in encoder


def test_inspect_says_what_a_file_of_another_quantisation_is(tmp_path, capfd):
    stored, _ = int8(comfy_dit(official_states(transformer=WIDE_TRANSFORMER)))
    path = write_state(tmp_path / "int8.safetensors", {k: v for k, v in stored.items() if "comfy_quant" not in k})
    assert main(["inspect", str(path)]) == 1
    assert "is quantised with scale tensors" in capfd.readouterr().err
