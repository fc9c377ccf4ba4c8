"""GGUF files: recognised by tensor names, kept packed, and equal to the floats that they stand for."""

import gguf
import numpy
import pytest
import torch
from gguf_writers import PACKED, write_gguf
from layout_writers import WEIGHTS, comfy_dit, folded, write_state
from other_writers import hot_step_bundle
from quant_writers import WIDE_TRANSFORMER, is_wide
from test_checkpoint import audio, velocity

from mm3.checkpoint import CheckpointError, open_checkpoint, peek
from mm3.demo import official_states
from mm3.load import load_dit, load_vocoder
from mm3.quant import PackedLinear


@pytest.fixture(scope="module")
def states():
    return official_states(transformer=WIDE_TRANSFORMER)


def mostly(kind, rest="F16"):
    """Wide weights in one type, other matrices and kernels in another, vectors in float32."""
    return lambda name: kind if is_wide(name) else rest if name.endswith("weight") and "norm" not in name else "F32"


def mixed(name):
    """As the mixtures of the published K-quants: more bits for the values and for one block."""
    if not is_wide(name):
        return "F32"
    return (
        "Q8_0"
        if ".1.attn.to_q." in name
        else "F16"
        if ".1.attn.to_k." in name
        else "Q6_K"
        if "to_v" in name
        else "Q4_K"
    )


def fused(states, folder, type_of):
    """Comfy-Org's names: transformer and condition encoder in one file."""
    meant = write_gguf(folder / "dit.gguf", comfy_dit(states), type_of, arch="wan")
    return open_checkpoint(folder / "dit.gguf"), open_checkpoint(write_state(folder / "floats.safetensors", meant))


def separate(states, folder, type_of):
    """Official names: a file for each component, all in one folder."""
    for name in ("transformer", "condition_encoder"):
        meant = write_gguf(folder / "gguf" / f"{name}_some.gguf", states[name], type_of, arch=f"mm3-{name}")
        write_state(folder / "floats" / name / WEIGHTS, meant)
    return open_checkpoint(folder / "gguf"), open_checkpoint(folder / "floats")


def bundle(states, folder, type_of):
    """HOT-Step's names: everything in one file."""
    meant = write_gguf(folder / "bundle.gguf", hot_step_bundle(states), type_of, arch="mm3")
    return open_checkpoint(folder / "bundle.gguf"), open_checkpoint(write_state(folder / "floats.safetensors", meant))


LINEAGES = {"Comfy-Org names": fused, "official names": separate, "HOT-Step names": bundle}


@pytest.mark.parametrize("lineage", LINEAGES.values(), ids=LINEAGES)
@pytest.mark.parametrize("kind", PACKED)
def test_a_packed_file_equals_the_floats_it_stands_for(kind, lineage, states, tmp_path):
    packed, floats = map(load_dit, lineage(states, tmp_path, mostly(kind)))
    assert torch.equal(velocity(packed), velocity(floats))
    layers = [layer for layer in packed.modules() if isinstance(layer, PackedLinear)]
    assert len(layers) == 2 * 4
    values, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    assert sum(layer.weight.nbytes for layer in layers) == 1_310_720 // values * size


@pytest.mark.parametrize("lineage", LINEAGES.values(), ids=LINEAGES)
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_a_float_file_loads_bit_for_bit(kind, lineage, states, tmp_path):
    stored, floats = lineage(states, tmp_path, mostly(kind, kind))
    assert not stored.component("transformer").packed
    loaded, expected = load_dit(stored), load_dit(floats)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in loaded.state_dict().items())


