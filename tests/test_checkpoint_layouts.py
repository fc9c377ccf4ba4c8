"""The layouts of other tools load to the same outputs, bit for bit; what they hold besides is ignored knowingly."""

import pytest
import torch
from layout_writers import WEIGHTS, comfy_dav, comfy_dit, parametrized, write_sharded_folder, write_state
from other_writers import (
    REVISION,
    bundle,
    cpp_vocoder,
    flattened,
    hot_step_bundle,
    hot_step_condition,
    hot_step_dit,
    hot_step_vocoder,
    prefixed,
    whole_codec,
    write_cache,
    write_pickle,
)
from test_checkpoint import audio, velocity

from mm3.checkpoint import open_checkpoint
from mm3.demo import official_states
from mm3.load import load_dit, load_vocoder, open_dit


@pytest.fixture(scope="module")
def states():
    return official_states()


def parts(state):
    """A writer of the transformer and the condition encoder as two files, each under the prefix of `state`."""

    def write(folder, states):
        return tuple(
            write_state(folder / f"{name}.safetensors", state(name, states[name]))
            for name in ("transformer", "condition_encoder")
        )

    return write


def one(write, name, state):
    """A writer of both into one file."""
    return lambda folder, states: (write(folder / name, state(states)), None)


def without_vocoder(states):
    return bundle({name: state for name, state in states.items() if name != "vocoder"})


def unprefixed(states):
    return states["transformer"] | states["condition_encoder"]


DITS = {
    "flowmatching_vae.pth": one(write_pickle, "flowmatching_vae.pth", comfy_dit),
    "a torch file under another suffix": one(write_pickle, "model.ckpt", comfy_dit),
    "a file without a suffix": one(write_state, "0123abcd", comfy_dit),
    "a torch file of another suffix": one(write_pickle, "dit.safetensors", comfy_dit),
    "one file with components as prefixes": one(write_state, "dit.safetensors", without_vocoder),
    "one file of the whole model": one(write_state, "model.safetensors", bundle),
    "one file without prefixes": one(write_state, "dit.safetensors", unprefixed),
    "official names in two files": parts(lambda _, state: state),
    "official names and prefixes in two files": parts(lambda name, state: prefixed(f"{name}.", state)),
    "model.diffusion_model. in two files": parts(lambda _, state: prefixed("model.diffusion_model.", state)),
    "diffusion_model. in two files": parts(lambda _, state: prefixed("diffusion_model.", state)),
    "two torch files": lambda folder, states: tuple(
        write_pickle(folder / f"{name}.pth", states[name]) for name in ("transformer", "condition_encoder")
    ),
    "HOT-Step in two files": lambda folder, states: (
        write_state(folder / "mm3-dit", hot_step_dit(states)),
        write_state(folder / "mm3-cond", hot_step_condition(states)),
    ),
    "HOT-Step in one file": one(write_state, "mm3-synth.safetensors", hot_step_bundle),
    "HOT-Step in a torch file": one(write_pickle, "mm3-synth.pth", hot_step_bundle),
    "a Hugging Face cache": lambda folder, states: (write_cache(folder / "models--x--y", states), None),
    "a snapshot in a cache": lambda folder, states: (
        write_cache(folder / "models--x--y", states) / "snapshots" / REVISION,
        None,
    ),
    "a snapshot with shards": lambda folder, states: (
        write_cache(folder / "models--x--y", states, write_sharded_folder) / "snapshots" / REVISION,
        None,
    ),
    "the condition encoder of a Comfy-Org file": lambda folder, states: (
        write_state(folder / WEIGHTS, states["transformer"]),
        write_state(folder / "dit.safetensors", comfy_dit(states)),
    ),
}
VOCODERS = {
    "dav.pth": lambda folder, states: write_pickle(folder / "dav.pth", whole_codec(states)),
    "the encoder repository of SimpleTuner": lambda folder, states: (
        write_state(folder / "audio_vae" / WEIGHTS, whole_codec(states)).parent.parent
    ),
    "its file": lambda folder, states: write_state(folder / "audio_vae" / WEIGHTS, whole_codec(states)),
    "minimaxmusic.cpp": lambda folder, states: write_state(folder / "voc.safetensors", cpp_vocoder(states)),
    "HOT-Step": lambda folder, states: write_state(folder / "mm3-voc", hot_step_vocoder(states)),
    "HOT-Step with the rest": lambda folder, states: write_pickle(folder / "mm3.pth", hot_step_bundle(states)),
    "official, flattened": lambda folder, states: write_state(folder / "v", flattened(states["vocoder"])),
    "codec, flattened": lambda folder, states: write_state(folder / "v", flattened(comfy_dav(states))),
    "codec parametrizations in a torch file": lambda folder, states: write_pickle(
        folder / "v.pt", parametrized(comfy_dav(states))
    ),
    "component as a prefix": lambda folder, states: write_state(folder / "v", prefixed("vocoder.", states["vocoder"])),
    "one file of the whole model": lambda folder, states: write_state(folder / "all", bundle(states)),
}


