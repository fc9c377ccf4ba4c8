"""Files of the released size: real names, shapes and dtypes, random values. Written in a stream, gigabytes each."""

import json
import math
from pathlib import Path

import torch

Shapes = dict[str, tuple[int, ...]]

_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_POOL = 1 << 24


def write_random(path: Path, shapes: Shapes, dtype: torch.dtype, seed: int = 0) -> Path:
    """A safetensors file with random values scaled so that the networks neither explode nor fall silent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pool = torch.randn(_POOL, generator=torch.Generator().manual_seed(seed))
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            for part in _values(name, shape, pool):
                file.write(part.to(dtype).view(torch.uint8).numpy())
    return path


def _values(name: str, shape: tuple[int, ...], pool: torch.Tensor):
    """Values of one tensor in parts of at most the pool's size."""
    offset, scale = _distribution(name, shape)
    left = math.prod(shape)
    while left:
        part = pool[: min(left, _POOL)]
        yield part * scale + offset
        left -= part.numel()


def _distribution(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    if name.endswith(("gamma", "alpha", "weight_g", "layer_scale")) or "norm" in name and name.endswith("weight"):
        return (0.5 if name.endswith("weight_g") else 1.0), 0.05
    if name.endswith(("bias", "beta")):
        return 0.0, 0.02
    return 0.0, math.prod(shape[1:] or shape) ** -0.5


def split_in_two(shapes: Shapes) -> tuple[Shapes, Shapes]:
    """As the release is sharded: from `transformer_blocks.18.ff_in.weight` on in the second shard."""
    late = [f"transformer_blocks.{block}." for block in range(19, 36)]
    late += ["transformer_blocks.18.ff_", "proj_out", "postprocess_conv"]
    second = {name: shape for name, shape in shapes.items() if name.startswith(tuple(late))}
    return {name: shape for name, shape in shapes.items() if name not in second}, second
