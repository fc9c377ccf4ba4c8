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


def row(what: str, ratio: float, detail: str) -> None:
    print(f"| {what} | {ratio:.3f} | {detail} |", flush=True)


def time_row(what: str, first: float, second: float) -> None:
    row(what, first / second, f"{first:.4g} : {second:.4g} s")


def memory_row(what: str, first: Figures, second: Figures, ratio_of: str) -> None:
    """`ratio_of` is "added", what a call adds to what was held, or "peak", the whole process."""
    figures = [f"{one[key] / 2**20:.0f}" for key in ("added", "peak") for one in (first, second)]
    row(what, first[ratio_of] / second[ratio_of], "added {} : {}, in all {} : {} MiB".format(*figures))


def against_diffusers(name: str, what: str, floor: str = "") -> None:
    """Times side by side, the memory of each in a process of its own."""
    times = case(name)
    time_row(what, times["mm3"], times["diffusers"])
    if floor:
        time_row(f"the same : {floor}", times["mm3"], times["floor"])
    memory_row(f"{what}, memory", case(name, "mm3"), case(name, "diffusers"), "added")


def against_core() -> None:
    times = core()
    if times is not None:
        time_row("step of a guided window : ComfyUI's own model", times["mm3"], times["core"])


def longer(name: str, short: str, long: str, what: str, each: float) -> None:
    """A long run beside a short one; `each` is how many times longer it is."""
    first, second = case(name, long), case(name, short)
    time_row(f"{what}, time for each", first["seconds"] / each, second["seconds"])
    memory_row(f"{what}, memory in all", first, second, "peak")


def main() -> None:
    start = time.monotonic()
    where = f"{platform.machine()}, {os.cpu_count()} cores"
    print(
        f"{torch.cuda.get_device_name() if torch.cuda.is_available() else where}, torch {torch.__version__}, float32\n"
    )
    print("| What | Ratio | Figures |\n|---|---|---|")
    against_diffusers(
        "forward", "step of a guided window, full width, 2 layers : diffusers", "its blocks' matrix products alone"
    )
    against_core()
    against_diffusers("solve", "30 guided steps of 1 s, full width, 1 layer : diffusers, branch by branch")
    against_diffusers(
        "load", "loading 1.2 GB and reading every value : diffusers, which maps the file", "reading the bytes"
    )
    against_diffusers("decode", "decoding 8 s, full width : diffusers, in one piece")
    longer("decode narrow", "8 s", "360 s", "decoding 360 s : 8 s, narrow decoder", 360 / 8)
    longer("windows", "3", "89", "solving 89 windows : 3, narrow transformer", 89 / 3)
    if "--long" in sys.argv:
        longer("decode wide", "8 s", "360 s", "decoding 360 s : 8 s, full width", 360 / 8)
    print(f"\n{time.monotonic() - start:.0f} s in all")


if __name__ == "__main__":
    main()
