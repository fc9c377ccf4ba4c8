"""MM3 DiT Euler Sampler."""

from collections.abc import Callable

from comfy_api.latest import io

from ..mm3 import SongCondition, TransformerConfig, solve_song
from ..mm3.song import solve_bytes
from ..mm3.windows import plan
from . import host, types
from .inputs import MAX_SEED, schedule_inputs, seed_input, step_inputs
from .latents import song_latent
from .resume import matched, resume


class DiTEulerSampler(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MM3DiTEulerSampler",
            display_name="MM3 DiT Euler Sampler",
            category="MM3",
            description="Solves the windows of a song in order, each pinned to the one before, as the reference does. "
            "The noise of a seed is the same on every device.",
            search_aliases=["minimax music 3 sampler", "ksampler music"],
            inputs=[
                types.Model.Input("model", tooltip="From MM3 Load Checkpoint."),
                types.Condition.Input("condition", tooltip="From MM3 Condition Encoder."),
                *step_inputs(),
                seed_input("Seed of the noise. Song n of a batch uses seed + n."),
                io.Latent.Input(
                    "previous_latent",
                    optional=True,
                    tooltip="Continue from this latent: the first window is pinned to it for 2 s. A condition with a "
                    "start begins there in this latent, too; any other is taken to begin 4 s (100 frames) before its "
                    "end.",
                ),
                io.String.Input(
                    "seeds",
                    default="",
                    optional=True,
                    tooltip="A list of seeds, such as 1, 2, 3: each renders a song of its own into the batch, equal to "
                    "its own run. Leave it empty to render seed alone.",
                ),
                *schedule_inputs(),
            ],
            outputs=[
                io.Latent.Output(
                    display_name="latent",
                    tooltip="[songs, 128, steps] float32, 86.13 steps per second. It also carries what a next run "
                    "needs to continue.",
                )
            ],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(
        cls,
        model: host.Managed,
        condition: SongCondition,
        steps: int,
        cfg: float,
        seed: int,
        previous_latent: types.Latent | None = None,
        seeds: str = "",
        time_shift: float = 1.0,
        cfg_start: float = 0.0,
        cfg_end: float = 1.0,
    ) -> io.NodeOutput:
        transformer = model.module.transformer
        config = transformer.config
        require_same_model(condition, config)
        start, condition = matched(resume(previous_latent, condition, config.latent_channels), condition)
        every = _seeds(seeds, seed, condition.batch)
        takes = len(every) // condition.batch
        both = solve_bytes(config, transformer.compute_dtype, batched=True)
        model.load(both)
        latent, carry = solve_song(
            transformer,
            condition.repeated(takes),
            seed=every,
            steps=steps,
            guidance=cfg,
            shift=time_shift,
            guided_between=(cfg_start, cfg_end),
            carry=start.carry and start.carry.repeated(takes),
            first_window=start.window,
            batched=model.has_room(both),
            device=model.device,
            on_step=host.progress(cls.hidden.unique_id, describe_steps(condition, steps, len(every))),
        )
        if start.text:
            host.show(cls.hidden.unique_id, start.text)
        next_window = start.window + len(condition.windows)
        return io.NodeOutput(song_latent(latent, carry, first_window=start.window, next_window=next_window))


def require_same_model(condition: SongCondition, config: TransformerConfig) -> None:
    """Raise ValueError unless a condition was encoded for a model of these sizes."""
    given = condition.windows[0].shape[1]
    if given != config.condition_channels:
        raise ValueError(
            f"the condition has {given} channels, this model expects {config.condition_channels}. "
            "Encode it with the model that is connected here."
        )


def describe_steps(condition: SongCondition, steps: int, songs: int) -> Callable[[int, int], str]:
    """Names song and window of a step, counted from 1 on."""
    windows, whole = len(condition.windows), len(plan(condition.frames))

    def describe(done: int, total: int) -> str:
        song, window = divmod((done - 1) // steps, windows)
        counted = f"song {song + 1} of {songs}, " if songs > 1 else ""
        return f"{counted}window {condition.first_window + window + 1} of {whole}"

    return describe


def _seeds(listed: str, seed: int, songs: int) -> list[int]:
    """Seed of every song: `seed` counted up, or that for each seed of a list.

    Raises:
        ValueError: If the list holds anything but seeds.
    """
    words = listed.replace(",", " ").split()
    for word in words:
        if not word.isascii() or not word.isdigit() or int(word) > MAX_SEED:
            raise ValueError(f"seeds holds {word!r}, expected whole numbers from 0 to {MAX_SEED}, such as 1, 2, 3.")
    return [first + song for first in (map(int, words) if words else [seed]) for song in range(songs)]
