"""The core's own nodes on this pack's latent: a decoder of the released size with random weights."""

import pytest
import soundfile
import torch
from graphs import node, song
from real_files import write_random
from test_release_names import comfy_vocoder

from mm3.demo import demo_hidden
from mm3.hidden import save_hidden


@pytest.fixture(scope="module")
def dav(comfy):
    path = comfy.base / "models/vae/minimax_music3_dav.safetensors"
    yield write_random(path, comfy_vocoder(), torch.float32)
    path.unlink()


def test_core_decodes_the_samplers_latent_to_the_same_audio(comfy, dav):
    """Up to the core's own loudness rule: it divides by five times the standard deviation where that is above 1."""
    save_hidden(comfy.base / "input/short.safetensors", demo_hidden(5))
    graph = song(seed=21)
    graph["frames"]["inputs"]["file"] = "short.safetensors [input]"
    graph["load"]["inputs"]["vocoder"] = dav.name
    graph["vae"] = node("VAELoader", vae_name=dav.name)
    graph["core_decode"] = node("VAEDecodeAudio", samples=["sample", 0], vae=["vae", 0])
    graph["core_audio"] = node("SaveAudio", audio=["core_decode", 0], filename_prefix="audio/core")
    run = comfy.run(graph)
    ours, theirs = (audio_of(comfy, run, name) for name in ("audio", "core_audio"))
    assert ours.shape == theirs.shape == (17 * 512, 2)
    assert abs(ours).max() > 0.01
    assert (ours / max(1.0, 5 * ours.std()) - theirs).abs().max() <= 1e-3


def audio_of(comfy, run, name):
    (file,) = run.outputs[name]["audio"]
    samples, _ = soundfile.read(comfy.base / "output" / file["subfolder"] / file["filename"], dtype="float32")
    return torch.from_numpy(samples)
