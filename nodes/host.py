"""The only file that knows ComfyUI: its devices, dtypes, layers, attention, memory, progress and folders."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, cast

import comfy.ldm.modules.attention
import comfy.model_management
import comfy.model_patcher
import comfy.ops
import comfy.quant_ops
import comfy.utils
import folder_paths
import torch
from server import PromptServer
from torch import Tensor, nn

from ..mm3.attention import AttentionBackend
from ..mm3.checkpoint import CheckpointError, peek
from ..mm3.load import PackedLayer
from ..mm3.operations import Operations
from ..mm3.quant import PackedLinear, PackedWeight
from ..mm3.quant.scaled import ScaledRows
from ..mm3.ranged import RangedLinear, ranged_linear

log = logging.getLogger("mm3")

ModuleType = TypeVar("ModuleType", bound=nn.Module)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# The smallest of these that holds every value of a dtype that weights may only be stored in.
_WIDENED = {torch.float8_e4m3fn: torch.bfloat16, torch.float8_e5m2: torch.bfloat16}


@dataclass(frozen=True)
class Managed(Generic[ModuleType]):
    """A module under ComfyUI's memory management. Holding this keeps it alive."""

    patcher: comfy.model_patcher.ModelPatcher
    name: str

    @property
    def module(self) -> ModuleType:
        return self.patcher.model

    @property
    def device(self) -> torch.device:
        """Where the module computes and its inputs belong."""
        return self.patcher.load_device

    def has_room(self, working_bytes: int) -> bool:
        """Whether `working_bytes` are free on the device, or can be had: dynamic weights make room by themselves."""
        free = comfy.model_management.get_free_memory(self.device)
        return free + (self.patcher.loaded_size() if self.patcher.is_dynamic() else 0) > working_bytes

    def load(self, working_bytes: int = 0) -> ModuleType:
        """Bring the module in, wholly or partly, with room left for `working_bytes` beside the weights."""
        comfy.model_management.load_models_gpu([self.patcher], memory_required=working_bytes)
        return self.patcher.model


def manage(module: ModuleType, name: str, device: torch.device, offload_device: torch.device) -> Managed[ModuleType]:
    """Put a module with loaded weights under ComfyUI's memory management."""
    comfy.model_management.archive_model_dtypes(module)
    patcher = comfy.model_patcher.CoreModelPatcher(module, load_device=device, offload_device=offload_device)
    return Managed(patcher, name)


def model_devices() -> tuple[torch.device, torch.device]:
    """Devices on which the transformer computes and waits."""
    return comfy.model_management.get_torch_device(), comfy.model_management.unet_offload_device()


def vocoder_devices() -> tuple[torch.device, torch.device]:
    """Devices on which the vocoder computes and waits."""
    return comfy.model_management.vae_device(), comfy.model_management.vae_offload_device()


def intermediate_device() -> torch.device:
    """Where tensors on links belong."""
    return comfy.model_management.intermediate_device()


def weight_dtype(choice: str, stored: torch.dtype, parameters: int) -> torch.dtype:
    """Dtype of the wide weights in memory: as chosen, or the file's own where the device and ComfyUI's flags allow."""
    if choice != "auto":
        return DTYPES[choice]
    device = comfy.model_management.get_torch_device()
    kept = next((dtype for dtype in DTYPES.values() if dtype == stored), _WIDENED.get(stored, torch.float32))
    supported = [kept]
    if kept == torch.bfloat16 and _trusted(torch.float16, parameters) and not _trusted(kept, parameters):
        supported.append(torch.float16)  # half of float32's memory, and wide enough for this model's weights
    return comfy.model_management.unet_dtype(device, parameters, supported_dtypes=supported, weight_dtype=kept)


def compute_dtype(weights: torch.dtype, parameters: int) -> torch.dtype:
    """Dtype of the wide products: the weights' own where the device is trusted with it, else the nearest that is.

    Float16 is not used on AMD, where other implementations of this model have been seen to overflow.
    """
    if weights == torch.float32:
        return weights
    preferred = sorted((torch.float16, torch.bfloat16), key=lambda dtype: dtype != weights)
    return next((dtype for dtype in preferred if _trusted(dtype, parameters)), torch.float32)


def _trusted(half: torch.dtype, parameters: int) -> bool:
    """Whether products in this dtype are fast and safe on the device."""
    device = comfy.model_management.get_torch_device()
    if half == torch.bfloat16:
        return comfy.model_management.should_use_bf16(device, parameters)
    return not comfy.model_management.is_amd() and comfy.model_management.should_use_fp16(device, parameters)


