"""Partial rotary positions against a turn of each pair by itself, and the choice of the attention that runs."""

import cmath

import pytest
import torch

from mm3 import Attention, AttentionBackend
from mm3.rope import rope_tables, rotate

HEADS, HEAD_WIDTH, TURNING = 2, 64, 32


def tensor(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def turned_pair_by_pair(x):
    """(B, T, H, D): channels i and i + 16 as one complex number, turned by position * 10000 ** (-2 i / 32)."""
    out = x.double().clone()
    half = TURNING // 2
    for position in range(x.shape[1]):
        for i in range(half):
            turn = cmath.exp(1j * position * 10_000 ** (-2 * i / TURNING))
            real, imaginary = x[:, position, :, i].double(), x[:, position, :, i + half].double()
            out[:, position, :, i] = real * turn.real - imaginary * turn.imag
            out[:, position, :, i + half] = real * turn.imag + imaginary * turn.real
    return out


def attention(backend=None, dtype=torch.float32):
    module = Attention(HEADS * HEAD_WIDTH, head_dim=HEAD_WIDTH, attention=backend, dtype=dtype)
    for seed, parameter in enumerate(module.parameters()):
        parameter.data = (tensor(*parameter.shape, seed=seed) * 0.1).to(dtype)
    return module.requires_grad_(False)


class Recorder:
    """An attention of a host: remembers what it was given and answers with the values alone."""

    def __init__(self):
        self.given = []

    def __call__(self, q, k, v):
        self.given.append((q, k, v))
        return v


def tables(length):
    return rope_tables(length, TURNING, torch.device("cpu"))


def test_rotation_equals_a_turn_of_each_pair():
    x = tensor(2, 7, HEADS, HEAD_WIDTH)
    assert (rotate(x, *tables(7)) - turned_pair_by_pair(x)).abs().max() <= 1e-5


def test_rotation_is_exact_enough_at_the_end_of_a_window():
    x = tensor(1, 690, 1, HEAD_WIDTH)
    assert (rotate(x, *tables(690)) - turned_pair_by_pair(x)).abs().max() <= 3e-4


def test_only_the_first_32_channels_turn():
    x = tensor(1, 5, HEADS, HEAD_WIDTH)
    turned = rotate(x, *tables(5))
    assert torch.equal(turned[..., 32:], x[..., 32:])
    assert ((turned - x)[:, 1:, :, :32] != 0).all()


def test_position_zero_does_not_turn():
    x = tensor(1, 5, HEADS, HEAD_WIDTH)
    assert torch.equal(rotate(x, *tables(5))[:, 0], x[:, 0])


def test_rotation_depends_on_the_distance_of_positions_alone():
    q, k = tensor(1, 1, 1, HEAD_WIDTH).expand(1, 40, 1, -1), tensor(1, 1, 1, HEAD_WIDTH, seed=1).expand(1, 40, 1, -1)
    scores = rotate(q, *tables(40))[0, :, 0] @ rotate(k, *tables(40))[0, :, 0].T
    torch.testing.assert_close(scores[5, 2], scores[38, 35], rtol=0, atol=1e-4)
    assert (scores[5, 2] - scores[5, 3]).abs() > 1e-2


def test_half_precision_is_turned_in_float32_and_keeps_its_dtype():
    x = tensor(1, 690, 1, HEAD_WIDTH).bfloat16()
    turned = rotate(x, *tables(690))
    assert turned.dtype == torch.bfloat16
    assert torch.equal(turned, rotate(x.float(), *tables(690)).bfloat16())


def test_attention_equals_softmax_written_out():
    module, x = attention(), tensor(2, 7, HEADS * HEAD_WIDTH)
    q, k, v = (part.reshape(2, 7, HEADS, HEAD_WIDTH) for part in (x @ module.to_qkv.weight.T).split(128, dim=-1))
    scores = torch.einsum("bihd,bjhd->bhij", turned_pair_by_pair(q), turned_pair_by_pair(k)) / 8
    mixed = torch.einsum("bhij,bjhd->bihd", scores.softmax(dim=-1), v.double()).reshape(2, 7, 128)
    expected = mixed @ module.to_out.weight.double().T
    assert (module(x, *tables(7)) - expected).abs().max() <= 1e-5


def test_attention_has_the_documented_attributes():
    module = attention()
    assert (module.num_heads, module.head_dim, module.softmax_scale) == (2, 64, 0.125)
    assert module.to_qkv.weight.shape == (384, 128) and module.to_qkv.bias is None
    assert module.to_out.weight.shape == (128, 128) and module.to_out.bias is None
    assert module.backend is None and module.backend_name == "TORCH_SDPA"


def test_backend_is_named_together_with_the_float32_path():
    backend = AttentionBackend("FLASH", Recorder())
    module = attention(backend)
    assert module.backend is backend
    assert module.backend_name == "TORCH_SDPA(float32)/FLASH(lower precision)"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_backend_runs_in_half_precision_on_heads_behind_time(dtype):
    recorder = Recorder()
    module = attention(AttentionBackend("FLASH", recorder), dtype)
    x = tensor(2, 7, 128).to(dtype)
    out = module(x, *tables(7))
    (given,) = recorder.given
    assert [(part.shape, part.dtype) for part in given] == [((2, 7, HEADS, HEAD_WIDTH), dtype)] * 3
    assert torch.equal(out, module.to_out(given[2].flatten(2)))
    assert torch.equal(given[2].flatten(2), module.to_qkv(x)[..., 256:])


def test_backend_never_runs_in_float32():
    recorder = Recorder()
    x = tensor(2, 7, 128)
    out = attention(AttentionBackend("FLASH", recorder))(x, *tables(7))
    assert recorder.given == []
    assert torch.equal(out, attention()(x, *tables(7)))
