"""The published quantised files: every name has its place, and the weights cost what the files do."""

import subprocess
import sys
from collections import Counter

import pytest
import torch
from quant_release import comfy_int8, official_int8, write_gguf_holes, write_holes
from quant_writers import is_wide
from release_names import INV_FREQ, comfy_dit, official_condition_encoder, official_transformer
from test_release_names import CONFIGS

from mm3.checkpoint import open_checkpoint
from mm3.checkpoint.packed import is_packed
from mm3.checkpoint.scales import ScaledTensor
from mm3.load import skeleton

WIDE_WEIGHTS = 36 * (6144 * 2048 + 2048 * 2048 + 16384 * 2048 + 2048 * 8192)
WIDE_ROWS = 36 * (6144 + 2048 + 16384 + 2048)
FLOATS = 4 * (2_431_905_920 + 25_167_881 - WIDE_WEIGHTS)  # what is not packed is float32 in memory


def placed(checkpoint, layers):
    """Names of the tensors that make parameters. All parameters of the release are there, `layers` of them packed."""
    used = Counter()
    for name, component in checkpoint.components.items():
        assert component.config == CONFIGS[name]
        component.check(skeleton(component))
        used.update(part.key for recipe in component.recipes.values() for part in recipe.parts)
        scaled = [p for r in component.recipes.values() for p in r.parts if isinstance(p, ScaledTensor)]
        used.update(part.scale.key for part in scaled)
    assert set(used.values()) == {1}
    assert sum(map(is_packed, checkpoint.component("transformer").recipes.values())) == layers
    return set(used)


def test_comfy_int8_names_map_one_to_one(tmp_path):
    tensors = comfy_int8()
    assert len(tensors) == 662
    settings = {name for name in tensors if name.endswith(".comfy_quant")}
    sizes = {name: torch.Size(shape).numel() * dtype.itemsize for name, (dtype, shape) in tensors.items()}
    assert sum(sizes[name] for name in tensors if name not in settings) == 2_502_062_386
    used = placed(open_checkpoint(write_holes(tmp_path / "int8.safetensors", tensors)), 36 * 4)
    assert len(settings) == 144 and set(tensors) - used == settings | {INV_FREQ}


def test_official_int8_names_map_one_to_one(tmp_path):
    tensors = official_int8()
    assert len(tensors) == 441 + 216 * 2
    checkpoint = open_checkpoint(write_holes(tmp_path / "int8.safetensors", tensors))
    settings = {name for name in tensors if name.endswith(".comfy_quant")}
    assert len(settings) == 216 and set(tensors) - placed(checkpoint, 36 * 4) == settings


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "Q4_0"])
def test_gguf_names_map_one_to_one(kind, tmp_path):
    def type_of(name):
        return kind if is_wide(name) else "F16"

    fused = open_checkpoint(write_gguf_holes(tmp_path / "dit.gguf", comfy_dit(), type_of))
    assert set(comfy_dit()) - placed(fused, 36 * 4) == {INV_FREQ}
    (tmp_path / "parts").mkdir()
    shapes = {"transformer": official_transformer(), "condition_encoder": official_condition_encoder()}
    for name, part in shapes.items():
        write_gguf_holes(tmp_path / "parts" / f"{name}.gguf", part, type_of)
    assert placed(open_checkpoint(tmp_path / "parts"), 36 * 4) == {name for part in shapes.values() for name in part}


KEPT = {
    "int8": (lambda path: write_holes(path, comfy_int8()), WIDE_WEIGHTS + 4 * WIDE_ROWS + FLOATS),
    "Q8_0": (lambda path: gguf_file(path, "Q8_0"), WIDE_WEIGHTS // 32 * 34 + FLOATS),
    "Q4_K": (lambda path: gguf_file(path, "Q4_K"), WIDE_WEIGHTS // 256 * 144 + FLOATS),
    "Q2_K": (lambda path: gguf_file(path, "Q2_K"), WIDE_WEIGHTS // 256 * 84 + FLOATS),
}


def gguf_file(path, kind):
    return write_gguf_holes(path, comfy_dit(), lambda name: kind if is_wide(name) else "F16")


LOAD = """
import sys, resource, time, torch
from mm3.checkpoint import open_checkpoint
from mm3.load import load_dit
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.monotonic()
dit = load_dit(open_checkpoint(sys.argv[1]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(sum(value.nbytes for value in dit.parameters()), peak * 1024, time.monotonic() - start)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("write", "kept"), KEPT.values(), ids=KEPT)
def test_a_packed_file_costs_its_size_in_memory(write, kept, tmp_path):
    path = write(tmp_path / "dit.safetensors")
    done = subprocess.run([sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=True)
    weights, peak, seconds = map(float, done.stdout.split())
    size = path.stat().st_size
    print(f"\nfile {size / 1e9:.3f} GB, weights {weights / 1e9:.3f} GB, peak {peak / weights:.3f} x, {seconds:.1f} s")
    assert weights == kept
    assert weights <= 1.1 * size
    assert peak <= 1.10 * weights
