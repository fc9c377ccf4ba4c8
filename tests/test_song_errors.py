"""Values that are not finite, progress, and runs that are ended from outside."""

import copy

import pytest
import torch

from mm3 import NonFiniteError, SongCondition, encode_song, solve_song
from mm3.checkpoint import open_checkpoint
from mm3.demo import demo_hidden
from mm3.load import load_dit

INF, NAN = float("inf"), float("nan")


@pytest.fixture
def condition(dit):
    """Two rows of two short windows."""
    return SongCondition(
        tuple(dit.aligned_condition(torch.cat([demo_hidden(100, 0), demo_hidden(100, 1)])) for _ in range(2)), 200
    )


@pytest.mark.parametrize("value", [INF, -INF, NAN])
@pytest.mark.parametrize("frame", [0, 150, 399])
def test_first_frame_that_is_not_finite_is_named(dit, hidden, value, frame):
    broken = hidden.clone()
    broken[0, frame, 5] = value
    broken[0, -1, 7] = NAN
    with pytest.raises(NonFiniteError, match=rf"^frame {frame} \({frame / 25:.2f} s\)"):
        encode_song(dit.condition_encoder, broken)


def test_a_frame_that_is_not_finite_in_any_row_is_named(dit):
    broken = torch.cat([demo_hidden(30), demo_hidden(30, 1)])
    broken[1, 4] = NAN
    with pytest.raises(NonFiniteError, match=r"^frame 4 "):
        encode_song(dit.condition_encoder, broken)


def test_frames_of_another_width_and_songs_without_frames_are_refused(dit):
    with pytest.raises(ValueError, match=r"192.*\[1, 30, 191\]"):
        encode_song(dit.condition_encoder, demo_hidden(30)[..., 1:])
    with pytest.raises(ValueError, match="at least 1 frame"):
        encode_song(dit.condition_encoder, demo_hidden(30)[:, :0])


@pytest.mark.parametrize(("dtype", "name"), [(torch.float32, "float32"), (torch.float16, "float16")])
def test_weights_that_are_not_finite_name_window_step_and_dtype(checkpoint, condition, dtype, name):
    broken = load_dit(open_checkpoint(checkpoint), dtype=dtype).transformer
    broken.transformer_blocks[1].ff_out.weight.data[0, 0] = INF
    with pytest.raises(NonFiniteError, match=rf"window 1 of 2 .* step 1 of 3, computed in {name}\."):
        solve_song(broken, condition, seed=0, steps=3)


def test_a_later_window_and_step_are_named_from_one_on(dit, condition):
    calls = []

    def spoil(module, given, velocity):
        calls.append(None)
        return velocity * (NAN if len(calls) == 5 else 1.0)

    spoiled = copy.deepcopy(dit.transformer)
    spoiled.postprocess_conv.register_forward_hook(spoil)
    with pytest.raises(NonFiniteError, match=r"window 2 of 2 .* step 2 of 3"):
        solve_song(spoiled, condition, seed=0, steps=3)
    assert len(calls) == 5


@pytest.mark.parametrize("guidance", [1.0, 1.7])
def test_progress_counts_every_step_of_every_window_and_row_once(dit, condition, guidance):
    told = []
    solve_song(
        dit.transformer,
        condition,
        seed=0,
        steps=3,
        guidance=guidance,
        on_step=lambda done, total: told.append((done, total)),
    )
    assert told == [(done, 2 * 2 * 3) for done in range(1, 13)]


def test_encoding_tells_every_window(dit, hidden):
    told = []
    encode_song(dit.condition_encoder, hidden, on_window=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


class Cancelled(BaseException):
    """What a host raises from its progress call."""


def test_an_exception_from_on_step_passes_through_untouched_and_ends_the_run(dit, condition):
    cancel, told = Cancelled(), []

    def on_step(done, total):
        told.append(done)
        if done == 4:
            raise cancel

    with pytest.raises(Cancelled) as raised:
        solve_song(dit.transformer, condition, seed=0, steps=3, on_step=on_step)
    assert raised.value is cancel and raised.value.__cause__ is None
    assert told == [1, 2, 3, 4]


def test_a_run_after_a_cancelled_one_is_not_touched_by_it(dit, condition):
    expected, _ = solve_song(dit.transformer, condition, seed=0, steps=2)

    def on_step(done, total):
        raise Cancelled

    with pytest.raises(Cancelled):
        solve_song(dit.transformer, condition, seed=0, steps=2, on_step=on_step)
    assert torch.equal(solve_song(dit.transformer, condition, seed=0, steps=2)[0], expected)


@pytest.mark.parametrize("steps", [0, -1])
def test_a_song_without_steps_is_refused(dit, condition, steps):
    with pytest.raises(ValueError, match=str(steps)):
        solve_song(dit.transformer, condition, seed=0, steps=steps)