def operations(weights: torch.dtype, compute: torch.dtype) -> Operations:
    """ComfyUI's layers, which can be loaded in part and cast at use; with ranged ones of the same kind."""
    picked = comfy.ops.pick_operations(weights, compute)
    return cast(Operations, type("Layers", (picked,), {"RangedLinear": _RangedLayer}))


class _RangedLayer(RangedLinear, comfy.ops.disable_weight_init.Linear):
    """Our ranged layer under ComfyUI's memory management."""

    def forward(self, x: Tensor) -> Tensor:
        comfy.ops.run_every_op()
        with comfy.ops.CastBiasWeightContext(
            self, None, dtype=torch.float16, device=x.device, bias_dtype=torch.float32, offloadable=True
        ) as (weight, bias):
            return ranged_linear(x, weight, bias)


class _PackedLayer(PackedLinear, comfy.ops.CastWeightBiasOp):
    """Our packed layer under ComfyUI's memory management: its values may wait elsewhere and come over at use."""

    def forward(self, x: Tensor) -> Tensor:
        comfy.ops.run_every_op()
        with comfy.ops.CastBiasWeightContext(
            self, None, dtype=self.weight.dtype, device=x.device, bias_dtype=x.dtype, offloadable=True
        ) as (values, bias):
            return self.product(x, values, bias)


def packed_layer(compute: torch.dtype) -> PackedLayer:
    """Makes layers of packed weights: ComfyUI's own quantised layers of int8 where it has them, ours of all others."""
    own = _quantised_operations(compute)

    def make(weight: PackedWeight, bias: Tensor | None, *, ranged: bool) -> nn.Module:
        int8 = weight.values.dtype == torch.int8
        if own is None or ranged or not int8 or not isinstance(weight.packing, ScaledRows):
            return _PackedLayer(weight, bias, ranged=ranged)
        return _int8_layer(own, weight, weight.packing.group, bias)

    return make


def _quantised_operations(compute: torch.dtype) -> Operations | None:
    """ComfyUI's quantised layers, set to multiply by the unpacked weight rather than to round their input to int8.

    A weight that stands for the dtype of its input would be multiplied in int8, so it is told to stand for another.
    """
    algorithms = getattr(comfy.quant_ops, "QUANT_ALGOS", {})
    if "int8_tensorwise" not in algorithms or not getattr(comfy.quant_ops, "_CK_AVAILABLE", False):
        return None
    other = torch.bfloat16 if compute == torch.float32 else torch.float32
    return comfy.ops.mixed_precision_ops(compute_dtype=other, full_precision_mm=True)


def _int8_layer(operations: Operations, weight: PackedWeight, group: int, bias: Tensor | None) -> nn.Module:
    rows, columns = weight.shape
    settings = {"format": "int8_tensorwise"} | ({"convrot": True, "convrot_groupsize": group} if group else {})
    state = {
        "weight": weight.values,
        "weight_scale": weight.scale,
        "comfy_quant": torch.tensor(list(json.dumps(settings).encode()), dtype=torch.uint8),
    }
    layer = operations.Linear(columns, rows, bias=bias is not None, device="cpu")
    layer.load_state_dict(state if bias is None else state | {"bias": bias}, assign=True)
    return layer


def gigabytes(module: nn.Module) -> float:
    """Memory that the weights of a module take."""
    return comfy.model_management.module_size(module) / 1e9


def attention() -> AttentionBackend:
    """The attention that the user selected for ComfyUI, kept from quantising."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads = q.shape[2]
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        selected = comfy.ldm.modules.attention.optimized_attention
        out = selected(q, k, v, heads, skip_reshape=True, low_precision_attention=False)
        return out.unflatten(-1, (heads, -1))

    return AttentionBackend(comfy.ldm.modules.attention.optimized_attention.__name__, attend)


def progress(node_id: str | None, describe: Callable[[int, int], str]) -> Callable[[int, int], None]:
    """A callback for (done, total) that moves the node's bar, shows `describe(done, total)`, and heeds a cancel."""
    bar: comfy.utils.ProgressBar | None = None
    shown = ""

    def update(done: int, total: int) -> None:
        nonlocal bar, shown
        comfy.model_management.throw_exception_if_processing_interrupted()
        bar = bar or comfy.utils.ProgressBar(total, node_id=node_id)
        bar.update_absolute(done, total)
        text = describe(done, total)
        if text != shown:
            show(node_id, text)
            shown = text

    return update


def show(node_id: str | None, text: str) -> None:
    """Show a line of text on a node."""
    if node_id is not None and PromptServer.instance is not None:
        PromptServer.instance.send_progress_text(text, node_id)


