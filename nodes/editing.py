"""MM3 Join Latents, MM3 Repaint."""

from comfy_api.latest import io
from torch import Tensor

from ..mm3 import Carry, SongCondition
from ..mm3.join import join
from ..mm3.ranges import cut_length, fresh_steps, numbered, repaint_between
from ..mm3.repaint import repaint, require_whole_song
from ..mm3.song import solve_bytes
from ..mm3.timing import latent_seconds, stated
from ..mm3.windows import CUT, HOP, windows_in
from . import host, types
from .inputs import seconds_input, seed_input, step_inputs
from .latents import CHANNELS, end_of, first_window_of, latent_samples, song_latent
from .sampling import describe_steps, require_same_model


class JoinLatents(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MM3JoinLatents",
            display_name="MM3 Join Latents",
            category="MM3",
            description="Puts a run of windows into the place of a song where it was continued from, by the "
            "reference's cut: no step is lost or doubled. Or only cuts a song back to an earlier point.",
            search_aliases=["concat latents", "rewind song", "continue song"],
            inputs=[
                io.Latent.Input("latent", tooltip="The song up to the run: the previous_latent of its sampler."),
                io.Latent.Input(
                    "next_latent",
                    optional=True,
                    tooltip="A run that continues it, from the end or from any window. Its place is found by the 2 s "
                    "that both hold. Without it, latent is only cut.",
                ),
                seconds_input(
                    "until",
                    "First cut latent back to this second, to go on from there. Snaps to the end of a window "
                    "(about every 4 s from 8 s on); 0 keeps all.",
                    optional=True,
                ),
            ],
            outputs=[
                io.Latent.Output(
                    display_name="latent", tooltip="[songs, 128, steps] float32, with what a next run needs."
                )
            ],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(
        cls, latent: types.Latent, next_latent: types.Latent | None = None, until: float = 0.0
    ) -> io.NodeOutput:
        samples = latent_samples(latent, CHANNELS).float().cpu()
        first, length = first_window_of(latent), samples.shape[-1]
        samples = samples[..., : cut_length(length, until, first)]
        kept = f"keeps {_span(first, 0, samples.shape[-1])} of {latent_seconds(length):.2f} s"
        if next_latent is None:
            end = end_of(latent) if samples.shape[-1] == length else None
            host.show(cls.hidden.unique_id, kept)
            return io.NodeOutput(_with_end(samples, end, first))
        following = latent_samples(next_latent, CHANNELS)
        joined, step = join(samples, following, step=HOP * (first_window_of(next_latent) - first))
        end = end_of(next_latent)
        text = (
            f"keeps {_span(first, 0, step + CUT)}, then the next latent to "
            f"{latent_seconds(HOP * first + joined.shape[-1]):.2f} s; both hold {_span(first, step, step + 2 * CUT)}"
        )
        host.show(cls.hidden.unique_id, text)
        return io.NodeOutput(_with_end(joined, end, first))


def _span(first_window: int, start: int, end: int) -> str:
    """Steps of a run in seconds of the song."""
    return stated(HOP * first_window + start, HOP * first_window + end)


def _with_end(samples: Tensor, end: tuple[Carry, int] | None, first_window: int) -> types.Latent:
    """A LATENT with the carry of what it ends with, for each of its songs."""
    if end is None:
        following = first_window + windows_in(samples.shape[-1])
        return song_latent(samples, None, first_window=first_window, next_window=following)
    songs = samples.shape[0] // end[0].latent.shape[0]
    return song_latent(samples, end[0].repeated(songs), first_window=first_window, next_window=end[1])


class Repaint(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MM3Repaint",
            display_name="MM3 Repaint",
            category="MM3",
            description="Solves a range of a finished song again, pinned at every step to the 2 s before it and the "
            "2 s after it. Everything outside stays bit for bit.",
            search_aliases=["inpaint music", "re-roll section"],
            inputs=[
                types.Model.Input("model", tooltip="From MM3 Load Checkpoint."),
                types.Condition.Input(
                    "condition", tooltip="Of the whole song: from MM3 Condition Encoder with start and end 0."
                ),
                io.Latent.Input("latent", tooltip="The whole song, from the sampler, a file, or joined."),
                seconds_input(
                    "start",
                    "Second from which the song is to be new. Widened to whole windows, about every 4 s; the "
                    "node says what it took.",
                    default=20.0,
                ),
                seconds_input(
                    "end",
                    "Second up to which the song is to be new; 0 is its end. Widened to whole windows.",
                    default=24.0,
                ),
                *step_inputs(),
                seed_input(
                    "Seed of the new noise: choose another than the song's. Song n of a batch uses seed + n.", default=1
                ),
            ],
            outputs=[io.Latent.Output(display_name="latent", tooltip="The whole song, [songs, 128, steps] float32.")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(
        cls,
        model: host.Managed,
        condition: SongCondition,
        latent: types.Latent,
        start: float,
        end: float,
        steps: int,
        cfg: float,
        seed: int,
    ) -> io.NodeOutput:
        transformer = model.module.transformer
        require_same_model(condition, transformer.config)
        samples = latent_samples(latent, transformer.config.latent_channels)
        require_whole_song(condition, samples)
        run = repaint_between(condition.frames, start, end)
        both = solve_bytes(transformer.config, transformer.compute_dtype, batched=True)
        model.load(both)
        songs = samples.shape[0]
        describe = describe_steps(condition.part(run.start, run.stop - 1), steps, songs)
        result, carry = repaint(
            transformer,
            condition,
            samples,
            run,
            seed=seed,
            steps=steps,
            guidance=cfg,
            batched=model.has_room(both),
            device=model.device,
            on_step=host.progress(cls.hidden.unique_id, describe),
        )
        fresh = fresh_steps(condition.frames, run)
        host.show(
            cls.hidden.unique_id,
            f"new: {stated(fresh.start, fresh.stop)} ({numbered(run)}); the rest is unchanged",
        )
        following = len(condition.windows)
        return io.NodeOutput(song_latent(result, carry, first_window=0, next_window=following))
