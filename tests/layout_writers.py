"""The tiny model's official states, written to disk in each layout in which the model is published."""

import json
import re

import torch
from safetensors.torch import save_file

WEIGHTS = "diffusion_pytorch_model.safetensors"
SHARDS = tuple(f"diffusion_pytorch_model-0000{number}-of-00002.safetensors" for number in (1, 2))

# Official name -> name in Comfy-Org's files and in flowmatching_vae.pth.
_DIT_NAMES = {
    r"time_proj\.": "timestep_features.",
    r"time_embed\.linear_1\.": "to_timestep_embed.0.",
    r"time_embed\.linear_2\.": "to_timestep_embed.2.",
    r"(preprocess_conv|postprocess_conv)\.": r"\1.",
    r"proj_(in|out)\.": r"transformer.project_\1.",
    r"transformer_blocks\.(\d+)\.norm1\.weight": r"transformer.layers.\1.pre_norm.gamma",
    r"transformer_blocks\.(\d+)\.norm1\.bias": r"transformer.layers.\1.pre_norm.beta",
    r"transformer_blocks\.(\d+)\.norm2\.weight": r"transformer.layers.\1.ff_norm.gamma",
    r"transformer_blocks\.(\d+)\.norm2\.bias": r"transformer.layers.\1.ff_norm.beta",
    r"transformer_blocks\.(\d+)\.attn\.to_out\.0\.": r"transformer.layers.\1.self_attn.to_out.",
    r"transformer_blocks\.(\d+)\.ff_in\.": r"transformer.layers.\1.ff.ff.0.proj.",
    r"transformer_blocks\.(\d+)\.ff_out\.": r"transformer.layers.\1.ff.ff.2.",
}
_CONDITION_NAMES = {
    "layer_weight_logits": "cond_layer_logits",
    "layer_scale": "cond_layer_scale",
    "proj.weight": "latent_conditioners.0.weight",
    "proj.bias": "latent_conditioners.0.bias",
}
_STAGE_PARTS = {"snake1": "0", "conv_t1": "1", "res_unit1": "2", "res_unit2": "3", "res_unit3": "4"}
_UNIT_PARTS = {"snake1": "0", "conv1": "1", "snake2": "2", "conv2": "3"}


def write_state(path, state):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in state.items()}, path)
    return path


def write_folder(folder, states):
    """`transformer/`, `condition_encoder/` and `vocoder/`, one file each."""
    for component, state in states.items():
        write_state(folder / component / WEIGHTS, state)
    return folder


def write_sharded_folder(folder, states):
    """As the release: the transformer in two shards, with an index, and with the last block split between them."""
    write_folder(folder, {name: state for name, state in states.items() if name != "transformer"})
    write_shards(folder / "transformer", states["transformer"])
    return folder


def write_shards(folder, state, *, index=True):
    last = max(int(match[1]) for name in state if (match := re.match(r"transformer_blocks\.(\d+)", name)))
    second = re.compile(rf"transformer_blocks\.{last}\.(attn\.to_[kv]|ff_)|postprocess_conv")
    places = {name: SHARDS[bool(second.match(name))] for name in state}
    for shard in SHARDS:
        write_state(folder / shard, {name: value for name, value in state.items() if places[name] == shard})
    if index:
        write_index(folder, places)
    return folder


def write_index(folder, places):
    text = json.dumps({"metadata": {"total_size": 0}, "weight_map": places})
    (folder / "diffusion_pytorch_model.safetensors.index.json").write_text(text, encoding="utf-8")


def comfy_dit(states, prefix=""):
    """Transformer and condition encoder in one state, with q, k and v fused and rotary frequencies that are unused."""
    state = {_CONDITION_NAMES[name]: value for name, value in states["condition_encoder"].items()}
    root = "diffusion_transformer."
    for name, value in states["transformer"].items():
        if name.endswith("attn.to_q.weight"):
            block = name.removesuffix("attn.to_q.weight")
            fused = torch.cat([states["transformer"][f"{block}attn.to_{letter}.weight"] for letter in "qkv"])
            number = block.split(".")[1]
            state[f"{root}transformer.layers.{number}.self_attn.to_qkv.weight"] = fused
        elif not name.endswith(("attn.to_k.weight", "attn.to_v.weight")):
            state[root + _renamed(name)] = value
    state[f"{root}transformer.rotary_pos_emb.inv_freq"] = 10_000.0 ** (-torch.arange(0, 32, 2) / 32)
    return {prefix + name: value for name, value in state.items()}


def comfy_dav(states, prefix=""):
    """The vocoder under the codec's positional names."""
    return {prefix + _dav_name(name): value for name, value in states["vocoder"].items()}


def parametrized(vocoder):
    """Weight-normed factors under the names of torch's parametrizations."""
    ends = {"weight_g": "parametrizations.weight.original0", "weight_v": "parametrizations.weight.original1"}
    return {re.sub(r"weight_[gv]$", lambda match: ends[match[0]], name): value for name, value in vocoder.items()}


def fold_by_torch(gain, direction):
    return torch._weight_norm(direction, gain, 0)


def folded(vocoder, fold=fold_by_torch):
    """Weight norm multiplied out."""
    state = {name: value for name, value in vocoder.items() if not name.endswith(("weight_g", "weight_v"))}
    for name, gain in vocoder.items():
        if name.endswith("weight_g"):
            base = name.removesuffix("_g")
            state[base] = fold(gain, vocoder[f"{base}_v"])
    return state


def _renamed(name):
    (found,) = [
        re.sub(f"^{official}", comfy, name) for official, comfy in _DIT_NAMES.items() if re.match(official, name)
    ]
    return found


def _dav_name(name):
    head, *rest = name.split(".")
    if head == "dec_in_proj":
        return name
    if head != "blocks":
        return ".".join(["decoder.model", {"conv_in": "0", "snake_out": "5", "conv_out": "6"}[head], *rest])
    number, part, *rest = rest
    inner = ["block", _UNIT_PARTS[rest[0]], *rest[1:]] if part.startswith("res_unit") else rest
    return ".".join(["decoder.model", str(int(number) + 1), "block", _STAGE_PARTS[part], *inner])
