"""Quantised tensors of safetensors files: int8 and float8 weights put together with the scales beside them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..quant.scaled import ScaledRows, is_hadamard_size
from .errors import CheckpointError, dtype_name
from .files import StoredTensor
from .gguf import GGUFTensor

_SETTINGS = ".comfy_quant"
_SCALES = (".weight_scale", ".scale_weight")
_OF_INPUTS = (".input_scale", ".scale_input")  # for products in low precision, which are not done here
_MARKERS = ("scaled_fp8",)
_FLOAT8 = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
_LONGEST_SETTINGS = 4096
_ADVICE = "Use an int8_convrot, fp8, fp16, bf16 or fp32 file."


@dataclass(frozen=True)
class ScaledTensor(StoredTensor):
    """A weight of int8 or float8 values (`dtype`), with one scale for all or one a row."""

    weight: StoredTensor
    scale: StoredTensor
    packing: ScaledRows

    def read(self) -> Tensor:
        """The weight that the values stand for, float32."""
        values = self.values().flatten(1)
        return self.packing.unpack(values, self.scales(), torch.float32).reshape(self.shape)

    def values(self) -> Tensor:
        """The values as stored."""
        return self.weight.read().view(self.dtype)

    def scales(self) -> Tensor:
        """(rows, 1), float32."""
        return self.scale.read().float().reshape(-1, 1).expand(self.shape[0], 1).contiguous()


def with_scales(stored: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The same tensors, quantised weights with their scales in them, and nothing beside them.

    Raises:
        CheckpointError: If a quantisation is not known here, or a scale is missing or misshapen.
    """
    settings = {key: _parsed(tensor) for key, tensor in stored.items() if key.endswith(_SETTINGS)}
    found = {
        key: _scaled(key, tensor, stored, settings) if key.endswith(".weight") else tensor
        for key, tensor in stored.items()
        if not key.endswith(_MARKERS)
    }
    bases = [key.removesuffix(".weight") for key, tensor in found.items() if isinstance(tensor, ScaledTensor)]
    beside = {base + end for base in bases for end in (_SETTINGS, *_SCALES, *_OF_INPUTS)}
    return {key: tensor for key, tensor in found.items() if key not in beside}


def _scaled(
    key: str, weight: StoredTensor, stored: Mapping[str, StoredTensor], settings: dict[str, dict[str, object]]
) -> StoredTensor:
    if isinstance(weight, GGUFTensor):
        return weight  # its blocks carry their scales
    base = key.removesuffix(".weight")
    scale = next((stored[base + end] for end in _SCALES if base + end in stored), None)
    stated = settings.get(base + _SETTINGS)
    if stated is None and (scale is None or weight.dtype not in _FLOAT8.values()):
        return weight
    dtype, group = _format(weight, stated)
    if scale is None:
        raise CheckpointError(f"{key} is {dtype} without {base}{_SCALES[0]}. Download the file again.")
    if len(weight.shape) < 2 or scale.parameters not in (1, weight.shape[0]) or len(scale.shape) > 2:
        raise CheckpointError(
            f"{scale.key} has shape {list(scale.shape)} for a weight of shape {list(weight.shape)}, "
            f"expected one scale or one a row. {_ADVICE}"
        )
    if group and (not is_hadamard_size(group) or weight.shape[1] % group or len(weight.shape) != 2):
        raise CheckpointError(
            f"{key} of shape {list(weight.shape)} is rotated in groups of {group}, "
            f"expected a power of 4 that divides its columns. {_ADVICE}"
        )
    return ScaledTensor(weight.path, weight.key, weight.shape, dtype, weight, scale, ScaledRows(group))


def _format(weight: StoredTensor, stated: dict[str, object] | None) -> tuple[torch.dtype, int]:
    """Dtype of the values and size of the rotated groups, 0 if they are not rotated."""
    if stated is None:
        return weight.dtype, 0
    name = stated.get("format")
    nested = stated.get("params")
    options = {**nested, **stated} if isinstance(nested, dict) else stated
    if name == "int8_tensorwise" and weight.dtype == torch.int8:
        group = options.get("convrot_groupsize", 256) if options.get("convrot", False) else 0
        if isinstance(group, int):
            return torch.int8, group
    if isinstance(name, str) and name in _FLOAT8 and weight.dtype in (_FLOAT8[name], torch.uint8):
        return _FLOAT8[name], 0
    raise CheckpointError(
        f"{weight.key} is {dtype_name(weight.dtype)}, quantised as {json.dumps(stated)}, which is not known here. "
        f"{_ADVICE}"
    )


def _parsed(tensor: StoredTensor) -> dict[str, object]:
    """The JSON object in a tensor of bytes."""
    try:
        value = json.loads(bytes(tensor.read().flatten()[:_LONGEST_SETTINGS].view(torch.uint8).tolist()))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise CheckpointError(f"{tensor.key} is not a JSON object that says how its weight was quantised. {_ADVICE}")
    return value
