"""One measurement a case, in a process of its own, printed as JSON.

`python benchmarks/cases.py CASE` takes the seconds of all its functions side by side; with the name of one of them
after it, the seconds and the peak memory of that one alone.
"""

import functools
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from timing import Function, alone, device, side_by_side
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

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
from mm3.decode import DEFAULT_TILE  # noqa: E402
from mm3.flow import guided, solve  # noqa: E402
from mm3.load import load_vocoder, skeleton  # noqa: E402

WINDOW = 689

Case = dict[str, Callable[[], Function]]


def random_state(module: torch.nn.Module) -> dict[str, Tensor]:
    """The same values for the same names and shapes; `module` may be on the meta device."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(value.shape, generator=generator) * (value[0].numel() ** -0.5 if value.ndim > 1 else 0.1)
        for name, value in module.state_dict().items()
    }


def theirs(depth: int) -> torch.nn.Module:
    """diffusers' transformer of the release's width with few layers."""
    from diffusers.models import MiniMaxMusic3Transformer1DModel as Reference

    with torch.device("meta"):
        reference = Reference(num_layers=depth)
    reference.load_state_dict(random_state(reference), assign=True)
    return reference.to(device()).eval()


def ours(depth: int) -> MiniMaxMusic3Transformer1DModel:
    """Ours with the same weights."""
    model = MiniMaxMusic3Transformer1DModel(TransformerConfig(depth=depth), device="meta")
    model.load_state_dict(remap_transformer_state(theirs(depth).state_dict()), assign=True)
    return model.to(device()).eval()


def inputs(length: int = WINDOW) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((2, 128, length), (2, 2048, length))
    x, condition = (torch.randn(shape, generator=generator).to(device()) for shape in shapes)
    return x, torch.full((2,), 0.3, device=device()), condition


def forward_ours() -> Function:
    (x, t, condition), model = inputs(), ours(2)
    embedded, field = model.embed_condition(condition), model.field(device())
    return lambda: field(x, t, embedded)


def forward_theirs() -> Function:
    (x, t, condition), model = inputs(), theirs(2)
    transposed = condition.mT.contiguous()
    return lambda: model(x, t, transposed, return_dict=False)


def forward_floor() -> Function:
    """The matrix products of the blocks alone, attention's included."""
    model = ours(2)
    h, wide = torch.randn(2, WINDOW + 1, 2048, device=device()), torch.randn(2, WINDOW + 1, 8192, device=device())
    heads = torch.randn(2, 32, WINDOW + 1, 64, device=device())

    def products() -> None:
        for block in model.transformer_blocks:
            block.attn.to_qkv(h), block.attn.to_out(h), block.ff_in(h), block.ff_out(wide)
            torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)

    return products


def solve_ours() -> Function:
    (x, _, condition), model = inputs(86), ours(1)
    noise, condition = x[:1], condition[:1]
    return lambda: solve(guided(model.field(device()), model.embed_condition(condition), 1.7), noise, 30)


def solve_theirs() -> Function:
    (x, _, condition), model = inputs(86), theirs(1)
    noise, condition = x[:1], condition[:1]

    def field(x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        return model(x, t, condition.mT, return_dict=False)[0]

    # diffusers' guider runs the two branches one after the other.
    return lambda: solve(guided(field, condition, 1.7, batched=False), noise, 30)


@functools.cache
def transformer_folder() -> Path:
    """A gigabyte of float32 transformer in diffusers' layout, in a folder that goes with this process."""
    theirs(4).cpu().save_pretrained(SCRATCH.name)
    return Path(SCRATCH.name)


def use(tensors: Iterable[Tensor]) -> None:
    """Read every value once: diffusers maps a file, and reads it when it is used."""
    for tensor in tensors:
        tensor.sum()


def load_ours() -> Function:
    folder = transformer_folder()

    def load() -> None:
        component = open_checkpoint(folder).component("transformer")
        model = MiniMaxMusic3Transformer1DModel(component.transformer_config(), device="meta")
        model.load_state_dict(component.state(skeleton(component)), assign=True)
        use(model.parameters())

    return load


def load_theirs() -> Function:
    from diffusers.models import MiniMaxMusic3Transformer1DModel as Reference

    folder = transformer_folder()
    return lambda: use(Reference.from_pretrained(folder, torch_dtype=torch.float32).parameters())


def load_floor() -> Function:
    """Reading the bytes alone."""
    file = transformer_folder() / "diffusion_pytorch_model.safetensors"
    return file.read_bytes


def latent(seconds: float) -> Tensor:
    return torch.randn(1, 128, round(seconds * 44100 / 512), generator=torch.Generator().manual_seed(1))


def their_vocoder() -> torch.nn.Module:
    """diffusers' decoder at full width, the same at each call."""
    from diffusers.models import MiniMaxMusic3Vocoder as Reference

    torch.manual_seed(0)
    return Reference().eval()


def decode_ours() -> Function:
    """Eight seconds in tiles."""
    their_vocoder().save_pretrained(SCRATCH.name)
    vocoder = load_vocoder(open_checkpoint(SCRATCH.name)).to(device())
    return lambda: decode(vocoder, latent(8), device=device())


def decode_theirs() -> Function:
    """Eight seconds in one piece, as diffusers decodes."""
    vocoder, x = their_vocoder().to(device()), latent(8).to(device())
    return lambda: vocoder(x)


def decoding(seconds: float, config: VocoderConfig, tile: int = DEFAULT_TILE) -> Callable[[], Function]:
    def build() -> Function:
        vocoder = MiniMaxMusic3Vocoder(config, device="meta")
        vocoder.load_state_dict(random_state(vocoder), assign=True)
        vocoder.to(device())
        return lambda: decode(vocoder, latent(seconds), tile=tile, device=device())

    return build


def solving(windows: int) -> Callable[[], Function]:
    def build() -> Function:
        config = TransformerConfig(condition_channels=64, width=128, depth=1, ff_width=256, fourier_features=32)
        model = MiniMaxMusic3Transformer1DModel(config, device="meta")
        model.load_state_dict(random_state(model), assign=True)
        model.to(device())
        window = torch.randn(1, 64, WINDOW)  # one for all: the condition's own memory is the caller's
        song = SongCondition((window,) * windows, windows * 100 + 100)
        return lambda: solve_song(model, song, seed=0, steps=4, device=device())

    return build


# With tiles of eight seconds, so that activations are of a size that the allocator treats as those at full width.
NARROW = VocoderConfig(input_width=64, width=192), 690
CASES: dict[str, Case] = {
    "forward": {"mm3": forward_ours, "diffusers": forward_theirs, "floor": forward_floor},
    "solve": {"mm3": solve_ours, "diffusers": solve_theirs},
    "load": {"mm3": load_ours, "diffusers": load_theirs, "floor": load_floor},
    "decode": {"mm3": decode_ours, "diffusers": decode_theirs},
    "decode narrow": {"8 s": decoding(8, *NARROW), "360 s": decoding(360, *NARROW)},
    "decode wide": {"8 s": decoding(8, VocoderConfig()), "360 s": decoding(360, VocoderConfig())},
    "windows": {"3": solving(3), "89": solving(89)},
}
REPEATS = {"forward": 3, "load": 2}
SCRATCH = tempfile.TemporaryDirectory()


def main(case: str, name: str = "") -> dict[str, float]:
    if name:
        return alone(CASES[case][name]())
    return side_by_side({name: build() for name, build in CASES[case].items()}, REPEATS.get(case, 1))


if __name__ == "__main__":
    with torch.inference_mode():
        print("RESULT " + json.dumps(main(*sys.argv[1:])))
