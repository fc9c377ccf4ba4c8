"""Layouts of checkpoints: recognised by tensor names, renamed to the official (diffusers) names."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

PREFIXES = ("", "model.diffusion_model.", "diffusion_model.")

Renames = tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]


@dataclass(frozen=True)
class Layout:
    """A naming scheme for one component: all `signature` tensors present tell it.

    The first of `renames` that fits a name is used. What fits `ignored` is known and not needed: an encoder, say.
    """

    name: str
    component: str
    signature: tuple[str, ...]
    renames: Renames
    ignored: tuple[str, ...] = ()

    def rename(self, key: str) -> str | None:
        """The official name, or None for a name that no rule knows."""
        for pattern, replacement in self.renames:
            renamed, count = re.subn(f"^{pattern}", replacement, key)
            if count:
                return renamed
        return None

    def ignores(self, key: str) -> bool:
        return any(re.match(pattern, key) for pattern in self.ignored)


@dataclass(frozen=True)
class Match:
    """A layout found in a file, and the prefix that its tensors carry there."""

    layout: Layout
    prefix: str


def detect(keys: Iterable[str]) -> list[Match]:
    """The layouts that tensor names follow, at most one for each component."""
    names = set(keys)
    found: dict[str, Match] = {}
    for layout in LAYOUTS:
        for prefix in (*PREFIXES, f"{layout.component}."):
            if all(prefix + key in names for key in layout.signature):
                found.setdefault(layout.component, Match(layout, prefix))
    return list(found.values())


_UNIT_PARTS = ("snake1", "conv1", "snake2", "conv2")
_LAYER = r"diffusion_transformer\.transformer\.layers\.(\d+)\."
_BLOCK = r"transformer_blocks.\1."
_STEP_BLOCK = r"dit\.blk\.(\d+)\."
# Of the whole codec, only the decoder is used.
_CODEC = (r"encoder\.", r"mean_proj\.", r"logs_proj\.", r"flow\.")
# Other parts of a bundle that holds the whole model.
_BUNDLE = (r"(lm|depth|enc)\.",)


def _decoder_block(match: re.Match[str], part: str) -> str:
    return f"blocks.{int(match[1]) - 1}.{part}."


LAYOUTS = (
    Layout(
        "official transformer",
        "transformer",
        ("proj_in.weight", "transformer_blocks.0.ff_in.weight"),
        (("(?=time_|preprocess_|postprocess_|proj_|transformer_blocks)", ""),),
    ),
    Layout(
        "official condition encoder",
        "condition_encoder",
        ("layer_weight_logits", "layer_scale"),
        ((r"(?=layer_|proj\.)", ""),),
    ),
    Layout(
        "official vocoder",
        "vocoder",
        ("dec_in_proj.weight", "conv_in.bias", "snake_out.alpha"),
        (("(?=dec_in_proj|conv_|blocks|snake_out)", ""),),
        ignored=_CODEC,
    ),
    Layout(
        "Comfy-Org DiT",
        "transformer",
        ("diffusion_transformer.transformer.layers.0.self_attn.to_qkv.weight",),
        (
            (r"diffusion_transformer\.timestep_features\.", "time_proj."),
            (r"diffusion_transformer\.to_timestep_embed\.0\.", "time_embed.linear_1."),
            (r"diffusion_transformer\.to_timestep_embed\.2\.", "time_embed.linear_2."),
            (r"diffusion_transformer\.(?=(pre|post)process_conv\.)", ""),
            (r"diffusion_transformer\.transformer\.project_(in|out)\.", r"proj_\1."),
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
        ignored=(r"diffusion_transformer\.transformer\.rotary_pos_emb\.inv_freq$",),
    ),
    Layout(
        "Comfy-Org DiT",
        "condition_encoder",
        ("cond_layer_logits", "latent_conditioners.0.weight"),
        (
            ("cond_layer_logits$", "layer_weight_logits"),
            ("cond_layer_scale$", "layer_scale"),
            (r"latent_conditioners\.0\.", "proj."),
        ),
    ),
    Layout(
        "Comfy-Org vocoder",
        "vocoder",
        ("dec_in_proj.weight", "decoder.model.0.bias"),
        (
            (r"(?=dec_in_proj\.)", ""),
            (r"decoder\.model\.0\.", "conv_in."),
            (r"decoder\.model\.\d+\.alpha$", "snake_out.alpha"),
            (r"decoder\.model\.(\d+)\.block\.0\.", lambda match: _decoder_block(match, "snake1")),
            (r"decoder\.model\.(\d+)\.block\.1\.", lambda match: _decoder_block(match, "conv_t1")),
            (
                r"decoder\.model\.(\d+)\.block\.([234])\.block\.([0-3])\.",
                lambda match: _decoder_block(match, f"res_unit{int(match[2]) - 1}.{_UNIT_PARTS[int(match[3])]}"),
            ),
            (r"decoder\.model\.\d+\.(?=weight|bias|parametrizations)", "conv_out."),
        ),
        ignored=_CODEC,
    ),
    Layout(
        "HOT-Step transformer",
        "transformer",
        ("dit.proj_in.weight", "dit.blk.0.attn_qkv.weight"),
        (
            (r"dit\.time_fourier\.", "time_proj."),
            (r"dit\.time_embd\.0\.", "time_embed.linear_1."),
            (r"dit\.time_embd\.1\.", "time_embed.linear_2."),
            (r"dit\.(?=(pre|post)process_conv\.|proj_(in|out)\.)", ""),
            (rf"{_STEP_BLOCK}attn_norm\.", f"{_BLOCK}norm1."),
            (rf"{_STEP_BLOCK}ffn_norm\.", f"{_BLOCK}norm2."),
            (rf"{_STEP_BLOCK}attn_qkv\.", f"{_BLOCK}attn.to_qkv."),
            (rf"{_STEP_BLOCK}attn_output\.", f"{_BLOCK}attn.to_out.0."),
            (rf"{_STEP_BLOCK}ffn_(in|out)\.", rf"{_BLOCK}ff_\2."),
        ),
        ignored=(r"dit\.rope_inv_freq$", *_BUNDLE),
    ),
    Layout(
        "HOT-Step condition encoder",
        "condition_encoder",
        ("cond.layer_logits", "cond.proj.weight"),
        (
            (r"cond\.layer_logits$", "layer_weight_logits"),
            (r"cond\.(?=layer_scale$|proj\.)", ""),
        ),
        ignored=_BUNDLE,
    ),
    Layout(
        "HOT-Step vocoder",
        "vocoder",
        ("voc.dec_in.weight", "voc.conv_in.weight"),
        (
            (r"voc\.dec_in\.", "dec_in_proj."),
            (r"voc\.(?=conv_in\.|snake_out\.|conv_out\.)", ""),
            (r"voc\.blk\.(\d+)\.snake\.", r"blocks.\1.snake1."),
            (r"voc\.blk\.(\d+)\.convt\.", r"blocks.\1.conv_t1."),
            (
                r"voc\.blk\.(\d+)\.res\.(\d+)\.",
                lambda match: f"blocks.{match[1]}.res_unit{int(match[2]) + 1}.",
            ),
        ),
        ignored=_BUNDLE,
    ),
)
