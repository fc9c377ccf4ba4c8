"""Best-of-N times of several functions taken in turn in one run, and the peak memory of this process."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch


def side_by_side(functions: Mapping[str, Callable[[], object]], repeats: int = 3) -> dict[str, float]:
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


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def peak_bytes() -> int:
    """Peak of the device's memory on CUDA, of this process's resident memory elsewhere (Linux)."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
