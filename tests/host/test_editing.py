"""Working on a song window by window through `/prompt`: ranges, rewinding, joining, repainting, takes, the report."""

import pytest
import torch
from comfy import PromptError
from graphs import node, song
from safetensors.torch import load_file

from mm3.demo import write_demo_hidden

FRAMES = 450  # four windows, the last shorter
CUT = 345 * 2


@pytest.fixture(scope="module", autouse=True)
def frames(comfy):
    write_demo_hidden(comfy.base / "input/four.safetensors", FRAMES)


def encoded(start=0.0, end=0.0):
    return node("MM3ConditionEncoder", model=["load", 0], conditioning=["frames", 0], start=start, end=end)


def sampled(condition="encode", **given):
    settings = {"steps": 3, "cfg": 1.0, "seed": 11, "model": ["load", 0], "condition": [condition, 0], **given}
    return node("MM3DiTEulerSampler", **settings)


def four_windows(**changes):
    """The whole song, with the nodes in `changes` added, saved as `latent` from the one named there or `sample`."""
    graph = {key: value for key, value in song().items() if key in ("load", "frames", "latent")}
    graph["frames"]["inputs"]["file"] = "four.safetensors [input]"
    graph |= {"encode": encoded(), "sample": sampled()}
    result = changes.pop("result", "sample")
    graph |= changes
    graph["latent"]["inputs"]["samples"] = [result, 0]
    return graph


def latent_of(comfy, run):
    (file,) = run.outputs["latent"]["latents"]
    return load_file(comfy.base / "output" / file["subfolder"] / file["filename"])["latent_tensor"]


def texts(run, name):
    return [e["data"]["text"] for e in run.events if e["type"] == "text" and e["data"]["node"] == name]


@pytest.fixture(scope="module")
def whole(comfy):
    return latent_of(comfy, comfy.run(four_windows()))


@pytest.fixture
def on_disk(comfy, whole):
    """The song's first three windows, saved and loaded by the core's nodes."""
    run = comfy.run(four_windows(join=node("MM3JoinLatents", latent=["sample", 0], until=16.0), result="join"))
    (file,) = run.outputs["latent"]["latents"]
    source = comfy.base / "output" / file["subfolder"] / file["filename"]
    (comfy.base / "input/kept.latent").write_bytes(source.read_bytes())
    return node("LoadLatent", latent="kept.latent")


def test_a_range_says_what_it_took_in_frames_and_seconds(comfy):
    run = comfy.run(four_windows(encode=encoded(start=8.0), seen=node("PreviewAny", source=["sample", 0])))
    expected = "windows 3 to 4 of 4: frames 200 to 450, heard from 8.01 to 18.01 s"
    assert texts(run, "encode")[-1] == expected
    assert texts(run, "sample") == ["window 3 of 4", "window 4 of 4"]


@pytest.mark.parametrize("start", [4.0, 8.0, 12.0])
def test_a_run_pinned_to_the_song_and_joined_with_it_is_the_song(comfy, whole, start):
    graph = four_windows(
        part=encoded(start=start),
        more=sampled("part", previous_latent=["sample", 0]),
        join=node("MM3JoinLatents", latent=["sample", 0], next_latent=["more", 0]),
        result="join",
    )
    assert torch.equal(latent_of(comfy, comfy.run(graph)), whole)


def test_runs_one_after_another_are_the_song(comfy, whole):
    """Each is continued from the one before, or from what was joined so far."""
    graph = four_windows(
        one=encoded(end=8.0),
        two=encoded(start=4.0, end=16.0),
        three=encoded(start=12.0),
        sample=sampled("one"),
        more=sampled("two", previous_latent=["sample", 0]),
        join=node("MM3JoinLatents", latent=["sample", 0], next_latent=["more", 0]),
        rest=sampled("three", previous_latent=["join", 0]),
        rest_of_run=sampled("three", previous_latent=["more", 0]),
        late=node("MM3JoinLatents", latent=["more", 0], next_latent=["rest_of_run", 0]),
        all=node("MM3JoinLatents", latent=["join", 0], next_latent=["rest", 0]),
        same=node("MM3JoinLatents", latent=["sample", 0], next_latent=["late", 0]),
        second=node("SaveLatent", samples=["same", 0], filename_prefix="latents/second"),
        result="all",
    )
    run = comfy.run(graph)
    assert torch.equal(latent_of(comfy, run), whole)
    run.outputs["latent"] = run.outputs["second"]
    assert torch.equal(latent_of(comfy, run), whole)


