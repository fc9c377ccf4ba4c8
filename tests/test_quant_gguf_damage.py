"""Damaged GGUF files: an error of ours or a load, never another exception, a crash or a long wait."""

import dataclasses
import random
import struct
import time

import pytest
from gguf_writers import write_gguf
from layout_writers import comfy_dit
from quant_writers import is_wide

from mm3.checkpoint import CheckpointError, open_checkpoint
from mm3.demo import TRANSFORMER, official_states
from mm3.load import load_dit

LONGEST_S = 20.0
SMALL = dataclasses.replace(TRANSFORMER, width=64, depth=1, ff_width=64, fourier_features=16)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "dit.gguf"
    write_gguf(path, comfy_dit(official_states(transformer=SMALL)), lambda name: "Q8_0" if is_wide(name) else "F16")
    return path.read_bytes()


def header_end(content):
    return content.index(b"rotary_pos_emb.inv_freq") + 64


def damaged(content, draw):
    """A copy with one kind of damage, most of it in the header."""
    content = bytearray(content)
    end = header_end(content)
    at = draw.randrange(4, end)
    kind = draw.choice(["cut", "cut header", "flip", "flips", "number", "delete", "insert", "append", "swap"])
    if kind == "cut":
        del content[draw.randrange(len(content)) :]
    elif kind == "cut header":
        del content[draw.randrange(end) :]
    elif kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else draw.randrange(2, 20)):
            content[draw.randrange(end)] ^= 1 << draw.randrange(8)
    elif kind == "number":
        value = draw.choice([0, 1, 2**16, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1])
        content[at : at + 8] = struct.pack("<Q", value)
    elif kind == "delete":
        del content[at : at + draw.randrange(1, 40)]
    elif kind == "insert":
        content[at:at] = draw.randbytes(draw.randrange(1, 40))
    elif kind == "append":
        content += draw.randbytes(draw.randrange(1, 100))
    else:
        other = draw.randrange(4, end)
        content[at : at + 8], content[other : other + 8] = content[other : other + 8], content[at : at + 8]
    return bytes(content)


def outcome(path):
    """ "loaded", or the error; anything else than a CheckpointError is raised."""
    start = time.monotonic()
    try:
        load_dit(open_checkpoint(path))
        result = "loaded"
    except CheckpointError as error:
        result = str(error)
    assert time.monotonic() - start < LONGEST_S
    return result


def run(whole, path, seeds):
    loaded = 0
    for seed in seeds:
        path.write_bytes(damaged(whole, random.Random(seed)))  # noqa: S311
        try:
            loaded += outcome(path) == "loaded"
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    return loaded


def test_the_undamaged_file_loads(whole, tmp_path):
    (tmp_path / "dit.gguf").write_bytes(whole)
    assert outcome(tmp_path / "dit.gguf") == "loaded"


def test_damage_gives_an_error_of_ours_or_a_load(whole, tmp_path):
    assert run(whole, tmp_path / "dit.gguf", range(300)) < 100


@pytest.mark.slow
def test_ten_thousand_damaged_files_give_an_error_of_ours_or_a_load(whole, tmp_path):
    loaded = run(whole, tmp_path / "dit.gguf", range(10_000))
    print(f"\n10,000 damaged GGUF files: {loaded} loaded, the others were refused")
    assert loaded < 3_000


@pytest.mark.parametrize("length", [0, 3, 4, 8, 24, 100, 1_000])
def test_a_cut_file_says_that_it_is_not_complete(length, whole, tmp_path):
    (tmp_path / "dit.gguf").write_bytes(whole[:length])
    with pytest.raises(CheckpointError, match="not a complete GGUF|is empty|a text file"):
        open_checkpoint(tmp_path / "dit.gguf")


@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: content + bytes(32)])
def test_a_byte_too_few_or_too_many_at_the_end_is_refused_with_both_sizes(change, whole, tmp_path):
    (tmp_path / "dit.gguf").write_bytes(change(whole))
    assert len(change(whole)) != len(whole)
    message = outcome(tmp_path / "dit.gguf")
    assert "expected" in message and str(len(change(whole))) in message


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (struct.pack("<IIQ", 9, 0, 2**40), "header does not end"),
        (struct.pack("<IIQ", 9, 8, 2**40), "1099511627776 values"),
        (struct.pack("<IIQ", 9, 9, 1), "values of type 9"),
        (struct.pack("<IQ", 8, 2**62), "header does not end"),
        (struct.pack("<I", 77), "type 77"),
    ],
)
def test_lengths_in_the_header_are_not_taken_on_trust(settings, word, tmp_path):
    header = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + struct.pack("<Q", 4) + b"name" + settings
    (tmp_path / "dit.gguf").write_bytes(header + bytes(1_000))
    assert word in outcome(tmp_path / "dit.gguf")
