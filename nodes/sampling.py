"""MM3 DiT Euler Sampler."""

import torch
from comfy_api.latest import io
from torch import Tensor

from ..mm3 import Carry, SongCondition, solve_song
from ..mm3.flow import DEFAULT_GUIDANCE, DEFAULT_STEPS
from ..mm3.song import solve_bytes
from ..mm3.windows import OVERLAP, carried, windows_in
from . import host, types

CARRY_KEY = "mm3_carry"


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
                io.Int.Input(
                    "steps",
                    default=DEFAULT_STEPS,
                    min=1,
                    max=1000,
                    tooltip="Euler steps per window. Time grows with it.",
                ),
                io.Float.Input(
                    "cfg",
                    default=DEFAULT_GUIDANCE,
                    min=0.0,
                    max=100.0,
                    step=0.1,
                    round=0.01,
                    tooltip="Guidance weight. 1.7 is the reference; 1 runs without guidance in half the time.",
                ),
                io.Int.Input(
                    "seed",
                    default=0,
                    min=0,
                    max=0xFFFFFFFFFFFFFFFF,
                    control_after_generate=True,
                    tooltip="Seed of the noise. Song n of a batch uses seed + n.",
                ),
                io.Latent.Input(
                    "previous_latent",
                    optional=True,
                    tooltip="Continue from this latent: the first window is pinned to its end. The frames of the "
                    "condition begin 4 s (100 frames) before its end.",
                ),
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
    ) -> io.NodeOutput:
        transformer = model.module.transformer
        config = transformer.config
        given = condition.windows[0].shape[1]
        if given != config.condition_channels:
            raise ValueError(
                f"the condition has {given} channels, this model expects {config.condition_channels}. "
                "Encode it with the model that is connected here."
            )
        carry, first_window = _resume(previous_latent, condition, config.latent_channels)
        compute = transformer.compute_dtype
        both = solve_bytes(config, compute, batched=True)
        model.load(both)
        windows = len(condition.windows)

        def describe(done: int, total: int) -> str:
            song, window = divmod((done - 1) // steps, windows)
            songs = f"song {song + 1} of {condition.batch}, " if condition.batch > 1 else ""
            return f"{songs}window {window + 1} of {windows}"

        latent, carry = solve_song(
            transformer,
            condition,
            seed=seed,
            steps=steps,
            guidance=cfg,
            carry=carry,
            first_window=first_window,
            batched=host.has_room(model.device, both),
            device=model.device,
            on_step=host.progress(cls.hidden.unique_id, describe),
        )
        kept = {"latent": carry.latent, "condition": carry.condition, "next_window": first_window + windows}
        return io.NodeOutput(
            {"samples": latent.to(host.intermediate_device()), "type": "audio", CARRY_KEY: kept},
        )


def _resume(previous: types.Latent | None, condition: SongCondition, channels: int) -> tuple[Carry | None, int]:
    """What the first window is pinned to, and its index in the song.

    The latent always comes from the samples. The carried condition is trusted only if the samples are those that it
    was saved with; else the condition's own frames stand in for it.
    """
    if previous is None:
        return None, 0
    samples = latent_samples(previous, channels).float().cpu()
    batch, _, length = samples.shape
    if batch != condition.batch:
        raise ValueError(
            f"previous_latent holds {batch} songs, the condition {condition.batch}. Connect the same number of both."
        )
    if length < OVERLAP:
        raise ValueError(
            f"previous_latent has {length} latent steps, at least {OVERLAP} (4 s) are needed to continue from it."
        )
    latent = samples[..., carried(length)]
    kept = previous.get(CARRY_KEY)
    if isinstance(kept, dict) and _fits(kept, latent, condition):
        return Carry(latent, kept["condition"]), kept["next_window"]
    host.log.warning(
        "MM3: previous_latent does not carry the condition of its own end (it was loaded, edited or made elsewhere); "
        "the frames of the new condition stand in for it over the first 2 s."
    )
    own = condition.windows[0][..., : latent.shape[-1]]
    return Carry(latent, own), windows_in(length)


def _fits(kept: dict[str, object], latent: Tensor, condition: SongCondition) -> bool:
    saved, carried_condition = kept.get("latent"), kept.get("condition")
    return (
        isinstance(saved, Tensor)
        and isinstance(carried_condition, Tensor)
        and isinstance(kept.get("next_window"), int)
        and carried_condition.shape == (latent.shape[0], condition.windows[0].shape[1], latent.shape[-1])
        and torch.equal(saved, latent)
    )


def latent_samples(latent: types.Latent, channels: int) -> Tensor:
    """The samples of a LATENT, (B, channels, T).

    Raises:
        ValueError: If it is not a latent of this model.
    """
    samples = latent.get("samples")
    if not isinstance(samples, Tensor) or samples.ndim != 3 or samples.shape[1] != channels or not samples.numel():
        shape = list(samples.shape) if isinstance(samples, Tensor) else type(samples).__name__
        raise ValueError(
            f"the latent is {shape}, expected [songs, {channels}, latent steps]. Connect MM3 DiT Euler Sampler, or "
            "another latent of MiniMax Music 3."
        )
    return samples
