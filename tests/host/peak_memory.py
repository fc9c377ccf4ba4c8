"""Run `-m MODULE ARGUMENTS` in this process and print its peak resident memory to stderr: `peak_kib=N` (Linux)."""

import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.argv = sys.argv[2:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
finally:
    status = Path("/proc/self/status").read_text()
    print(f"peak_kib={status.split('VmHWM:')[1].split()[0]}", file=sys.stderr)