def checkpoint_choices(folders: tuple[str, ...], *components: str) -> list[list[str]]:
    """For each component, the files of the model folders, and component folders under `diffusers`, that hold it.

    Folders end in a slash. The first of two files with the same name counts.
    """
    names = dict.fromkeys(
        name for folder in folders for name in [*folder_paths.get_filename_list(folder), *_gguf_files(folder)]
    )
    held = {name: peek(path) for name in names if (path := _file_path(folders, name))}
    held |= {f"{name}/": peek(path) for name, path in _component_folders()}
    return [[name for name, found in held.items() if component in found] for component in components]


def _gguf_files(folder: str) -> list[str]:
    """GGUF files of a model folder, which ComfyUI's own lists leave out."""
    roots = map(Path, folder_paths.get_folder_paths(folder))
    return sorted(path.relative_to(root).as_posix() for root in roots for path in _files_below(root, ".gguf"))


def _files_below(root: Path, suffix: str) -> Iterator[Path]:
    """Files of a suffix in a folder and those below it, links to folders included as ComfyUI's own lists do."""
    for folder, _, names in os.walk(root, followlinks=True):
        yield from (Path(folder, name) for name in names if name.endswith(suffix))


def checkpoint_path(folders: tuple[str, ...], choice: str) -> Path:
    """The path behind a choice; a choice is never trusted to be one that was offered.

    Raises:
        CheckpointError: If nothing that this names is installed.
    """
    if choice.endswith("/"):
        path = dict(_component_folders()).get(choice.removesuffix("/"))
    else:
        path = _file_path(folders, choice)
    if path is None:
        raise CheckpointError(
            f"{choice!r} is not installed. Put files into models/{folders[0]}, folders into models/diffusers, "
            "press R to refresh, and choose again."
        )
    return path


def _file_path(folders: tuple[str, ...], name: str) -> Path | None:
    """The file of this name in the first of the model folders that has it."""
    found = next(filter(None, (folder_paths.get_full_path(folder, name) for folder in folders)), None)
    return Path(found) if found else None


def _component_folders() -> Iterator[tuple[str, Path]]:
    """(name, path) of the folders one and two levels below the `diffusers` model folders."""
    for root in map(Path, folder_paths.get_folder_paths("diffusers")):
        for path in sorted([*root.glob("*/"), *root.glob("*/*/")]):
            if path.is_dir():
                yield path.relative_to(root).as_posix(), path


def save_path(prefix: str, suffix: str) -> Path:
    """A new file under the output folder by the habits of the Save nodes: prefix, counter, subfolders.

    Raises:
        ValueError: If the prefix leads out of the output folder.
    """
    output = folder_paths.get_output_directory()
    target = os.path.join(output, os.path.dirname(os.path.normpath(prefix)))
    if not folder_paths.is_within_directory(output, target):
        raise ValueError(f"filename_prefix {prefix!r} leads out of the output folder. Use a name, or subfolder/name.")
    folder, name, counter, _, _ = folder_paths.get_save_image_path(prefix, output)
    return Path(folder) / f"{name}_{counter:05}_{suffix}"


_SOURCES = {"[output]": folder_paths.get_output_directory, "[input]": folder_paths.get_input_directory}


def saved_choices(suffix: str, fits: Callable[[Path], bool]) -> list[str]:
    """Files that fit, of this suffix, in the input and output folders: newest first, marked with their folder."""
    found = []
    for mark, directory in _SOURCES.items():
        root = Path(directory())
        for file in _files_below(root, suffix):
            if folder_paths.is_within_directory(str(root), str(file)) and file.is_file() and fits(file):
                found.append((os.path.getmtime(file), f"{file.relative_to(root).as_posix()} {mark}"))
    return [choice for _, choice in sorted(found, reverse=True)]


def saved_path(choice: str) -> Path:
    """The file behind a choice.

    Raises:
        ValueError: If it leads out of the input and output folders.
        FileNotFoundError: If it is not there.
    """
    name, mark, _ = choice.rpartition(" [")
    directory = _SOURCES.get(f"[{choice[len(name) + 2 :]}", folder_paths.get_input_directory)()
    path = Path(directory) / (name if mark else choice)
    if not folder_paths.is_within_directory(directory, str(path)):
        raise ValueError(f"{choice!r} leads out of the input and output folders. Choose a file from the list.")
    if not path.is_file():
        raise FileNotFoundError(f"{choice!r} is not there any more. Press R to refresh, and choose again.")
    return path
