"""What half precision costs beside rounding the weights: `python benchmarks/half_precision.py`, a quarter of an hour.

Signal-to-noise ratios in dB against the float32 solve of random 12-layer models, 30 guided steps, mean of three models:
diffusers' transformer run in that dtype as a whole, float32 with the weights rounded to it, and ours.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from oracles import reference_transformer  # noqa: E402

from mm3 import MiniMaxMusic3Transformer1DModel, TransformerConfig, remap_transformer_state  # noqa: E402
from mm3.flow import guided, solve  # noqa: E402

CONFIG = TransformerConfig(width=256, depth=12, ff_width=1024, condition_channels=256, fourier_features=64)
WIDE = ("attn.to_", "ff_in", "ff_out")
LENGTH = 200
SEEDS = (0, 1, 2)
DTYPES = (torch.bfloat16, torch.float16)

State = dict[str, Tensor]


def torch_init(seed: int) -> State:
    torch.manual_seed(seed)
    return reference_transformer(CONFIG).state_dict()


def unit_gain(seed: int) -> State:
    """Every matrix keeps the size of what it multiplies: larger branches than torch's initialisation makes."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, parameter in reference_transformer(CONFIG).state_dict().items():
        values = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim > 1:
            state[name] = values * parameter[0].numel() ** -0.5
        else:
            state[name] = values * 0.02 if name.endswith("bias") else 1.0 + 0.1 * values
    return state


def ours(state: State, dtype: torch.dtype) -> Callable[..., Tensor]:
    model = MiniMaxMusic3Transformer1DModel(CONFIG, dtype=dtype)
    model.load_state_dict(remap_transformer_state(state))
    return model


def whole(state: State, dtype: torch.dtype) -> Callable[..., Tensor]:
    model = reference_transformer(CONFIG)
    model.load_state_dict(state)
    torch.nn.Module.to(model, dtype)  # diffusers' own warns that it may change what stays in float32: nothing does

    def field(x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        return model(x.to(dtype), t.to(dtype), condition.mT.to(dtype), return_dict=False)[0]

    return field


def rounded(state: State, dtype: torch.dtype) -> State:
    return {
        name: value.to(dtype).float() if any(part in name for part in WIDE) else value for name, value in state.items()
    }


def ratios(state: State, seed: int) -> Tensor:
    """(dtypes, 3): dB of the whole model in a dtype, of float32 with weights rounded to it, and of ours."""
    generator = torch.Generator().manual_seed(seed)
    condition = torch.randn(1, CONFIG.condition_channels, LENGTH, generator=generator)
    noise = torch.randn(1, CONFIG.latent_channels, LENGTH, generator=generator)

    def solved(field: Callable[..., Tensor]) -> Tensor:
        return solve(guided(field, condition, 1.7), noise)

    exact = solved(ours(state, torch.float32))

    def ratio(field: Callable[..., Tensor]) -> float:
        return 10.0 * math.log10(exact.square().sum() / (solved(field) - exact).square().sum())

    rows = ((whole(state, d), ours(rounded(state, d), torch.float32), ours(state, d)) for d in DTYPES)
    return torch.tensor([[ratio(field) for field in row] for row in rows])


def main() -> None:
    print("| Random weights | Dtype | diffusers in it | Weights rounded | MM3 | Worse than weights rounded |")
    print("|---|---|---|---|---|---|")
    for make in (torch_init, unit_gain):
        means = torch.stack([ratios(make(seed), seed) for seed in SEEDS]).mean(dim=0)
        for dtype, (plain, weights, mm3) in zip(DTYPES, means.tolist(), strict=True):
            name = str(dtype).removeprefix("torch.")
            print(
                f"| {make.__name__} | {name} | {plain:.2f} | {weights:.2f} | {mm3:.2f} | {weights - mm3:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    with torch.inference_mode():
        main()
