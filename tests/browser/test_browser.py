"""The pack as a user meets it: example workflows from the template browser, the Run button, the player, the help."""

import json
import shutil
from pathlib import Path

import pytest
from comfy_server import HOW_TO_ENABLE, comfy_path

from mm3.timing import latent_seconds
from mm3.windows import joined_length

if comfy_path() is None:
    pytest.skip(HOW_TO_ENABLE, allow_module_level=True)
if not (shutil.which("chromium") or shutil.which("chromium-browser")):
    pytest.skip(
        "no chromium here: install it, so that chromium or chromium-browser is on PATH", allow_module_level=True
    )
pytest.importorskip("playwright", reason="no playwright here: pip install playwright")

PACK = Path(__file__).parents[2]
SAVED, SONG = "MM3 saved conditioning rendered again", "MM3 text to song"
REROLL, REPAINT = "MM3 song re-rolled from a point", "MM3 range repainted"
PROMPTS = {SONG: "text_to_song", SAVED: "saved_conditioning", REROLL: "reroll_from", REPAINT: "repaint_range"}
TEXT_ENCODER = "minimax_music3_text_encoder_pruned_int8_convrot.safetensors"


def open_template(page, title):
    """Click it in the template browser, and wait until its graph is there."""
    page.evaluate("app.extensionManager.command.execute('Comfy.BrowseTemplates')")
    page.get_by_role("dialog").get_by_text(title).click()
    page.wait_for_function("() => app.graph.nodes.some(node => node.type === 'MM3DACDecode')", timeout=30_000)


def set_widget(page, node_type, name, value, which=0):
    page.evaluate(
        """([type, name, value, which]) => {
            const node = app.graph.nodes.filter(node => node.type === type)[which]
            node.widgets.find(widget => widget.name === name).value = value
        }""",
        [node_type, name, value, which],
    )


def run_to_player(page):
    """Press Run; the player with the audio in it."""
    page.get_by_role("button", name="Run", exact=True).first.click()
    page.wait_for_function("() => document.querySelector('audio')?.readyState >= 2", timeout=120_000)
    return page.locator("audio").first


def graph_only(prompt):
    return {key: (node["class_type"], node["inputs"]) for key, node in prompt.items()}


@pytest.mark.parametrize(("title", "prompt"), PROMPTS.items())
def test_example_opens_whole_and_is_the_prompt_of_the_same_graph(page, title, prompt):
    open_template(page, title)
    missing = page.evaluate("app.graph.nodes.map(n => n.type).filter(t => !LiteGraph.registered_node_types[t])")
    assert missing == []
    exported = page.evaluate("app.graphToPrompt()")["output"]
    stored = json.loads((PACK / "prompts" / f"{prompt}.json").read_text(encoding="utf-8"))
    assert graph_only(exported) == graph_only(stored)


def test_the_text_encoder_that_is_not_there_is_offered_for_download(page):
    open_template(page, SONG)
    page.get_by_role("button", name="View details").first.click()
    panel = page.get_by_test_id("error-group-missing-model")
    panel.get_by_role("button", name="Download").first.wait_for(timeout=20_000)
    text = panel.inner_text()
    assert TEXT_ENCODER in text and "text_encoders" in text
    assert "minimax_music3_dit" not in text and "minimax_music3_dav" not in text


def test_saved_conditioning_runs_to_a_player_that_plays_the_song(page, frames):
    open_template(page, SAVED)
    set_widget(page, "MM3DiTEulerSampler", "steps", 4)
    audio = run_to_player(page)
    assert audio.is_visible()
    seconds = latent_seconds(joined_length(frames))
    assert audio.evaluate("audio => audio.duration") == pytest.approx(seconds, abs=0.01)
    audio.evaluate("audio => audio.play()")
    page.wait_for_function("() => document.querySelector('audio').currentTime > 0.1", timeout=20_000)


def test_a_song_is_re_rolled_and_says_what_is_new(page, frames):
    open_template(page, REROLL)
    for which in (0, 1):
        set_widget(page, "MM3DiTEulerSampler", "steps", 2, which)
    set_widget(page, "MM3ConditionEncoder", "start", 4, 1)
    audio = run_to_player(page)
    assert audio.evaluate("audio => audio.duration") == pytest.approx(latent_seconds(joined_length(frames)), abs=0.01)
    page.get_by_text("takes over 4.01 to 6.00 s, new from 6.00 s").wait_for(timeout=10_000)
    page.get_by_text("keeps 0.00 to 5.00 s, then the next latent").wait_for(timeout=10_000)


def test_a_range_is_repainted_and_reported_on(page, frames):
    open_template(page, REPAINT)
    set_widget(page, "MM3DiTEulerSampler", "steps", 2)
    for name, value in {"start": 1, "end": 4, "steps": 2}.items():
        set_widget(page, "MM3Repaint", name, value)
    audio = run_to_player(page)
    assert audio.evaluate("audio => audio.duration") == pytest.approx(latent_seconds(joined_length(frames)), abs=0.01)
    page.get_by_text("new: 0.00 to 6.00 s (window 1)").wait_for(timeout=10_000)
    page.get_by_text("1, 0.00 to 5.00 s: ").wait_for(timeout=10_000)


def test_every_node_has_a_help_page_that_names_its_sockets(comfy):
    nodes = {key: info for key, info in json.loads(comfy.get("/object_info")).items() if info["category"] == "MM3"}
    assert len(nodes) == 11
    for key, info in nodes.items():
        text = comfy.get(f"/extensions/mm3/docs/{key}.md").decode("ascii")
        assert text.startswith(f"# {info['display_name']}\n")
        inputs = [*info["input"].get("required", {}), *info["input"].get("optional", {})]
        for name in [*inputs, *info["output_name"]]:
            assert f"| `{name}`" in text, f"{key}.md does not name {name}"
