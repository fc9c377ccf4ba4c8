"""A real ComfyUI with this pack and tiny weights under the real file names, and a page of a real browser on it."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "host"))  # so that this folder runs alone, too
from comfy import HOW_TO_ENABLE, Comfy, comfy_path  # noqa: E402
from tiny_files import write_tiny_files  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
QUIET += ("--disable-component-update", "--disable-sync", "--mute-audio", "--autoplay-policy=no-user-gesture-required")


@pytest.fixture(scope="session")
def comfy(tmp_path_factory):
    """A server whose models and inputs carry the names that the example workflows choose."""
    path = comfy_path()
    if path is None:
        pytest.skip(HOW_TO_ENABLE)
    base = tmp_path_factory.mktemp("comfy")
    write_tiny_files(base)
    server = Comfy(path, base)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("no chromium here: install chromium, so that it is on PATH")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def page(comfy, browser):
    """The frontend, loaded, with what it and the pack complained about in `page.complaints`."""
    context = browser.new_context(viewport={"width": 1600, "height": 900})
    page = context.new_page()
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(f"http://{comfy.address}/", wait_until="load")
    page.wait_for_function("window.app?.graph && LiteGraph.registered_node_types['MM3DACDecode']", timeout=60_000)
    yield page
    context.close()
