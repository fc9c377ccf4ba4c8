"""Checkpoints of other layouts through the loader of a real ComfyUI."""

import shutil

import pytest
import torch
from comfy import PromptError
from graphs import song
from layout_writers import comfy_dit, write_state
from other_writers import whole_codec, write_cache, write_pickle
from safetensors.torch import load_file

from mm3.__main__ import main
from mm3.demo import official_states


@pytest.fixture(scope="module")
def installed(comfy):
    """The tiny model in several layouts, taken away again afterwards; gives the states."""
    states, models = official_states(), comfy.base / "models"
    files = [
        write_pickle(models / "diffusion_models/flowmatching_vae.pth", comfy_dit(states)),
        write_pickle(models / "vae/dav.pth", whole_codec(states)),
        write_state(models / "diffusion_models/alone.safetensors", states["transformer"]),
        write_state(models / "diffusion_models/condition_encoder_fp32.safetensors", states["condition_encoder"]),
        write_state(models / "diffusion_models/sd.safetensors", {"input_blocks.0.0.weight": torch.zeros(2)}),
    ]
    cache = write_cache(models / "diffusers/models--x--y", states)
    yield states
    for file in files:
        file.unlink()
    shutil.rmtree(cache)


@pytest.fixture(scope="module")
def expected(comfy):
    return latent_of(comfy, {})


def latent_of(comfy, choices):
    graph = song(steps=2)
    graph["load"]["inputs"] |= choices
    (file,) = comfy.run(graph).outputs["latent"]["latents"]
    return load_file(comfy.base / "output" / file["subfolder"] / file["filename"])["latent_tensor"]


CHOICES = {
    "torch files": {"checkpoint": "flowmatching_vae.pth", "vocoder": "dav.pth"},
    "a cache": {"checkpoint": "models--x--y/", "vocoder": "models--x--y/"},
    "a separate condition encoder": {
        "checkpoint": "alone.safetensors",
        "vocoder": "dav.pth",
        "condition_encoder": "condition_encoder_fp32.safetensors",
    },
    "a condition encoder in another file": {
        "checkpoint": "alone.safetensors",
        "condition_encoder": "flowmatching_vae.pth",
    },
}


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_other_layouts_give_the_same_latent(choices, comfy, installed, expected):
    assert torch.equal(latent_of(comfy, choices), expected)


def test_combos_list_what_holds_their_component(comfy, installed):
    inputs = comfy.object_info("MM3LoadCheckpoint")["input"]
    checkpoints, vocoders = (inputs["required"][name][1]["options"] for name in ("checkpoint", "vocoder"))
    encoders = inputs["optional"]["condition_encoder"][1]["options"]
    assert {"flowmatching_vae.pth", "alone.safetensors", "models--x--y/"} <= set(checkpoints)
    assert "sd.safetensors" not in {*checkpoints, *encoders}
    assert "condition_encoder_fp32.safetensors" not in checkpoints
    assert {"dav.pth", "models--x--y/"} <= set(vocoders)
    assert encoders[0] == "from checkpoint" and inputs["optional"]["condition_encoder"][1]["default"] == encoders[0]
    assert {"flowmatching_vae.pth", "condition_encoder_fp32.safetensors", "models--x--y/"} <= set(encoders)
    assert "alone.safetensors" not in encoders


@pytest.mark.parametrize(
    ("choices", "file", "words"),
    [
        ({"checkpoint": "sd.safetensors"}, "sd.safetensors", "it is a Stable Diffusion checkpoint"),
        ({"checkpoint": "alone.safetensors"}, None, "alone.safetensors holds no condition encoder"),
        ({"checkpoint": "alone.safetensors", "condition_encoder": "absent"}, None, "'absent' is not installed"),
    ],
)
def test_a_wrong_file_is_told_in_the_words_of_inspect(choices, file, words, comfy, installed, capfd):
    graph = song(steps=2, seed=21)
    graph["load"]["inputs"] |= choices
    with pytest.raises(PromptError) as raised:
        comfy.run(graph)
    assert words in str(raised.value)
    if file is not None:
        assert main(["inspect", str(comfy.base / "models/diffusion_models" / file)]) == 1
        assert capfd.readouterr().err.removeprefix("error: ").strip() in str(raised.value)
