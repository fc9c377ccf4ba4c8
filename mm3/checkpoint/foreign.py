"""Models of other kinds that people put in the same folders, recognised by tensor names."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_TEXT_ENCODER = "It belongs in models/text_encoders, for the core's text node"
_MODEL = "choose minimax_music3_dit_fp16.safetensors or the official folder"


@dataclass(frozen=True)
class Foreign:
    """What a file is if each of `signature` is found in some tensor's name, and what to use instead."""

    signature: tuple[str, ...]
    what: str
    advice: str


def recognise(keys: Iterable[str]) -> Foreign | None:
    """The first kind that tensor names fit, or None."""
    names = "\n".join(keys)
    for kind in _KINDS:
        if all(re.search(pattern, names, re.MULTILINE) for pattern in kind.signature):
            return kind
    return None


def _diffusion(what: str, *signature: str) -> Foreign:
    return Foreign(signature, what, f"That is another model: {_MODEL}")


_KINDS = (
    Foreign(("^hidden$",), "frames of the language model", "Load them with MM3 Load Conditioning"),
    Foreign(("^(samples|latent_tensor)$",), "a saved latent", "Load it with Load Latent"),
    Foreign(
        (r"lora_(A|B|up|down)\.|\.lora\.(up|down)\.|\.(lokr|hada)_w",),
        "a LoRA, which changes a model and is none",
        f"LoRAs are for the core's nodes; here {_MODEL}",
    ),
    Foreign(
        (r"(^|\.)transformer_blocks\.\d+\.ff_(in|out)\.",),
        "a part of the official transformer, one of several shards",
        "Choose the folder that holds all of them",
    ),
    Foreign(
        (r"(^|\.)audio_decoder\.",),
        "the text encoder (language model) of MiniMax Music 3",
        f"{_TEXT_ENCODER}; here {_MODEL}",
    ),
    Foreign(
        (r"(^|\.)audio_(embeddings|heads)\.|^rvq_depth_decoder\.|^depth\.",),
        "the RVQ depth decoder of MiniMax Music 3, a part of its language model",
        f"Here {_MODEL}",
    ),
    Foreign(
        (r"(^|\.)video_patch_proj\.", r"(^|\.)audio_patch_proj\."),
        "MiniMax H3, a video model",
        f"Use it with the core's H3 nodes; here {_MODEL}",
    ),
    Foreign(
        (r"^pre_block\.attn\.zero_k_bias|^decoder\.transformer_blocks\.0\.scale1",),
        "the audio or video VAE of MiniMax H3",
        "Use it with the core's H3 nodes; here choose minimax_music3_dav.safetensors",
    ),
    Foreign(
        (r"^encoder\.(block\.0\.weight|conv_in\.)|^enc\.",),
        "only the encoder half of the codec",
        "Decoding needs the other half: choose minimax_music3_dav.safetensors or dav.pth",
    ),
    Foreign(
        (
            r"(^|\.)layers\.\d+\.self_attn\.(q|k|v|qkv)_proj\.|^lm_head\.|(^|\.)embed_tokens\.|^(token_embd|blk\.\d+\.attn)",
        ),
        "a language model",
        f"{_TEXT_ENCODER}, if it is MiniMax Music 3's; here {_MODEL}",
    ),
    Foreign(
        (r"SelfAttention\.q\.|text_model\.encoder\.layers|\.transformer\.resblocks\.\d",),
        "a text encoder of another model",
        f"Here {_MODEL}",
    ),
    _diffusion("a Stable Diffusion checkpoint (SD 1, 2 or XL)", r"(^|\.)input_blocks\.0\.0\."),
    _diffusion(
        "a Stable Diffusion UNet (SD 1, 2 or XL)", r"^down_blocks\.\d+\.(attentions|resnets)\.", "^conv_norm_out"
    ),
    _diffusion("a Stable Diffusion 3 model", r"(^|\.)joint_blocks\.0\."),
    _diffusion("a Flux model", r"(^|\.)double_blocks\.0\.img_attn\.", r"(^|\.)single_blocks\.0\."),
    _diffusion("a Flux model", r"(^|\.)single_transformer_blocks\.0\."),
    _diffusion("a Wan video model", r"(^|\.)head\.modulation", r"(^|\.)blocks\.0\.cross_attn\."),
    _diffusion("an LTX video model", r"(^|\.)adaln_single\.emb\."),
    _diffusion("an ACE-Step music model", r"(^|\.)genre_embedder\.|(^|\.)lyric_(encoder|embs)\b"),
    _diffusion(
        "a Stable Audio model", r"(^|\.)transformer\.rotary_pos_emb\.inv_freq", r"(^|\.)to_(global|cond)_embed\."
    ),
    Foreign(
        (r"(^|\.)(encoder\.(down|down_blocks)|decoder\.(up|up_blocks))\.\d",),
        "the VAE of an image or video model",
        "Here choose minimax_music3_dav.safetensors",
    ),
    _diffusion("a diffusion model of another kind", r"(transformer_blocks|double_blocks|layers|blocks)\.\d+\..*attn"),
)
