"""A checkpoint on disk: what it is, which components it holds, and their parameters, strictly checked."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from ..config import ConditionEncoderConfig, TransformerConfig, VocoderConfig
from ..quant import PackedWeight
from .errors import CheckpointError
from .files import StoredTensor, component_files, read_header, read_json, shard_files
from .fuse import Recipe, recipes
from .gguf import GGUFTensor, read_gguf
from .gguf_header import is_gguf
from .infer import Shapes, condition_encoder_config, transformer_config, vocoder_config
from .layouts import LAYOUTS, detect
from .packed import is_packed, packed_weight, stored_as
from .ranks import with_rank
from .scales import with_scales

COMPONENTS = ("transformer", "condition_encoder", "vocoder")
_NAMED = 4

Config = TypeVar("Config")


@dataclass(frozen=True)
class Component:
    """One network in a checkpoint: its parameters by the names of its module."""

    name: str
    layout: str
    recipes: dict[str, Recipe]
    stated: Mapping[str, object] = field(default_factory=dict)

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
            more = f" and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
            raise CheckpointError(
                f"the {self.name} does not fit the {self.layout} layout: {'; '.join(faults[:_NAMED])}{more}. "
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


@dataclass(frozen=True)
class Checkpoint:
    """A file or folder and the components found in it."""

    path: Path
    components: dict[str, Component]

    def component(self, name: str) -> Component:
        """Raises CheckpointError if the component is not in this checkpoint."""
        if name not in self.components:
            held = ", ".join(self.components)
            raise CheckpointError(
                f"{self.path.name} holds no {name.replace('_', ' ')} (it holds: {held}). "
                "Choose a file that has it, or the folder of the whole model."
            )
        return self.components[name]


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Find out what a file or folder holds; no tensor data is read.

    A folder is the official model (with `transformer/`, `condition_encoder/` and `vocoder/` inside, or some of them),
    a single component folder, or one that holds a GGUF file of each component.

    Raises:
        FileNotFoundError: If there is nothing at this path.
        CheckpointError: If what is there is not a known layout.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    if path.is_file():
        return Checkpoint(path, _file_components(path))
    folders = [path / name for name in COMPONENTS if (path / name).is_dir()] or [path]
    components: dict[str, Component] = {}
    for folder in folders:
        components |= _folder_components(folder)
    return Checkpoint(path, components)


def _file_components(path: Path) -> dict[str, Component]:
    if is_gguf(path):
        return _split(read_gguf(path), {}, path.name)
    if path.suffix != ".safetensors":
        raise CheckpointError(
            f"{path.name} is not a .safetensors file. Choose a MiniMax Music 3 .safetensors or .gguf file."
        )
    return _split(_merged(shard_files(path)), {}, path.name)


def _gguf_components(files: list[Path]) -> dict[str, Component]:
    """Of files that hold a component each, or several."""
    components: dict[str, Component] = {}
    for file in files:
        found = _file_components(file)
        twice = components.keys() & found.keys()
        if twice:
            raise CheckpointError(f"{file.name} holds the {min(twice)} again. Keep one file of each in {file.parent}.")
        components |= found
    return components


def _folder_components(folder: Path) -> dict[str, Component]:
    blocks = sorted(folder.glob("*.gguf"))
    if blocks and not any(folder.glob("*.safetensors")):
        return _gguf_components(blocks)
    config = folder / "config.json"
    stated = read_json(config) if config.is_file() else {}
    return _split(_merged(component_files(folder)), stated, folder.name)


def _merged(files: list[Path]) -> dict[str, StoredTensor]:
    stored: dict[str, StoredTensor] = {}
    for file in files:
        header = read_header(file)
        twice = stored.keys() & header.keys()
        if twice:
            raise CheckpointError(f"{file.name} repeats {min(twice)} of another shard. Download the folder again.")
        stored |= header
    return stored


def _split(stored: Mapping[str, StoredTensor], stated: Mapping[str, object], where: str) -> dict[str, Component]:
    """Rename tensors by the layout that they follow and sort them into components."""
    found = detect(stored)
    if found is None:
        names = ", ".join(list(stored)[:_NAMED]) or "no tensor"
        known = ", ".join(layout.name for layout in LAYOUTS)
        raise CheckpointError(
            f"{where} is not a MiniMax Music 3 acoustic checkpoint: it holds {names}. Looked for the layouts: {known}."
        )
    layout, prefix = found
    stored = with_scales(stored)
    parts: dict[str, dict[str, StoredTensor]] = {name: {} for name in layout.components}
    for key, tensor in stored.items():
        name = layout.rename(key.removeprefix(prefix))
        if name is None:
            continue
        component, _, rest = name.partition(".")
        if component in parts:
            parts[component][rest] = with_rank(rest, tensor) if isinstance(tensor, GGUFTensor) else tensor
        else:
            parts[layout.components[0]][name] = tensor
    try:
        return {name: Component(name, layout.name, recipes(held), stated) for name, held in parts.items()}
    except ValueError as error:
        raise CheckpointError(f"{where} ({layout.name} layout): {error}. Download it again.") from error


def peek(path: Path) -> frozenset[str]:
    """Components that a file or folder holds by its headers; none if it cannot be loaded. Cached by size and time."""
    files = [path]
    if path.is_dir():
        files = [
            file for end in (".safetensors*", ".gguf") for file in (*path.glob(f"*{end}"), *path.glob(f"*/*{end}"))
        ]
    stamp = tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(files))
    return _peek(path, stamp)


@lru_cache(maxsize=4096)
def _peek(path: Path, stamp: tuple[tuple[str, int, int], ...]) -> frozenset[str]:
    try:
        return frozenset(open_checkpoint(path).components) if stamp else frozenset()
    except (CheckpointError, OSError):
        return frozenset()
