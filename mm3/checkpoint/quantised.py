"""Quantised weights that cannot be read: recognised by the tensors beside them and by their dtype."""

import re
from collections.abc import Iterable

from .errors import CheckpointError, dtype_name, shown
from .files import StoredTensor
from .gguf import GGUFTensor
from .scales import ScaledTensor

_ADVICE = "Take an fp32, fp16 or bf16 file, or a scaled fp8, int8_convrot or GGUF one."

# A name that only this kind of quantisation has -> what it is.
_BESIDE = (
    (r"\.weight_scale_2$|\.weights_scaling_factor_2$", "to NVFP4 or another format with two scales"),
    (r"\.comfy_quant$", "in ComfyUI's format (int8 convrot, or another)"),
    (r"(^|\.)scaled_fp8$|\.scale_(weight|input)$|\.weight_scale(_inv)?$|\.input_scale$", "with scale tensors"),
    (r"\.(absmax|nested_absmax|quant_map)$|\.quant_state\.", "by bitsandbytes"),
    (r"\.(qweight|qzeros|scales|g_idx|biases)$", "by GPTQ, AWQ or MLX"),
    (r"\._(data|scale)$|\.weight\.(int_data|qdata)$", "by quanto or torchao"),
)


def refuse_quantised(stored: Iterable[StoredTensor], where: str) -> None:
    """Let only weights through that are numbers by themselves.

    Raises:
        CheckpointError: If a tensor is a scale of another, or whole numbers stand for weights.
    """
    tensors = list(stored)
    for pattern, what in _BESIDE:
        beside = [tensor.key for tensor in tensors if re.search(pattern, tensor.key)]
        if beside:
            raise CheckpointError(
                f"{where} is quantised {what} ({shown(beside[:1])}), which is not read here. {_ADVICE}"
            )
    numbers = [tensor for tensor in tensors if not isinstance(tensor, ScaledTensor | GGUFTensor)]
    whole = next((tensor for tensor in numbers if not tensor.dtype.is_floating_point), None)
    if whole is not None:
        raise CheckpointError(
            f"{where} is quantised in a way that is not known here: {shown([whole.key])} is "
            f"{dtype_name(whole.dtype)}. {_ADVICE}"
        )
