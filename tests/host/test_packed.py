"""Packed weights in a real ComfyUI: the song of the command line, whole, in part, and with nothing on the device."""

import pytest
from comfy import partial_loading
from layout_writers import comfy_dit, write_folder, write_state
from quant_writers import WIDE_TRANSFORMER, int8
from safetensors.torch import load_file

from mm3.__main__ import main
from mm3.checkpoint import open_checkpoint
from mm3.demo import official_states
from mm3.load import load_dit

STATES = official_states(transformer=WIDE_TRANSFORMER)


def write_comfy_int8(models):
    write_state(models / "diffusion_models/int8.safetensors", int8(comfy_dit(STATES))[0])
    return "int8.safetensors", models / "diffusion_models/int8.safetensors"


def write_official_int8(models):
    encoder = {"condition_encoder": STATES["condition_encoder"]}
    write_folder(models / "diffusers/int8", {"transformer": int8(STATES["transformer"])[0], **encoder})
    return "int8/", models / "diffusers/int8"


# What is written -> what ComfyUI runs its wide weights as.
FILES = {
    "int8 convrot, Comfy-Org names": (write_comfy_int8, "Linear of QuantizedTensor"),
    "int8 convrot, official names": (write_official_int8, "Linear of QuantizedTensor"),
}


@pytest.mark.parametrize(("write", "wide"), FILES.values(), ids=FILES)
def test_packed_file_gives_the_song_of_the_command_line_however_it_is_loaded(
    comfy_checkout, base, tmp_path, write, wide
):
    choice, path = write(base / "models")
    report = partial_loading(comfy_checkout, base, choice, "latent")
    assert report["wide"] == [wide]
    kept = sum(parameter.nbytes for parameter in load_dit(open_checkpoint(path)).parameters())
    assert report["bytes"] == pytest.approx(kept, rel=0.01)
    latent = tmp_path / "song.safetensors"
    files = [f"--checkpoint={path}", f"--vocoder={base / 'models/diffusers/tiny'}"]
    files += [f"--hidden={base / 'input/hidden.safetensors'}", f"--out={tmp_path / 'song.wav'}"]
    assert main(["render", *files, f"--latent-out={latent}", "--steps=4", "--seed=3", "--device=cpu"]) == 0
    expected = load_file(latent)["samples"]
    differences = {kind: report[f"{kind}_difference"] for kind in ("partial", "novram", "lazy")}
    differences["command line"] = float((load_file(base / "whole.safetensors")["samples"] - expected).abs().max())
    print(choice, differences)
    assert max(differences.values()) <= 1e-4
