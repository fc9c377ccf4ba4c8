"""Files and folders that are not whole, not of this model, or not there at all are refused by name."""

import pytest
from layout_writers import SHARDS, write_index, write_sharded_folder, write_shards, write_state

from mm3.checkpoint import CheckpointError, open_checkpoint
from mm3.demo import official_states
from mm3.load import open_whole


@pytest.fixture(scope="module")
def states():
    return official_states()


@pytest.mark.parametrize("shard", SHARDS)
def test_a_missing_shard_is_named(shard, tmp_path, states):
    write_sharded_folder(tmp_path, states)
    (tmp_path / "transformer" / shard).unlink()
    with pytest.raises(CheckpointError, match=shard):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("single", [True, False], ids=["file", "folder"])
def test_one_shard_of_two_is_refused_without_an_index(single, tmp_path, states):
    whole = {name: value for name, value in states["transformer"].items() if ".1." not in name}
    path = write_state(tmp_path / SHARDS[0], whole)
    with pytest.raises(CheckpointError, match=SHARDS[1]):
        open_checkpoint(path if single else tmp_path)


def test_several_files_that_do_not_belong_together_are_refused(tmp_path, states):
    for name in ("fp16.safetensors", "fp32.safetensors"):
        write_state(tmp_path / name, states["vocoder"])
    with pytest.raises(CheckpointError, match=r"fp16\.safetensors, fp32\.safetensors"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("place", ["../../outside.safetensors", "/outside.safetensors", "inside/x.safetensors"])
def test_an_index_that_leads_out_of_its_folder_is_refused(place, tmp_path, states):
    write_index(write_shards(tmp_path, states["transformer"]), {"proj_in.weight": place})
    with pytest.raises(CheckpointError, match="not a plain file name") as refusal:
        open_checkpoint(tmp_path)
    assert place in str(refusal.value)


@pytest.mark.parametrize("text", ["[]", "{}", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}', "{", "\x00"])
def test_an_index_that_is_none_is_refused_by_name(text, tmp_path, states):
    write_shards(tmp_path, states["transformer"])
    (index,) = tmp_path.glob("*.index.json")
    index.write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match="index.json"):
        open_checkpoint(tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"holds no \.safetensors file and no component .* but nothing"):
        open_checkpoint(tmp_path)


def test_a_path_to_nothing_is_a_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        open_checkpoint(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match="absent"):
        open_whole(tmp_path / "absent", tmp_path)