@pytest.mark.parametrize("write", DITS.values(), ids=DITS)
def test_a_dit_loads_to_the_same_outputs(write, tmp_path, states, dit):
    loaded = load_dit(open_dit(*write(tmp_path, states)))
    assert all(torch.equal(value, dit.state_dict()[name]) for name, value in loaded.state_dict().items())
    assert torch.equal(velocity(loaded), velocity(dit))


@pytest.mark.parametrize("write", VOCODERS.values(), ids=VOCODERS)
def test_a_vocoder_loads_to_the_same_audio(write, tmp_path, states, vocoder):
    loaded = load_vocoder(open_checkpoint(write(tmp_path, states)))
    assert all(torch.equal(value, vocoder.state_dict()[name]) for name, value in loaded.state_dict().items())
    assert torch.equal(audio(loaded), audio(vocoder))


@pytest.mark.parametrize("stored", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("write", [write_state, write_pickle])
def test_plain_fp8_loads_as_its_rounded_weights(write, stored, tmp_path, states):
    rounded = {name: value.to(stored) for name, value in comfy_dit(states).items()}
    widened = {name: value.float() for name, value in rounded.items()}
    fp8 = open_checkpoint(write(tmp_path / "fp8", rounded))
    assert fp8.component("transformer").dtype == stored
    expected = load_dit(open_checkpoint(write_state(tmp_path / "fp32", widened)))
    assert torch.equal(velocity(load_dit(fp8)), velocity(expected))


IGNORED = {
    "whole codec": (lambda states: whole_codec(states), "vocoder", {"encoder", "mean_proj", "logs_proj", "flow"}),
    "minimaxmusic.cpp": (lambda states: cpp_vocoder(states), "vocoder", {"encoder"}),
    "HOT-Step": (lambda states: hot_step_bundle(states), "transformer", {"dit", "depth"}),
    "Comfy-Org": (lambda states: comfy_dit(states), "transformer", {"diffusion_transformer"}),
    "official": (lambda states: states["vocoder"], "vocoder", set()),
}


@pytest.mark.parametrize(("state_of", "component", "ignored"), IGNORED.values(), ids=IGNORED)
def test_what_is_not_needed_is_listed(state_of, component, ignored, tmp_path, states):
    state = state_of(states)
    found = open_checkpoint(write_state(tmp_path / "file", state)).component(component)
    assert {name.split(".")[0] for name in found.ignored} == ignored
    assert set(found.ignored) <= set(state)


def test_a_picked_condition_encoder_comes_before_that_of_the_checkpoint(tmp_path, states):
    other = {name: value + 1 for name, value in states["condition_encoder"].items()}
    encoder = write_state(tmp_path / "encoder.safetensors", other)
    whole = write_state(tmp_path / "dit.safetensors", comfy_dit(states))
    assert torch.equal(load_dit(open_dit(whole, encoder)).condition_encoder.proj.bias, other["proj.bias"])
    own = load_dit(open_dit(whole)).condition_encoder.proj.bias
    assert torch.equal(own, states["condition_encoder"]["proj.bias"])


def test_a_torch_file_may_hold_transposed_and_shared_tensors(tmp_path, states, dit):
    state = dict(comfy_dit(states))
    name = "diffusion_transformer.transformer.layers.0.ff.ff.2.weight"
    state[name] = state[name].mT.contiguous().mT
    both = torch.cat([state["latent_conditioners.0.bias"], state["cond_layer_logits"]])
    state["latent_conditioners.0.bias"], state["cond_layer_logits"] = both.split([32, 8])
    assert not state[name].is_contiguous()
    loaded = load_dit(open_checkpoint(write_pickle(tmp_path / "dit.pth", state)))
    assert torch.equal(velocity(loaded), velocity(dit))
