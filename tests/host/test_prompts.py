"""Songs through `/prompt` and the websocket of a real ComfyUI."""

import time
import urllib.error

import pytest
import soundfile
import torch
from comfy_server import PromptError
from graphs import node, song
from safetensors.torch import load_file

from mm3.__main__ import main


def saved(comfy, run, name, key):
    (file,) = run.outputs[name][key]
    return comfy.base / "output" / file["subfolder"] / file["filename"]


def latent_of(comfy, run):
    return load_file(saved(comfy, run, "latent", "latents"))["latent_tensor"]


@pytest.fixture(scope="module")
def first_run(comfy):
    return comfy.run(song())


def test_song_equals_the_command_line(comfy, first_run, tmp_path):
    wav, latent = tmp_path / "song.wav", tmp_path / "song.safetensors"
    hidden, model = comfy.base / "input/hidden.safetensors", comfy.base / "models/diffusers/tiny"
    arguments = [f"--checkpoint={model}", f"--hidden={hidden}", f"--out={wav}", f"--latent-out={latent}"]
    assert main(["render", *arguments, "--steps=6", "--seed=11", "--device=cpu"]) == 0
    expected = load_file(latent)["samples"]
    assert (latent_of(comfy, first_run) - expected).abs().max() <= 1e-5
    audio, rate = soundfile.read(saved(comfy, first_run, "audio", "audio"), dtype="float32")
    reference, _ = soundfile.read(wav, dtype="float32")
    assert rate == 44100
    assert abs(audio - reference).max() <= 1 / 2**15  # SaveAudio writes 16 bits


def test_progress_counts_windows_times_steps_and_names_the_window(first_run):
    of_sampler = [e["data"] for e in first_run.events if e["data"].get("node") == "sample"]
    progress = [data for data in of_sampler if "value" in data]
    assert progress[-1]["value"] == progress[-1]["max"] == 2 * 6
    assert [data["text"] for data in of_sampler if "text" in data] == ["window 1 of 2", "window 2 of 2"]


def test_second_run_equals_the_first(comfy, first_run):
    comfy.post("/free", {"unload_models": True, "free_memory": True})
    time.sleep(1)
    again = comfy.run(song())
    assert "sample" in again.executed()
    assert torch.equal(latent_of(comfy, again), latent_of(comfy, first_run))


def test_cancel_acts_within_a_step_and_leaves_the_next_run_unharmed(comfy, first_run):
    cancelled_at = []

    def cancel(event):
        data = event["data"]
        if not cancelled_at and data.get("node") == "sample" and "value" in data and data["value"] >= 1:
            comfy.post("/interrupt", {})
            cancelled_at.append(data["value"])

    seen = []
    with pytest.raises(PromptError) as raised:
        comfy.run(song(steps=400, seed=12), lambda event: (cancel(event), seen.append(event)))
    assert raised.value.kind == "execution_interrupted"
    values = [e["data"]["value"] for e in seen if e["data"].get("node") == "sample" and "value" in e["data"]]
    assert cancelled_at and max(values) < 400
    comfy.post("/free", {"unload_models": True, "free_memory": True})
    time.sleep(1)
    assert torch.equal(latent_of(comfy, comfy.run(song())), latent_of(comfy, first_run))


def test_core_save_and_load_keep_the_latent(comfy, first_run):
    """A latent from disk decodes, and continues without its carry."""
    source = saved(comfy, first_run, "latent", "latents")
    (comfy.base / "input/kept.latent").write_bytes(source.read_bytes())
    graph = song(seed=13)
    graph["kept"] = node("LoadLatent", latent="kept.latent")
    graph["sample"]["inputs"]["previous_latent"] = ["kept", 0]
    run = comfy.run(graph)
    continued = latent_of(comfy, run)
    pinned = load_file(source)["latent_tensor"]
    assert torch.equal(continued[..., :172], pinned[..., -344:-172])


