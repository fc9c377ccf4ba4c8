"""Torch files that hold anything but plain tensors are refused, and nothing in them is run."""

import os
import zipfile

import pytest
import torch
from other_writers import write_pickle
from test_checkpoint_refusals import refusal

from mm3.demo import official_states


class Evil:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("place", ["value", "key", "whole"])
def test_a_pickle_that_would_run_code_is_told_and_runs_none(place, tmp_path):
    evil = Evil(tmp_path / "trace")
    content = {"value": {"a": torch.zeros(2), "b": evil}, "key": {evil: torch.zeros(2)}, "whole": evil}[place]
    path = write_pickle(tmp_path / "dit.pth", content)
    message = refusal(path)
    assert not evil.trace.exists()
    assert "could run code" in message and "posix mkdir" in message or "nt mkdir" in message
    torch.load(path, weights_only=False)
    assert evil.trace.exists()  # the file does what it is said to do


NO_TENSORS = {
    "a number": {"a": torch.zeros(2), "step": 3},
    "a list": [torch.zeros(2)],
    "a tensor": torch.zeros(2),
    "a module": torch.nn.Identity(),
    "a nested state": {"state_dict": {"a": torch.zeros(2)}},
    "a sparse tensor": {"a": torch.zeros(2, 2).to_sparse()},
    "numbered tensors": {1: torch.zeros(2)},
    "an empty tensor": {"a": torch.zeros(0)},
    "a tensor with gaps": {"a": torch.zeros(4, 4)[:, :2]},
    "a repeated element": {"a": torch.zeros(1).expand(3)},
}


@pytest.mark.parametrize("content", NO_TENSORS.values(), ids=NO_TENSORS)
def test_a_pickle_of_anything_but_tensors_by_name_is_told(content, tmp_path):
    assert "a pickle that is not just tensors by name" in refusal(write_pickle(tmp_path / "dit.pth", content))


def test_an_archive_without_tensors_is_told(tmp_path):
    with zipfile.ZipFile(tmp_path / "dit.zip", "w") as archive:
        archive.writestr("readme.txt", "nothing")
    assert "a zip archive without tensors" in refusal(tmp_path / "dit.zip")


def test_a_compressed_torch_file_is_refused(tmp_path):
    path = write_pickle(tmp_path / "dit.pth", official_states()["condition_encoder"])
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "packed.pth", "w") as packed:
        for name in archive.namelist():
            packed.writestr(name, archive.read(name), zipfile.ZIP_DEFLATED if "/data/" in name else zipfile.ZIP_STORED)
    assert "its record holds 0" in refusal(tmp_path / "packed.pth")
