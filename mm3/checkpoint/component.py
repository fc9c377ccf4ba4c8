"""One network in a checkpoint: its sizes and parameters, strictly checked."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from ..config import ConditionEncoderConfig, TransformerConfig, VocoderConfig
from ..quant import PackedWeight
from .errors import CheckpointError, shown
from .fuse import Recipe
from .infer import Shapes, condition_encoder_config, transformer_config, vocoder_config
from .packed import is_packed, packed_weight, stored_as

Config = TypeVar("Config")


@dataclass(frozen=True)
class Component:
    """One network in a checkpoint: its parameters by the names of its module.

    `ignored` are tensors of its layout that are known and not needed.
    """

    name: str
    layout: str
    recipes: dict[str, Recipe]
    stated: Mapping[str, object] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def transformer_config(self) -> TransformerConfig:
        """Sizes of the transformer, from its tensors.

        Raises:
            CheckpointError: If a tensor that tells a size is missing or has another rank.
        """
        return self._inferred(lambda shapes: transformer_config(shapes, self.stated))

    def condition_encoder_config(self) -> ConditionEncoderConfig:
        """Sizes of the condition encoder; raises as `transformer_config`."""
        return self._inferred(condition_encoder_config)

    def vocoder_config(self) -> VocoderConfig:
        """Sizes of the vocoder; raises as `transformer_config`."""
        return self._inferred(vocoder_config)

    @property
    def config(self) -> TransformerConfig | ConditionEncoderConfig | VocoderConfig:
        """Sizes of whichever network this is; raises as `transformer_config`."""
        if self.name == "transformer":
            return self.transformer_config()
        return self.condition_encoder_config() if self.name == "condition_encoder" else self.vocoder_config()

    def _inferred(self, infer: Callable[[Shapes], Config]) -> Config:
        try:
            return infer({name: recipe.shape for name, recipe in self.recipes.items()})
        except ValueError as error:
            raise CheckpointError(f"{self.name} ({self.layout} layout): {error}. Download the file again.") from error

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that most values are stored in."""
        counts: dict[torch.dtype, int] = {}
        for recipe in self.recipes.values():
            for part in recipe.parts:
                counts[part.dtype] = counts.get(part.dtype, 0) + part.parameters
        return max(counts, key=counts.__getitem__)

    @property
    def parameters(self) -> int:
        return sum(torch.Size(recipe.shape).numel() for recipe in self.recipes.values())

    def check(self, expected: Mapping[str, Tensor]) -> None:
        """Compare names and shapes with those of the module.

        Raises:
            CheckpointError: If any is missing, unexpected or misshapen; names the first few.
        """
        faults = [f"missing {name}" for name in expected if name not in self.recipes]
        faults += [f"unexpected {name}" for name in self.recipes if name not in expected]
        faults += [
            fault
            for name, wanted in expected.items()
            if name in self.recipes
            for fault in self.recipes[name].misshapen(name, tuple(wanted.shape))
        ]
        if faults:
            raise CheckpointError(
                f"the {self.name} does not fit the {self.layout} layout: {shown(faults, '; ')}. "
                "Download the file again, or choose another."
            )

    @property
    def packed(self) -> bool:
        """Whether any weight is stored in fewer bits than it stands for."""
        return any(is_packed(recipe) for recipe in self.recipes.values())

    @property
    def stored_as(self) -> str:
        """What most values are stored as, or all kinds if some are packed."""
        return stored_as(self.recipes.values())

    def packed_weights(self, names: Collection[str]) -> dict[str, PackedWeight]:
        """Those of the named parameters that are stored packed and can be kept so, on the CPU."""
        weights = ((name, packed_weight(self.recipes[name])) for name in names if name in self.recipes)
        return {name: weight for name, weight in weights if weight is not None}

    def state(self, expected: Mapping[str, Tensor], without: Collection[str] = ()) -> dict[str, Tensor]:
        """Parameters on the CPU, in the dtypes of `expected`. Holds each once; reads one stored tensor at a time.

        Raises:
            CheckpointError: As `check`.
        """
        self.check(expected)
        return {name: self.recipes[name].make(wanted.dtype) for name, wanted in expected.items() if name not in without}
