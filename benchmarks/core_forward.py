"""One step of a guided window in ComfyUI's own model beside ours, run by ComfyUI's interpreter in its folder.

usage: python core_forward.py PACK (current folder: ComfyUI). Prints JSON as cases.py does.
"""

import json
import sys

pack = sys.argv[1]
sys.path[:0] = [".", pack, f"{pack}/benchmarks"]
sys.argv = ["main.py"] + (["--cpu"] if "--cpu" in sys.argv else [])

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()

import comfy.ops  # noqa: E402
import torch  # noqa: E402
from comfy.ldm.minimax_music.dit import MiniMaxMusic3DiT  # noqa: E402
from timing import device, side_by_side  # noqa: E402

from mm3 import MiniMaxMusic3Transformer1DModel, TransformerConfig  # noqa: E402

DEPTH, WINDOW, FRAMES = 2, 689, 200


def core_model() -> torch.nn.Module:
    """The core's class has a fixed depth: built without memory, cut, then filled."""
    model = MiniMaxMusic3DiT(dtype=torch.float32, device="meta", operations=comfy.ops.disable_weight_init)
    layers = model.diffusion_transformer.transformer.layers
    model.diffusion_transformer.transformer.layers = layers[:DEPTH]
    return fill(model.to_empty(device=device()))


def fill(model: torch.nn.Module) -> torch.nn.Module:
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.normal_(0, 0.02)
    return model.eval()


def main() -> dict[str, float]:
    core = core_model()
    ours = fill(MiniMaxMusic3Transformer1DModel(TransformerConfig(depth=DEPTH), device=device()))
    x, t = torch.randn(2, 128, WINDOW, device=device()), torch.full((2,), 0.3, device=device())
    hidden = torch.randn(2, FRAMES, 8 * 4096, device=device())
    scale = torch.ones(2, 1, 1, device=device())
    embedded = ours.embed_condition(torch.randn(2, 2048, WINDOW, device=device()))
    field = ours.field(device())
    functions = {"mm3": lambda: field(x, t, embedded), "core": lambda: core(x, t, hidden, scale)}
    return side_by_side(functions)


with torch.inference_mode():
    print("RESULT " + json.dumps(main()))
