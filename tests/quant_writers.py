"""A tiny model whose rows fill whole blocks, and its states with the wide weights quantised as published files do."""

import dataclasses
import json
import re

import torch

from mm3.demo import TRANSFORMER

WIDE_TRANSFORMER = dataclasses.replace(TRANSFORMER, width=256, ff_width=512)

_WIDE = re.compile(r"(self_attn\.to_qkv|self_attn\.to_out|ff\.ff\.0\.proj|ff\.ff\.2)\.weight$")
_WIDE_OFFICIAL = re.compile(r"(attn\.to_[qkv]|attn\.to_out\.0|ff_in|ff_out)\.weight$")
_WIDE_STEP = re.compile(r"(attn_qkv|attn_output|ffn_in|ffn_out)\.weight$")
_H4 = torch.tensor([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]], dtype=torch.float64)


def is_wide(name):
    """Of the four layers of a block that are quantised, under Comfy-Org's, the official or HOT-Step's names."""
    return any(names.search(name) for names in (_WIDE, _WIDE_OFFICIAL, _WIDE_STEP))


def rotation(size):
    """The matrix in float64, by its definition."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while matrix.shape[0] < size:
        matrix = torch.kron(matrix, _H4)
    return matrix / size**0.5


def rotated(weight, group):
    return (weight.double().unflatten(1, (-1, group)) @ rotation(group).T).flatten(1)


def int8_rows(weight, group=256):
    """(values, scale, what they stand for): rotated, then rounded to the 127th part of each row's largest value."""
    turned = rotated(weight, group) if group else weight.double()
    scale = (turned.abs().amax(dim=1, keepdim=True) / 127).float()
    values = (turned / scale).round().clamp(-127, 127).to(torch.int8)
    meant = values.double() * scale.double()
    return values, scale, (rotated(meant, group) if group else meant).float()


def int8(state, group=256, flat=False):
    """(state of an int8_convrot file, the same state with the floats that it stands for)."""
    stored, meant = {}, {}
    settings = {"format": "int8_tensorwise"} | ({"convrot": True, "convrot_groupsize": group} if group else {})
    for name, value in state.items():
        if not is_wide(name):
            stored[name] = meant[name] = value
            continue
        values, scale, meant[name] = int8_rows(value, group)
        base = name.removesuffix(".weight")
        stored |= {name: values, f"{base}.weight_scale": scale.flatten() if flat else scale}
        stored[f"{base}.comfy_quant"] = json_bytes(settings)
    return stored, meant


def json_bytes(value):
    return torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)


def float8(state, dtype, end=".weight_scale", per_row=False, beside=()):
    """(state of a scaled fp8 file, the same state with the floats that it stands for)."""
    stored, meant = {}, {}
    for name, value in state.items():
        if not is_wide(name):
            stored[name] = meant[name] = value
            continue
        largest = value.abs().amax(dim=1, keepdim=True) if per_row else value.abs().max()
        scale = largest / torch.finfo(dtype).max
        base = name.removesuffix(".weight")
        stored |= {name: (value / scale).to(dtype), base + end: scale}
        stored |= {base + other: torch.ones(()) for other in beside}
        meant[name] = stored[name].float() * scale
    return stored, meant
