"""MM3 Condition Encoder, MM3 Save Conditioning, MM3 Load Conditioning."""

import torch
from comfy_api.latest import io
from torch import Tensor

from ..mm3 import encode_song
from ..mm3.hidden import holds_hidden, load_hidden, save_hidden
from ..mm3.ranges import numbered, run_between, steps_of
from ..mm3.timing import MAX_FRAMES, frame_seconds, stated
from ..mm3.windows import plan
from . import host, types
from .inputs import seconds_input

_FROM_TEXT = "Connect MiniMax Music3 Text Encode or MM3 Load Conditioning."


def frames_of(conditioning: types.Conditioning) -> tuple[Tensor, Tensor | None]:
    """Hidden frames (B, F, C) of a CONDITIONING, and the scale of the encoded condition, (B, 1, 1) or None.

    Raises:
        ValueError: If it holds no frames, or more than the model takes.
    """
    if not conditioning:
        raise ValueError(f"the conditioning is empty. {_FROM_TEXT}")
    if len(conditioning) > 1:
        host.log.warning("MM3 uses the first of the %d entries of this conditioning.", len(conditioning))
    hidden, extra = conditioning[0]
    if hidden.ndim != 3 or not 1 <= hidden.shape[1] <= MAX_FRAMES:
        raise ValueError(
            f"the conditioning is {list(hidden.shape)}, expected [songs, frames, channels] with 1 to {MAX_FRAMES} "
            f"frames (25 per second). {_FROM_TEXT}"
        )
    scale = extra.get("conditioning_scale")
    return hidden, scale if isinstance(scale, Tensor) else None


class ConditionEncoder(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MM3ConditionEncoder",
            display_name="MM3 Condition Encoder",
            category="MM3",
            description="Encodes the language model's frames (25 per second) onto the latent grid (86.13 steps per "
            "second), window by window of 200 frames as the reference does.",
            search_aliases=["minimax music 3 condition"],
            inputs=[
                types.Model.Input("model", tooltip="From MM3 Load Checkpoint."),
                io.Conditioning.Input(
                    "conditioning",
                    tooltip="From MiniMax Music3 Text Encode or MM3 Load Conditioning: 1 to 9000 frames (360 s).",
                ),
                seconds_input(
                    "start",
                    "Second of the song from which to encode; 0 is its beginning. Snaps to the start of a "
                    "window: they begin about every 4 s.",
                    optional=True,
                ),
                seconds_input(
                    "end",
                    "Second of the song up to which to encode; 0 is its end. Snaps to the end of a window.",
                    optional=True,
                ),
            ],
            outputs=[
                types.Condition.Output(display_name="condition", tooltip="Encoded windows, for MM3 DiT Euler Sampler.")
            ],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(
        cls, model: host.Managed, conditioning: types.Conditioning, start: float = 0.0, end: float = 0.0
    ) -> io.NodeOutput:
        hidden, scale = frames_of(conditioning)
        width = model.module.condition_encoder.config.input_width
        if hidden.shape[-1] != width:
            raise ValueError(
                f"the conditioning is {hidden.shape[-1]} wide, this model expects {width}"
                f"{_guess(hidden.shape[-1])}. {_FROM_TEXT}"
            )
        run = run_between(hidden.shape[1], start, end)
        encoder = model.load().condition_encoder
        report = host.progress(cls.hidden.unique_id, lambda done, total: f"window {done} of {total}")
        condition = encode_song(encoder, hidden, scale=scale, run=run, device=model.device, on_window=report)
        host.show(cls.hidden.unique_id, _taken(hidden.shape[1], run))
        return io.NodeOutput(condition)


def _taken(frames: int, run: slice) -> str:
    """The windows, frames and seconds of a run, for people to read."""
    windows, steps = plan(frames), steps_of(frames, run)
    return (
        f"{numbered(run)} of {len(windows)}: frames {windows[run.start].start} to "
        f"{windows[run.stop - 1].end}, heard from {stated(steps.start, steps.stop)}"
    )


def _guess(width: int) -> str:
    known = {768: "Stable Diffusion 1", 1024: "Stable Diffusion 2", 2048: "SDXL", 4096: "T5 or another text encoder"}
    return f" (that looks like {known[width]})" if width in known else ""


class SaveConditioning(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MM3SaveConditioning",
            display_name="MM3 Save Conditioning",
            category="MM3",
            description="Saves the language model's frames, so that the song can be rendered again without loading "
            "the language model. About 1.6 MB per second, 590 MB for six minutes.",
            search_aliases=["save minimax music 3 conditioning"],
            inputs=[
                io.Conditioning.Input("conditioning", tooltip="From MiniMax Music3 Text Encode."),
                io.String.Input(
                    "filename_prefix",
                    default="mm3/conditioning",
                    tooltip="Name under the output folder; a slash makes a subfolder, a counter is added.",
                ),
            ],
            outputs=[],
            hidden=[io.Hidden.unique_id],
            is_output_node=True,
        )

    @classmethod
    def execute(cls, conditioning: types.Conditioning, filename_prefix: str) -> io.NodeOutput:
        hidden, _ = frames_of(conditioning)
        path = host.save_path(filename_prefix, ".safetensors")
        save_hidden(path, hidden)
        text = f"{path.name}: {hidden.shape[1]} frames, {frame_seconds(hidden.shape[1]):.2f} s"
        host.show(cls.hidden.unique_id, text)
        return io.NodeOutput(ui={"text": [text]})


class LoadConditioning(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MM3LoadConditioning",
            display_name="MM3 Load Conditioning",
            category="MM3",
            description="Loads frames saved by MM3 Save Conditioning. Takes the place of the language model.",
            search_aliases=["load minimax music 3 conditioning"],
            inputs=[
                io.Combo.Input(
                    "file",
                    options=host.saved_choices(".safetensors", holds_hidden),
                    tooltip="Saved conditioning in the input or output folder, newest first. Press R after adding one.",
                ),
            ],
            outputs=[
                io.Conditioning.Output(tooltip="As MiniMax Music3 Text Encode gives it."),
                io.Float.Output(display_name="seconds", tooltip="Length of the song in seconds (25 frames each)."),
            ],
        )

    @classmethod
    def validate_inputs(cls, file: str | None) -> bool | str:
        try:
            if file is not None:  # a linked input is not known before it runs
                host.saved_path(file)
        except (ValueError, OSError) as error:
            return str(error)
        return True

    @classmethod
    def fingerprint_inputs(cls, file: str) -> str:
        stat = host.saved_path(file).stat()
        return f"{stat.st_size} {stat.st_mtime_ns}"

    @classmethod
    def execute(cls, file: str) -> io.NodeOutput:
        hidden = load_hidden(host.saved_path(file))
        scale = torch.ones((hidden.shape[0], 1, 1), dtype=hidden.dtype)
        extra = {"pooled_output": None, "conditioning_scale": scale}
        return io.NodeOutput([[hidden, extra]], frame_seconds(hidden.shape[1]))
