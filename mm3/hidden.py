"""Hidden frames of the language model in a file, so that a song is rendered again without the language model."""

import os
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .checkpoint.files import read_safetensors_header
from .timing import FRAME_RATE

KEY = "hidden"


def save_hidden(path: Path, hidden: Tensor) -> None:
    """Write `hidden` (B, F, C) in its own dtype, with its frame rate. The file appears whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    stated = {"format": "minimax-music3-hidden", "frame_rate": str(FRAME_RATE)}
    try:
        save_file({KEY: hidden.contiguous()}, partial, metadata=stated)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def holds_hidden(path: Path) -> bool:
    """Whether a file is safetensors with hidden frames in it, by its header. Cached by size and time."""
    stat = path.stat()
    return _holds_hidden(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4096)
def _holds_hidden(path: Path, size: int, modified_ns: int) -> bool:
    try:
        with safe_open(path, framework="pt") as file:
            return KEY in file.keys()  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError):
        return False


def load_hidden(path: Path) -> Tensor:
    """Read `hidden` as (B, F, C), once, into memory of its own. A file of (F, C) is one song.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a safetensors file with floating-point `hidden` of 2 or 3 axes and at least 1 frame.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
    except SafetensorError as error:
        raise ValueError(
            f"{path.name} is not a complete safetensors file ({error}). Save the conditioning again."
        ) from error
    if KEY not in names:
        raise ValueError(
            f"{path.name} holds {', '.join(names[:4]) or 'no tensor'}, expected a tensor named {KEY!r}. "
            "Choose a file written by MM3 Save Conditioning."
        )
    hidden = read_safetensors_header(path)[KEY].read()
    if hidden.ndim not in (2, 3) or not hidden.numel() or not torch.is_floating_point(hidden):
        raise ValueError(
            f"{path.name}: {KEY} is {hidden.dtype} {list(hidden.shape)}, expected floats [F, C] or [B, F, C] "
            "with at least 1 frame. Choose a file written by MM3 Save Conditioning."
        )
    return hidden if hidden.ndim == 3 else hidden[None]
