"""MM3 Aligned Mel Length, MM3 Song Position."""

from comfy_api.latest import io

from ..mm3.timing import MAX_FRAMES, aligned_length, latent_seconds, latents_at
from ..mm3.windows import HOP, frame_at, joined_length, plan
from . import types
from .conditioning import frames_of
from .inputs import seconds_input


class AlignedMelLength(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MM3AlignedMelLength",
            display_name="MM3 Aligned Mel Length",
            category="MM3",
            description="How long a song of so many frames is: in latent steps, seconds and windows.",
            search_aliases=["minimax music 3 length", "latent length"],
            inputs=[
                io.Int.Input(
                    "frames",
                    default=1500,
                    min=1,
                    max=MAX_FRAMES,
                    tooltip="Frames of the language model, 25 per second. Not used when a conditioning is connected.",
                ),
                io.Conditioning.Input("conditioning", optional=True, tooltip="Count the frames of this instead."),
            ],
            outputs=[
                io.Int.Output(
                    display_name="aligned_length",
                    tooltip="Latent steps of these frames encoded as one window: frames * 441 / 128, truncated.",
                ),
                io.Int.Output(
                    display_name="song_length",
                    tooltip="Latent steps of the whole song after its windows are joined: the length of the LATENT.",
                ),
                io.Float.Output(display_name="seconds", tooltip="Length of the audio in seconds."),
                io.Int.Output(display_name="windows", tooltip="Windows that the sampler solves."),
            ],
        )

    @classmethod
    def execute(cls, frames: int, conditioning: types.Conditioning | None = None) -> io.NodeOutput:
        if conditioning is not None:
            frames = frames_of(conditioning)[0].shape[1]
        joined = joined_length(frames)
        return io.NodeOutput(aligned_length(frames), joined, latent_seconds(joined), len(plan(frames)))


class SongPosition(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MM3SongPosition",
            display_name="MM3 Song Position",
            category="MM3",
            description="Where a second of the audio is in the frames of the language model, in the latent and in the "
            "windows. Exact for every position in six minutes.",
            search_aliases=["seconds to frames", "latent position"],
            inputs=[
                seconds_input("seconds", "Position in the audio in seconds.", default=20.0),
            ],
            outputs=[
                io.Int.Output(display_name="frame", tooltip="Frame that is heard there, 25 per second, from 0."),
                io.Int.Output(display_name="latent_step", tooltip="Nearest latent step, 86.13 per second, from 0."),
                io.Int.Output(display_name="window", tooltip="Number of the last window that begins by then, from 1."),
                io.Float.Output(display_name="window_start", tooltip="Second at which that window begins."),
            ],
        )

    @classmethod
    def execute(cls, seconds: float) -> io.NodeOutput:
        step = latents_at(seconds)
        window = step // HOP
        return io.NodeOutput(frame_at(step), step, window + 1, latent_seconds(HOP * window))
