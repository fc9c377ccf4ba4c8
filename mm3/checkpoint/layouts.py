"""Layouts of checkpoints: recognised by tensor names, renamed to the official (diffusers) names.

A renamed tensor carries its component in front: `transformer.`, `condition_encoder.` or `vocoder.`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

PREFIXES = ("", "model.diffusion_model.", "diffusion_model.")

Renames = tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]


@dataclass(frozen=True)
class Layout:
    """A naming scheme: all `signature` tensors present tell it; the first of `renames` that fits a name is used."""

    name: str
    components: tuple[str, ...]
    signature: tuple[str, ...]
    renames: Renames
    ignored: tuple[str, ...] = ()

    def rename(self, key: str) -> str | None:
        """The official name, or None for a tensor that is not needed. A name no rule knows is kept as it is."""
        if key in self.ignored:
            return None
        for pattern, replacement in self.renames:
            renamed, count = re.subn(f"^{pattern}", replacement, key)
            if count:
                return renamed
        return key


def detect(keys: Iterable[str]) -> tuple[Layout, str] | None:
    """The layout that tensor names follow and the prefix they all carry, or None."""
    names = set(keys)
    for layout in LAYOUTS:
        for prefix in PREFIXES:
            if all(prefix + key in names for key in layout.signature):
                return layout, prefix
    return None


_UNIT_PARTS = ("snake1", "conv1", "snake2", "conv2")
_LAYER = r"diffusion_transformer\.transformer\.layers\.(\d+)\."
_BLOCK = r"transformer.transformer_blocks.\1."


def _decoder_block(match: re.Match[str], part: str) -> str:
    return f"vocoder.blocks.{int(match[1]) - 1}.{part}."


LAYOUTS = (
    Layout(
        "official transformer",
        ("transformer",),
        ("proj_in.weight", "transformer_blocks.0.ff_in.weight"),
        (("(?=time_|preprocess_|postprocess_|proj_|transformer_blocks)", "transformer."),),
    ),
    Layout(
        "official condition encoder",
        ("condition_encoder",),
        ("layer_weight_logits", "layer_scale"),
        (("(?=layer_|proj)", "condition_encoder."),),
    ),
    Layout(
        "official vocoder",
        ("vocoder",),
        ("dec_in_proj.weight", "conv_in.bias", "snake_out.alpha"),
        (("(?=dec_in_proj|conv_|blocks|snake_out)", "vocoder."),),
    ),
    Layout(
        "Comfy-Org DiT",
        ("transformer", "condition_encoder"),
        ("cond_layer_logits", "diffusion_transformer.transformer.layers.0.self_attn.to_qkv.weight"),
        (
            ("cond_layer_logits$", "condition_encoder.layer_weight_logits"),
            ("cond_layer_scale$", "condition_encoder.layer_scale"),
            (r"latent_conditioners\.0\.", "condition_encoder.proj."),
            (r"diffusion_transformer\.timestep_features\.", "transformer.time_proj."),
            (r"diffusion_transformer\.to_timestep_embed\.0\.", "transformer.time_embed.linear_1."),
            (r"diffusion_transformer\.to_timestep_embed\.2\.", "transformer.time_embed.linear_2."),
            (r"diffusion_transformer\.(?=(pre|post)process_conv\.)", "transformer."),
            (r"diffusion_transformer\.transformer\.project_(in|out)\.", r"transformer.proj_\1."),
            (rf"{_LAYER}pre_norm\.gamma$", f"{_BLOCK}norm1.weight"),
            (rf"{_LAYER}pre_norm\.beta$", f"{_BLOCK}norm1.bias"),
            (rf"{_LAYER}ff_norm\.gamma$", f"{_BLOCK}norm2.weight"),
            (rf"{_LAYER}ff_norm\.beta$", f"{_BLOCK}norm2.bias"),
            (rf"{_LAYER}self_attn\.to_qkv\.", f"{_BLOCK}attn.to_qkv."),
            (rf"{_LAYER}self_attn\.to_out\.", f"{_BLOCK}attn.to_out.0."),
            (rf"{_LAYER}ff\.ff\.0\.proj\.", f"{_BLOCK}ff_in."),
            (rf"{_LAYER}ff\.ff\.2\.", f"{_BLOCK}ff_out."),
        ),
        # Rounded to half precision in some files; the rotary tables are computed instead.
        ignored=("diffusion_transformer.transformer.rotary_pos_emb.inv_freq",),
    ),
    Layout(
        "Comfy-Org vocoder",
        ("vocoder",),
        ("dec_in_proj.weight", "decoder.model.0.bias"),
        (
            (r"dec_in_proj\.", "vocoder.dec_in_proj."),
            (r"decoder\.model\.0\.", "vocoder.conv_in."),
            (r"decoder\.model\.\d+\.alpha$", "vocoder.snake_out.alpha"),
            (r"decoder\.model\.(\d+)\.block\.0\.", lambda match: _decoder_block(match, "snake1")),
            (r"decoder\.model\.(\d+)\.block\.1\.", lambda match: _decoder_block(match, "conv_t1")),
            (
                r"decoder\.model\.(\d+)\.block\.([234])\.block\.([0-3])\.",
                lambda match: _decoder_block(match, f"res_unit{int(match[2]) - 1}.{_UNIT_PARTS[int(match[3])]}"),
            ),
            (r"decoder\.model\.\d+\.(?=weight|bias|parametrizations)", "vocoder.conv_out."),
        ),
    ),
)
