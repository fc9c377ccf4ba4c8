"""A song repainted, in several takes, reported on, and what is refused, through `/prompt` of a real ComfyUI."""

import pytest
import torch
from comfy_server import PromptError
from graphs import encoded, four_windows, node, sampled

CUT = 345 * 2


def test_repaint_says_what_is_new_and_keeps_the_rest_bit_for_bit(comfy, whole):
    settings = {"steps": 3, "cfg": 1.0, "seed": 99, "model": ["load", 0], "condition": ["encode", 0]}
    graph = four_windows(
        paint=node("MM3Repaint", latent=["sample", 0], start=7.0, end=10.0, **settings), result="paint"
    )
    run = comfy.run(graph)
    latent = comfy.latent_of(run)
    fresh = slice(345 + 172, 345 + 517)
    assert torch.equal(latent[..., : fresh.start], whole[..., : fresh.start])
    assert torch.equal(latent[..., fresh.stop :], whole[..., fresh.stop :])
    assert (latent != whole)[..., fresh].float().mean() > 0.99
    assert run.texts("paint")[0] == "window 2 of 4"
    assert run.texts("paint")[-1] == "new: 6.00 to 10.01 s (window 2); the rest is unchanged"


def test_a_list_of_seeds_renders_each_as_its_own_run(comfy, whole):
    graph = four_windows(sample=sampled(seeds="12, 11"))
    run = comfy.run(graph)
    batch = comfy.latent_of(run)
    other = comfy.latent_of(comfy.run(four_windows(sample=sampled(seed=12))))
    assert torch.equal(batch, torch.cat((other, whole)))
    assert run.texts("sample")[0] == "song 1 of 2, window 1 of 4"
    graph |= {
        "part": encoded(start=8.0),
        "second": node("LatentFromBatch", samples=["sample", 0], batch_index=1, length=1),
        "takes": sampled("part", previous_latent=["second", 0], seeds="11 13"),
        "join": node("MM3JoinLatents", latent=["second", 0], next_latent=["takes", 0]),
    }
    graph["latent"]["inputs"]["samples"] = ["join", 0]
    takes = comfy.latent_of(comfy.run(graph))
    assert torch.equal(takes[:1], whole) and takes.shape == (2, *whole.shape[1:])
    assert torch.equal(takes[1:, :, : CUT + 172], whole[..., : CUT + 172])


def test_report_names_every_window_and_its_loudness(comfy):
    graph = four_windows(
        decode=node("MM3DACDecode", vocoder=["load", 1], latent=["sample", 0], tile=256),
        report=node("MM3WindowReport", latent=["sample", 0], audio=["decode", 0], conditioning=["frames", 0]),
        text=node("PreviewAny", source=["report", 0]),
    )
    run = comfy.run(graph)
    (text,) = run.outputs["text"]["text"]
    assert run.texts("report") == [text] == run.outputs["report"]["text"]
    lines = text.splitlines()
    assert lines[:2] == ["no silence of half a second", "the conditioning has no quiet stretch"]
    assert [line.split(" to ")[0] for line in lines[3:]] == ["1, 0.00", "2, 5.00", "3, 9.01", "4, 13.01"]


def test_positions_are_those_of_the_windows(comfy):
    graph = {
        "at": node("MM3SongPosition", seconds=360.0),
        **{f"show{i}": node("PreviewAny", source=["at", i]) for i in range(4)},
    }
    outputs = comfy.run(graph).outputs
    assert [outputs[f"show{i}"]["text"][0] for i in range(3)] == ["8987", "31008", "90"]
    assert float(outputs["show3"]["text"][0]) == pytest.approx(89 * 345 * 512 / 44100)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"encode": encoded(start=30.0)}, ["start 30 s", "a song of 18.01 s"]),
        ({"sample": sampled(seeds="1, two")}, ["seeds holds 'two'", "such as 1, 2, 3"]),
        (
            {
                "one": encoded(end=8.0),
                "part": encoded(start=8.0),
                "first": sampled("one"),
                "more": sampled("part", previous_latent=["first", 0]),
                "result": "more",
            },
            ["previous_latent is 0.00 to 8.00 s of the song", "begins at 8.01 s", "MM3 Join Latents"],
        ),
        (
            {
                "other": sampled(seed=12),
                "join": node("MM3JoinLatents", latent=["sample", 0], next_latent=["other", 0]),
                "result": "join",
            },
            ["do not fit", "nowhere in the first", "previous_latent"],
        ),
        (
            {
                "part": encoded(start=8.0),
                "paint": node(
                    "MM3Repaint",
                    **sampled("part")["inputs"],
                    latent=["sample", 0],
                    start=1.0,
                    end=2.0,
                ),
                "result": "paint",
            },
            ["part of the song", "start and end to 0"],
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_words(comfy, changes, words):
    with pytest.raises(PromptError) as raised:
        comfy.run(four_windows(**changes))
    for word in words:
        assert word in str(raised.value)
