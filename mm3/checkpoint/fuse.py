"""From official tensors to the modules' own: q/k/v fused into one, weight norm folded into the weight."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from .files import StoredTensor

_TO_OUT = ".attn.to_out.0.weight"
_PROJECTIONS = tuple(f".attn.to_{name}.weight" for name in "qkv")
_NORM_PAIRS = (
    (".weight_g", ".weight_v"),
    (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
)


@dataclass(frozen=True)
class Recipe:
    """How one parameter of a module is made from stored tensors: copied, concatenated along rows, or folded."""

    parts: tuple[StoredTensor, ...]
    folded: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        if self.folded:
            return self.parts[1].shape
        if len(self.parts) == 1:
            return self.parts[0].shape
        rows = sum(part.shape[0] if part.shape else 1 for part in self.parts)
        return (rows, *self.parts[0].shape[1:])

    def misshapen(self, name: str, wanted: tuple[int, ...]) -> list[str]:
        """What of this does not have the shape that a parameter of shape `wanted` asks of it."""
        if self.folded:
            expected = [(wanted[0], *[1] * (len(wanted) - 1)), wanted]
        else:
            expected = [(wanted[0] // len(self.parts), *wanted[1:])] * len(self.parts)
        return [
            f"{part.key if len(self.parts) > 1 else name} has shape {list(part.shape)}, expected {list(shape)}"
            for part, shape in zip(self.parts, expected, strict=True)
            if part.shape != shape
        ]

    def make(self, dtype: torch.dtype) -> Tensor:
        """The parameter on the CPU, in memory of its own. At most one stored tensor at a time is held beside it."""
        if self.folded:
            gain, direction = (part.read().float() for part in self.parts)
            return fold_weight_norm(gain, direction).to(dtype)
        out = torch.empty(self.shape, dtype=dtype)
        views = out.split([part.shape[0] for part in self.parts]) if len(self.parts) > 1 else (out,)
        for view, part in zip(views, self.parts, strict=True):
            part.copy_into(view)
        return out


def fold_weight_norm(gain: Tensor, direction: Tensor) -> Tensor:
    """The weight w = g v / |v|, with the norm over all but the first axis. Float32 in, float32 out."""
    return direction * (gain / torch.linalg.vector_norm(direction, dim=(1, 2), keepdim=True))


def fused_sources(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Module parameter -> official tensors that make it, for the attention of every block; others map to themselves.

    Raises:
        ValueError: If a block has some but not all of its three projections, or them and the fused one as well.
    """
    known = dict.fromkeys(names)
    sources: dict[str, tuple[str, ...]] = {}
    for name in known:
        target, parts = _fused_source(name)
        missing = [part for part in parts if part not in known]
        if missing:
            raise ValueError(f"block of {target} lacks its attention projection {missing[0]}")
        if sources.setdefault(target, parts) != parts:
            raise ValueError(f"both {sources[target][0]} and {parts[0]} give {target}")
    return sources


def _fused_source(name: str) -> tuple[str, tuple[str, ...]]:
    if name.endswith(_TO_OUT):
        return name.removesuffix(_TO_OUT) + ".attn.to_out.weight", (name,)
    for end in _PROJECTIONS:
        if name.endswith(end):
            block = name.removesuffix(end)
            return f"{block}.attn.to_qkv.weight", tuple(block + other for other in _PROJECTIONS)
    return name, (name,)


def remap_transformer_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rewrite the keys of an official `transformer/` state onto the module tree.

    `attn.to_q/to_k/to_v.weight` are concatenated along rows, in this order, into `attn.to_qkv.weight`;
    `attn.to_out.0.weight` loses its index; every other key is copied through.

    Raises:
        ValueError: If a block is missing one of its three projections.
    """
    return {
        target: state[parts[0]] if len(parts) == 1 else torch.cat([state[part] for part in parts])
        for target, parts in fused_sources(state).items()
    }


def recipes(stored: dict[str, StoredTensor]) -> dict[str, Recipe]:
    """Recipes for the parameters of the modules, from stored tensors under their official names.

    Raises:
        ValueError: If a block is missing one of its three projections.
    """
    made: dict[str, Recipe] = {}
    for target, parts in fused_sources(stored).items():
        pair = next((pair for pair in _NORM_PAIRS if target.endswith(pair)), None)
        if pair is None:
            made[target] = Recipe(tuple(stored[part] for part in parts))
            continue
        base = target.removesuffix(pair[0]).removesuffix(pair[1])
        halves = tuple(stored[base + end] for end in pair if base + end in stored)
        if len(halves) < len(pair):
            made[target] = Recipe(halves)  # found unexpected, by its own name
        elif f"{base}.weight" in stored:
            raise ValueError(f"both {base}.weight and {target} give {base}.weight")
        else:
            made[f"{base}.weight"] = Recipe(halves, folded=True)
    return made
