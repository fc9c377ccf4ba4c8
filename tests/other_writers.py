"""The tiny model in the layouts of other tools: torch zip files, whole codecs, HOT-Step, a Hugging Face cache."""

import hashlib
import os
import re

import torch
from layout_writers import comfy_dav, folded, write_folder

from mm3.checkpoint import fold_weight_norm

REVISION = "0123456789abcdef0123456789abcdef01234567"


def write_pickle(path, state):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    return path


def prefixed(prefix, state):
    return {prefix + name: value for name, value in state.items()}


def bundle(states):
    """All components in one state, each under its own name."""
    return {f"{part}.{name}": value for part, state in states.items() for name, value in state.items()}


def whole_codec(states):
    """The decoder under the codec's names, with the encoder and the flow that are of no use here."""
    extra = {name: torch.zeros(shape) for name, shape in CODEC_ENCODER.items()}
    return extra | comfy_dav(states) | {"flow.flows.0.pre.weight": torch.zeros(4, 2, 1)}


CODEC_ENCODER = {
    "encoder.block.0.weight_g": (64, 1, 1),
    "encoder.block.0.weight_v": (64, 1, 7),
    "encoder.block.0.bias": (64,),
    "mean_proj.weight": (64, 48, 1),
    "mean_proj.bias": (64,),
    "logs_proj.weight": (64, 48, 1),
    "logs_proj.bias": (64,),
}


def flattened(vocoder):
    """Without the axes of length 1 around the slopes."""
    return {name: value.flatten() if name.endswith("alpha") else value for name, value in vocoder.items()}


def cpp_vocoder(states):
    """As minimaxmusic.cpp: folded, flattened, with the encoder beside it."""
    extra = {"encoder.conv_in.weight": torch.zeros(64, 1, 7), "encoder.mean_proj.weight": torch.zeros(64, 48, 1)}
    return flattened(folded(states["vocoder"], fold_weight_norm)) | extra


# Official name -> name in HOT-Step's files, without the component.
_STEP_DIT = {
    r"time_proj\.": "time_fourier.",
    r"time_embed\.linear_1\.": "time_embd.0.",
    r"time_embed\.linear_2\.": "time_embd.1.",
    r"transformer_blocks\.(\d+)\.norm1\.": r"blk.\1.attn_norm.",
    r"transformer_blocks\.(\d+)\.norm2\.": r"blk.\1.ffn_norm.",
    r"transformer_blocks\.(\d+)\.attn\.to_out\.0\.": r"blk.\1.attn_output.",
    r"transformer_blocks\.(\d+)\.ff_(in|out)\.": r"blk.\1.ffn_\2.",
}
_STEP_VOCODER = {
    r"dec_in_proj\.": "dec_in.",
    r"blocks\.(\d+)\.snake1\.": r"blk.\1.snake.",
    r"blocks\.(\d+)\.conv_t1\.": r"blk.\1.convt.",
    r"blocks\.(\d+)\.res_unit1\.": r"blk.\1.res.0.",
    r"blocks\.(\d+)\.res_unit2\.": r"blk.\1.res.1.",
    r"blocks\.(\d+)\.res_unit3\.": r"blk.\1.res.2.",
}
_STEP_CONDITION = {"layer_weight_logits": "layer_logits"}


def hot_step_dit(states):
    official = states["transformer"]
    state = {"dit.rope_inv_freq": torch.zeros(16)}
    for name, value in official.items():
        if name.endswith("attn.to_q.weight"):
            block = name.removesuffix("attn.to_q.weight")
            fused = torch.cat([official[f"{block}attn.to_{letter}.weight"] for letter in "qkv"])
            state[f"dit.blk.{block.split('.')[1]}.attn_qkv.weight"] = fused
        elif not name.endswith(("attn.to_k.weight", "attn.to_v.weight")):
            state["dit." + _renamed(_STEP_DIT, name)] = value
    return state


def hot_step_condition(states):
    return {"cond." + _renamed(_STEP_CONDITION, name): value for name, value in states["condition_encoder"].items()}


def hot_step_vocoder(states):
    state = folded(states["vocoder"], fold_weight_norm)
    return {"voc." + _renamed(_STEP_VOCODER, name): value for name, value in state.items()}


def hot_step_bundle(states):
    """All parts in one state, with the depth decoder that is of no use here."""
    extra = {"depth.blk.0.attn_q.weight": torch.zeros(4, 4), "depth.pos_embd.weight": torch.zeros(16, 4)}
    return hot_step_dit(states) | hot_step_condition(states) | hot_step_vocoder(states) | extra


def _renamed(names, name):
    for official, other in names.items():
        if re.match(official, name):
            return re.sub(f"^{official}", other, name)
    return name


def write_cache(cache, states, write=write_folder):
    """A Hugging Face cache folder: blobs named by their hash, and a snapshot of links to them."""
    source = write(cache.parent / "downloaded", states)
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        blob = cache / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        link = cache / "snapshots" / REVISION / file.relative_to(source)
        for folder in (blob.parent, link.parent):
            folder.mkdir(parents=True, exist_ok=True)
        file.rename(blob)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(REVISION, encoding="ascii")
    return cache
