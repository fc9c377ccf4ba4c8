"""Every figure a ratio taken in one run: `python benchmarks/run.py`. Under ten minutes on two CPU cores.

Against diffusers (needs tests/requirements.txt) and, where COMFYUI_PATH or ~/comfy/ComfyUI is one, ComfyUI's own model.
`--long` decodes six minutes at full width as well: half an hour on two cores.
"""

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/host"))

from comfy_server import comfy_path, comfy_python  # noqa: E402

Figures = dict[str, float]


def measure(*command: str, folder: Path | None = None) -> Figures:
    """The result that a process of its own prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(lines[-1].removeprefix("RESULT "))


def case(*arguments: str) -> Figures:
    return measure(sys.executable, str(HERE / "cases.py"), *arguments)


def core() -> Figures | None:
    path = comfy_path()
    if path is None:
        return None
    flags = [] if torch.cuda.is_available() else ["--cpu"]
    return measure(comfy_python(path), str(HERE / "core_forward.py"), str(HERE.parent), *flags, folder=path)


def row(what: str, first: float, second: float, unit: str) -> None:
    print(f"| {what} | {first / second:.3f} | {first:.4g} : {second:.4g} {unit} |", flush=True)


def peaks(what: str, first: Figures, second: Figures) -> None:
    row(f"{what}, peak memory", first["peak"] / 2**20, second["peak"] / 2**20, "MiB")


def against_diffusers() -> None:
    """Rows of the cases that have a counterpart in diffusers; times side by side, memory in fresh processes."""
    for name, what, floor in (
        ("forward", "step of a guided window, full width, 2 layers", "the matrix products of its blocks alone"),
        ("solve", "30 guided steps of 2 s, full width, 1 layer", ""),
        ("load", "loading 1.2 GB of float32", "reading the file"),
    ):
        times = case(name)
        row(f"{what} : diffusers", times["mm3"], times["diffusers"], "s")
        if floor:
            row(f"the same : {floor}", times["mm3"], times["floor"], "s")
        if name == "forward" and (cores := core()):
            row("the same : ComfyUI's own model", cores["mm3"], cores["core"], "s")
        peaks(f"{what} : diffusers", case(name, "mm3"), case(name, "diffusers"))


def longer(name: str, short: str, long: str, what: str, each: float) -> None:
    """Rows of a long run beside a short one; `each` is how many times longer it is."""
    first, second = case(name, long), case(name, short)
    row(f"{what}, time for each", first["seconds"] / each, second["seconds"], "s")
    peaks(what, first, second)


def main() -> None:
    start = time.monotonic()
    where = f"{platform.machine()}, {os.cpu_count()} cores"
    print(
        f"{torch.cuda.get_device_name() if torch.cuda.is_available() else where}, torch {torch.__version__}, float32\n"
    )
    print("| What | Ratio | Figures |\n|---|---|---|")
    against_diffusers()
    mm3, diffusers = case("decode", "mm3"), case("decode", "diffusers")
    row("decoding 8 s, full width : diffusers in one piece", mm3["seconds"], diffusers["seconds"], "s")
    peaks("decoding 8 s, full width : diffusers in one piece", mm3, diffusers)
    longer("decode narrow", "8 s", "360 s", "decoding 360 s : 8 s, narrow decoder", 360 / 8)
    longer("windows", "3", "89", "solving 89 windows : 3, narrow transformer", 89 / 3)
    if "--long" in sys.argv:
        longer("decode wide", "8 s", "360 s", "decoding 360 s : 8 s, full width", 360 / 8)
    print(f"\n{time.monotonic() - start:.0f} s in all")


if __name__ == "__main__":
    main()
