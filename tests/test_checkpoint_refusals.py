"""Files of another kind, broken ones and quantised ones: one sentence says what each is and what to use instead."""

import json

import pytest
import torch
from layout_writers import SHARDS, WEIGHTS, comfy_dit, folded, write_shards, write_state
from other_writers import REVISION, write_cache, write_pickle

from mm3.checkpoint import CheckpointError, open_checkpoint, peek
from mm3.demo import official_states
from mm3.hidden import save_hidden


@pytest.fixture(scope="module")
def states():
    return official_states()


def refusal(path):
    """The message of the refusal, which is one line and names the file; the combo does not list what is refused."""
    with pytest.raises(CheckpointError) as refused:
        open_checkpoint(path)
    assert peek(path) == frozenset()
    message = str(refused.value)
    assert "\n" not in message and message.isascii() and path.name in message and message.endswith(".")
    return message


KINDS = {
    "text encoder": (["model.audio_decoder.projection.weight", "model.layers.0.self_attn.q_proj.weight"], "text_enc"),
    "depth decoder": (["audio_embeddings.weight", "layers.0.attn.to_q.weight"], "depth decoder"),
    "depth decoder of HOT-Step": (["depth.blk.0.attn_q.weight"], "depth decoder"),
    "language model": (["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight"], "a language model"),
    "H3": (["video_patch_proj.weight", "audio_patch_proj.weight", "blocks.0.attn.qkv_proj.weight"], "MiniMax H3"),
    "H3 with a prefix": ([f"model.diffusion_model.{n}_patch_proj.weight" for n in ("video", "audio")], "MiniMax H3"),
    "H3 audio": (["pre_block.attn.zero_k_bias", "dec_in_proj.weight", "mean_proj.weight"], "VAE of MiniMax H3"),
    "H3 video": (["decoder.transformer_blocks.0.scale1", "encoder.down.5.block.0.conv1.weight"], "VAE of MiniMax H3"),
    "encoder": (["encoder.block.0.weight_g", "mean_proj.weight"], "encoder half"),
    "SD": (["model.diffusion_model.input_blocks.0.0.weight", "first_stage_model.encoder.conv_in.weight"], "Diffusion"),
    "UNet": (["down_blocks.0.resnets.0.conv1.weight", "conv_norm_out.weight"], "Stable Diffusion UNet"),
    "SD3": (["model.diffusion_model.joint_blocks.0.x_block.attn.qkv.weight"], "Stable Diffusion 3"),
    "Flux": (["double_blocks.0.img_attn.qkv.weight", "single_blocks.0.linear1.weight"], "a Flux model"),
    "Flux of diffusers": (
        ["single_transformer_blocks.0.attn.to_q.weight", "transformer_blocks.0.attn.to_q.weight"],
        "a Flux model",
    ),
    "Wan": (["head.modulation", "blocks.0.cross_attn.q.weight"], "a Wan video model"),
    "LTX": (["adaln_single.emb.timestep_embedder.linear_1.bias"], "an LTX video model"),
    "ACE-Step": (["genre_embedder.weight", "transformer_blocks.0.attn.to_q.weight"], "an ACE-Step music model"),
    "Stable Audio": (["transformer.rotary_pos_emb.inv_freq", "to_global_embed.0.weight"], "a Stable Audio model"),
    "CLIP": (["text_model.encoder.layers.0.self_attn.k.weight"], "text encoder of another model"),
    "T5": (["encoder.block.0.layer.0.SelfAttention.q.weight"], "text encoder of another model"),
    "VAE": (["encoder.down.0.block.0.conv1.weight", "decoder.up.0.block.0.conv1.weight"], "VAE of an image"),
    "LoRA": (["transformer.transformer_blocks.0.attn.to_q.lora_A.weight"], "a LoRA"),
    "latent": (["samples"], "a saved latent"),
    "other": (["surprise"], "it holds surprise. Looked for the layouts: official transformer"),
    "nothing": ([], "it holds no tensor"),
}


@pytest.mark.parametrize("write", [write_state, write_pickle])
@pytest.mark.parametrize(("names", "told"), KINDS.values(), ids=KINDS)
def test_a_model_of_another_kind_is_told(names, told, write, tmp_path):
    message = refusal(write(tmp_path / "model.safetensors", {name: torch.zeros(2) for name in names}))
    assert "not a MiniMax Music 3 acoustic checkpoint" in message and told in message


def test_saved_frames_are_told(tmp_path):
    save_hidden(tmp_path / "song.safetensors", torch.zeros(1, 2, 192))
    assert "MM3 Load Conditioning" in refusal(tmp_path / "song.safetensors")


CONTENTS = {
    "empty": (b"", "empty (0 bytes)"),
    "web page": (b"\n<!DOCTYPE html><html><head><title>Login</title>", "a web page"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
    "JSON": (b'{"metadata": {"total_size": 0}, "weight_map": {}}', "a JSON text"),
    "text": (b"Entry not found", "text file that begins with 'Entry not found'"),
    "old pickle": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "a pickle of an old kind"),
    "GGUF": (b"GGUF\x03\0\0\0\0\0\0\0", "not a complete GGUF file"),
    "gzip": (b"\x1f\x8b\x08\0\0\0\0\0\0\x03", "a compressed archive"),
    "zeros": (bytes(4096), "not a complete safetensors file"),
    "noise": (bytes(range(129, 256)) * 9, "not a complete safetensors file: it is cut off, or no safetensors file"),
    "zip": (b"PK\x03\x04" + bytes(60), "not a complete torch file"),
}


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
@pytest.mark.parametrize(("content", "told"), CONTENTS.values(), ids=CONTENTS)
def test_what_is_no_model_is_told_by_its_content(content, told, suffix, tmp_path):
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(content)
    assert told in refusal(path)


