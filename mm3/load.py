"""Modules from checkpoints. Weights are held once; each is read, converted and let go before the next."""

import re
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from .attention import AttentionBackend
from .checkpoint import Checkpoint, CheckpointError, Component, open_checkpoint
from .condition import MiniMaxMusic3ConditionEncoder
from .flow import MiniMaxMusic3FlowMatchingDiT
from .operations import Operations
from .quant import PackedLinear, PackedWeight
from .ranged import is_ranged
from .transformer import MiniMaxMusic3Transformer1DModel
from .vocoder import MiniMaxMusic3Vocoder


class PackedLayer(Protocol):
    """Makes a linear layer of a packed weight and a bias; a ranged one stands for a `RangedLinear`."""

    def __call__(self, weight: PackedWeight, bias: Tensor | None, *, ranged: bool) -> nn.Module: ...


_WIDE = re.compile(r"transformer_blocks\.\d+\.(attn\.to_qkv|attn\.to_out|ff_in|ff_out)\.weight")


def load_dit(
    checkpoint: Checkpoint,
    *,
    dtype: torch.dtype = torch.float32,
    compute_dtype: torch.dtype | None = None,
    operations: Operations = nn,
    attention: AttentionBackend | None = None,
    packed_layer: PackedLayer = PackedLinear,
) -> MiniMaxMusic3FlowMatchingDiT:
    """Condition encoder and transformer of a checkpoint, on the CPU. Wide weights that are stored packed stay so.

    Args:
        checkpoint: Holds both components.
        dtype: Dtype of the wide weights in memory, if they are not packed.
        compute_dtype: Dtype of the wide products, or None for `dtype`.
        operations: Namespace of the layers: torch.nn, or the host's.
        attention: The host's attention for half precision, or None for SDPA.
        packed_layer: Makes a linear layer of a packed weight and a bias: ours, or the host's.

    Raises:
        CheckpointError: If a component is missing or does not fit its layout.
    """
    encoder, transformer = (checkpoint.component(name) for name in ("condition_encoder", "transformer"))
    module = MiniMaxMusic3FlowMatchingDiT(
        encoder.condition_encoder_config(),
        transformer.transformer_config(),
        attention=attention,
        operations=operations,
        dtype=dtype,
        compute_dtype=compute_dtype,
        device="meta",
    )
    _match_widths(checkpoint, module)
    for component in (encoder, transformer):
        component.check(skeleton(component))  # both, before reading either
    packed = transformer.packed_weights([name for name in transformer.recipes if _WIDE.fullmatch(name)])
    state = {
        f"{component.name}.{key}": value
        for component in (encoder, transformer)
        for key, value in component.state(skeleton(component, dtype), packed).items()
    }
    weights = {f"transformer.{name.removesuffix('.weight')}": weight for name, weight in packed.items()}
    _load(module, state, weights, packed_layer)
    return module.eval()


def _load(
    module: nn.Module, state: dict[str, Tensor], packed: dict[str, PackedWeight], packed_layer: PackedLayer
) -> None:
    """Give a module its parameters, and layers of their own to those whose weight is packed."""
    biases = {name: state.pop(f"{name}.bias", None) for name in packed}
    ranged = {name for name in packed if is_ranged(module.get_submodule(name))}
    for name in packed:
        _replace(module, name, nn.Identity())  # a host's layer without a weight would make one of its own
    module.load_state_dict(state, assign=True)
    for name, weight in packed.items():
        _replace(module, name, packed_layer(weight, biases[name], ranged=name in ranged))


def _replace(module: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(parent), leaf, layer)


def load_vocoder(checkpoint: Checkpoint, *, operations: Operations = nn) -> MiniMaxMusic3Vocoder:
    """Vocoder of a checkpoint, float32 on the CPU, weight norm folded.

    Raises:
        CheckpointError: If the component is missing or does not fit its layout.
    """
    component = checkpoint.component("vocoder")
    module = MiniMaxMusic3Vocoder(component.vocoder_config(), operations=operations, device="meta")
    module.load_state_dict(component.state(skeleton(component)), assign=True)
    return module.eval()


def skeleton(component: Component, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """The parameters that a component's module has, on the meta device: names, shapes, and dtypes in memory.

    Raises:
        CheckpointError: If the tensors do not tell the sizes.
    """
    module: nn.Module
    if component.name == "transformer":
        module = MiniMaxMusic3Transformer1DModel(component.transformer_config(), dtype=dtype, device="meta")
    elif component.name == "condition_encoder":
        module = MiniMaxMusic3ConditionEncoder(component.condition_encoder_config(), device="meta")
    else:
        module = MiniMaxMusic3Vocoder(component.vocoder_config(), device="meta")
    return dict(module.named_parameters())


def _match_widths(checkpoint: Checkpoint, dit: MiniMaxMusic3FlowMatchingDiT) -> None:
    given = dit.condition_encoder.config.condition_channels
    wanted = dit.transformer.config.condition_channels
    if given != wanted:
        raise CheckpointError(
            f"{checkpoint.path.name}: the condition encoder gives {given} channels, the transformer expects {wanted}. "
            "Use both from the same model."
        )


def open_whole(
    path: Path | str, vocoder: Path | str | None = None, condition_encoder: Path | str | None = None
) -> tuple[Checkpoint, Checkpoint]:
    """The checkpoints of the two stages: vocoder and condition encoder come from their own paths, or from the same one.

    Raises:
        FileNotFoundError: If a path does not exist.
        CheckpointError: If a component is missing.
    """
    dit = open_dit(path, condition_encoder)
    decoder = dit if vocoder is None else open_checkpoint(vocoder)
    decoder.component("vocoder")
    return dit, decoder


def open_dit(path: Path | str, condition_encoder: Path | str | None = None) -> Checkpoint:
    """The checkpoint of the first stage: the condition encoder comes from its own path, or from the same one.

    Raises:
        FileNotFoundError: If a path does not exist.
        CheckpointError: If a component is missing.
    """
    dit = open_checkpoint(path)
    dit.component("transformer")
    if condition_encoder is not None:
        dit = dit.with_component("condition_encoder", open_checkpoint(condition_encoder))
    dit.component("condition_encoder")
    return dit
