"""How much worse a half-precision solve is than rounding the weights alone: `python benchmarks/half_precision.py`.

Signal-to-noise ratios in dB against the float32 solve of a random 12-layer model, 30 guided steps. About a minute.
"""

import math
import sys
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mm3 import MiniMaxMusic3Transformer1DModel, TransformerConfig  # noqa: E402
from mm3.song import solve_window  # noqa: E402

CONFIG = TransformerConfig(width=256, depth=12, ff_width=1024, condition_channels=256, fourier_features=64)
WIDE = ("to_qkv", "to_out", "ff_in", "ff_out")
LENGTH = 200


def random_state(generator: torch.Generator) -> dict[str, Tensor]:
    state = {}
    for name, parameter in MiniMaxMusic3Transformer1DModel(CONFIG, device="meta").named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim > 1:
            state[name] = values * parameter[0].numel() ** -0.5
        else:
            state[name] = values * 0.02 if name.endswith("bias") else 1.0 + 0.1 * values
    return state


def solved(state: dict[str, Tensor], condition: Tensor, dtype: torch.dtype) -> Tensor:
    model = MiniMaxMusic3Transformer1DModel(CONFIG, dtype=dtype)
    model.load_state_dict(state)
    return solve_window(model, condition, seed=0, index=0)[0]


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    state = random_state(generator)
    condition = torch.randn(1, CONFIG.condition_channels, LENGTH, generator=generator)
    reference = solved(state, condition, torch.float32)

    def ratio(latent: Tensor) -> float:
        return 10.0 * math.log10(float(reference.square().sum() / (latent - reference).square().sum()))

    for dtype in (torch.bfloat16, torch.float16):
        wide = {name for name in state if any(part in name for part in WIDE)}
        rounded = {name: value.to(dtype).float() if name in wide else value for name, value in state.items()}
        weights = ratio(solved(rounded, condition, torch.float32))
        half = ratio(solved(state, condition, dtype))
        print(f"{dtype}: weights rounded {weights:.2f} dB, computed in it {half:.2f} dB, {weights - half:.2f} dB worse")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