@pytest.mark.parametrize("kept", [4, 100, 2000, -1])
@pytest.mark.parametrize(("write", "kind"), [(write_state, "safetensors"), (write_pickle, "torch")])
def test_a_truncated_file_is_told(write, kind, kept, tmp_path, states):
    path = write(tmp_path / WEIGHTS, states["vocoder"])
    path.write_bytes(path.read_bytes()[:kept])
    assert f"not a complete {kind} file" in refusal(path)


def test_missing_and_trailing_bytes_are_counted(tmp_path, states):
    path = write_state(tmp_path / WEIGHTS, states["vocoder"])
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    assert f"cut off after {len(whole) - 40:,} of {len(whole):,} bytes" in refusal(path)
    path.write_bytes(whole + bytes(7))
    assert f"7 bytes follow its {len(whole):,}" in refusal(path)


@pytest.mark.parametrize("edit", [lambda start, end: [start, end + 4], lambda start, end: [start - 4, end]])
def test_wrong_offsets_are_told(edit, tmp_path, states):
    path = write_state(tmp_path / WEIGHTS, states["vocoder"])
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["conv_in.bias"]["data_offsets"] = edit(*header["conv_in.bias"]["data_offsets"])
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    assert "not a complete safetensors file" in refusal(path)


@pytest.mark.parametrize("shard", [0, 1])
def test_one_shard_of_two_names_the_other_and_loads_as_the_set_beside_it(shard, tmp_path, states):
    write_shards(tmp_path, states["transformer"], index=False)
    assert peek(tmp_path / SHARDS[shard]) == {"transformer"}
    (tmp_path / SHARDS[1 - shard]).unlink()
    with pytest.raises(CheckpointError, match=SHARDS[1 - shard]):
        open_checkpoint(tmp_path / SHARDS[shard])
    assert peek(tmp_path / SHARDS[shard]) == frozenset()


def test_a_second_shard_under_another_name_is_told(tmp_path, states):
    write_shards(tmp_path, states["transformer"], index=False)
    assert "one of several shards" in refusal((tmp_path / SHARDS[1]).rename(tmp_path / "renamed.safetensors"))


def channels_last(state):
    """Kernels as MLX stores them; transposed convolutions lead with their output channels."""
    return {
        name: value.permute((1, 2, 0) if "conv_t1" in name else (0, 2, 1)) if value.ndim == 3 else value
        for name, value in state.items()
    }


MLX = {
    "transformer": lambda states: channels_last(states["transformer"]),
    "condition_encoder": lambda states: channels_last(states["condition_encoder"]),
    "vocoder": lambda states: channels_last(folded(states["vocoder"])),
}


@pytest.mark.parametrize("component", MLX)
def test_kernels_stored_channels_last_are_told(component, tmp_path, states):
    message = refusal(write_state(tmp_path / component / WEIGHTS, MLX[component](states)).parent)
    assert "made for MLX" in message and "channels last" in message


QKV = "diffusion_transformer.transformer.layers.0.self_attn.to_qkv"
BESIDE = {
    "bare int8": ({}, torch.int8, "not known here"),
    "NVFP4": ({f"{QKV}.weight_scale": torch.ones(1), f"{QKV}.weight_scale_2": torch.ones(1)}, torch.uint8, "NVFP4"),
    "nf4": ({f"{QKV}.weight.absmax": torch.ones(1)}, torch.uint8, "bitsandbytes"),
    "GPTQ": ({f"{QKV}.qzeros": torch.ones(1, dtype=torch.int32)}, torch.int32, "GPTQ"),
}


@pytest.mark.parametrize(("beside", "dtype", "told"), BESIDE.values(), ids=BESIDE)
def test_quantised_weights_are_told(beside, dtype, told, tmp_path, states):
    state = comfy_dit(states) | beside
    state[f"{QKV}.weight"] = state[f"{QKV}.weight"].to(dtype)
    message = refusal(write_state(tmp_path / "quantised.safetensors", state))
    assert "is quantised" in message and told in message and "Take an fp32, fp16 or bf16 file" in message


def test_a_dtype_that_is_not_known_is_told(tmp_path):
    path = write_state(tmp_path / "model.safetensors", {"a": torch.zeros(4, dtype=torch.uint8)})
    content = path.read_bytes()
    path.write_bytes(
        content.replace(b'"U8"', b'"C8"').replace(b'"C8"', b'"F4"').replace(b'"shape":[4]', b'"shape":[8]')
    )
    assert "unknown dtype F4" in refusal(path)


def test_a_cache_with_a_missing_blob_names_the_file(tmp_path, states):
    cache = write_cache(tmp_path / "models--x--y", states)
    (cache / "snapshots" / REVISION / "vocoder" / WEIGHTS).resolve().unlink()
    with pytest.raises(CheckpointError, match=WEIGHTS):
        open_checkpoint(cache)


def test_a_cache_of_two_unmarked_revisions_is_refused(tmp_path, states):
    cache = write_cache(tmp_path / "models--x--y", states)
    (cache / "snapshots" / "other").mkdir()
    (cache / "refs" / "main").unlink()
    assert "2 snapshots" in refusal(cache)


def test_a_folder_without_components_tells_what_it_holds(tmp_path, states):
    write_pickle(tmp_path / "legacy" / "dav.pth", states["vocoder"])
    message = refusal(tmp_path / "legacy")
    assert "no component" in message and "dav.pth" in message and "Choose a file by its name" in message
