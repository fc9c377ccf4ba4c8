"""A checkpoint on disk: what it is, and which components it holds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from .component import Component
from .content import read_header
from .errors import CheckpointError, shown
from .files import StoredTensor
from .folders import component_files, read_json, shard_files, snapshot
from .foreign import recognise
from .fuse import recipes
from .gguf import GGUFTensor
from .layouts import LAYOUTS, Match, detect
from .quantised import refuse_quantised
from .ranks import with_rank
from .scales import with_scales
from .shapes import refuse_channels_last, restored_shape

COMPONENTS = ("transformer", "condition_encoder", "vocoder")
_FOLDERS = (*COMPONENTS, "audio_vae")


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
                "Choose a file that has it, pick it separately, or take the folder of the whole model."
            )
        return self.components[name]

    def with_component(self, name: str, source: "Checkpoint") -> "Checkpoint":
        """This checkpoint with one component from another; raises as `component`."""
        return replace(self, components=self.components | {name: source.component(name)})


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Find out what a file or folder holds; no tensor data is read.

    A folder is the official model (with `transformer/`, `condition_encoder/` and `vocoder/` inside, or some of them),
    a single component folder, one that holds a GGUF file of each component, or a Hugging Face cache folder of the
    model. A file is told by its content.

    Raises:
        FileNotFoundError: If there is nothing at this path.
        CheckpointError: If what is there is not a known layout.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    if path.is_file():
        return Checkpoint(path, _split(_merged(shard_files(path)), {}, path.name))
    root = snapshot(path)
    folders = [root / name for name in _FOLDERS if (root / name).is_dir()] or [root]
    components: dict[str, Component] = {}
    for folder in folders:
        components |= _folder_components(folder)
    return Checkpoint(path, components)


def _gguf_components(files: list[Path]) -> dict[str, Component]:
    """Of files that hold a component each, or several."""
    components: dict[str, Component] = {}
    for file in files:
        found = _split(read_header(file), {}, file.name)
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
            raise CheckpointError(
                f"{file.name} repeats {shown([min(twice)])} of another shard. Download the folder again."
            )
        stored |= header
    return stored


def _split(stored: dict[str, StoredTensor], stated: Mapping[str, object], where: str) -> dict[str, Component]:
    """Rename tensors by the layouts that they follow and sort them into components."""
    matches = detect(stored)
    if not matches:
        raise CheckpointError(_unknown(stored, where))
    stored = with_scales(stored)
    parts: dict[str, dict[str, StoredTensor]] = {match.layout.component: {} for match in matches}
    ignored: dict[str, list[str]] = {name: [] for name in parts}
    for key, tensor in stored.items():
        name, rest = _place(key, matches)
        if rest is None:
            ignored[name].append(key)
        elif rest in parts[name]:
            raise CheckpointError(
                f"{where} holds {name} {rest} twice: as {shown([parts[name][rest].key])} and as {shown([key])}. "
                "Download it again."
            )
        else:
            tensor = with_rank(rest, tensor) if isinstance(tensor, GGUFTensor) else tensor
            parts[name][rest] = replace(tensor, shape=restored_shape(rest, tensor.shape))
    used = [tensor for held in parts.values() for tensor in held.values()]
    refuse_quantised(used, where)
    return {
        match.layout.component: _component(
            match, parts[match.layout.component], stated, tuple(ignored[match.layout.component]), where
        )
        for match in matches
    }


def _place(key: str, matches: list[Match]) -> tuple[str, str | None]:
    """The component and the official name of a tensor, or None for the name if it is known and not needed.

    A tensor that no layout knows goes by its own name to the component whose prefix it carries.
    """
    bearers = sorted((match for match in matches if key.startswith(match.prefix)), key=lambda match: -len(match.prefix))
    for match in bearers:
        renamed = match.layout.rename(key.removeprefix(match.prefix))
        if renamed is not None:
            return match.layout.component, renamed
    for match in bearers:
        if match.layout.ignores(key.removeprefix(match.prefix)):
            return match.layout.component, None
    nearest = (bearers or matches)[0]
    return nearest.layout.component, key.removeprefix(nearest.prefix)


def _component(
    match: Match, held: dict[str, StoredTensor], stated: Mapping[str, object], ignored: tuple[str, ...], where: str
) -> Component:
    layout = match.layout
    refuse_channels_last(layout.component, {name: tensor.shape for name, tensor in held.items()}, where)
    try:
        return Component(layout.component, layout.name, recipes(held), stated, ignored)
    except ValueError as error:
        raise CheckpointError(f"{where} ({layout.name} layout): {error}. Download it again.") from error


def _unknown(stored: dict[str, StoredTensor], where: str) -> str:
    """What a file that follows none of the layouts is."""
    kind = recognise(stored)
    refusal = f"{where} is not a MiniMax Music 3 acoustic checkpoint"
    if kind is not None:
        return f"{refusal}: it is {kind.what}. {kind.advice}."
    known = ", ".join(dict.fromkeys(layout.name for layout in LAYOUTS))
    return f"{refusal}: it holds {shown(stored) or 'no tensor'}. Looked for the layouts: {known}."


def peek(path: Path) -> frozenset[str]:
    """Components that a file or folder holds by its headers; none if it cannot be loaded. Cached by size and time."""
    try:
        root = path if path.is_file() else snapshot(path)
        files = shard_files(path) if path.is_file() else [*root.glob("*"), *root.glob("*/*")]
        stats = {str(file): file.stat() for file in sorted(files) if file.is_file()}
    except (CheckpointError, OSError):
        return frozenset()
    return _peek(path, tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()))


@lru_cache(maxsize=4096)
def _peek(path: Path, stamp: tuple[tuple[str, int, int], ...]) -> frozenset[str]:
    try:
        return frozenset(open_checkpoint(path).components) if stamp else frozenset()
    except (CheckpointError, OSError):
        return frozenset()
