"""A whole song: conditions window by window, then one solve after another, each pinned to the one before."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from .condition import MiniMaxMusic3ConditionEncoder
from .config import TransformerConfig
from .flow import ALWAYS, DEFAULT_GUIDANCE, DEFAULT_STEPS, guided, solve
from .noise import window_noise
from .run import Carry, SongCondition
from .timing import frame_seconds
from .transformer import MiniMaxMusic3Transformer1DModel
from .windows import WINDOW, Window, carried, kept, plan


class NonFiniteError(ArithmeticError):
    """A value that is not finite, where silence about it would be heard as noise."""


def encode_song(
    encoder: MiniMaxMusic3ConditionEncoder,
    hidden: Tensor,
    *,
    scale: Tensor | None = None,
    run: slice = slice(None),
    device: torch.device | str = "cpu",
    on_window: Callable[[int, int], None] | None = None,
) -> SongCondition:
    """Encode the frames of each window by themselves, as the reference does.

    Args:
        encoder: On `device`.
        hidden: (B, F, layers * hidden_width), any float dtype, any device. Moved window by window and row by row.
        scale: (B, 1, 1) factor on the encoded condition, or None for 1.
        run: Which windows of the song to encode.
        on_window: Called with (windows done, windows in all).

    Raises:
        ValueError: If there is no frame or the width is not the encoder's.
        NonFiniteError: If a frame is not finite; names the first.
    """

    def encode(window: Window) -> Tensor:
        frames = hidden[:, window.start : window.end]
        _require_finite_frames(frames, window.start)
        condition = torch.cat([encoder.aligned_condition(row.to(device)).cpu() for row in frames.split(1)])
        return condition if scale is None else condition * scale.to(condition)

    windows = plan(hidden.shape[1])
    chosen = windows[run]
    first = chosen[0].index
    before = encode(windows[first - 1])[..., carried(WINDOW)].clone() if first else None
    conditions = []
    for window in chosen:
        conditions.append(encode(window))
        if on_window is not None:
            on_window(len(conditions), len(chosen))
    return SongCondition(tuple(conditions), hidden.shape[1], first, before)


def solve_song(
    transformer: MiniMaxMusic3Transformer1DModel,
    condition: SongCondition,
    *,
    seed: int | Sequence[int],
    steps: int = DEFAULT_STEPS,
    guidance: float = DEFAULT_GUIDANCE,
    shift: float = 1.0,
    guided_between: tuple[float, float] = ALWAYS,
    carry: Carry | None = None,
    ending: Carry | None = None,
    first_window: int | None = None,
    batched: bool = True,
    device: torch.device | str = "cpu",
    on_step: Callable[[int, int], None] | None = None,
) -> tuple[Tensor, Carry]:
    """Solve the windows of a song in order and join them.

    Rows are solved one after another, so that each equals its own single run and memory does not grow with them.

    Args:
        transformer: The velocity field, on `device`.
        condition: The windows to solve.
        seed: Row b draws the noise of `seed + b`, or of `seed[b]` where each row has its own.
        steps: Euler steps per window.
        guidance: Guidance weight.
        shift: Time shift of the grid; 1 is the reference.
        guided_between: Flow times [start, end) with guidance; the whole solve is the reference.
        carry: What the window before the first hands on, or None at the start of a song.
        ending: What the last steps of the last window are pinned to, or None at the end of a song.
        first_window: Index that selects the noise of the first window; the condition's own if None.
        batched: Both guidance branches in one forward; else one after the other, in half the memory.
        on_step: Called with (steps done, steps in all); raising from it ends the run.

    Returns:
        The joined latent (B, 128, T), float32 on the CPU, and the carry of the last window.

    Raises:
        ValueError: If `steps` or `shift` is not positive.
        NonFiniteError: If a latent is not finite; names window, step and dtype.
    """
    total = condition.batch * len(condition.windows) * steps
    first_window = condition.first_window if first_window is None else first_window
    final = len(condition.windows) - 1
    parts = [kept(w.shape[-1], first=k == 0, last=k == final) for k, w in enumerate(condition.windows)]
    length = sum(part.stop - part.start for part in parts)
    song = torch.empty(condition.batch, transformer.config.latent_channels, length, dtype=torch.float32, device="cpu")
    carries: list[Carry] = []
    done = 0

    for row in range(condition.batch):
        row_carry = None if carry is None else carry.row(row)
        rest = song[row]
        for index, (window, part) in enumerate(zip(condition.windows, parts, strict=True)):

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
                seed=seed + row if isinstance(seed, int) else seed[row],
                index=first_window + index,
                steps=steps,
                guidance=guidance,
                shift=shift,
                guided_between=guided_between,
                carry=row_carry,
                ending=ending.row(row) if ending is not None and index == final else None,
                batched=batched,
                on_step=check,
            )
            rest[:, : part.stop - part.start] = latent[0, :, part]
            rest = rest[:, part.stop - part.start :]
        carries.append(cast(Carry, row_carry))
    return song, Carry(torch.cat([c.latent for c in carries]), torch.cat([c.condition for c in carries]))


def solve_window(
    transformer: MiniMaxMusic3Transformer1DModel,
    condition: Tensor,
    *,
    seed: int,
    index: int,
    steps: int = DEFAULT_STEPS,
    guidance: float = DEFAULT_GUIDANCE,
    shift: float = 1.0,
    guided_between: tuple[float, float] = ALWAYS,
    carry: Carry | None = None,
    ending: Carry | None = None,
    batched: bool = True,
    on_step: Callable[[int, Tensor], None] | None = None,
) -> tuple[Tensor, Carry]:
    """Solve window `index`: condition (1, 2048, T) on the device -> latent (1, 128, T) there, and its carry.

    `carry` pins the first steps, `ending` the last.
    """
    length = condition.shape[-1]
    noise = window_noise(seed, index, transformer.config.latent_channels, length).to(condition.device)
    prompt = tail = None
    if carry is not None:
        prompt = carry.latent[..., :length].to(condition)
        pinned = carry.condition[..., :length].to(condition)
        condition = torch.cat((pinned, condition[..., pinned.shape[-1] :]), dim=-1)
    if ending is not None:
        tail, pinned = ending.latent.to(condition), ending.condition.to(condition)
        condition = torch.cat((condition[..., : length - pinned.shape[-1]], pinned), dim=-1)
    embedded = transformer.embed_condition(condition)
    velocity = guided(transformer.field(embedded.device), embedded, guidance, batched=batched, between=guided_between)
    latent = solve(velocity, noise, steps, shift=shift, prompt=prompt, ending=tail, on_step=on_step)
    return latent, Carry(latent[..., carried(length)].cpu(), condition[..., carried(length)].cpu())


def solve_bytes(config: TransformerConfig, compute_dtype: torch.dtype, *, batched: bool) -> int:
    """Peak bytes that one forward of a full window takes besides the weights, estimated from the activations."""
    tokens = (1 + WINDOW) * (2 if batched else 1)
    wide = 2 * config.ff_width + 4 * config.width
    floats = 2 * config.ff_width + 4 * config.width + 3 * config.input_channels
    return tokens * (wide * compute_dtype.itemsize + floats * torch.float32.itemsize)


def _describe(index: int, windows: int, step: int, steps: int, transformer: MiniMaxMusic3Transformer1DModel) -> str:
    dtype = str(transformer.compute_dtype).removeprefix("torch.")
    return (
        f"window {index + 1} of {windows} is not finite after step {step + 1} of {steps}, computed in {dtype}. "
        "Load the model with weight dtype fp32."
    )


def _require_finite_frames(frames: Tensor, start: int) -> None:
    finite = torch.isfinite(frames).all(dim=-1).all(dim=0)
    if not finite.all():
        frame = start + int((~finite).nonzero()[0])
        raise NonFiniteError(
            f"frame {frame} ({frame_seconds(frame):.2f} s) of the conditioning is not finite. "
            "Encode the text again; in float16 the language model can overflow, in bf16 it does not."
        )
