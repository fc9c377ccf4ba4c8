"""Sizes of the networks, from the shapes of their tensors."""

import re
from collections.abc import Mapping

from ..config import ConditionEncoderConfig, TransformerConfig, VocoderConfig
from .errors import CheckpointError

Shapes = Mapping[str, tuple[int, ...]]
Stated = Mapping[str, object]

_STATED = {"head_width": "attention_head_dim", "rotary_width": "rotary_dim"}


def transformer_config(shapes: Shapes, stated: Stated) -> TransformerConfig:
    """Sizes of the transformer. Heads cannot be read off tensors: `stated` (config.json) or 64 and 32 give them."""
    blocks = [int(match[1]) for name in shapes if (match := re.match(r"transformer_blocks\.(\d+)\.", name))]
    width, inputs = _shape(shapes, "proj_in.weight", 2)
    latents, _ = _shape(shapes, "proj_out.weight", 2)
    ff_width, _ = _shape(shapes, "transformer_blocks.0.ff_out.weight", 2)[::-1]
    heads = {field: value for field, key in _STATED.items() if isinstance(value := stated.get(key), int)}
    return TransformerConfig(
        latent_channels=latents,
        condition_channels=inputs - 2 * latents,
        width=width,
        depth=1 + max(blocks, default=-1),
        ff_width=ff_width,
        fourier_features=2 * _shape(shapes, "time_proj.weight", 2)[0],
        **heads,
    )


def condition_encoder_config(shapes: Shapes) -> ConditionEncoderConfig:
    """Sizes of the condition encoder."""
    channels, hidden_width, _ = _shape(shapes, "proj.weight", 3)
    (layers,) = _shape(shapes, "layer_weight_logits", 1)
    return ConditionEncoderConfig(hidden_width=hidden_width, layers=layers, condition_channels=channels)


def vocoder_config(shapes: Shapes) -> VocoderConfig:
    """Sizes of the vocoder; a transposed convolution's kernel is twice its stride."""
    input_width, half, _ = _shape(shapes, "dec_in_proj.weight", 3)
    width, _, _ = _shape(shapes, "conv_in.weight", 3)
    blocks = {int(match[1]) for name in shapes if (match := re.match(r"blocks\.(\d+)\.", name))}
    strides = [_shape(shapes, f"blocks.{index}.conv_t1.weight", 3)[2] // 2 for index in range(len(blocks))]
    return VocoderConfig(latent_channels=2 * half, input_width=input_width, width=width, strides=tuple(strides))


def _shape(shapes: Shapes, name: str, axes: int) -> tuple[int, ...]:
    shape = shapes.get(name)
    if shape is None:
        raise CheckpointError(f"tensor {name} is missing")
    if len(shape) != axes:
        raise CheckpointError(f"tensor {name} has shape {list(shape)}, expected {axes} axes")
    if 0 in shape:
        raise CheckpointError(f"tensor {name} has shape {list(shape)}, which is empty")
    return shape
