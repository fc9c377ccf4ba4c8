"""The flow from noise to latent: time grid, guidance and a fixed-step Euler solve on a velocity function."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .attention import AttentionBackend
from .condition import MiniMaxMusic3ConditionEncoder
from .config import ConditionEncoderConfig, TransformerConfig
from .operations import Device, Operations
from .transformer import MiniMaxMusic3Transformer1DModel

DEFAULT_STEPS = 30
DEFAULT_GUIDANCE = 1.7
ALWAYS = (0.0, 1.0)

# The reference never lets the noise of the pinned steps vanish entirely.
_SIGMA_FLOOR = 1e-6

Velocity = Callable[[Tensor, Tensor], Tensor]
Field = Callable[[Tensor, Tensor, Tensor], Tensor]


def time_grid(steps: int, shift: float = 1.0) -> list[float]:
    """Flow times at which the velocity is asked for: i / steps, never 1.

    A shift above 1 moves them towards the noise, where the flow bends most, by t -> t / (t + shift * (1 - t)).

    Raises:
        ValueError: If `steps` or `shift` is not positive.
    """
    if steps < 1:
        raise ValueError(f"the number of steps must be positive, got {steps}")
    if shift <= 0:
        raise ValueError(f"the time shift must be positive, got {shift}")
    times = [step / steps for step in range(steps)]
    return times if shift == 1.0 else [t / (t + shift * (1.0 - t)) for t in times]


def guided(
    field: Field,
    condition: Tensor,
    weight: float,
    *,
    batched: bool = True,
    between: tuple[float, float] = ALWAYS,
) -> Velocity:
    """Velocity under classifier-free guidance: w * v(condition) + (1 - w) * v(zeros).

    Args:
        field: `(x, t, condition) -> velocity`.
        condition: (B, C, T).
        weight: Guidance weight w; 1 runs the conditional branch alone.
        batched: Both branches in one forward; else one after the other, in half the memory.
        between: Flow times [start, end) with guidance; at others the conditional branch runs alone.
    """

    def conditional(x: Tensor, t: Tensor) -> Tensor:
        return field(x, t, condition)

    if weight == 1.0:
        return conditional
    zeros = torch.zeros_like(condition)
    both = torch.cat((condition, zeros)) if batched else None

    def combined(x: Tensor, t: Tensor) -> Tensor:
        if both is None:
            return torch.lerp(field(x, t, zeros), field(x, t, condition), weight)
        with_condition, without = field(x.repeat(2, 1, 1), t.repeat(2), both).chunk(2)
        return torch.lerp(without, with_condition, weight)

    def switched(x: Tensor, t: Tensor) -> Tensor:
        time = round(float(t[0]), 6)  # float32 knows no more
        return combined(x, t) if between[0] <= time < between[1] else conditional(x, t)

    return combined if between == ALWAYS else switched


def solve(
    velocity: Velocity,
    noise: Tensor,
    steps: int = DEFAULT_STEPS,
    *,
    shift: float = 1.0,
    prompt: Tensor | None = None,
    ending: Tensor | None = None,
    on_step: Callable[[int, Tensor], None] | None = None,
) -> Tensor:
    """Euler solve from `noise` at time 0 to the latent at time 1, in float32.

    Args:
        velocity: `((B, C, T), (B,)) -> (B, C, T)`.
        noise: (B, C, T). Not written to.
        steps: Euler steps.
        shift: Time shift of the grid; 1 is the reference's even grid.
        prompt: (B, C, P) with P <= T: the leading steps are pinned at every time to the straight path from their
            noise to this latent, and equal it in the result.
        ending: (B, C, E) with P + E <= T: the same for the trailing steps.
        on_step: Called with (index of the step, latent after it); raising from it ends the solve.

    Raises:
        ValueError: If `steps` or `shift` is not positive.
    """
    x = noise.float()
    prompt = noise[..., :0] if prompt is None else prompt
    ending = noise[..., :0] if ending is None else ending
    left, right = prompt.shape[-1], noise.shape[-1] - ending.shape[-1]
    pinned = left > 0 or right < noise.shape[-1]
    times = [*time_grid(steps, shift), 1.0]
    for index, t in enumerate(times[:-1]):
        if pinned:
            x = torch.cat(
                (_on_path(noise[..., :left], prompt, t), x[..., left:right], _on_path(noise[..., right:], ending, t)),
                dim=-1,
            )
        change = velocity(x, torch.full((x.shape[0],), t, device=x.device))
        x = x + (change / steps if shift == 1.0 else change * (times[index + 1] - t))
        if on_step is not None:
            on_step(index, x)
    return torch.cat((prompt, x[..., left:right], ending), dim=-1) if pinned else x


def _on_path(noise: Tensor, latent: Tensor, t: float) -> Tensor:
    return (1.0 - (1.0 - _SIGMA_FLOOR) * t) * noise + t * latent


class MiniMaxMusic3FlowMatchingDiT(nn.Module):
    """Condition encoder and velocity field together, with the solve of one window on top."""

    def __init__(
        self,
        condition_config: ConditionEncoderConfig | None = None,
        transformer_config: TransformerConfig | None = None,
        *,
        attention: AttentionBackend | None = None,
        operations: Operations = nn,
        dtype: torch.dtype = torch.float32,
        compute_dtype: torch.dtype | None = None,
        device: Device = None,
    ) -> None:
        super().__init__()
        self.condition_encoder = MiniMaxMusic3ConditionEncoder(condition_config, operations=operations, device=device)
        self.transformer = MiniMaxMusic3Transformer1DModel(
            transformer_config,
            attention=attention,
            operations=operations,
            dtype=dtype,
            compute_dtype=compute_dtype,
            device=device,
        )

    def aligned_mel_length(self, frames: int) -> int:
        """Latent steps that `frames` frames cover."""
        return self.condition_encoder.aligned_mel_length(frames)

    def condition(self, hidden: Tensor) -> Tensor:
        """Frames projected on their own grid; see MiniMaxMusic3ConditionEncoder.condition."""
        return self.condition_encoder.condition(hidden)

    def aligned_condition(self, hidden: Tensor) -> Tensor:
        """Frames on the latent grid; see MiniMaxMusic3ConditionEncoder.aligned_condition."""
        return self.condition_encoder.aligned_condition(hidden)

    @torch.no_grad()
    def forward(
        self,
        align: Tensor,
        *,
        generator: torch.Generator,
        initial_latent: Tensor | None = None,
        initial_condition: Tensor | None = None,
        num_steps: int = DEFAULT_STEPS,
        cfg_scale: float = DEFAULT_GUIDANCE,
    ) -> Tensor:
        """Solve an aligned condition into a latent (B, 128, T).

        Args:
            align: Aligned condition, (B, 2048, T). Overwritten in place over the prompt when `initial_condition` is
                given, so that the caller can save it for the next window.
            generator: Generator of the noise, on the device of `align`.
            initial_latent: Latent carried from the previous window, or None.
            initial_condition: Condition carried from the previous window, or None.
            num_steps: Euler steps.
            cfg_scale: Guidance weight.

        Raises:
            ValueError: If `num_steps` is not positive.
        """
        batch, _, length = align.shape
        channels = self.transformer.config.latent_channels
        time_grid(num_steps)
        noise = torch.randn((batch, channels, length), generator=generator, device=align.device)
        prompt = None
        if initial_latent is not None:
            prompt = initial_latent[..., :length].to(noise)
            if initial_condition is not None:
                left = prompt.shape[-1]
                align[..., :left] = initial_condition[..., :left].to(align)
        return solve(guided(self.transformer, align, cfg_scale), noise, num_steps, prompt=prompt)
