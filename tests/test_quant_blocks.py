"""GGUF block types against ggml's own reference in numpy, on random bytes."""

import gguf
import numpy
import pytest
import torch

from mm3.quant.blocks import BLOCK_TYPES
from mm3.quant.rows import BlockRows, row_bytes


def random_blocks(name, count, seed=0):
    """(count, size) uint8: any bits, with float16 scales that are finite."""
    kind = BLOCK_TYPES[name]
    blocks = numpy.random.default_rng(seed).integers(0, 256, (count, kind.size), dtype=numpy.uint8)
    halves = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "F16": (0,), "BF16": (0,)}.get(name, (0, 2))
    for at in halves:
        blocks[:, at + 1] &= 0xBF  # the highest bit of the exponent
    if name == "F32":
        blocks[:, 3] &= 0xBF
    return blocks


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_block_type_equals_the_reference_bit_for_bit(name):
    kind, reference = BLOCK_TYPES[name], gguf.GGMLQuantizationType[name]
    assert (kind.values, kind.size) == gguf.GGML_QUANT_SIZES[reference]
    blocks = random_blocks(name, 2000)
    expected = gguf.quants.dequantize(blocks, reference).reshape(-1, kind.values)
    got = kind.decode(torch.from_numpy(blocks)).numpy()
    assert got.dtype == numpy.float32 and numpy.isfinite(expected).all() and expected.std() > 0
    assert (got.view(numpy.uint32) == numpy.ascontiguousarray(expected, dtype=numpy.float32).view(numpy.uint32)).all()


def test_every_type_is_known():
    plain, legacy = {"F32", "F16", "BF16"}, {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"}
    assert set(BLOCK_TYPES) == plain | legacy | {f"Q{bits}_K" for bits in range(2, 7)}


def test_rows_of_several_types_lie_below_one_another(monkeypatch):
    monkeypatch.setattr("mm3.quant.weight._VALUES_AT_ONCE_ON_CPU", 512 * 2)  # two rows at once
    types = (("Q4_K", 3), ("Q6_K", 5), ("F16", 1), ("Q8_0", 4))
    parts = [random_blocks(name, rows * 512 // BLOCK_TYPES[name].values, rows) for name, rows in types]
    packed = torch.from_numpy(numpy.concatenate([part.flatten() for part in parts]))
    assert packed.numel() == sum(row_bytes(name, 512) * rows for name, rows in types)
    expected = numpy.concatenate(
        [
            gguf.quants.dequantize(part, gguf.GGMLQuantizationType[name]).reshape(rows, 512)
            for part, (name, rows) in zip(parts, types, strict=True)
        ]
    )
    rows = BlockRows(512, types)
    assert rows.shape(packed) == (13, 512)
    assert torch.equal(rows.unpack(packed, None, torch.float32), torch.from_numpy(expected).float())
    half = rows.unpack(packed, None, torch.bfloat16)
    assert torch.equal(half, torch.from_numpy(expected).bfloat16())
