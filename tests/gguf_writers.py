"""GGUF files of a state by ggml's own writer: chosen tensors in blocks of random integers, the others as floats."""

import gguf
import numpy
import torch

PACKED = ("Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
_HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "Q8_0": (0,), "Q4_0": (0,), "Q5_0": (0,)}


def random_rows(name, rows, columns, seed):
    """((rows, bytes) uint8, what they stand for): integers at random, scales such that the weights are about 1 / 16."""
    kind = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = numpy.random.default_rng(seed).integers(0, 256, (rows * columns // values, size), dtype=numpy.uint8)
    _set_scales(name, blocks, 1.0)
    _set_scales(name, blocks, 1 / (16 * gguf.quants.dequantize(blocks, kind).std()))
    weights = gguf.quants.dequantize(blocks, kind).astype(numpy.float32)
    return blocks.reshape(rows, -1), torch.from_numpy(weights.reshape(rows, columns))


def _set_scales(name, blocks, scale):
    for at in _HALVES.get(name, (0, 2)):
        blocks[:, at : at + 2] = numpy.array([scale], numpy.float16).view(numpy.uint8)


def write_gguf(path, state, type_of, *, reshape=None, arch="any", settings=True):
    """Writes `state`, each tensor in the type that `type_of(name)` tells; returns what the file stands for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, arch)
    if settings:
        writer.add_array("tokenizer.ggml.tokens", ["one", "two"])
        writer.add_array("sizes", [1, 2, 3])
        writer.add_float32("eps", 1e-5)
    meant = {}
    for number, (name, value) in enumerate(state.items()):
        kind = type_of(name)
        if kind in PACKED:
            stored, meant[name] = random_rows(kind, *value.shape, number)
            writer.add_tensor(name, stored, raw_dtype=gguf.GGMLQuantizationType[kind])
            continue
        flat = value if reshape is None else reshape(name, value)
        stored = gguf.quants.quantize(flat.contiguous().numpy(), gguf.GGMLQuantizationType[kind])
        meant[name] = torch.from_numpy(gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[kind])).view(
            value.shape
        )
        writer.add_tensor(name, stored, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return meant
