"""Run inside ComfyUI's own interpreter: which dtypes the loader chooses on cards that are not here.

usage: python dtypes.py BASE PACK (current folder: ComfyUI). Prints one JSON object.
"""

import asyncio
import json
import sys

base, pack = sys.argv[1:]
sys.argv = ["main.py", "--cpu", f"--base-directory={base}"]
sys.path.insert(0, ".")

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()

import comfy.model_management as management  # noqa: E402
import torch  # noqa: E402

import nodes  # noqa: E402

# Whether a card is AMD's, computes in float16, in bfloat16, and is short of memory, so that it holds halves to be cast.
CARDS = {
    "cpu": (False, False, False, False),
    "ampere": (False, True, True, True),
    "turing": (False, True, False, True),
    "gtx 1660": (False, False, False, True),
    "radeon": (True, True, True, True),
    "rdna2": (True, True, False, True),
}


def chosen(host, choice: str, stored: torch.dtype) -> str:
    weights = host.weight_dtype(choice, stored, 2_431_905_920)
    compute = host.compute_dtype(weights, 2_431_905_920)
    return " ".join(str(dtype).removeprefix("torch.") for dtype in (weights, compute))


def main() -> dict[str, dict[str, str]]:
    asyncio.run(nodes.load_custom_node(pack))
    host = next(module for name, module in sys.modules.items() if name.endswith(".nodes.host"))
    report = {}
    for card, (amd, half, brain, short) in CARDS.items():

        def trusted(computes: bool, short: bool = short):
            return lambda *_, manual_cast=False, **__: computes or (manual_cast and short)

        management.is_amd = lambda amd=amd: amd
        management.should_use_fp16, management.should_use_bf16 = trusted(half), trusted(brain)
        stored = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
        report[card] = {f"auto {name}": chosen(host, "auto", dtype) for name, dtype in stored.items()}
        report[card]["fp16 chosen"] = chosen(host, "fp16", torch.float32)
    return report


print("REPORT " + json.dumps(main()))
