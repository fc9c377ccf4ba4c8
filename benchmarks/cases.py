"""One measurement a function, run in a process of its own: `python benchmarks/cases.py NAME` prints JSON."""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from timing import device, peak_bytes, side_by_side

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from mm3 import (  # noqa: E402
    MiniMaxMusic3Transformer1DModel,
    MiniMaxMusic3Vocoder,
    SongCondition,
    TransformerConfig,
    VocoderConfig,
    decode,
    remap_transformer_state,
    solve_song,
)
from mm3.checkpoint import open_checkpoint  # noqa: E402
from mm3.flow import guided, solve  # noqa: E402
from mm3.load import load_vocoder, skeleton  # noqa: E402

DEPTH = 2
WINDOW = 689

Result = dict[str, dict[str, float]]


def randomise(module: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        scale = parameter[0].numel() ** -0.5 if parameter.ndim > 1 else 0.1
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return module.to(device()).eval()


def transformers(depth: int = DEPTH):
    """The release's width with few layers: diffusers' module and ours on the same weights."""
    from diffusers.models import MiniMaxMusic3Transformer1DModel as Reference

    reference = randomise(Reference(num_layers=depth))
    ours = MiniMaxMusic3Transformer1DModel(TransformerConfig(depth=depth), device=device())
    ours.load_state_dict(remap_transformer_state(reference.state_dict()))
    return reference, ours.eval()


def inputs(length: int = WINDOW) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((2, 128, length), (2, 2048, length))
    x, condition = (torch.randn(shape, generator=generator).to(device()) for shape in shapes)
    return x, torch.full((2,), 0.3, device=device()), condition


def forward() -> Result:
    """One step of a guided window, and the matrix products of its blocks alone."""
    reference, ours = transformers()
    x, t, condition = inputs()
    embedded, field = ours.embed_condition(condition), ours.field(device())
    theirs = condition.transpose(1, 2)
    h, wide = torch.randn(2, 690, 2048, device=device()), torch.randn(2, 690, 8192, device=device())
    heads, scores = torch.randn(64, 690, 64, device=device()), torch.randn(64, 690, 690, device=device())

    def products() -> None:
        for block in ours.transformer_blocks:
            block.attn.to_qkv(h), block.attn.to_out(h), block.ff_in(h), block.ff_out(wide)
            torch.bmm(heads, heads.transpose(1, 2)), torch.bmm(scores, heads)

    times = side_by_side(
        {
            "mm3": lambda: field(x, t, embedded),
            "diffusers": lambda: reference(x, t, theirs, return_dict=False),
            "products": products,
        }
    )
    return {"forward": times}


def solve_window() -> Result:
    """Thirty guided steps of a short window."""
    reference, ours = transformers(depth=1)
    x, _, condition = inputs(172)
    noise, condition = x[:1], condition[:1]

    def with_reference() -> torch.Tensor:
        def field(x: torch.Tensor, t: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            return reference(x, t, c.transpose(1, 2), return_dict=False)[0]

        # diffusers' guider runs the two branches one after the other.
        return solve(guided(field, condition, 1.7, batched=False), noise, 30)

    def with_ours() -> torch.Tensor:
        return solve(guided(ours.field(device()), ours.embed_condition(condition), 1.7), noise, 30)

    return {"solve": side_by_side({"mm3": with_ours, "diffusers": with_reference}, repeats=2)}


def load() -> Result:
    """A gigabyte of float32 transformer from one file, beside reading the bytes alone."""
    from diffusers.models import MiniMaxMusic3Transformer1DModel as Reference

    with tempfile.TemporaryDirectory() as folder:
        randomise(Reference(num_layers=4)).cpu().save_pretrained(folder)
        file = Path(folder) / "diffusion_pytorch_model.safetensors"
        component = open_checkpoint(folder).component("transformer")
        times = side_by_side({"mm3": lambda: component.state(skeleton(component)), "read": file.read_bytes})
    return {"load": times}


def decode_full() -> Result:
    """Four seconds through the full-width decoder, in tiles, beside diffusers' in one piece."""
    from diffusers.models import MiniMaxMusic3Vocoder as Reference

    reference = Reference().eval()
    with tempfile.TemporaryDirectory() as folder:
        reference.save_pretrained(folder)
        ours = load_vocoder(open_checkpoint(folder)).to(device())
    reference.to(device())
    latent = torch.randn(1, 128, 345, device=device())
    times = {"mm3": lambda: decode(ours, latent, device=device()), "diffusers": lambda: reference(latent)}
    return {"decode": side_by_side(times, repeats=1)}


def _decode_memory(seconds: float) -> Result:
    vocoder = MiniMaxMusic3Vocoder(VocoderConfig(input_width=64, width=256), device=device())
    randomise(vocoder)
    latent = torch.randn(1, 128, round(seconds * 44100 / 512))
    times = side_by_side({"mm3": lambda: decode(vocoder, latent, device=device())}, repeats=1)
    return {"decode_memory": {"per_second": times["mm3"] / seconds, "peak": peak_bytes()}}


def decode_8_s() -> Result:
    return _decode_memory(8)


def decode_360_s() -> Result:
    return _decode_memory(360)


def _windows(count: int) -> Result:
    config = TransformerConfig(condition_channels=64, width=128, depth=1, ff_width=256, fourier_features=32)
    transformer = randomise(MiniMaxMusic3Transformer1DModel(config))
    window = torch.randn(1, 64, WINDOW)  # one for all: the condition's own memory is the caller's
    song = SongCondition((window,) * count, count * 100 + 100)
    times = side_by_side({"mm3": lambda: solve_song(transformer, song, seed=0, steps=4, device=device())}, repeats=2)
    return {"windows": {"per_window": times["mm3"] / count, "peak": peak_bytes()}}


def windows_3() -> Result:
    return _windows(3)


def windows_89() -> Result:
    return _windows(89)


CASES: dict[str, Callable[[], Result]] = {
    case.__name__: case
    for case in (forward, solve_window, load, decode_full, decode_8_s, decode_360_s, windows_3, windows_89)
}

if __name__ == "__main__":
    with torch.inference_mode():
        print("RESULT " + json.dumps(CASES[sys.argv[1]]()))
