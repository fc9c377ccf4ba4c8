"""Packed weights in a real ComfyUI: the song of the command line, whole, in part, and with nothing on the device."""

import pytest
import torch
from comfy_server import partial_loading
from gguf_writers import write_gguf
from layout_writers import comfy_dit, write_folder, write_state
from quant_writers import WIDE_TRANSFORMER, float8, int8, is_wide
from safetensors.torch import load_file

from mm3.__main__ import main
from mm3.checkpoint import open_checkpoint
from mm3.demo import official_states, write_demo_checkpoint, write_demo_hidden
from mm3.load import load_dit

STATES = official_states(transformer=WIDE_TRANSFORMER)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A base directory of this module's own: other tests look at what is listed in theirs."""
    base = tmp_path_factory.mktemp("packed")
    write_demo_checkpoint(base / "models/diffusers/tiny")
    (base / "input").mkdir()
    write_demo_hidden(base / "input/hidden.safetensors", 250)  # two windows
    return base


def write_comfy_int8(models, states=STATES):
    write_state(models / "diffusion_models/int8.safetensors", int8(comfy_dit(states))[0])
    return "int8.safetensors", models / "diffusion_models/int8.safetensors"


def write_official_int8(models):
    encoder = {"condition_encoder": STATES["condition_encoder"]}
    write_folder(models / "diffusers/int8", {"transformer": int8(STATES["transformer"])[0], **encoder})
    return "int8/", models / "diffusers/int8"


def write_float8(models):
    write_state(models / "diffusion_models/fp8.safetensors", float8(comfy_dit(STATES), torch.float8_e4m3fn)[0])
    return "fp8.safetensors", models / "diffusion_models/fp8.safetensors"


def write_q4(models, states=STATES):
    def type_of(name):
        return "F32" if not is_wide(name) else "Q6_K" if "ff.ff.2" in name else "Q4_K"

    write_gguf(models / "diffusion_models/sub/q4.gguf", comfy_dit(states), type_of)
    return "sub/q4.gguf", models / "diffusion_models/sub/q4.gguf"


# What is written -> what ComfyUI runs its wide weights as.
FILES = {
    "int8 convrot, Comfy-Org names": (write_comfy_int8, "Linear of QuantizedTensor"),
    "int8 convrot, official names": (write_official_int8, "Linear of QuantizedTensor"),
    "scaled fp8": (write_float8, "_PackedLayer of Parameter"),
    "GGUF": (write_q4, "_PackedLayer of Parameter"),
}


@pytest.mark.parametrize(("write", "wide"), FILES.values(), ids=FILES)
def test_packed_file_gives_the_song_of_the_command_line_however_it_is_loaded(
    comfy_checkout, base, tmp_path, write, wide
):
    choice, path = write(base / "models")
    report = partial_loading(comfy_checkout, base, choice, "latent")
    assert set(report["wide"].values()) == {wide} and choice in report["listed"]
    kept = sum(parameter.nbytes for parameter in load_dit(open_checkpoint(path)).parameters())
    assert report["bytes"] == pytest.approx(kept, rel=0.01)
    assert max(differences(report, base, path, "fp32", tmp_path)) <= 1e-4


def write_plain(models, states):
    path = write_state(models / "diffusion_models/plain.safetensors", comfy_dit(states))
    return path.name, path


# One norm scaled until the gated values after it leave float16's range.
LARGE = STATES | {
    "transformer": {
        name: value * 2.0**9 if name == "transformer_blocks.1.norm2.weight" else value
        for name, value in STATES["transformer"].items()
    }
}
# What is written -> what ComfyUI runs layers as in float16, and those of them that add to the residual stream.
FLOAT16 = {
    "float32": (write_plain, "Linear of Parameter", "_RangedLayer of Parameter"),
    "int8 convrot": (write_comfy_int8, "Linear of QuantizedTensor", "_PackedLayer of Parameter"),
    "GGUF": (write_q4, "_PackedLayer of Parameter", "_PackedLayer of Parameter"),
}


@pytest.mark.parametrize(("write", "others", "adding"), FLOAT16.values(), ids=FLOAT16)
def test_float16_gives_the_song_of_the_command_line_however_it_is_loaded(
    comfy_checkout, base, tmp_path, write, others, adding
):
    choice, path = write(base / "models", LARGE)
    report = partial_loading(comfy_checkout, base, choice, "latent", "fp16")
    assert report["wide"] == {"to_qkv": others, "ff_in": others, "to_out": adding, "ff_out": adding}
    assert report["novram_from_partial"] == report["lazy_from_partial"] == 0
    size = load_file(base / "whole.safetensors")["samples"].abs().max()
    assert size > torch.finfo(torch.float16).max
    # About float16's own error: ComfyUI's int8 layers round elsewhere than ours, and where memory is short the two
    # branches of guidance run one after the other, in products of other shapes.
    assert max(differences(report, base, path, "fp16", tmp_path)) <= 5e-3 * size


def differences(report, base, path, dtype, tmp_path):
    """Largest differences of ComfyUI's latents: between its ways of loading, and to the command line's."""
    latent = tmp_path / "song.safetensors"
    files = [f"--checkpoint={path}", f"--vocoder={base / 'models/diffusers/tiny'}"]
    files += [f"--hidden={base / 'input/hidden.safetensors'}", f"--out={tmp_path / 'song.wav'}"]
    options = [f"--latent-out={latent}", "--steps=4", "--seed=3", "--device=cpu", f"--dtype={dtype}"]
    assert main(["render", *files, *options]) == 0
    whole = load_file(base / "whole.safetensors")["samples"]
    found = {kind: report[f"{kind}_difference"] for kind in ("partial", "novram", "lazy")}
    found["command line"] = float((whole - load_file(latent)["samples"]).abs().max())
    print(path.name, dtype, found)
    return found.values()
