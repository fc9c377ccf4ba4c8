"""Fixtures: the tiny model on disk in the official layout, its modules, and hidden frames for it."""

from pathlib import Path

import pytest
import torch

from mm3.checkpoint import open_checkpoint
from mm3.demo import demo_hidden, write_demo_checkpoint
from mm3.load import load_dit, load_vocoder

# Tiny tensors: threads only stall each other where something else runs.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _inference():
    with torch.inference_mode():
        yield


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    return write_demo_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def dit(checkpoint):
    return load_dit(open_checkpoint(checkpoint))


@pytest.fixture(scope="session")
def vocoder(checkpoint):
    return load_vocoder(open_checkpoint(checkpoint))


@pytest.fixture(scope="session")
def hidden():
    """(1, 400, C): three windows."""
    return demo_hidden(400)
