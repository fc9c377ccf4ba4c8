"""The same weights and noise through the published classes: diffusers' own window loop, and the codec's decoder."""

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.guiders import ClassifierFreeGuidance
from diffusers.models import (
    MiniMaxMusic3ConditionEncoder,
    MiniMaxMusic3Vocoder,
)
from diffusers.modular_pipelines.minimax_music3.before_denoise import MiniMaxMusic3PrepareChunksStep
from diffusers.modular_pipelines.minimax_music3.decoders import MiniMaxMusic3VocoderDecodeStep
from diffusers.modular_pipelines.minimax_music3.denoise import (
    MiniMaxMusic3ChunkDenoiseStep,
    MiniMaxMusic3ChunkPrepareLatentsStep,
)
from diffusers.modular_pipelines.minimax_music3.modular_pipeline import MiniMaxMusic3ModularPipeline
from diffusers.modular_pipelines.modular_pipeline import PipelineState, SequentialPipelineBlocks
from oracles import reference_transformer

from mm3 import decode, encode_song, solve_song
from mm3.demo import CONDITION_ENCODER, TRANSFORMER, VOCODER, demo_hidden, official_states
from mm3.noise import window_seed

SEED = 7
STEPS = 8


class SeededPrepareLatents(MiniMaxMusic3ChunkPrepareLatentsStep):
    """The reference's noise draw, from a generator of the window's own instead of one for the song."""

    def __call__(self, components, block_state, k):
        block_state.generator = torch.Generator().manual_seed(window_seed(SEED, k))
        return super().__call__(components, block_state, k)


class SeededDenoise(MiniMaxMusic3ChunkDenoiseStep):
    block_classes = [
        SeededPrepareLatents if block is MiniMaxMusic3ChunkPrepareLatentsStep else block
        for block in MiniMaxMusic3ChunkDenoiseStep.block_classes
    ]


BLOCKS = {
    "prepare": MiniMaxMusic3PrepareChunksStep,
    "denoise": SeededDenoise,
    "decode": MiniMaxMusic3VocoderDecodeStep,
}


@pytest.fixture(scope="module")
def reference():
    """diffusers' pipeline object around its three classes, holding the tiny model's weights."""
    states = official_states()
    encoder = MiniMaxMusic3ConditionEncoder(
        condition_hidden_dim=CONDITION_ENCODER.hidden_width, out_dim=CONDITION_ENCODER.condition_channels
    )
    transformer = reference_transformer(TRANSFORMER)
    vocoder = MiniMaxMusic3Vocoder(decoder_input_dim=VOCODER.input_width, decoder_hidden_dim=VOCODER.width)
    components = {"condition_encoder": encoder, "transformer": transformer, "vocoder": vocoder}
    for name, module in components.items():
        module.load_state_dict(states[name], strict=True)
        module.eval()
    pipeline = MiniMaxMusic3ModularPipeline(blocks=SequentialPipelineBlocks.from_blocks_dict(BLOCKS))
    pipeline.update_components(
        **components,
        scheduler=FlowMatchEulerDiscreteScheduler(num_train_timesteps=1, shift=1.0, invert_sigmas=True),
        guider=ClassifierFreeGuidance(guidance_scale=1.7),
    )
    return pipeline


def reference_song(pipeline, hidden):
    state = PipelineState()
    for name, value in {"frame_hiddens": hidden, "num_inference_steps": STEPS, "output_type": "pt"}.items():
        state.set(name, value)
    for block in BLOCKS.values():
        _, state = block()(pipeline, state)
    return state.get("latent_chunks"), state.get("audios")


def joined(chunks):
    last = len(chunks) - 1
    return torch.cat(
        [x[..., (0 if k == 0 else 86) : x.shape[-1] - (0 if k == last else 258)] for k, x in enumerate(chunks)], dim=-1
    )


@pytest.mark.parametrize("frames", [90, 201, 400])
def test_whole_song_equals_the_reference(frames, reference, dit, vocoder):
    hidden = demo_hidden(frames).float()
    chunks, audio = reference_song(reference, hidden)
    latent, _ = solve_song(
        dit.transformer, encode_song(dit.condition_encoder, hidden), seed=SEED, steps=STEPS, guidance=1.7
    )
    expected = joined(chunks)
    assert latent.shape == expected.shape
    assert (latent - expected).abs().max() <= 1e-5
    assert (decode(vocoder, latent) - audio).abs().max() <= 1e-5


def test_decoder_equals_the_codec_it_descends_from(vocoder):
    from dac.model.dac import Decoder

    state = official_states()["vocoder"]
    codec = Decoder(VOCODER.input_width, VOCODER.width, list(VOCODER.strides)).eval()
    codec.load_state_dict(codec_names(state), strict=True)
    latent = torch.randn(2, VOCODER.latent_channels, 40, generator=torch.Generator().manual_seed(1))
    mono = torch.nn.functional.conv1d(latent.reshape(4, -1, 40), state["dec_in_proj.weight"], state["dec_in_proj.bias"])
    expected = codec(mono).reshape(2, 2, -1)
    assert (vocoder(latent) - expected).abs().max() <= 1e-5


def codec_names(state):
    """Official vocoder names to those of the codec's own modules."""
    parts = {"snake1": "0", "conv_t1": "1", "res_unit1": "2", "res_unit2": "3", "res_unit3": "4"}
    inner = {"snake1": "0", "conv1": "1", "snake2": "2", "conv2": "3"}
    renamed = {}
    for name, value in state.items():
        head, *rest = name.split(".")
        if head == "blocks":
            index, part, *rest = rest
            rest = ["block", inner[rest[0]], rest[1]] if part.startswith("res_unit") else rest
            renamed[".".join(["model", str(int(index) + 1), "block", parts[part], *rest])] = value
        elif head != "dec_in_proj":
            place = {"conv_in": 0, "snake_out": len(VOCODER.strides) + 1, "conv_out": len(VOCODER.strides) + 2}[head]
            renamed[".".join(["model", str(place), *rest])] = value
    return renamed