def test_a_latent_from_disk_goes_on_bit_for_bit(comfy, whole, on_disk):
    graph = four_windows(
        kept=on_disk,
        part=encoded(start=12.0),
        more=sampled("part", previous_latent=["kept", 0]),
        join=node("MM3JoinLatents", latent=["kept", 0], next_latent=["more", 0]),
        result="join",
    )
    run = comfy.run(graph)
    assert torch.equal(latent_of(comfy, run), whole)
    assert texts(run, "more")[-1] == (
        "takes over 12.02 to 14.01 s, new from 14.01 s; its frames begin 3.99 s before the end of previous_latent"
    )
    assert texts(run, "join")[-1].startswith("keeps 0.00 to 13.01 s, then the next latent to 18.01 s; both hold 12.02")


def test_rewinding_with_another_seed_keeps_what_was_before(comfy, whole):
    graph = four_windows(
        part=encoded(start=8.0),
        rewind=node("MM3JoinLatents", latent=["sample", 0], until=12.0),
        more=sampled("part", previous_latent=["rewind", 0], seed=12, cfg=2.0),
        join=node("MM3JoinLatents", latent=["rewind", 0], next_latent=["more", 0]),
        result="join",
    )
    run = comfy.run(graph)
    latent = latent_of(comfy, run)
    assert latent.shape == whole.shape
    assert torch.equal(latent[..., : CUT + 172], whole[..., : CUT + 172])
    assert (latent != whole)[..., CUT + 172 :].float().mean() > 0.99
    assert texts(run, "rewind")[-1] == "keeps 0.00 to 12.00 s of 18.01 s"


def test_new_frames_continue_the_end_of_a_joined_song_as_they_continue_the_song(comfy, whole):
    """The carry of what was joined is that of its last run."""
    joined = {
        "part": encoded(start=8.0),
        "more": sampled("part", previous_latent=["sample", 0]),
        "join": node("MM3JoinLatents", latent=["sample", 0], next_latent=["more", 0]),
    }
    latents = []
    for previous in ("sample", "join"):
        graph = four_windows(**joined, on=sampled(seed=5, previous_latent=[previous, 0]), result="on")
        run = comfy.run(graph)
        latents.append(latent_of(comfy, run))
        assert "stand in" not in texts(run, "on")[-1]
    assert torch.equal(*latents)
    assert torch.equal(latents[0][..., :172], whole[..., -344:-172])


def test_repaint_says_what_is_new_and_keeps_the_rest_bit_for_bit(comfy, whole):
    settings = {"steps": 3, "cfg": 1.0, "seed": 99, "model": ["load", 0], "condition": ["encode", 0]}
    graph = four_windows(
        paint=node("MM3Repaint", latent=["sample", 0], start=7.0, end=10.0, **settings), result="paint"
    )
    run = comfy.run(graph)
    latent = latent_of(comfy, run)
    fresh = slice(345 + 172, 345 + 517)
    assert torch.equal(latent[..., : fresh.start], whole[..., : fresh.start])
    assert torch.equal(latent[..., fresh.stop :], whole[..., fresh.stop :])
    assert (latent != whole)[..., fresh].float().mean() > 0.99
    assert texts(run, "paint")[0] == "window 2 of 4"
    assert texts(run, "paint")[-1] == "new: 6.00 to 10.01 s (window 2); the rest is unchanged"


def test_a_list_of_seeds_renders_each_as_its_own_run(comfy, whole):
    graph = four_windows(sample=sampled(seeds="12, 11"))
    run = comfy.run(graph)
    batch = latent_of(comfy, run)
    other = latent_of(comfy, comfy.run(four_windows(sample=sampled(seed=12))))
    assert torch.equal(batch, torch.cat((other, whole)))
    assert texts(run, "sample")[0] == "song 1 of 2, window 1 of 4"
    graph |= {
        "part": encoded(start=8.0),
        "second": node("LatentFromBatch", samples=["sample", 0], batch_index=1, length=1),
        "takes": sampled("part", previous_latent=["second", 0], seeds="11 13"),
        "join": node("MM3JoinLatents", latent=["second", 0], next_latent=["takes", 0]),
    }
    graph["latent"]["inputs"]["samples"] = ["join", 0]
    takes = latent_of(comfy, comfy.run(graph))
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
    assert texts(run, "report") == [text] == run.outputs["report"]["text"]
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
