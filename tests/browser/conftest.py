"""A real ComfyUI with this pack and tiny weights under the real file names, and a page of a real browser on it."""

import shutil

import pytest
from comfy_server import Comfy, comfy_path  # noqa: E402
from layout_writers import comfy_dav, comfy_dit, write_state

from mm3.demo import official_states, write_demo_hidden

FRAMES = 250  # two windows
READY = "() => Boolean(window.app?.extensionManager && window.LiteGraph?.registered_node_types['MM3DACDecode'])"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync", "--mute-audio"]
QUIET += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]  # the frontend asks for news; nothing leaves


@pytest.fixture
def frames():
    """Length of the saved conditioning."""
    return FRAMES


@pytest.fixture(scope="module")
def comfy(tmp_path_factory):
    """A server in which the files that the example workflows choose are there, the text encoder apart."""
    base = tmp_path_factory.mktemp("comfy")
    states = official_states()
    dit = {name: value.half() for name, value in comfy_dit(states).items()}
    write_state(base / "models/diffusion_models/minimax_music3_dit_fp16.safetensors", dit)
    write_state(base / "models/vae/minimax_music3_dav.safetensors", comfy_dav(states))
    (base / "output/mm3").mkdir(parents=True)
    write_demo_hidden(base / "output/mm3/conditioning_00001_.safetensors", FRAMES)
    server = Comfy(comfy_path(), base)
    server.post("/settings", {"Comfy.TutorialCompleted": True})  # no greeting in the way
    yield server
    server.stop()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium with a user data directory of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        context = started.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("chromium"),
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"),
            args=QUIET,
            viewport={"width": 1600, "height": 900},
        )
        yield context
        context.close()


@pytest.fixture
def page(browser, comfy):
    """The frontend, loaded."""
    page = browser.new_page()
    page.goto(f"http://{comfy.address}/")
    page.wait_for_function(READY, timeout=60_000)
    yield page
    page.close()
