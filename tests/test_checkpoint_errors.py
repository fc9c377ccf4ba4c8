"""Tensors and components that do not fit: the refusal says what is wrong, in which of them, and what to do."""

import pytest
import torch
from layout_writers import write_folder, write_state

from mm3.checkpoint import CheckpointError, open_checkpoint
from mm3.demo import official_states
from mm3.load import load_dit, load_vocoder, open_whole

PROJECTION = "transformer_blocks.0.attn.to_{}.weight"


@pytest.fixture
def states():
    return official_states()


@pytest.fixture
def refuse(tmp_path, states):
    """Writes `states` as they are by then, loads them, and returns the refusal's message."""

    def load():
        checkpoint = open_checkpoint(write_folder(tmp_path, states))
        load_dit(checkpoint)
        load_vocoder(checkpoint)

    def message():
        with pytest.raises(CheckpointError) as refusal:
            load()
        return str(refusal.value)

    return message


@pytest.mark.parametrize(
    ("component", "key", "named"),
    [
        ("transformer", "transformer_blocks.1.ff_in.bias", "missing transformer_blocks.1.ff_in.bias"),
        ("transformer", "transformer_blocks.1.attn.to_out.0.weight", "missing transformer_blocks.1.attn.to_out.weight"),
        ("transformer", "time_proj.weight", "time_proj.weight is missing"),
        ("condition_encoder", "proj.bias", "missing proj.bias"),
        ("condition_encoder", "proj.weight", "proj.weight is missing"),
        ("vocoder", "blocks.2.res_unit1.conv2.bias", "missing blocks.2.res_unit1.conv2.bias"),
        ("vocoder", "blocks.2.res_unit1.conv2.weight_g", "missing blocks.2.res_unit1.conv2.weight"),
        ("vocoder", "conv_in.weight_v", "conv_in.weight is missing"),
    ],
)
def test_a_missing_tensor_is_named_with_its_component(component, key, named, states, refuse):
    del states[component][key]
    message = refuse()
    assert named in message and component in message and "Download" in message


@pytest.mark.parametrize("component", ["transformer", "condition_encoder", "vocoder"])
def test_an_unexpected_tensor_is_named_with_its_component(component, states, refuse):
    states[component]["surprise.weight"] = torch.zeros(3)
    message = refuse()
    assert "unexpected surprise.weight" in message and component in message


def change(component, key, edit):
    def apply(states):
        states[component][key] = edit(states[component][key])

    return apply


def shift_rows(states):
    """A row too many in one projection and one too few in the next: the fused shape is right."""
    states["transformer"][PROJECTION.format("q")] = torch.zeros(129, 128)
    states["transformer"][PROJECTION.format("k")] = torch.zeros(127, 128)


MISSHAPEN = {
    "bias": change("transformer", "transformer_blocks.0.ff_out.bias", lambda x: x[:-1]),
    "alpha": change("vocoder", "blocks.1.snake1.alpha", lambda x: x[:, :-1]),
    "flat alpha": change("vocoder", "blocks.1.snake1.alpha", lambda x: x.flatten()[:-1]),
    "alpha of two axes": change("vocoder", "blocks.1.snake1.alpha", lambda x: x[0]),
    "direction": change("vocoder", "blocks.0.res_unit1.conv2.weight_v", lambda x: x.flatten()),
    "condition": change("condition_encoder", "layer_scale", lambda x: x.expand(2)),
    "size": change("transformer", "proj_out.weight", lambda x: x[None]),
    "empty": change("condition_encoder", "proj.weight", lambda x: x[:, :0]),
    "query": change("transformer", PROJECTION.format("q"), lambda x: x[:-1]),
}
FAULTS = {
    "key of one column": change("transformer", PROJECTION.format("k"), lambda x: x[:, :1]),
    "key of 100 columns": change("transformer", PROJECTION.format("k"), lambda x: x[:, :100]),
    "query of no axis": change("transformer", PROJECTION.format("q"), lambda x: x[0, 0]),
    "rows shifted": shift_rows,
    "one gain": change("vocoder", "conv_in.weight_g", lambda x: x[:1]),
    "flat gain": change("vocoder", "conv_in.weight_g", lambda x: x.flatten()),
}


@pytest.mark.parametrize("edit", MISSHAPEN.values(), ids=MISSHAPEN)
def test_a_misshapen_tensor_is_refused_with_its_shape(edit, states, refuse):
    edit(states)
    assert "has shape [" in refuse()


@pytest.mark.parametrize("edit", FAULTS.values(), ids=FAULTS)
def test_a_misshapen_part_of_a_fused_or_folded_weight_is_refused(edit, states, refuse):
    edit(states)
    assert "has shape [" in refuse()


@pytest.mark.parametrize(
    ("component", "key", "shape"),
    [("transformer", PROJECTION.format("qkv"), (384, 128)), ("vocoder", "conv_in.weight", (64, 48, 7))],
)
def test_two_sources_of_one_parameter_are_refused(component, key, shape, states, refuse):
    states[component][key] = torch.zeros(shape)
    assert key in refuse()


@pytest.mark.parametrize("letter", ["q", "k", "v"])
def test_a_missing_attention_projection_is_named(letter, states, refuse):
    del states["transformer"][PROJECTION.format(letter)]
    assert PROJECTION.format(letter) in refuse()


def test_only_the_first_few_faults_are_listed(states, refuse):
    states["vocoder"] |= {f"surprise.{number}": torch.zeros(1) for number in range(9)}
    message = refuse()
    assert message.count("unexpected") == 4 and "and 5 more" in message


@pytest.mark.parametrize("absent", ["transformer", "condition_encoder", "vocoder"])
def test_a_missing_component_is_named_with_those_there_are(absent, tmp_path, states):
    del states[absent]
    folder = write_folder(tmp_path / "model", states)
    with pytest.raises(CheckpointError, match=f"model holds no {absent.replace('_', ' ')}") as refusal:
        open_whole(folder)
    assert all(name in str(refusal.value) for name in states)


def test_a_transformer_file_without_condition_encoder_is_no_dit(tmp_path, states):
    path = write_state(tmp_path / "dit.safetensors", states["transformer"])
    with pytest.raises(CheckpointError, match="dit.safetensors holds no condition encoder"):
        load_dit(open_checkpoint(path))


def test_parts_of_two_models_are_refused_with_both_widths(states, refuse):
    state = states["condition_encoder"]
    state |= {"proj.weight": state["proj.weight"][:16], "proj.bias": state["proj.bias"][:16]}
    message = refuse()
    assert "gives 16 channels" in message and "expects 32" in message


def test_a_head_width_that_does_not_divide_the_width_is_refused_with_both(tmp_path, states):
    write_folder(tmp_path, states)
    (tmp_path / "transformer" / "config.json").write_text('{"attention_head_dim": 48}')
    with pytest.raises(CheckpointError, match=r"128 .* 48"):
        load_dit(open_checkpoint(tmp_path))
