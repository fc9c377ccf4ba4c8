"""Installed as ComfyUI-Manager does it: the registry's archive unpacked, its requirements installed, nothing else."""

import shutil
import subprocess

import pytest
from comfy_server import PACK, Comfy, comfy_python


def published_files():
    """Tracked files minus those of `.comfyignore`: what the registry's archive holds."""
    tracked = subprocess.run(["git", "ls-files"], cwd=PACK, capture_output=True, text=True, check=True).stdout
    ignored = [line for line in (PACK / ".comfyignore").read_text().split() if not line.startswith("#")]
    return [name for name in tracked.splitlines() if not name.startswith(tuple(ignored))]


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive") / "mm3"
    for name in published_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACK / name, folder / name)
    return folder


def frozen(python):
    return subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout


def test_installing_changes_nothing_in_the_environment_and_the_archive_is_enough(comfy_checkout, archive, tmp_path):
    python = comfy_python(comfy_checkout)
    before = frozen(python)
    requirements = archive / "requirements.txt"
    if requirements.exists():
        subprocess.run([python, "-m", "pip", "install", "-r", requirements], check=True)
    assert not (archive / "install.py").exists() and not (archive / "tests").exists()
    server = Comfy(comfy_checkout, tmp_path, pack=archive)
    try:
        assert server.object_info("MM3DiTEulerSampler")["display_name"] == "MM3 DiT Euler Sampler"
        assert b"# MM3 DiT Euler Sampler" in server.get("/extensions/mm3/docs/MM3DiTEulerSampler.md")
    finally:
        server.stop()
    assert frozen(python) == before
