"""Loading holds each weight once, and takes about as long as reading the file: fresh processes, files over 1 GB.

make real-size
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from layout_writers import SHARDS, WEIGHTS, write_index
from real_files import write_random
from release_names import comfy_dit, official_condition_encoder, official_transformer

pytestmark = pytest.mark.slow

BLOCKS = 6
SCRIPT = Path(__file__).parent / "load_cost.py"


def shortened(shapes):
    """The released sizes with fewer blocks."""
    numbers = {name: re.search(r"(?:blocks|layers)\.(\d+)\.", name) for name in shapes}
    return {name: shape for name, shape in shapes.items() if not numbers[name] or int(numbers[name][1]) < BLOCKS}


def write_sharded(folder):
    names = shortened(official_transformer())
    places = {name: SHARDS[number >= len(names) // 2] for number, name in enumerate(names)}
    for shard in SHARDS:
        held = {name: shape for name, shape in names.items() if places[name] == shard}
        write_random(folder / "transformer" / shard, held, torch.float32)
    write_index(folder / "transformer", places)
    write_random(folder / "condition_encoder" / WEIGHTS, official_condition_encoder(), torch.float32)
    return folder


def write_torch_file(folder):
    generator = torch.Generator().manual_seed(0)
    state = {name: torch.randn(shape, generator=generator) for name, shape in shortened(comfy_dit()).items()}
    torch.save(state, folder / "flowmatching_vae.pth")
    return folder / "flowmatching_vae.pth"


MODELS = {
    "shards": write_sharded,
    "one file": lambda folder: write_random(folder / "dit.safetensors", shortened(comfy_dit()), torch.float32),
    "torch file": write_torch_file,
}


@pytest.mark.parametrize(("dtype", "most"), [("fp32", 1.10), ("fp16", 1.15)])
@pytest.mark.parametrize("write", MODELS.values(), ids=MODELS)
def test_peak_memory_and_time_stay_near_those_of_the_weights_and_of_reading(write, dtype, most, tmp_path):
    model = write(tmp_path)
    size = sum(file.stat().st_size for file in [model, *model.rglob("*")] if file.is_file())
    assert size > 1e9
    peak, times = (measured(model, dtype, *mode) for mode in (["peak"], []))
    print(f"\n{model.name} as {dtype}: peak {peak['peak']:.3f} x the weights, loading {times['time']:.2f} x reading")
    assert 1 < peak["peak"] <= most
    assert times["time"] <= 1.2


def measured(model, dtype, *mode):
    command = [sys.executable, str(SCRIPT), str(model), dtype, *mode]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
