"""Best-of-N times of several functions taken in turn in one run; seconds and peak memory of one alone."""

import gc
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

Function = Callable[[], object]


def side_by_side(functions: Mapping[str, Function], repeats: int = 3) -> dict[str, float]:
    """Seconds of each function: the best of `repeats` rounds, each round calling all of them one after the other."""
    best = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()  # the first call pays for memory and kernels
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            synchronize()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def alone(function: Function) -> dict[str, float]:
    """Seconds of one call, and peak bytes while it runs, what was held before included, in a process that ran no other.

    Memory of the device on CUDA, resident memory elsewhere (Linux).
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    start = time.perf_counter()
    function()
    synchronize()
    return {"seconds": time.perf_counter() - start, "peak": _peak()}


def _peak() -> int:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
