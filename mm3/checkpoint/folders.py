"""Which files make up a component: a folder with or without an index, a set of shards, a Hugging Face cache."""

import json
import re
from pathlib import Path

from .errors import CheckpointError, shown

_SHARD = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors$")


def component_files(folder: Path) -> list[Path]:
    """The safetensors files that make up a component folder: by its index, by shard names, or the only one.

    Raises:
        CheckpointError: If there is none, one is missing, or there are several that do not belong together.
    """
    indexes = sorted(folder.glob("*.safetensors.index.json"))
    if indexes:
        return _require([folder / name for name in _index_names(indexes[0])])
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        others = shown(sorted(file.name for file in folder.iterdir())) or "nothing"
        raise CheckpointError(
            f"{folder} holds no .safetensors file and no component of MiniMax Music 3, but {others}. "
            "Choose a file by its name, or the folder with transformer/, condition_encoder/ and vocoder/ inside."
        )
    shards = shard_files(files[0])
    if set(files) - set(shards):
        names = shown(file.name for file in files)
        raise CheckpointError(f"{folder} holds several files ({names}). Keep the one to load, or choose it by name.")
    return shards


def shard_files(file: Path) -> list[Path]:
    """All shards of the set that a file belongs to by its name; the file alone if it is not one of several.

    Raises:
        CheckpointError: If a shard is missing.
    """
    shard = _SHARD.match(file.name)
    if shard is None or not 1 <= int(shard["number"]) <= int(shard["count"]):
        return [file]
    count = int(shard["count"])
    names = [f"{shard['stem']}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
    return _require([file.with_name(name) for name in names])


def _require(files: list[Path]) -> list[Path]:
    missing = [file.name for file in files if not _is_file(file)]
    if missing:
        raise CheckpointError(f"{files[0].parent} lacks {shown(missing)}. Download the missing part.")
    return files


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def snapshot(folder: Path) -> Path:
    """The current revision in a Hugging Face cache folder of one model; any other folder is returned as it is.

    Raises:
        CheckpointError: If none of several revisions is marked as current.
    """
    revisions = folder / "snapshots"
    if not revisions.is_dir():
        return folder
    held = sorted(path for path in revisions.iterdir() if path.is_dir())
    main = folder / "refs" / "main"
    current = main.read_text(encoding="ascii", errors="replace").strip() if main.is_file() else ""
    chosen = [path for path in held if path.name == current] or held
    if len(chosen) != 1:
        raise CheckpointError(f"{folder} holds {len(held)} snapshots. Choose one of the folders in {revisions}.")
    return chosen[0]


def _index_names(index: Path) -> list[str]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(f"{index.name} is not a safetensors index: it has no weight_map. Download it again.")
    unique = sorted(set(names.values()))
    outside = [name for name in unique if Path(name).name != name]
    if outside:
        raise CheckpointError(
            f"{index.name} names {shown(outside[:1])!r}, which is not a plain file name. Download it again."
        )
    return unique


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file.

    Raises:
        CheckpointError: If it holds anything else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.name} is not readable as JSON ({error}). Download it again.") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path.name} holds {type(value).__name__}, expected a JSON object. Download it again.")
    return value