def test_projections_of_several_types_are_kept_packed_together(states, tmp_path):
    packed, floats = map(load_dit, separate(states, tmp_path, mixed))
    assert torch.equal(velocity(packed), velocity(floats))
    kept = packed.transformer.transformer_blocks[1].attn.to_qkv
    assert kept.packing.types == (("Q8_0", 256), ("F16", 256), ("Q6_K", 256))
    assert kept.weight.nbytes == 256 * (256 // 32 * 34 + 512 + 210)


def test_thin_weights_may_be_packed_as_well(states, tmp_path):
    thin = ("project_out.weight", "to_timestep_embed.2.weight")
    packed, floats = map(load_dit, fused(states, tmp_path, lambda name: "Q8_0" if name.endswith(thin) else "F32"))
    assert torch.equal(velocity(packed), velocity(floats))
    assert not [layer for layer in packed.modules() if isinstance(layer, PackedLinear)]


def squeezed(name, value):
    return value.squeeze() if value.ndim > 1 else value


def flattened(name, value):
    return value.flatten(1) if value.ndim == 3 and not name.endswith("alpha") else value.flatten()


def leading(name, value):
    return value[None, ..., 0] if value.ndim == 3 and value.shape[-1] == 1 else value


def as_ggml(name, value):
    """Axes of length 1 in front are not counted."""
    while value.ndim > 1 and value.shape[0] == 1:
        value = value[0]
    return value


@pytest.mark.parametrize("reshape", [squeezed, leading, as_ggml])
def test_axes_of_length_one_are_restored(reshape, states, tmp_path, vocoder):
    dit = write_gguf(tmp_path / "dit.gguf", comfy_dit(states), lambda _: "F32", reshape=reshape)
    floats = load_dit(open_checkpoint(write_state(tmp_path / "floats.safetensors", dit)))
    assert torch.equal(velocity(load_dit(open_checkpoint(tmp_path / "dit.gguf"))), velocity(floats))
    write_gguf(tmp_path / "vae.gguf", folded(states["vocoder"]), lambda _: "F32", reshape=reshape)
    restored = load_vocoder(open_checkpoint(tmp_path / "vae.gguf"))
    assert (audio(restored) - audio(load_vocoder(open_checkpoint(write_vocoder(states, tmp_path))))).abs().max() <= 1e-6


def write_vocoder(states, path):
    return write_state(path / "vocoder.safetensors", states["vocoder"])


def test_kernels_laid_flat_are_restored(states, tmp_path):
    kept = ("conv_t1.weight",)  # their kernel cannot be told from a flat shape

    def lay_flat(name, value):
        return value if name.endswith(kept) or value.ndim < 3 else flattened(name, value)

    write_gguf(tmp_path / "dit.gguf", comfy_dit(states), lambda _: "F32", reshape=lay_flat)
    floats = load_dit(open_checkpoint(write_state(tmp_path / "floats.safetensors", comfy_dit(states))))
    assert torch.equal(velocity(load_dit(open_checkpoint(tmp_path / "dit.gguf"))), velocity(floats))
    write_gguf(tmp_path / "vae.gguf", folded(states["vocoder"]), lambda _: "F32", reshape=lay_flat)
    expected = audio(load_vocoder(open_checkpoint(write_vocoder(states, tmp_path))))
    assert (audio(load_vocoder(open_checkpoint(tmp_path / "vae.gguf"))) - expected).abs().max() <= 1e-6


def test_a_file_without_settings_and_with_another_ending_is_recognised(states, tmp_path):
    write_gguf(tmp_path / "blob", comfy_dit(states), mostly("Q4_0"), settings=False)
    assert set(open_checkpoint(tmp_path / "blob").components) == {"transformer", "condition_encoder"}


def test_a_folder_with_two_files_of_one_component_is_refused(states, tmp_path):
    for name in ("a.gguf", "b.gguf"):
        write_gguf(tmp_path / name, states["condition_encoder"], lambda _: "F32")
    with pytest.raises(CheckpointError, match=r"b\.gguf holds the condition_encoder again"):
        open_checkpoint(tmp_path)


def test_peek_finds_files_and_folders(states, tmp_path):
    separate(states, tmp_path, mostly("Q8_0"))
    fused(states, tmp_path, mostly("Q8_0"))
    both = {"transformer", "condition_encoder"}
    assert peek(tmp_path / "gguf") == peek(tmp_path / "dit.gguf") == both
    assert peek(tmp_path / "gguf/transformer_some.gguf") == {"transformer"}
    (tmp_path / "gguf/transformer_some.gguf").unlink()
    assert peek(tmp_path / "gguf") == {"condition_encoder"}


@pytest.mark.parametrize(
    ("kind", "words"),
    [("I8", ["I8", "Q8_CR"]), ("MXFP4", ["MXFP4"]), ("NVFP4", ["NVFP4"]), ("IQ4_NL", ["number 20"])],
)
def test_other_types_are_refused_by_name(kind, words, states, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "mm3")
    values, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    data = numpy.zeros((4, 256 // values * size), numpy.uint8)
    if kind == "I8":
        writer.add_tensor("proj_in.weight", data.view(numpy.int8))
    else:
        writer.add_tensor("proj_in.weight", data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError) as refusal:
        open_checkpoint(tmp_path / "other.gguf")
    assert all(word in str(refusal.value) for word in ["proj_in.weight", "Q2_K to Q6_K", *words])


def test_a_file_cut_after_it_was_opened_is_refused(states, tmp_path):
    checkpoint, _ = fused(states, tmp_path, mostly("Q8_0"))
    with (tmp_path / "dit.gguf").open("r+b") as file:
        file.truncate(20_000)
    with pytest.raises(CheckpointError, match="ends within"):
        load_dit(checkpoint)
