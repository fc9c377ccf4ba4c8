"""Broken files of every container give a refusal of ours or a correct load: no crash, no hang, no code run."""

import itertools
import time

import pytest
import torch
from layout_writers import write_index, write_state
from mutations import index_mutations, safetensors_mutations, zip_mutations
from other_writers import write_pickle
from test_checkpoint_pickles import Evil

from mm3.checkpoint import CheckpointError, open_checkpoint
from mm3.demo import official_states
from mm3.load import skeleton

COUNTS = [300, pytest.param(10_000, marks=pytest.mark.slow)]
LONGEST_S = 5.0


@pytest.fixture(scope="module")
def state():
    return official_states()["condition_encoder"]


def load(path):
    """The parameters, or None if they were refused."""
    start = time.monotonic()
    try:
        component = open_checkpoint(path).component("condition_encoder")
        return component.state(skeleton(component))
    except CheckpointError as error:
        assert str(error)
        return None
    finally:
        assert time.monotonic() - start < LONGEST_S


def run(mutations, count, place, path):
    """Every mutation written to `place` and `path` loaded; those that loaded, and their number is printed."""
    loaded = []
    for number, content in enumerate(itertools.islice(mutations, count)):
        place.write_bytes(content)
        try:
            result = load(path)
        except BaseException as error:
            raise AssertionError(f"mutation {number}: {content[:2000]!r}") from error
        if result is not None:
            loaded.append((content, result))
    print(f"\n{place.name}: {count} mutations, {count - len(loaded)} refused, {len(loaded)} loaded")
    assert 0 < len(loaded) < count / 2 or count < 1000
    return loaded


@pytest.mark.parametrize("count", COUNTS)
def test_a_broken_safetensors_header_is_refused_or_harmless(count, tmp_path, state):
    path = write_state(tmp_path / "encoder.safetensors", state)
    for _, loaded in run(safetensors_mutations(path.read_bytes(), seed=1), count, path, path):
        assert all(torch.equal(loaded[name], value) for name, value in state.items())


@pytest.mark.parametrize("count", COUNTS)
def test_a_broken_index_is_refused_or_harmless(count, tmp_path, state):
    names = ["a.safetensors", "b.safetensors"]
    places = {name: names[number % 2] for number, name in enumerate(state)}
    for file in names:
        write_state(tmp_path / file, {name: value for name, value in state.items() if places[name] == file})
    write_index(tmp_path, places)
    (index,) = tmp_path.glob("*.json")
    for _, loaded in run(index_mutations(index.read_bytes(), seed=2), count, index, tmp_path):
        assert all(torch.equal(loaded[name], value) for name, value in state.items())


@pytest.mark.parametrize("count", COUNTS)
def test_a_broken_torch_file_is_refused_or_has_the_right_shapes_and_runs_nothing(count, tmp_path, state):
    evil = Evil(tmp_path / "trace")
    path = write_pickle(tmp_path / "encoder.pth", state)
    contents = [path.read_bytes(), write_pickle(tmp_path / "evil.pth", state | {"evil": evil}).read_bytes()]
    for content, loaded in run(zip_mutations(contents, seed=3), count, path, path):
        assert len(content) > 9000  # nothing that was cut
        assert {name: value.shape for name, value in loaded.items()} == {n: v.shape for n, v in state.items()}
    assert not evil.trace.exists()
