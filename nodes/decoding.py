"""MM3 DAC Decode."""

import torch
from comfy_api.latest import io

from ..mm3 import decode
from ..mm3.decode import DEFAULT_TILE, decode_bytes
from ..mm3.timing import SAMPLE_RATE
from . import host, types
from .latents import latent_samples


class DACDecode(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MM3DACDecode",
            display_name="MM3 DAC Decode",
            category="MM3",
            description="Decodes a latent to 44.1 kHz stereo audio in tiles that join exactly. Loudness is left as it "
            "is; samples are clamped to [-1, 1].",
            search_aliases=["minimax music 3 vae decode audio", "vocoder"],
            inputs=[
                types.Vocoder.Input("vocoder", tooltip="From MM3 Load Checkpoint."),
                io.Latent.Input("latent", tooltip="[songs, 128, steps], from MM3 DiT Euler Sampler or KSampler."),
                io.Int.Input(
                    "tile",
                    default=DEFAULT_TILE,
                    min=16,
                    max=32768,
                    advanced=True,
                    tooltip="Latent steps decoded at once (86.13 per second). Smaller takes less memory; the audio is "
                    "the same.",
                ),
            ],
            outputs=[io.Audio.Output(tooltip="44.1 kHz stereo, float32, on the CPU.")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(cls, vocoder: host.Managed, latent: types.Latent, tile: int) -> io.NodeOutput:
        samples = latent_samples(latent, vocoder.module.config.latent_channels)
        if not torch.isfinite(samples).all():
            raise ValueError("the latent holds values that are not finite. Sample it again with weight dtype fp32.")
        module = vocoder.load(decode_bytes(vocoder.module, tile))
        report = host.progress(cls.hidden.unique_id, lambda done, total: f"tile {done} of {total}")
        audio = decode(module, samples, tile=tile, device=vocoder.device, on_tile=report)
        return io.NodeOutput({"waveform": audio, "sample_rate": SAMPLE_RATE})
