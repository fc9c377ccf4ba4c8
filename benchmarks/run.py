"""Every figure a ratio taken side by side in one run: `python benchmarks/run.py`. Minutes on a CPU.

Against diffusers (needs tests/requirements.txt) and, where COMFYUI_PATH or ~/comfy/ComfyUI is one, ComfyUI's own model.
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


def measure(*command: str, folder: Path | None = None) -> dict[str, dict[str, float]]:
    """The result that a process of its own prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(lines[-1].removeprefix("RESULT "))


def case(name: str) -> dict[str, float]:
    (result,) = measure(sys.executable, str(HERE / "cases.py"), name).values()
    return result


def core() -> dict[str, float] | None:
    path = comfy_path()
    if path is None:
        return None
    flags = [] if torch.cuda.is_available() else ["--cpu"]
    script = str(HERE / "core_forward.py")
    return measure(comfy_python(path), script, str(HERE.parent), *flags, folder=path)["core"]


def row(what: str, ratio: float, detail: str) -> None:
    print(f"| {what} | {ratio:.3f} | {detail} |", flush=True)


def main() -> None:
    start = time.monotonic()
    where = (
        torch.cuda.get_device_name() if torch.cuda.is_available() else f"{platform.machine()}, {os.cpu_count()} cores"
    )
    print(f"{where}, torch {torch.__version__}, float32\n")
    print("| What | Ratio | Seconds |\n|---|---|---|")
    times = case("forward")
    step = f"{times['mm3']:.3f} : {times['diffusers']:.3f}"
    row("step of a guided window, full width, 2 layers : diffusers", times["mm3"] / times["diffusers"], step)
    row("the same : its matrix products alone", times["mm3"] / times["products"], f": {times['products']:.3f}")
    times = core()
    if times is not None:
        row("the same : ComfyUI's own model", times["mm3"] / times["core"], f"{times['mm3']:.3f} : {times['core']:.3f}")
    for name, what in (
        ("solve_window", "30 guided steps of 2 s, full width, 1 layer : diffusers"),
        ("decode_full", "decoding 4 s, full width : diffusers in one piece"),
    ):
        times = case(name)
        row(what, times["mm3"] / times["diffusers"], f"{times['mm3']:.2f} : {times['diffusers']:.2f}")
    times = case("load")
    row(
        "loading 1.2 GB of float32 : reading the file",
        times["mm3"] / times["read"],
        f"{times['mm3']:.2f} : {times['read']:.2f}",
    )
    for names, what, unit in (
        (("decode_360_s", "decode_8_s"), "decoding 360 s : 8 s, narrow decoder", "per_second"),
        (("windows_89", "windows_3"), "solving 89 windows : 3, narrow transformer", "per_window"),
    ):
        long, short = (case(name) for name in names)
        row(f"{what}, time {unit.replace('_', ' ')}", long[unit] / short[unit], f"{long[unit]:.4f} : {short[unit]:.4f}")
        mib = f"{long['peak'] / 2**20:.0f} : {short['peak'] / 2**20:.0f} MiB"
        row(f"{what}, peak memory", long["peak"] / short["peak"], mib)
    print(f"\n{time.monotonic() - start:.0f} s in all")


if __name__ == "__main__":
    main()
