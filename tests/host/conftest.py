"""A real ComfyUI for the session, with the tiny model installed in both layouts it is found in."""

import pytest
from comfy_server import HOW_TO_ENABLE, Comfy, comfy_path
from graphs import four_windows

from mm3.demo import write_demo_checkpoint, write_demo_hidden

FRAMES = 250  # two windows
FOUR_WINDOWS = 450  # the last is shorter


@pytest.fixture(scope="session")
def comfy_checkout():
    path = comfy_path()
    if path is None:
        pytest.skip(HOW_TO_ENABLE)
    return path


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """A base directory with the tiny model under `diffusers/tiny` and hidden frames in `input`."""
    base = tmp_path_factory.mktemp("comfy")
    write_demo_checkpoint(base / "models/diffusers/tiny")
    (base / "input").mkdir()
    write_demo_hidden(base / "input/hidden.safetensors", FRAMES)
    write_demo_hidden(base / "input/four.safetensors", FOUR_WINDOWS)
    return base


@pytest.fixture(scope="session")
def comfy(comfy_checkout, base):
    server = Comfy(comfy_checkout, base)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def whole(comfy):
    """The song of four windows in one run."""
    return comfy.latent_of(comfy.run(four_windows()))
