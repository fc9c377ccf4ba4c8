"""`inspect` of every layout, and a condition encoder of its own on the command line."""

import pytest
import torch
from layout_writers import comfy_dit, write_state
from other_writers import cpp_vocoder, hot_step_bundle, whole_codec, write_cache, write_pickle
from test_cli import error_line, frames, render, samples  # noqa: F401 - fixtures

from mm3.__main__ import main
from mm3.checkpoint import CheckpointError, open_checkpoint
from mm3.demo import official_states
from mm3.load import load_dit

TOLD = {
    "flowmatching_vae.pth": (
        lambda folder, states: write_pickle(folder / "a.pth", comfy_dit(states)),
        ["transformer: Comfy-Org DiT layout, float32", "condition_encoder: Comfy-Org DiT", "vocoder: not here"],
    ),
    "dav.pth": (
        lambda folder, states: write_pickle(folder / "dav.pth", whole_codec(states)),
        [
            "vocoder: Comfy-Org vocoder layout",
            "not needed: encoder (3 tensors), mean_proj (2 tensors), logs_proj (2 tensors), flow (1 tensors)",
        ],
    ),
    "minimaxmusic.cpp": (
        lambda folder, states: write_state(folder / "voc", cpp_vocoder(states)),
        ["vocoder: official vocoder layout", "not needed: encoder (2 tensors)"],
    ),
    "HOT-Step": (
        lambda folder, states: write_state(folder / "synth", hot_step_bundle(states)),
        ["HOT-Step transformer layout", "HOT-Step condition encoder layout", "HOT-Step vocoder layout", "depth (2"],
    ),
    "cache": (
        lambda folder, states: write_cache(folder / "models--x--y", states),
        ["official transformer layout", "official condition encoder layout", "official vocoder layout"],
    ),
    "fp8": (
        lambda folder, states: write_state(
            folder / "fp8", {name: value.to(torch.float8_e4m3fn) for name, value in comfy_dit(states).items()}
        ),
        ["Comfy-Org DiT layout, float8_e4m3fn, ", " parameters"],
    ),
}


@pytest.mark.parametrize(("write", "told"), TOLD.values(), ids=TOLD)
def test_inspect_explains_every_layout(write, told, tmp_path, capfd):
    assert main(["inspect", str(write(tmp_path, official_states()))]) == 0
    text = capfd.readouterr().out
    assert all(line in text for line in told) and "complete" in text


@pytest.mark.parametrize("missing", ["proj_out.weight", "transformer_blocks.1.norm1.bias"])
def test_inspect_tells_what_is_missing_in_the_words_of_the_loader(missing, tmp_path, capfd):
    state = comfy_dit(official_states())
    names = {"proj_out.weight": "transformer.project_out.weight"}
    del state["diffusion_transformer." + names.get(missing, "transformer.layers.1.pre_norm.beta")]
    path = write_state(tmp_path / "dit.safetensors", state)
    assert main(["inspect", str(path)]) == 1
    told = error_line(capfd)
    assert missing in told
    with pytest.raises(CheckpointError) as refused:
        load_dit(open_checkpoint(path))
    assert told == f"error: {refused.value}"


def test_a_condition_encoder_of_its_own_renders_the_same(render, tmp_path, capfd):  # noqa: F811
    states = official_states()
    dit = write_state(tmp_path / "dit.safetensors", states["transformer"])
    encoder = write_state(tmp_path / "encoder.safetensors", states["condition_encoder"])
    vocoder = write_pickle(tmp_path / "dav.pth", whole_codec(states))
    parts = {"checkpoint": dit, "vocoder": vocoder}
    assert render("--steps=1") == 0
    assert render("--steps=1", out=tmp_path / "parts.wav", **parts, **{"condition-encoder": encoder}) == 0
    assert torch.equal(samples(tmp_path / "parts.wav"), samples(tmp_path / "song.wav"))
    assert render("--steps=1", **parts) == 1
    assert "dit.safetensors holds no condition encoder" in error_line(capfd)
