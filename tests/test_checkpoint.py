"""Every published layout of the same weights loads to the same outputs."""

import pytest
import torch
from layout_writers import (
    WEIGHTS,
    comfy_dav,
    comfy_dit,
    folded,
    parametrized,
    write_folder,
    write_sharded_folder,
    write_shards,
    write_state,
)

from mm3.checkpoint import fold_weight_norm, open_checkpoint
from mm3.demo import CONDITION_ENCODER, TRANSFORMER, VOCODER, demo_hidden, official_states
from mm3.load import load_dit, load_vocoder, open_whole


@pytest.fixture(scope="module")
def states():
    return official_states()


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def velocity(dit):
    """Of the condition encoder and the transformer together."""
    condition = dit.aligned_condition(demo_hidden(4))
    return dit.transformer(randn(1, 128, 13), torch.tensor([0.5]), condition)


def audio(vocoder):
    return vocoder(randn(1, 128, 3))


WHOLE = {
    "a folder of single files": write_folder,
    "a folder with shards and an index": write_sharded_folder,
}


@pytest.mark.parametrize("writer", WHOLE.values(), ids=WHOLE)
def test_an_official_folder_loads_to_the_same_outputs(writer, tmp_path, states, dit, vocoder):
    checkpoint = open_checkpoint(writer(tmp_path, states))
    assert set(checkpoint.components) == {"transformer", "condition_encoder", "vocoder"}
    assert torch.equal(velocity(load_dit(checkpoint)), velocity(dit))
    assert torch.equal(audio(load_vocoder(checkpoint)), audio(vocoder))


def test_shards_without_an_index_are_found_by_their_names(tmp_path, states, dit):
    write_folder(tmp_path, {"condition_encoder": states["condition_encoder"]})
    write_shards(tmp_path / "transformer", states["transformer"], index=False)
    assert torch.equal(velocity(load_dit(open_checkpoint(tmp_path))), velocity(dit))


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model.", "diffusion_model."])
def test_a_comfy_dit_file_loads_to_the_same_outputs(prefix, tmp_path, states, dit):
    checkpoint = open_checkpoint(write_state(tmp_path / "dit.safetensors", comfy_dit(states, prefix)))
    assert set(checkpoint.components) == {"transformer", "condition_encoder"}
    loaded = load_dit(checkpoint)
    assert torch.equal(velocity(loaded), velocity(dit))
    assert all(torch.equal(value, dit.state_dict()[name]) for name, value in loaded.state_dict().items())


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_a_half_precision_file_loads_as_its_rounded_weights(stored, tmp_path, states):
    rounded = {name: {key: value.to(stored) for key, value in state.items()} for name, state in states.items()}
    widened = {name: {key: value.float() for key, value in state.items()} for name, state in rounded.items()}
    halved = {name: value.to(stored) for name, value in comfy_dit(states).items()}
    half = open_checkpoint(write_state(tmp_path / "half.safetensors", halved))
    assert half.component("transformer").dtype == stored
    expected = load_dit(open_checkpoint(write_folder(tmp_path, widened)))
    assert torch.equal(velocity(load_dit(half)), velocity(expected))
    exact = load_dit(half, dtype=stored).transformer.transformer_blocks[1].ff_in.weight
    assert torch.equal(exact, rounded["transformer"]["transformer_blocks.1.ff_in.weight"])


VOCODERS = {
    "official g and v": lambda states: states["vocoder"],
    "official parametrizations": lambda states: parametrized(states["vocoder"]),
    "codec g and v": comfy_dav,
    "codec parametrizations": lambda states: parametrized(comfy_dav(states)),
}


@pytest.mark.parametrize("state_of", VOCODERS.values(), ids=VOCODERS)
def test_a_vocoder_file_loads_to_the_same_audio(state_of, tmp_path, states, vocoder):
    checkpoint = open_checkpoint(write_state(tmp_path / "vocoder.safetensors", state_of(states)))
    assert set(checkpoint.components) == {"vocoder"}
    assert torch.equal(audio(load_vocoder(checkpoint)), audio(vocoder))


@pytest.mark.parametrize("state_of", [lambda states: states["vocoder"], comfy_dav], ids=["official", "codec"])
def test_a_vocoder_whose_weight_norm_is_folded_already_loads_to_the_same_audio(state_of, tmp_path, states, vocoder):
    checkpoint = open_checkpoint(write_state(tmp_path / "vocoder.safetensors", folded(state_of(states))))
    assert (audio(load_vocoder(checkpoint)) - audio(vocoder)).abs().max() <= 1e-6


@pytest.mark.parametrize("component", ["transformer", "condition_encoder", "vocoder"])
@pytest.mark.parametrize("single", [True, False], ids=["file", "folder"])
def test_a_component_by_itself_is_recognised_by_its_tensors(component, single, tmp_path, states):
    path = write_state(tmp_path / "any name" / WEIGHTS, states[component])
    checkpoint = open_checkpoint(path if single else path.parent)
    assert list(checkpoint.components) == [component]
    expected = {"transformer": TRANSFORMER, "condition_encoder": CONDITION_ENCODER, "vocoder": VOCODER}[component]
    assert checkpoint.component(component).config == expected


def test_dit_and_vocoder_may_come_from_two_files(tmp_path, states, dit, vocoder):
    dit_file, vocoder_file = open_whole(
        write_state(tmp_path / "dit.safetensors", comfy_dit(states)),
        write_state(tmp_path / "vae.safetensors", comfy_dav(states)),
    )
    assert torch.equal(velocity(load_dit(dit_file)), velocity(dit))
    assert torch.equal(audio(load_vocoder(vocoder_file)), audio(vocoder))


def test_head_width_is_taken_from_the_config_file_if_it_tells(tmp_path, states):
    write_folder(tmp_path, states)
    (tmp_path / "transformer" / "config.json").write_text('{"attention_head_dim": 32, "rotary_dim": 16}')
    transformer = load_dit(open_checkpoint(tmp_path)).transformer
    assert (transformer.config.heads, transformer.config.head_width, transformer.config.rotary_width) == (4, 32, 16)


def test_a_loaded_model_does_not_hang_on_its_file(tmp_path, states, dit):
    path = write_state(tmp_path / "dit.safetensors", comfy_dit(states))
    loaded = load_dit(open_checkpoint(path))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(bytes(size))
    assert torch.equal(velocity(loaded), velocity(dit))


CONVOLUTIONS = {"conv": torch.nn.Conv1d, "transposed": torch.nn.ConvTranspose1d}


@pytest.mark.parametrize("kind", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_folding_weight_norm_equals_torch(kind):
    normed = torch.nn.utils.parametrizations.weight_norm(kind(6, 4, 7))
    factors = normed.parametrizations.weight
    gain, direction = randn(*factors.original0.shape), randn(*factors.original1.shape, seed=1)
    factors.original0.data, factors.original1.data = gain, direction
    weight = fold_weight_norm(gain, direction)
    assert (weight - normed.weight).abs().max() <= 1e-6
    assert (weight - torch._weight_norm(direction, gain, 0)).abs().max() <= 1e-6
    norms = weight.square().sum(dim=(1, 2)).sqrt()
    assert (norms - gain.abs().flatten()).abs().max() <= 1e-5
