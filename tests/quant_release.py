"""Quantised files of the released size: real names, types and headers; the values are holes that read as zeros."""

import json
import math
from pathlib import Path

import gguf
import torch
from quant_writers import is_wide
from release_names import comfy_dit, official_transformer

SETTINGS = b'{"format":"int8_tensorwise","convrot":true,"convrot_groupsize":256}'
_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int8: "I8", torch.uint8: "U8"}


def int8_tensors(shapes, rest):
    """{name: (dtype, shape)} of an int8_convrot file whose other tensors are of dtype `rest`."""
    tensors = {name: (torch.int8 if is_wide(name) else rest, shape) for name, shape in shapes.items()}
    for name, shape in filter(lambda item: is_wide(item[0]), shapes.items()):
        base = name.removesuffix(".weight")
        tensors[f"{base}.weight_scale"] = torch.float32, (shape[0],)
        tensors[f"{base}.comfy_quant"] = torch.uint8, (len(SETTINGS),)
    return tensors


def comfy_int8():
    return int8_tensors(comfy_dit(), torch.float16)


def official_int8():
    return int8_tensors(official_transformer(), torch.bfloat16)


def write_holes(path: Path, tensors) -> Path:
    """A safetensors file; only the settings of the quantised layers are written."""
    header, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        data = file.tell()
        for name, entry in header.items():
            if name.endswith(".comfy_quant"):
                file.seek(data + entry["data_offsets"][0])
                file.write(SETTINGS)
        file.truncate(data + end)
    return path


def write_gguf_holes(path: Path, shapes, type_of) -> Path:
    """A GGUF file; nothing but its header is written."""
    writer, end = gguf.GGUFWriter(path, "minimax_music3"), 0
    for name, shape in shapes.items():
        kind = gguf.GGMLQuantizationType[type_of(name)]
        values, size = gguf.GGML_QUANT_SIZES[kind]
        writer.add_tensor_info(name, shape, torch.empty(0).numpy().dtype, math.prod(shape) // values * size, kind)
        end = -(-end // 32) * 32 + math.prod(shape) // values * size
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.truncate(-(-path.stat().st_size // 32) * 32 + end)
    return path
