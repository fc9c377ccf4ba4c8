"""MM3 Window Report."""

from comfy_api.latest import io
from torch import Tensor

from ..mm3.report import window_report
from ..mm3.timing import LATENT_HOP
from . import host, types
from .conditioning import frames_of
from .latents import CHANNELS, first_window_of, latent_samples


class WindowReport(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MM3WindowReport",
            display_name="MM3 Window Report",
            category="MM3",
            description="Says for each window of a song where it is heard and how loud, where the song is silent, and "
            "whether the silence came with the conditioning.",
            search_aliases=["silent gap", "loudness", "song analysis"],
            inputs=[
                io.Latent.Input("latent", tooltip="The song, from the sampler, a file, or joined."),
                io.Audio.Input(
                    "audio", optional=True, tooltip="This latent decoded, for RMS, peak and silence in dBFS."
                ),
                io.Conditioning.Input(
                    "conditioning",
                    optional=True,
                    tooltip="The frames of the whole song (25 per second), to look for quiet stretches in them.",
                ),
            ],
            outputs=[io.String.Output(display_name="report", tooltip="The text, a line for each window.")],
            hidden=[io.Hidden.unique_id],
            is_output_node=True,
        )

    @classmethod
    def execute(
        cls,
        latent: types.Latent,
        audio: dict[str, object] | None = None,
        conditioning: types.Conditioning | None = None,
    ) -> io.NodeOutput:
        samples = latent_samples(latent, CHANNELS)
        songs, _, length = samples.shape
        waveform = None if audio is None else _waveform(audio, songs, length)
        hidden = None if conditioning is None else frames_of(conditioning)[0]
        reports = [
            window_report(
                length,
                None if waveform is None else waveform[song],
                None if hidden is None else hidden[song % hidden.shape[0]],
                first_window=first_window_of(latent),
            )
            for song in range(songs)
        ]
        titled = [f"song {song} of {songs}\n{text}" for song, text in enumerate(reports, start=1)]
        text = "\n\n".join(titled if songs > 1 else reports)
        host.show(cls.hidden.unique_id, text)
        return io.NodeOutput(text, ui={"text": [text]})


def _waveform(audio: dict[str, object], songs: int, length: int) -> Tensor:
    waveform = audio.get("waveform")
    if not isinstance(waveform, Tensor) or waveform.shape[0] != songs or waveform.shape[-1] != LATENT_HOP * length:
        shape = list(waveform.shape) if isinstance(waveform, Tensor) else type(waveform).__name__
        raise ValueError(
            f"the audio is {shape}, expected [{songs}, channels, {LATENT_HOP * length}]. Connect the audio that was "
            "decoded from this latent, uncut and at 44.1 kHz."
        )
    return waveform
