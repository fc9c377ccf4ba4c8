"""Which module may import which, read from the source, and what importing the library leaves untouched."""

import ast
import graphlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIBRARY = sorted((ROOT / "mm3").rglob("*.py"))
NODES = sorted((ROOT / "nodes").rglob("*.py"))
FOLDERS = ("mm3", "nodes", "tests", "benchmarks")
SOURCES = sorted({*ROOT.glob("*.py"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.py"))})

# What a module may import of its own library; those not named here may import any that makes no circle.
ALLOWED = {
    "config": set(),
    "timing": set(),
    "attention": set(),
    "rope": set(),
    "noise": set(),
    "operations": set(),
    "ranged": {"operations"},
    "windows": {"timing"},
    "condition": {"config", "operations", "timing"},
    "transformer": {"attention", "config", "operations", "ranged", "rope"},
    "vocoder": {"config", "operations"},
    "decode": {"vocoder"},
    "hidden": {"checkpoint.files", "timing"},
}
MODULES_OF_NETWORKS = {"condition", "transformer", "vocoder", "flow", "song"}
HOST_ONLY = {"folder_paths", "server", "nodes", "execution"}


def relative(path):
    return str(path.relative_to(ROOT))


def name_of(path):
    """`checkpoint.files` for mm3/checkpoint/files.py, the package itself for its __init__."""
    return ".".join(path.relative_to(ROOT / "mm3").with_suffix("").parts).removesuffix("__init__").rstrip(".")


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree):
    """(dots, dotted name) of everything that is imported in there; `from . import x` gives x."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.level, node.module
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, alias.name) for alias in node.names)


def own(path):
    """Names of the modules of mm3 that a file of mm3 imports."""
    package = path.relative_to(ROOT / "mm3").parent.parts
    for dots, name in imports(parsed(path)):
        if dots:
            yield ".".join([*package[: len(package) - dots + 1], name])


@pytest.mark.parametrize("path", LIBRARY, ids=relative)
def test_library_imports_nothing_but_the_standard_library_torch_and_safetensors(path):
    foreign = {name.partition(".")[0] for dots, name in imports(parsed(path)) if not dots} - sys.stdlib_module_names
    command_line = {"soundfile", "tqdm"} if path.name == "__main__.py" else set()
    assert foreign <= {"torch", "safetensors"} | command_line


def test_command_line_imports_its_extras_inside_functions_only():
    body = parsed(ROOT / "mm3" / "__main__.py").body
    outside = [node for node in body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    at_import = {name for node in outside for _, name in imports(node)}
    assert "torch" in at_import and not at_import & {"soundfile", "tqdm"}


@pytest.mark.parametrize(("module", "allowed"), ALLOWED.items(), ids=ALLOWED)
def test_a_module_imports_no_more_of_the_library_than_it_may(module, allowed):
    assert set(own(ROOT / "mm3" / f"{module}.py")) <= allowed


@pytest.mark.parametrize("path", sorted((ROOT / "mm3" / "checkpoint").glob("*.py")), ids=relative)
def test_checkpoint_builds_no_module(path):
    assert not {name.partition(".")[0] for name in own(path)} & MODULES_OF_NETWORKS


def test_no_module_of_the_library_imports_itself_by_a_detour():
    graph = {name_of(path): set(own(path)) for path in LIBRARY if path.name not in ("__init__.py", "__main__.py")}
    assert {"song", "flow", "checkpoint.files"} <= set(graph)
    assert "checkpoint.files" in graph["checkpoint.fuse"] and "flow" in graph["song"]
    order = list(graphlib.TopologicalSorter(graph).static_order())
    assert order.index("timing") < order.index("windows") < order.index("song")


@pytest.mark.parametrize("path", LIBRARY, ids=relative)
def test_library_does_not_know_the_nodes(path):
    package = path.relative_to(ROOT).parent.parts
    assert all(dots <= len(package) for dots, _ in imports(parsed(path)))


@pytest.mark.parametrize("path", NODES, ids=relative)
def test_only_one_file_of_the_nodes_imports_the_host(path):
    roots = {name.partition(".")[0] for dots, name in imports(parsed(path)) if not dots}
    host = {root for root in roots if root in HOST_ONLY or root.startswith("comfy")} - {"comfy_api"}
    assert path == ROOT / "nodes" / "host.py" or not host


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_source_is_ascii(path):
    path.read_bytes().decode("ascii")


IMPORT_ALL = """
import importlib, os, pkgutil, sys, torch

def state():
    return (
        torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(),
        torch.get_rng_state().tolist(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark, torch.backends.mkldnn.enabled, torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(), dict(os.environ), sorted(os.listdir()),
    )

before = state()
import mm3
names = [module.name for module in pkgutil.walk_packages(mm3.__path__, "mm3.")]
for name in names:
    importlib.import_module(name)
assert {"mm3.__main__", "mm3.song", "mm3.checkpoint.files"} <= set(names), names
assert state() == before
assert not {"soundfile", "diffusers", "comfy"} & set(sys.modules)
"""


def test_importing_the_library_touches_no_global_state_prints_nothing_and_writes_nothing(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", IMPORT_ALL]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert list(tmp_path.iterdir()) == []
