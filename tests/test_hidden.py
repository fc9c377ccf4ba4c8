"""Hidden frames in a file: exact, labelled, and written whole or not at all."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from mm3.demo import demo_hidden
from mm3.hidden import load_hidden, save_hidden


@pytest.fixture
def path(tmp_path):
    return tmp_path / "song.safetensors"


def metadata(path):
    with safe_open(path, framework="pt") as file:
        return file.metadata()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_frames_come_back_exactly_and_in_their_dtype(path, dtype):
    hidden = torch.cat([demo_hidden(7, seed) for seed in range(2)]).to(dtype)
    save_hidden(path, hidden)
    assert load_hidden(path).dtype == dtype
    assert torch.equal(load_hidden(path), hidden)


def test_every_bfloat16_value_survives(path):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).reshape(1, 256, 256)
    save_hidden(path, every)
    assert torch.equal(load_hidden(path).view(torch.int16), every.view(torch.int16))


def test_frames_that_are_a_view_are_saved_as_what_they_show(path):
    hidden = demo_hidden(20)
    save_hidden(path, hidden[:, 3:9, ::2])
    assert torch.equal(load_hidden(path), hidden[:, 3:9, ::2])


def test_file_tells_what_it_is_and_the_frame_rate(path):
    save_hidden(path, demo_hidden(2))
    assert metadata(path) == {"format": "minimax-music3-hidden", "frame_rate": "25"}


def test_loaded_frames_outlive_the_file(path):
    save_hidden(path, demo_hidden(6))
    loaded = load_hidden(path)
    path.write_bytes(b"")
    assert torch.equal(loaded, demo_hidden(6))


def test_a_file_of_two_axes_is_one_song(path):
    save_file({"hidden": demo_hidden(6)[0]}, path)
    assert torch.equal(load_hidden(path), demo_hidden(6))


def test_other_tensors_beside_the_frames_are_ignored(path):
    save_file({"hidden": demo_hidden(6), "tokens": torch.zeros(3)}, path)
    assert torch.equal(load_hidden(path), demo_hidden(6))


def test_a_file_without_frames_is_refused_with_what_it_holds(path):
    save_file({"samples": torch.zeros(1, 128, 3)}, path)
    with pytest.raises(ValueError, match=r"song\.safetensors holds samples, expected .* 'hidden'"):
        load_hidden(path)
    save_file({}, path)
    with pytest.raises(ValueError, match="no tensor"):
        load_hidden(path)


@pytest.mark.parametrize(
    "hidden",
    [
        torch.zeros(1, 3, 8, dtype=torch.int32),
        torch.zeros(8),
        torch.zeros(1, 1, 3, 8),
        torch.zeros(1, 0, 8),
        torch.zeros(0, 3, 8),
    ],
    ids=["integers", "one axis", "four axes", "no frame", "no song"],
)
def test_frames_of_another_kind_are_refused_with_dtype_and_shape(path, hidden):
    save_file({"hidden": hidden}, path)
    with pytest.raises(ValueError, match="song.safetensors") as refusal:
        load_hidden(path)
    assert str(hidden.dtype) in str(refusal.value) and str(list(hidden.shape)) in str(refusal.value)


@pytest.mark.parametrize("kept", [0, 5, 60, -1])
def test_a_truncated_file_is_refused_by_name(path, kept):
    save_hidden(path, demo_hidden(3))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="song.safetensors is not a complete safetensors file"):
        load_hidden(path)


def test_a_path_to_nothing_is_a_file_not_found(path, tmp_path):
    for absent in (path, tmp_path):
        with pytest.raises(FileNotFoundError, match=str(absent)):
            load_hidden(absent)


def test_saving_leaves_no_other_file_behind(path):
    save_hidden(path, demo_hidden(3))
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_save_leaves_no_partial_file_and_the_earlier_one_whole(path):
    save_hidden(path, demo_hidden(3))
    with pytest.raises(TypeError):
        save_hidden(path, demo_hidden(4), {"seed": 5})
    assert list(path.parent.iterdir()) == [path]
    assert torch.equal(load_hidden(path), demo_hidden(3))


def test_a_save_that_fails_at_the_last_move_leaves_no_partial_file(path):
    path.mkdir()
    with pytest.raises(OSError, match=path.name):
        save_hidden(path, demo_hidden(3))
    assert list(path.parent.iterdir()) == [path] and list(path.iterdir()) == []
