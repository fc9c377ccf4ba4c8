"""A song continued, rewound and put together again through `/prompt` of a real ComfyUI."""

import pytest
import torch
from graphs import encoded, four_windows, node, sampled

CUT = 345 * 2


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
    assert run.texts("encode")[-1] == expected
    assert run.texts("sample") == ["window 3 of 4", "window 4 of 4"]


@pytest.mark.parametrize("start", [4.0, 8.0, 12.0])
def test_a_run_pinned_to_the_song_and_joined_with_it_is_the_song(comfy, whole, start):
    graph = four_windows(
        part=encoded(start=start),
        more=sampled("part", previous_latent=["sample", 0]),
        join=node("MM3JoinLatents", latent=["sample", 0], next_latent=["more", 0]),
        result="join",
    )
    assert torch.equal(comfy.latent_of(comfy.run(graph)), whole)


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
    assert torch.equal(comfy.latent_of(run), whole)
    assert torch.equal(comfy.latent_of(run, "second"), whole)


def test_a_latent_from_disk_goes_on_bit_for_bit(comfy, whole, on_disk):
    graph = four_windows(
        kept=on_disk,
        part=encoded(start=12.0),
        more=sampled("part", previous_latent=["kept", 0]),
        join=node("MM3JoinLatents", latent=["kept", 0], next_latent=["more", 0]),
        result="join",
    )
    run = comfy.run(graph)
    assert torch.equal(comfy.latent_of(run), whole)
    assert run.texts("more")[-1] == (
        "takes over 12.02 to 14.01 s, new from 14.01 s; its frames begin 3.99 s before the end of previous_latent"
    )
    assert run.texts("join")[-1].startswith("keeps 0.00 to 13.01 s, then the next latent to 18.01 s; both hold 12.02")


def test_rewinding_with_another_seed_keeps_what_was_before(comfy, whole):
    graph = four_windows(
        part=encoded(start=8.0),
        rewind=node("MM3JoinLatents", latent=["sample", 0], until=12.0),
        more=sampled("part", previous_latent=["rewind", 0], seed=12, cfg=2.0),
        join=node("MM3JoinLatents", latent=["rewind", 0], next_latent=["more", 0]),
        result="join",
    )
    run = comfy.run(graph)
    latent = comfy.latent_of(run)
    assert latent.shape == whole.shape
    assert torch.equal(latent[..., : CUT + 172], whole[..., : CUT + 172])
    assert (latent != whole)[..., CUT + 172 :].float().mean() > 0.99
    assert run.texts("rewind")[-1] == "keeps 0.00 to 12.00 s of 18.01 s"


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
        latents.append(comfy.latent_of(run))
        assert "stand in" not in run.texts("on")[-1]
    assert torch.equal(*latents)
    assert torch.equal(latents[0][..., :172], whole[..., -344:-172])
