"""Best-of-N times of several functions taken in turn in one run; seconds and peak memory of one alone."""

import ctypes
import gc
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

Function = Callable[[], object]

_LONG = 20.0  # seconds; what the first call pays for memory and kernels does not count beside it


def side_by_side(functions: Mapping[str, Function], repeats: int = 3) -> dict[str, float]:
    """Seconds of each function: the best of `repeats` rounds, each round calling all of them one after the other."""
    best = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()  # the first call pays for memory and kernels
    synchronize()
    for _ in range(repeats):
        for name, function in functions.items():
            best[name] = min(best[name], _seconds(function))
    return best


def alone(function: Function) -> dict[str, float]:
    """Seconds of a call, and peak bytes of all, in a process that runs no other: a short call is timed the second time.

    Memory of the device on CUDA, resident memory elsewhere (Linux; mapped pages of files count). `added` is the peak
    without what was held before.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
    else:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
        held = _resident("VmRSS")
    seconds = _seconds(function)
    if seconds < _LONG:
        seconds = _seconds(function)
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else _resident("VmHWM")
    return {"seconds": seconds, "peak": peak, "added": peak - held}


def _seconds(function: Function) -> float:
    start = time.perf_counter()
    function()
    synchronize()
    return time.perf_counter() - start


def _resident(field: str) -> int:
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) * 1024


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
