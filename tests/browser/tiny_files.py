"""Tiny random weights and frames under the file names, and in the tensor names, of the Comfy-Org downloads."""

import re
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from mm3.checkpoint import remap_transformer_state
from mm3.demo import official_states, write_demo_hidden

FRAMES = 250
HIDDEN = "output/mm3/conditioning_00001_.safetensors"

_DIT_NAMES = (
    (r"^condition_encoder\.layer_weight_logits", "cond_layer_logits"),
    (r"^condition_encoder\.layer_scale", "cond_layer_scale"),
    (r"^condition_encoder\.proj\.", "latent_conditioners.0."),
    (r"^transformer\.time_proj\.", "diffusion_transformer.timestep_features."),
    (r"^transformer\.time_embed\.linear_1\.", "diffusion_transformer.to_timestep_embed.0."),
    (r"^transformer\.time_embed\.linear_2\.", "diffusion_transformer.to_timestep_embed.2."),
    (r"^transformer\.(pre|post)process_conv\.", r"diffusion_transformer.\1process_conv."),
    (r"^transformer\.proj_(in|out)\.", r"diffusion_transformer.transformer.project_\1."),
    (r"^transformer\.transformer_blocks\.", "diffusion_transformer.transformer.layers."),
    (r"\.norm1\.", ".pre_norm."),
    (r"\.norm2\.", ".ff_norm."),
    (r"_norm\.weight$", "_norm.gamma"),
    (r"_norm\.bias$", "_norm.beta"),
    (r"\.attn\.", ".self_attn."),
    (r"\.ff_in\.", ".ff.ff.0.proj."),
    (r"\.ff_out\.", ".ff.ff.2."),
)
_UNIT_PARTS = {"snake1": 0, "conv1": 1, "snake2": 2, "conv2": 3}


def write_tiny_files(base: Path) -> None:
    """Fill the models and input folders below `base` as the example workflows expect them."""
    states = official_states()
    transformer = remap_transformer_state(states["transformer"])
    dit = {f"transformer.{name}": value for name, value in transformer.items()}
    dit |= {f"condition_encoder.{name}": value for name, value in states["condition_encoder"].items()}
    dit = {_dit_name(name): value.half().contiguous() for name, value in dit.items()}
    dit["diffusion_transformer.transformer.rotary_pos_emb.inv_freq"] = torch.zeros(16).half()
    _save(dit, base / "models/diffusion_models/minimax_music3_dit_fp16.safetensors")
    dav = {_dav_name(name): value.contiguous() for name, value in states["vocoder"].items()}
    _save(dav, base / "models/vae/minimax_music3_dav.safetensors")
    (base / HIDDEN).parent.mkdir(parents=True, exist_ok=True)
    write_demo_hidden(base / HIDDEN, FRAMES)


def _save(state: dict[str, Tensor], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(state, path)


def _dit_name(name: str) -> str:
    for pattern, replacement in _DIT_NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def _dav_name(name: str) -> str:
    head, _, rest = name.partition(".")
    if head in ("conv_in", "snake_out", "conv_out"):
        return f"decoder.model.{dict(conv_in=0, snake_out=5, conv_out=6)[head]}.{rest}"
    if head != "blocks":
        return name
    index, part, rest = rest.split(".", 2)
    block = f"decoder.model.{int(index) + 1}.block"
    if part in ("snake1", "conv_t1"):
        return f"{block}.{int(part == 'conv_t1')}.{rest}"
    inner, rest = rest.split(".", 1)
    return f"{block}.{int(part[-1]) + 1}.block.{_UNIT_PARTS[inner]}.{rest}"
