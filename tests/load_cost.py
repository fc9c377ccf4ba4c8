"""What loading costs in a fresh process, beside reading the same files: python tests/load_cost.py MODEL DTYPE [peak].

Prints one JSON object. `peak`: how far memory rose while loading, over the bytes of the weights kept. Otherwise seconds
of loading and of reading the files into memory of their own, in turns, files in the page cache; the best of each.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch  # noqa: E402

from mm3.checkpoint import open_checkpoint  # noqa: E402
from mm3.load import load_dit  # noqa: E402

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
TURNS = 4


def peak_bytes() -> int:
    """The most memory that this process has held so far (Linux)."""
    return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def load(model: Path, dtype: torch.dtype) -> torch.nn.Module:
    with torch.inference_mode():
        return load_dit(open_checkpoint(model), dtype=dtype)


def peak(model: Path, dtype: torch.dtype) -> dict[str, float]:
    before = peak_bytes()
    module = load(model, dtype)
    risen = peak_bytes() - before
    kept = sum(value.nbytes for value in module.state_dict().values())
    return {"kept": kept, "risen": risen, "baseline": before, "peak": risen / kept}


def read(files: list[Path]) -> None:
    for file in files:
        memory = torch.empty(file.stat().st_size, dtype=torch.uint8)
        with file.open("rb", buffering=0) as stream:
            view, done = memoryview(memory.numpy()), 0
            while done < len(view):
                done += stream.readinto(view[done:])


def seconds(work, *arguments) -> float:
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def times(model: Path, dtype: torch.dtype) -> dict[str, float]:
    files = [model] if model.is_file() else sorted(file for file in model.rglob("*") if file.is_file())
    turns = [(seconds(read, files), seconds(load, model, dtype)) for _ in range(TURNS)]
    reading, loading = (min(column) for column in zip(*turns, strict=True))
    return {"reading_s": reading, "loading_s": loading, "time": loading / reading, "turns": turns}


if __name__ == "__main__":
    measure = peak if sys.argv[3:] == ["peak"] else times
    print(json.dumps(measure(Path(sys.argv[1]), DTYPES[sys.argv[2]])))
