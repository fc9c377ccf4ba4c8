"""A tiny checkpoint with random weights in the official layout, and hidden frames for it: the chain without weights."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from .condition import MiniMaxMusic3ConditionEncoder
from .config import ConditionEncoderConfig, TransformerConfig, VocoderConfig
from .hidden import save_hidden
from .transformer import MiniMaxMusic3Transformer1DModel
from .vocoder import MiniMaxMusic3Vocoder

CONDITION_ENCODER = ConditionEncoderConfig(hidden_width=24, layers=8, condition_channels=32)
TRANSFORMER = TransformerConfig(
    latent_channels=128, condition_channels=32, width=128, depth=2, ff_width=192, fourier_features=32
)
VOCODER = VocoderConfig(latent_channels=128, input_width=48, width=64)


def official_states(seed: int = 0, transformer: TransformerConfig = TRANSFORMER) -> dict[str, dict[str, Tensor]]:
    """Random weights of the tiny model by component, under the names and in the factors of the official files."""
    generator = torch.Generator().manual_seed(seed)
    encoder = _random_state(MiniMaxMusic3ConditionEncoder(CONDITION_ENCODER, device="meta"), generator)
    field = _random_state(MiniMaxMusic3Transformer1DModel(transformer, device="meta"), generator)
    vocoder = _random_state(MiniMaxMusic3Vocoder(VOCODER, device="meta"), generator, gain=0.5)
    return {
        "transformer": _unfused(field),
        "condition_encoder": encoder,
        "vocoder": _weight_normed(vocoder),
    }


def write_demo_checkpoint(folder: Path, seed: int = 0) -> Path:
    """Write the tiny model as an official component folder; returns `folder`."""
    for component, state in official_states(seed).items():
        place = folder / component
        place.mkdir(parents=True, exist_ok=True)
        save_file(state, place / "diffusion_pytorch_model.safetensors")
        config = {"_class_name": f"MiniMaxMusic3 {component}"}
        (place / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return folder


def demo_hidden(frames: int, seed: int = 0) -> Tensor:
    """(1, F, C) hidden frames that wander slowly, bfloat16 as the language model gives them."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randn(1, frames, CONDITION_ENCODER.input_width, generator=generator)
    return (steps.cumsum(dim=1) / torch.arange(1, frames + 1)[:, None].sqrt()).bfloat16()


def write_demo_hidden(path: Path, frames: int, seed: int = 0) -> Path:
    """Write demo frames to a file; returns `path`."""
    save_hidden(path, demo_hidden(frames, seed))
    return path


def _random_state(module: nn.Module, generator: torch.Generator, gain: float = 1.0) -> dict[str, Tensor]:
    state = {}
    for name, parameter in module.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        leaf = name.rsplit(".", 1)[-1]
        if leaf == "weight" and parameter.ndim > 1:
            values = values * gain * parameter[0].numel() ** -0.5
        elif leaf == "bias":
            values = values * 0.1
        elif leaf in ("weight", "alpha", "layer_scale"):
            values = 1.0 + 0.1 * values
        state[name] = values
    return state


def _unfused(state: dict[str, Tensor]) -> dict[str, Tensor]:
    split = {}
    for name, value in state.items():
        if name.endswith("attn.to_qkv.weight"):
            for letter, part in zip("qkv", value.chunk(3), strict=True):
                split[name.replace("to_qkv", f"to_{letter}")] = part.contiguous()
        else:
            split[name.replace("attn.to_out.", "attn.to_out.0.")] = value
    return split


def _weight_normed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    factors = {}
    for name, value in state.items():
        if not name.endswith(".weight") or name.startswith("dec_in_proj"):
            factors[name] = value
            continue
        base = name.removesuffix(".weight")
        factors[f"{base}.weight_g"] = torch.linalg.vector_norm(value, dim=(1, 2), keepdim=True)
        factors[f"{base}.weight_v"] = value * 2.0  # any scale: the norm takes it out
    return factors
