"""The released sizes under the released names: both come through the command line and the nodes. Minutes, 30 GB disk.

make real-size
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import soundfile
import torch
from layout_writers import SHARDS, write_index
from real_files import split_in_two, write_random
from release_names import (
    comfy_dit,
    comfy_vocoder,
    official_condition_encoder,
    official_transformer,
    official_vocoder,
)

from mm3.hidden import save_hidden

pytestmark = pytest.mark.slow

FRAMES, STEPS = 5, 2
WEIGHTS = "diffusion_pytorch_model.safetensors"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A models folder with the official fp32 folder in two shards and the Comfy-Org single files."""
    models = tmp_path_factory.mktemp("real") / "models"
    official = models / "diffusers/MiniMax-Music3"
    for shard, shapes in zip(SHARDS, split_in_two(official_transformer()), strict=True):
        write_random(official / "transformer" / shard, shapes, torch.float32)
    places = {n: s for s, part in zip(SHARDS, split_in_two(official_transformer()), strict=True) for n in part}
    write_index(official / "transformer", places)
    write_random(official / "condition_encoder" / WEIGHTS, official_condition_encoder(), torch.float32)
    write_random(official / "vocoder" / WEIGHTS, official_vocoder(), torch.float32)
    write_random(models / "diffusion_models/minimax_music3_dit_fp16.safetensors", comfy_dit(), torch.float16)
    write_random(models / "vae/minimax_music3_dav.safetensors", comfy_vocoder(), torch.float32)
    return models


@pytest.fixture(scope="module")
def hidden(models):
    path = models.parent / "input/hidden.safetensors"
    path.parent.mkdir()
    values = torch.randn(1, FRAMES, 8 * 4096, generator=torch.Generator().manual_seed(0))
    save_hidden(path, values.bfloat16())
    return path


def report(what: str, seconds: float, peak_kib: int, weights: int) -> None:
    ratio = peak_kib * 1024 / weights
    print(f"\n{what}: {seconds:.0f} s, peak memory {peak_kib / 2**20:.2f} GiB = {ratio:.2f} x the weights kept")


KEPT = {"fp32": (2_431_905_920 + 25_167_881) * 4, "fp16": 2_431_905_920 * 2 + 25_167_881 * 4}


@pytest.mark.parametrize(
    ("checkpoint", "vocoder", "dtype"),
    [
        ("diffusers/MiniMax-Music3", None, "fp32"),
        ("diffusers/MiniMax-Music3", None, "fp16"),
        ("diffusion_models/minimax_music3_dit_fp16.safetensors", "vae/minimax_music3_dav.safetensors", "fp16"),
    ],
)
def test_command_line_renders(models, hidden, tmp_path, checkpoint, vocoder, dtype):
    out = tmp_path / "song.wav"
    command = [sys.executable, str(Path(__file__).parent / "peak_memory.py"), "-m", "mm3", "render"]
    command += [f"--checkpoint={models / checkpoint}", f"--hidden={hidden}", f"--out={out}", f"--dtype={dtype}"]
    command += [f"--steps={STEPS}", "--device=cpu", *([f"--vocoder={models / vocoder}"] if vocoder else [])]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - start
    assert done.returncode == 0, done.stderr[-2000:]
    peak = int(done.stderr.rsplit("peak_kib=", 1)[1])
    report(f"command line, {checkpoint} as {dtype}", seconds, peak, KEPT[dtype])
    audio, rate = soundfile.read(out)
    assert (rate, audio.shape) == (44100, (17 * 512, 2))
    assert 0 < abs(audio).max() <= 1


@pytest.mark.parametrize(
    ("checkpoint", "vocoder"),
    [
        ("minimax_music3_dit_fp16.safetensors", "minimax_music3_dav.safetensors"),
        ("MiniMax-Music3/", "MiniMax-Music3/"),
    ],
)
def test_nodes_render(comfy_checkout, models, hidden, checkpoint, vocoder):
    from comfy import Comfy
    from graphs import song

    graph = song(steps=STEPS)
    graph["load"]["inputs"] |= {"checkpoint": checkpoint, "vocoder": vocoder}
    server = Comfy(comfy_checkout, models.parent)
    try:
        start = time.monotonic()
        run = server.run(graph)
        seconds = time.monotonic() - start
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0])
    finally:
        server.stop()
    report(f"nodes, {checkpoint}", seconds, peak, KEPT["fp32"])
    assert json.dumps(run.outputs["audio"])
