"""The pack as ComfyUI sees it: nodes, sockets, tooltips, model lists, loading in part."""

import shutil

import pytest
from comfy_server import partial_loading, report_of

from mm3.demo import write_demo_checkpoint

NODES = {
    "MM3LoadCheckpoint": ("MM3 Load Checkpoint", ["MM3_MODEL", "MM3_VOCODER"]),
    "MM3ConditionEncoder": ("MM3 Condition Encoder", ["MM3_CONDITION"]),
    "MM3SaveConditioning": ("MM3 Save Conditioning", []),
    "MM3LoadConditioning": ("MM3 Load Conditioning", ["CONDITIONING", "FLOAT"]),
    "MM3AlignedMelLength": ("MM3 Aligned Mel Length", ["INT", "INT", "FLOAT", "INT"]),
    "MM3DiTEulerSampler": ("MM3 DiT Euler Sampler", ["LATENT"]),
    "MM3JoinLatents": ("MM3 Join Latents", ["LATENT"]),
    "MM3Repaint": ("MM3 Repaint", ["LATENT"]),
    "MM3DACDecode": ("MM3 DAC Decode", ["AUDIO"]),
    "MM3WindowReport": ("MM3 Window Report", ["STRING"]),
    "MM3SongPosition": ("MM3 Song Position", ["INT", "INT", "INT", "FLOAT"]),
}


@pytest.mark.parametrize("node_id", NODES)
def test_node_is_there_and_explains_every_socket(comfy, node_id):
    info = comfy.object_info(node_id)
    assert (info["display_name"], info["output"]) == NODES[node_id]
    assert info["category"] == "MM3" and info["description"]
    assert all(info["output_tooltips"]) and len(info["output_tooltips"]) == len(info["output"])
    for group in ("required", "optional"):
        for name, (_, options) in info["input"].get(group, {}).items():
            assert options.get("tooltip"), name


def test_pack_imports_without_a_complaint(comfy):
    log = comfy.log.read_text()
    assert "IMPORT FAILED" not in log and "custom_nodes/mm3" in log


def test_only_what_holds_this_model_is_listed_and_a_new_one_appears(comfy):
    other = comfy.base / "models/diffusion_models/other.safetensors"
    shutil.copy(comfy.base / "models/diffusers/tiny/vocoder/diffusion_pytorch_model.safetensors", other)
    (comfy.base / "models/diffusion_models/empty.safetensors").touch()
    installed = (["tiny/", "tiny/transformer/"], ["tiny/", "tiny/vocoder/"])
    assert options(comfy) == installed
    write_demo_checkpoint(comfy.base / "models/diffusers/new/model")
    try:
        assert "new/model/" in options(comfy)[0]
    finally:
        shutil.rmtree(comfy.base / "models/diffusers/new")
    assert options(comfy) == installed


def options(comfy):
    inputs = comfy.object_info("MM3LoadCheckpoint")["input"]["required"]
    return inputs["checkpoint"][1]["options"], inputs["vocoder"][1]["options"]


def test_loading_in_part_gives_the_same_song(comfy_checkout, base):
    report = partial_loading(comfy_checkout, base, "tiny/")
    assert report["plain_layers"] == []
    for kind in ("partial", "novram", "lazy"):
        assert report[f"{kind}_difference"] <= 2e-5, kind


@pytest.mark.parametrize(
    ("card", "fp32", "bf16", "fp16", "fp16_chosen"),
    [
        ("cpu", "float32 float32", "float32 float32", "float32 float32", "float16 float32"),
        ("ampere", "float32 float32", "bfloat16 bfloat16", "float16 float16", "float16 float16"),
        ("turing", "float32 float32", "float16 float16", "float16 float16", "float16 float16"),
        ("gtx 1660", "float32 float32", "bfloat16 float32", "float16 float32", "float16 float32"),
        ("radeon", "float32 float32", "bfloat16 bfloat16", "float16 bfloat16", "float16 bfloat16"),
        ("rdna2", "float32 float32", "bfloat16 float32", "float16 float32", "float16 float32"),
    ],
)
def test_dtypes_are_those_the_card_is_trusted_with(dtypes, card, fp32, bf16, fp16, fp16_chosen):
    """Weights in memory, then compute: never float16 compute on AMD, or where ComfyUI does not trust it."""
    assert dtypes[card] == {"auto fp32": fp32, "auto bf16": bf16, "auto fp16": fp16, "fp16 chosen": fp16_chosen}


@pytest.fixture(scope="module")
def dtypes(comfy_checkout, base):
    return report_of("dtypes.py", comfy_checkout, base)


def test_every_kind_of_latent_is_continued_and_none_is_written_to(comfy_checkout, base):
    report = report_of("previous_latents.py", comfy_checkout, base)
    for kind in ("fresh", "bare", "double", "half", "edited"):
        entry = report[kind]
        assert entry["unwritten"] and entry["pinned"] and entry["carries"], kind
        assert (entry["dtype"], entry["steps"]) == ("torch.float32", 345 + 516), kind
        assert entry["whole"] == (kind in ("fresh", "bare", "double")), kind
    assert set(report["next_window"].values()) == {2}
    assert report["half_keeps_the_condition"] < 0.02 < report["bare_stands_in"]
    assert report["one_of_a_batch"] and report["reordered"]
