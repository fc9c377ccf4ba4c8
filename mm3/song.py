"""A whole song: conditions window by window, then one solve after another, each pinned to the one before."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from .condition import MiniMaxMusic3ConditionEncoder
from .config import TransformerConfig
from .flow import DEFAULT_GUIDANCE, DEFAULT_STEPS, guided, solve
from .noise import window_noise
from .timing import FRAME_RATE, aligned_length
from .transformer import MiniMaxMusic3Transformer1DModel
from .windows import WINDOW_FRAMES, carried, kept, plan


class NonFiniteError(ArithmeticError):
    """A value that is not finite, where silence about it would be heard as noise."""


@dataclass(frozen=True)
class Carry:
    """What a window hands to the next: latent (B, 128, 172) and condition (B, 2048, 172), float32."""

    latent: Tensor
    condition: Tensor


@dataclass(frozen=True)
class SongCondition:
    """Aligned conditions of a run of windows, in order, each (B, 2048, T), float32 on the CPU."""

    windows: tuple[Tensor, ...]
    frames: int

    @property
    def batch(self) -> int:
        return self.windows[0].shape[0]


def encode_song(
    encoder: MiniMaxMusic3ConditionEncoder,
    hidden: Tensor,
    *,
    scale: Tensor | None = None,
    device: torch.device | str = "cpu",
    on_window: Callable[[int, int], None] | None = None,
) -> SongCondition:
    """Encode the frames of each window by themselves, as the reference does.

    Args:
        encoder: On `device`.
        hidden: (B, F, layers * hidden_width), any float dtype, any device. Moved window by window and row by row.
        scale: (B, 1, 1) factor on the encoded condition, or None for 1.
        on_window: Called with (windows done, windows in all).

    Raises:
        ValueError: If there is no frame or the width is not the encoder's.
        NonFiniteError: If a frame is not finite; names the first.
    """
    windows = plan(hidden.shape[1])
    conditions = []
    for window in windows:
        frames = hidden[:, window.start : window.end]
        _require_finite_frames(frames, window.start)
        condition = torch.cat([encoder.aligned_condition(row.to(device)).cpu() for row in frames.split(1)])
        conditions.append(condition if scale is None else condition * scale.to(condition))
        if on_window is not None:
            on_window(window.index + 1, len(windows))
    return SongCondition(tuple(conditions), hidden.shape[1])


def solve_song(
    transformer: MiniMaxMusic3Transformer1DModel,
    condition: SongCondition,
    *,
    seed: int,
    steps: int = DEFAULT_STEPS,
    guidance: float = DEFAULT_GUIDANCE,
    carry: Carry | None = None,
    first_window: int = 0,
    batched: bool = True,
    device: torch.device | str = "cpu",
    on_step: Callable[[int, int], None] | None = None,
) -> tuple[Tensor, Carry]:
    """Solve the windows of a song in order and join them.

    Rows are solved one after another, so that each equals its own single run and memory does not grow with them.

    Args:
        transformer: The velocity field, on `device`.
        condition: The windows to solve.
        seed: Row b draws the noise of `seed + b`.
        steps: Euler steps per window.
        guidance: Guidance weight.
        carry: What the window before the first hands on, or None at the start of a song.
        first_window: Index of the first window in its song; it selects the noise.
        batched: Both guidance branches in one forward; else one after the other, in half the memory.
        on_step: Called with (steps done, steps in all); raising from it ends the run.

    Returns:
        The joined latent (B, 128, T), float32 on the CPU, and the carry of the last window.

    Raises:
        ValueError: If `steps` is not positive.
        NonFiniteError: If a latent is not finite; names window, step and dtype.
    """
    total = condition.batch * len(condition.windows) * steps
    rows: list[Tensor] = []
    carries: list[Carry] = []
    done = 0

    for row in range(condition.batch):
        parts: list[Tensor] = []
        row_carry = None if carry is None else Carry(carry.latent[row : row + 1], carry.condition[row : row + 1])
        for index, window in enumerate(condition.windows):

            def check(step: int, latent: Tensor, index: int = index) -> None:
                nonlocal done
                done += 1
                # Also waits for the device, so that progress is true and a cancel acts within one step.
                if not torch.isfinite(latent).all():
                    raise NonFiniteError(_describe(index, len(condition.windows), step, steps, transformer))
                if on_step is not None:
                    on_step(done, total)

            latent, row_carry = solve_window(
                transformer,
                window[row : row + 1].to(device),
                seed=seed + row,
                index=first_window + index,
                steps=steps,
                guidance=guidance,
                carry=row_carry,
                batched=batched,
                on_step=check,
            )
            last = index == len(condition.windows) - 1
            parts.append(latent[..., kept(latent.shape[-1], first=index == 0, last=last)].cpu())
        rows.append(torch.cat(parts, dim=-1))
        carries.append(cast(Carry, row_carry))
    return torch.cat(rows), Carry(torch.cat([c.latent for c in carries]), torch.cat([c.condition for c in carries]))


def solve_window(
    transformer: MiniMaxMusic3Transformer1DModel,
    condition: Tensor,
    *,
    seed: int,
    index: int,
    steps: int = DEFAULT_STEPS,
    guidance: float = DEFAULT_GUIDANCE,
    carry: Carry | None = None,
    batched: bool = True,
    on_step: Callable[[int, Tensor], None] | None = None,
) -> tuple[Tensor, Carry]:
    """Solve window `index`: condition (1, 2048, T) on the device -> latent (1, 128, T) there, and its carry."""
    length = condition.shape[-1]
    noise = window_noise(seed, index, transformer.config.latent_channels, length).to(condition.device)
    prompt = None
    if carry is not None:
        prompt = carry.latent[..., :length].to(condition)
        pinned = carry.condition[..., :length].to(condition)
        condition = torch.cat((pinned, condition[..., pinned.shape[-1] :]), dim=-1)
    velocity = guided(transformer.field(), transformer.embed_condition(condition), guidance, batched=batched)
    latent = solve(velocity, noise, steps, prompt=prompt, on_step=on_step)
    return latent, Carry(latent[..., carried(length)].cpu(), condition[..., carried(length)].cpu())


def solve_bytes(config: TransformerConfig, compute_dtype: torch.dtype, *, batched: bool) -> int:
    """Peak bytes that one forward of a full window takes besides the weights, estimated from the activations."""
    tokens = (1 + aligned_length(WINDOW_FRAMES)) * (2 if batched else 1)
    wide = 2 * config.ff_width + 2 * config.ff_width + 4 * config.width
    stream = 4 * config.width + 3 * config.input_channels
    return tokens * (wide * compute_dtype.itemsize + stream * torch.float32.itemsize)


def _describe(index: int, windows: int, step: int, steps: int, transformer: MiniMaxMusic3Transformer1DModel) -> str:
    dtype = str(transformer.compute_dtype).removeprefix("torch.")
    return (
        f"window {index + 1} of {windows} is not finite after step {step + 1} of {steps}, computed in {dtype}. "
        "Load the model with weight dtype bf16 or fp32."
    )


def _require_finite_frames(frames: Tensor, start: int) -> None:
    finite = torch.isfinite(frames).all(dim=-1).all(dim=0)
    if not finite.all():
        frame = start + int((~finite).nonzero()[0])
        raise NonFiniteError(
            f"frame {frame} ({frame / FRAME_RATE:.2f} s) of the conditioning is not finite. "
            "Encode the text again; in float16 the language model can overflow, in bf16 it does not."
        )
