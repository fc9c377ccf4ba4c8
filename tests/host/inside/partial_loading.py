"""Run inside ComfyUI's own interpreter: loading in part, and loading as dynamic VRAM does, on a CPU.

usage: python partial_loading.py BASE PACK CHECKPOINT audio|latent DTYPE (current folder: ComfyUI). Prints one JSON
object, and leaves the latent in BASE/whole.safetensors. DTYPE is the loader's, and for fp16 and bf16 the products' too.
"""

import asyncio
import json
import sys

base, pack, checkpoint, last, dtype = sys.argv[1:]
# Half precision goes through the attention of the host; this one does not depend on the free memory.
sys.argv = ["main.py", "--cpu", "--use-pytorch-cross-attention", f"--base-directory={base}"]
sys.path.insert(0, ".")

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()

import comfy.memory_management  # noqa: E402
import comfy.model_management as management  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

import nodes  # noqa: E402


def run(name: str, **inputs):
    return nodes.NODE_CLASS_MAPPINGS[name].PREPARE_CLASS_CLONE(None).execute(**inputs).result


def load():
    return run("MM3LoadCheckpoint", checkpoint=checkpoint, vocoder="tiny/", weight_dtype=dtype)


def song(model, vocoder, conditioning):
    (condition,) = run("MM3ConditionEncoder", model=model, conditioning=conditioning)
    (latent,) = run("MM3DiTEulerSampler", model=model, condition=condition, steps=4, cfg=1.7, seed=3)
    kept_off = offloaded(model.module)
    if last == "latent":
        return kept_off, latent["samples"]
    (audio,) = run("MM3DACDecode", vocoder=vocoder, latent=latent, tile=64)
    return kept_off, latent["samples"], audio["waveform"]


def offloaded(module) -> int:
    return sum(hasattr(layer, "prev_comfy_cast_weights") for layer in module.modules())


def difference(first, second) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(first[1:], second[1:], strict=True))


def main() -> dict:
    report = {"loaded": asyncio.run(nodes.load_custom_node(pack))}
    management.should_use_fp16 = lambda *_, **__: dtype == "fp16"
    management.should_use_bf16 = lambda *_, **__: dtype == "bf16"
    (conditioning, seconds) = run("MM3LoadConditioning", file="hidden.safetensors [input]")
    model, vocoder = load()
    whole = song(model, vocoder, conditioning)
    report["seconds"] = seconds
    report["patchers"] = [type(part.patcher).__name__ for part in (model, vocoder)]
    report["whole_offloaded"] = whole[0]
    save_file({"samples": whole[1].contiguous()}, f"{base}/whole.safetensors")
    block = model.module.transformer.transformer_blocks[0]
    wide = {"to_qkv": block.attn.to_qkv, "to_out": block.attn.to_out, "ff_in": block.ff_in, "ff_out": block.ff_out}
    report["wide"] = {name: f"{type(layer).__name__} of {type(layer.weight).__name__}" for name, layer in wide.items()}
    inputs = nodes.NODE_CLASS_MAPPINGS["MM3LoadCheckpoint"].GET_SCHEMA().inputs
    report["listed"] = next(field.options for field in inputs if field.id == "checkpoint")
    report["bytes"] = model.patcher.model_size()

    # The path of a small card: a budget that holds part of the model.
    management.unload_all_models()
    management.vram_state = management.VRAMState.NORMAL_VRAM
    management.is_device_cpu = lambda device: False
    management.minimum_inference_memory = lambda: 0
    management.extra_reserved_memory = lambda: 0
    budget = model.patcher.model_size() * 2 // 3
    management.MIN_WEIGHT_MEMORY_RATIO = 0.0
    budget_model, budget_vocoder = load()
    parts = [budget_model.patcher, budget_vocoder.patcher]

    def free_memory(device=None, torch_free_too=False):
        free = budget - sum(part.loaded_size() for part in parts)
        return (free, free) if torch_free_too else free

    management.get_free_memory = free_memory
    load_models = management.load_models_gpu
    management.load_models_gpu = lambda models, **_: load_models(models)
    partial = song(budget_model, budget_vocoder, conditioning)
    report |= {"partial_difference": difference(whole, partial), "partial_offloaded": partial[0]}

    # --novram: nothing stays.
    management.unload_all_models()
    management.vram_state = management.VRAMState.NO_VRAM
    none_model, none_vocoder = load()
    none = song(none_model, none_vocoder, conditioning)
    report |= {"novram_difference": difference(whole, none), "novram_offloaded": none[0]}
    report["novram_from_partial"] = difference(partial, none)

    # Dynamic VRAM builds layers without storage and hands them the weights.
    comfy.memory_management.aimdo_enabled = True
    lazy_model, lazy_vocoder = load()
    comfy.memory_management.aimdo_enabled = False
    lazy = song(lazy_model, lazy_vocoder, conditioning)
    report |= {"lazy_difference": difference(whole, lazy), "lazy_from_partial": difference(partial, lazy)}
    layers = dict(model.module.named_modules())
    plain = [name for name, layer in layers.items() if type(layer).__module__.startswith("torch.nn.modules")]
    report["plain_layers"] = [name for name in plain if list(layers[name].parameters(recurse=False))]
    return report


with torch.inference_mode():
    print("REPORT " + json.dumps(main()))