def test_continuing_by_the_carry_equals_the_whole_song(comfy):
    """Frames 0..200 and then 100..250, carried through a link, are the two windows of the whole song."""
    from mm3.hidden import load_hidden, save_hidden

    hidden = load_hidden(comfy.base / "input/hidden.safetensors")
    save_hidden(comfy.base / "input/first.safetensors", hidden[:, :200])
    save_hidden(comfy.base / "input/second.safetensors", hidden[:, 100:])
    graph = song()
    graph["frames"]["inputs"]["file"] = "first.safetensors [input]"
    graph["more"] = node("MM3LoadConditioning", file="second.safetensors [input]")
    graph["encode_more"] = node("MM3ConditionEncoder", model=["load", 0], conditioning=["more", 0])
    settings = {**graph["sample"]["inputs"], "condition": ["encode_more", 0], "previous_latent": ["sample", 0]}
    graph["sample_more"] = node("MM3DiTEulerSampler", **settings)
    graph["latent"]["inputs"]["samples"] = ["sample_more", 0]
    second = latent_of(comfy, comfy.run(graph))
    whole = latent_of(comfy, comfy.run(song()))
    assert torch.equal(second[..., 86:], whole[..., 689 - 258 :])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"image": node("EmptyLatentImage", width=512, height=512, batch_size=1), "decode": ("latent", "image")},
            ["[1, 4, 64, 64]", "[songs, 128, latent steps]", "MM3 DiT Euler Sampler"],
        ),
        ({"frames": ("file", "wrong_width.safetensors [input]")}, ["768 wide", "192", "Stable Diffusion 1"]),
        ({"frames": ("file", "broken.safetensors [input]")}, ["frame 3 (0.12 s)", "not finite"]),
        ({"frames": ("file", "garbage.safetensors [input]")}, ["not a complete safetensors file"]),
        ({"frames": ("file", "../models/diffusers/tiny/vocoder/x.safetensors [input]")}, ["leads out of"]),
        ({"load": ("checkpoint", "other/")}, ["'other/' is not installed", "models/diffusion_models"]),
    ],
)
def test_wrong_input_gives_a_readable_error(comfy, change, words):
    write_wrong_inputs(comfy.base / "input")
    graph = song(seed=14)
    for name, value in change.items():
        if isinstance(value, dict):
            graph[name] = value
        else:
            field, given = value
            graph[name]["inputs"][field] = [given, 0] if field == "latent" else given
    with pytest.raises(PromptError) as raised:
        comfy.run(graph)
    for word in words:
        assert word in str(raised.value)


def write_wrong_inputs(folder):
    from mm3.demo import demo_hidden
    from mm3.hidden import save_hidden

    save_hidden(folder / "wrong_width.safetensors", torch.zeros(1, 10, 768))
    broken = demo_hidden(10)
    broken[0, 3, 5] = float("nan")
    save_hidden(folder / "broken.safetensors", broken)
    (folder / "garbage.safetensors").write_bytes(b"no such file" * 20)


def test_output_prefix_cannot_leave_the_output_folder(comfy):
    graph = {
        "frames": node("MM3LoadConditioning", file="hidden.safetensors [input]"),
        "save": node("MM3SaveConditioning", conditioning=["frames", 0], filename_prefix="../../escaped"),
    }
    with pytest.raises(PromptError, match="leads out of the output folder"):
        comfy.run(graph)


def test_saved_conditioning_is_listed_and_renders_the_same(comfy, first_run):
    graph = {
        "frames": node("MM3LoadConditioning", file="hidden.safetensors [input]"),
        "save": node("MM3SaveConditioning", conditioning=["frames", 0], filename_prefix="takes/one"),
    }
    comfy.run(graph)
    options = comfy.object_info("MM3LoadConditioning")["input"]["required"]["file"][1]["options"]
    assert options[0] == "takes/one_00001_.safetensors [output]"
    again = song()
    again["frames"]["inputs"]["file"] = options[0]
    assert torch.equal(latent_of(comfy, comfy.run(again)), latent_of(comfy, first_run))


def test_lengths_are_those_of_the_reference(comfy):
    graph = {
        "length": node("MM3AlignedMelLength", frames=400),
        **{f"show{i}": node("PreviewAny", source=["length", i]) for i in range(4)},
    }
    outputs = comfy.run(graph).outputs
    shown = [outputs[f"show{i}"]["text"][0] for i in range(4)]
    assert [shown[0], shown[1], shown[3]] == ["1378", "1379", "3"]
    assert float(shown[2]) == pytest.approx(1379 * 512 / 44100)


def test_server_survives_all_of_it(comfy):
    with pytest.raises(urllib.error.HTTPError):
        comfy.get("/no/such/page")
    assert comfy.process.poll() is None
    assert "Traceback" not in comfy.log.read_text().split("Starting server")[0]
