"""The command line, called in this process: files written, numbers passed on, errors told in one line."""

import pytest
import soundfile
import torch
from layout_writers import comfy_dav, comfy_dit, write_state
from safetensors.torch import load_file

from mm3 import decode, encode_song, solve_song
from mm3.__main__ import main
from mm3.checkpoint import open_checkpoint
from mm3.demo import demo_hidden, official_states, write_demo_hidden
from mm3.hidden import save_hidden
from mm3.load import load_dit

LATENTS = 34  # of 10 frames
DEFAULTS = {"seed": 0, "steps": 30, "guidance": 1.7}


@pytest.fixture
def frames(tmp_path):
    return write_demo_hidden(tmp_path / "hidden.safetensors", 10)


@pytest.fixture
def render(checkpoint, frames, tmp_path):
    """Runs `render` with more or other options, given as on the command line, and returns the status."""

    def run(*options, **paths):
        given = {"checkpoint": checkpoint, "hidden": frames, "out": tmp_path / "song.wav", "device": "cpu"} | paths
        return main(["render", *(f"--{name}={value}" for name, value in given.items()), *options])

    return run


def samples(path):
    """(N, 2). Whole files differ: their PEAK chunk holds the time of writing."""
    return torch.from_numpy(soundfile.read(path, dtype="float32")[0])


def error_line(capfd):
    """The last line on the error stream, which tells the error; progress may stand before it."""
    written = capfd.readouterr()
    assert "Traceback" not in written.err and "error:" not in written.out
    *before, last = written.err.strip().splitlines()
    assert last.startswith("error: ") and not any("error" in line for line in before)
    return last


def test_demo_makes_a_model_and_frames_and_renders_them(tmp_path, capfd):
    assert main(["demo", f"--folder={tmp_path}", "--frames=20"]) == 0
    assert "random" in capfd.readouterr().out
    audio, rate = soundfile.read(tmp_path / "demo.wav", dtype="float32")
    assert rate == 44_100 and audio.shape == (512 * 68, 2)
    assert abs(audio).max() > 0.01


def test_what_the_demo_made_can_be_rendered_again_to_the_same_samples(tmp_path, render):
    assert main(["demo", f"--folder={tmp_path}", "--frames=10"]) == 0
    assert render(checkpoint=tmp_path / "checkpoint", hidden=tmp_path / "hidden.safetensors") == 0
    assert torch.equal(samples(tmp_path / "song.wav"), samples(tmp_path / "demo.wav"))


def test_wav_is_stereo_32_bit_float_at_44100_hertz(render, tmp_path, capfd):
    assert render("--steps=1") == 0
    wav = soundfile.info(tmp_path / "song.wav")
    assert (wav.samplerate, wav.channels, wav.subtype, wav.frames) == (44_100, 2, "FLOAT", 512 * LATENTS)
    assert "song.wav: 0.39 s, peak" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ([], {}),
        (["--steps=2"], {"steps": 2}),
        (["--steps=2", "--cfg=1"], {"steps": 2, "guidance": 1.0}),
        (["--steps=2", "--cfg=2.5"], {"steps": 2, "guidance": 2.5}),
        (["--steps=2", "--seed=18446744073709551615"], {"steps": 2, "seed": 2**64 - 1}),
    ],
)
def test_options_reach_the_solve_and_the_latent_file_holds_its_result(options, changed, render, tmp_path, dit, vocoder):
    assert render(*options, f"--latent-out={tmp_path / 'latent.safetensors'}") == 0
    saved = load_file(tmp_path / "latent.safetensors")
    condition = encode_song(dit.condition_encoder, demo_hidden(10))
    expected, _ = solve_song(dit.transformer, condition, **DEFAULTS | changed)
    assert list(saved) == ["samples"] and saved["samples"].shape == (1, 128, LATENTS)
    assert torch.equal(saved["samples"], expected)
    assert torch.equal(samples(tmp_path / "song.wav").mT, decode(vocoder, expected)[0])


