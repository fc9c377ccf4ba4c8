"""Run inside ComfyUI's own interpreter: every kind of latent that a song may be continued from.

usage: python previous_latents.py BASE PACK (current folder: ComfyUI). Prints one JSON object.
"""

import asyncio
import json
import sys

base, pack = sys.argv[1:]
sys.argv = ["main.py", "--cpu", f"--base-directory={base}"]
sys.path.insert(0, ".")

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()

import torch  # noqa: E402

import nodes  # noqa: E402


def run(name: str, **inputs):
    return nodes.NODE_CLASS_MAPPINGS[name].PREPARE_CLASS_CLONE(None).execute(**inputs).result[0]


def deep(value):
    """A copy to compare with later."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    return {key: deep(part) for key, part in value.items()} if isinstance(value, dict) else value


def equal(one, other) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def main() -> dict:
    asyncio.run(nodes.load_custom_node(pack))
    model = nodes.NODE_CLASS_MAPPINGS["MM3LoadCheckpoint"].PREPARE_CLASS_CLONE(None)
    model = model.execute(checkpoint="tiny/", vocoder="tiny/", weight_dtype="auto").result[0]
    frames = run("MM3LoadConditioning", file="hidden.safetensors [input]")

    def encode(**span):
        return run("MM3ConditionEncoder", model=model, conditioning=frames, **span)

    def sample(condition, previous=None, seed=3, **more):
        settings = {"steps": 2, "cfg": 1.0, "seed": seed, "previous_latent": previous, **more}
        return run("MM3DiTEulerSampler", model=model, condition=condition, **settings)

    whole = sample(encode())
    head, rest = sample(encode(end=8.0)), encode(start=4.0)
    bare = {"samples": head["samples"]}
    half = {**head, "samples": head["samples"].half()}
    edited = {**head, "samples": head["samples"] * 1.5}
    kinds = {"fresh": head, "bare": bare, "double": {**bare, "samples": head["samples"].double()}}
    report = {"next_window": {}}
    for name, previous in {**kinds, "half": half, "edited": edited}.items():
        before = deep(previous)
        latent = sample(rest, previous)
        joined = run("MM3JoinLatents", latent=previous, next_latent=latent)
        report[name] = {
            "unwritten": equal(before, previous),
            "pinned": torch.equal(latent["samples"][..., :172], previous["samples"][..., 345:517].float()),
            "whole": torch.equal(joined["samples"], whole["samples"]),
            "dtype": str(joined["samples"].dtype),
            "steps": joined["samples"].shape[-1],
            "carries": torch.equal(joined["mm3_carry"]["condition"], whole["mm3_carry"]["condition"]),
        }
        report["next_window"][name] = joined["mm3_carry"]["next_window"]

    # Frames of their own, continued from the end: the condition of the end comes from the latent where it can.
    own = encode()
    fresh = sample(own, whole, seed=9)["samples"]
    halved = {**whole, "samples": whole["samples"].half()}
    known = sample(own, halved, seed=9)["samples"]
    stand_in = sample(own, {"samples": whole["samples"]}, seed=9)["samples"]
    report["half_keeps_the_condition"] = float((known - fresh)[..., 172:].abs().max())
    report["bare_stands_in"] = float((stand_in - fresh)[..., 172:].abs().max())

    takes = sample(own, seeds="3, 4")
    second = {**takes, "samples": takes["samples"][1:]}
    swapped = {**takes, "samples": takes["samples"].flip(0)}
    alone = sample(own, sample(own, seed=4), seed=9)["samples"]
    report["one_of_a_batch"] = torch.equal(sample(own, second, seed=9)["samples"], alone)
    report["reordered"] = torch.equal(sample(own, swapped, seed=9)["samples"][:1], alone)
    return report


with torch.inference_mode():
    print("REPORT " + json.dumps(main()))