@pytest.mark.parametrize(("option", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_dtype_is_that_of_the_wide_products(option, dtype, render, tmp_path, checkpoint):
    assert render("--steps=2", f"--dtype={option}", f"--latent-out={tmp_path / 'latent.safetensors'}") == 0
    dit = load_dit(open_checkpoint(checkpoint), dtype=dtype)
    expected, _ = solve_song(dit.transformer, encode_song(dit.condition_encoder, demo_hidden(10)), seed=0, steps=2)
    assert torch.equal(load_file(tmp_path / "latent.safetensors")["samples"], expected)


def test_a_batch_is_written_as_one_file_per_song(render, tmp_path):
    rows = torch.cat([demo_hidden(10, seed) for seed in range(2)])
    save_hidden(tmp_path / "batch.safetensors", rows)
    latent = tmp_path / "latent.safetensors"
    assert render("--steps=1", hidden=tmp_path / "batch.safetensors", **{"latent-out": latent}) == 0
    assert load_file(latent)["samples"].shape == (2, 128, LATENTS)
    assert sorted(path.name for path in tmp_path.glob("*.wav")) == ["song_1.wav", "song_2.wav"]
    assert render("--steps=1") == 0
    alone = samples(tmp_path / "song.wav")
    assert torch.equal(samples(tmp_path / "song_1.wav"), alone)
    assert (samples(tmp_path / "song_2.wav") - alone).abs().max() > 1e-3


def test_comfy_files_render_to_the_same_samples_as_the_official_folder(render, tmp_path):
    dit = write_state(tmp_path / "dit.safetensors", comfy_dit(official_states()))
    dav = write_state(tmp_path / "dav.safetensors", comfy_dav(official_states()))
    other = tmp_path / "new folder" / "comfy.wav"
    assert render("--steps=1") == 0 == render("--steps=1", checkpoint=dit, vocoder=dav, out=other)
    assert torch.equal(samples(other), samples(tmp_path / "song.wav"))


def test_inspect_tells_layout_dtype_and_parameters_of_every_component(checkpoint, tmp_path, capfd):
    assert main(["inspect", str(checkpoint)]) == 0
    told = capfd.readouterr().out
    for name in ("transformer", "condition encoder", "vocoder"):
        assert f"official {name} layout, float32" in told
    assert told.count("complete") == 3 and "depth=2" in told
    half = {name: value.half() for name, value in comfy_dit(official_states()).items()}
    assert main(["inspect", str(write_state(tmp_path / "dit.safetensors", half))]) == 0
    told = capfd.readouterr().out
    assert told.count("Comfy-Org DiT layout, float16") == 2 and "vocoder: not here" in told


def test_inspect_refuses_a_file_that_lacks_a_tensor(tmp_path, capfd):
    state = official_states()["transformer"]
    del state["transformer_blocks.1.ff_in.bias"]
    assert main(["inspect", str(write_state(tmp_path / "dit.safetensors", state))]) == 1
    assert "missing transformer_blocks.1.ff_in.bias" in error_line(capfd)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--steps=0"], "must be positive, got 0"),
        (["--hidden=absent.safetensors"], "absent.safetensors"),
        (["--checkpoint=absent"], "absent"),
        (["--vocoder=absent"], "absent"),
        (["--cfg=nan"], "window 1 of 1 is not finite"),
    ],
)
def test_an_error_is_one_line_and_status_one(options, told, render, tmp_path, capfd):
    assert render(*options) == 1
    assert told in error_line(capfd)
    assert not (tmp_path / "song.wav").exists()


def test_a_wrong_file_of_frames_and_a_wrong_vocoder_are_one_line(render, frames, checkpoint, capfd):
    assert render(hidden=checkpoint / "vocoder" / "diffusion_pytorch_model.safetensors") == 1
    assert "expected a tensor named 'hidden'" in error_line(capfd)
    assert render(vocoder=frames) == 1
    assert "not a MiniMax Music 3 acoustic checkpoint" in error_line(capfd)
    assert main(["inspect", str(frames)]) == 1
    assert "hidden.safetensors" in error_line(capfd)


@pytest.mark.parametrize("option", ["--out={}/song", "--device=nonsense", "--device=xpu:7", "--latent-out={}"])
def test_an_output_or_device_that_cannot_be_is_one_line(option, render, tmp_path, capfd):
    assert render("--steps=1", option.format(tmp_path)) == 1
    error_line(capfd)


def test_folders_of_outputs_are_made(render, tmp_path):
    latent = tmp_path / "absent/latent.safetensors"
    assert render("--steps=1", f"--latent-out={latent}") == 0
    assert latent.is_file()


def test_a_demo_without_frames_is_one_line(tmp_path, capfd):
    assert main(["demo", f"--folder={tmp_path}", "--frames=0"]) == 1
    error_line(capfd)
