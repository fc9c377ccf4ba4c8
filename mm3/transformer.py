"""The velocity field: a pre-norm transformer over latent steps, with the flow time as one extra token in front.

The residual stream, norms, rotary tables, time embedding and the thin projections at both ends are float32. The
four wide matrix products of a block run in `compute_dtype` on weights kept in `dtype`. In float16, the two that add to
the residual stream may leave float16's range.
"""

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from .attention import AttentionBackend, attend, describe
from .config import TransformerConfig
from .operations import Device, Operations
from .ranged import is_ranged, residual_linear
from .rope import rope_tables, rotate


class FourierFeatures(nn.Module):
    """Random Fourier features of the flow time: `(B, in_features) -> (B, out_features)`, cosines first."""

    def __init__(self, in_features: int, out_features: int, *, device: Device = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features // 2, in_features, dtype=torch.float32, device=device))

    def forward(self, value: Tensor) -> Tensor:
        angles = 2.0 * math.pi * value @ self.weight.to(value).T
        return torch.cat((angles.cos(), angles.sin()), dim=-1)


class TimestepEmbedding(nn.Module):
    """`(B, in_dim) -> (B, dim)`: linear, SiLU, linear."""

    def __init__(self, in_dim: int, dim: int, *, operations: Operations = nn, device: Device = None) -> None:
        super().__init__()
        self.linear_1 = operations.Linear(in_dim, dim, dtype=torch.float32, device=device)
        self.act = nn.SiLU()
        self.linear_2 = operations.Linear(dim, dim, dtype=torch.float32, device=device)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_2(self.act(self.linear_1(x)))


class Attention(nn.Module):
    """Bidirectional self-attention with partial rotary positions; `backend` works on (B, T, H, D)."""

    def __init__(
        self,
        dim: int,
        *,
        head_dim: int,
        attention: AttentionBackend | None = None,
        operations: Operations = nn,
        dtype: torch.dtype = torch.float32,
        compute_dtype: torch.dtype | None = None,
        device: Device = None,
    ) -> None:
        super().__init__()
        self.num_heads = dim // head_dim
        self.head_dim = head_dim
        self.softmax_scale = float(head_dim**-0.5)
        self.backend = attention
        self.backend_name = describe(attention)
        self.to_qkv = operations.Linear(dim, dim * 3, bias=False, dtype=dtype, device=device)
        linear = residual_linear(operations, compute_dtype or dtype)
        self.to_out = linear(dim, dim, bias=False, dtype=dtype, device=device)

    def forward(self, x: Tensor, rope_cos: Tensor, rope_sin: Tensor) -> Tensor:
        """`(B, T, C) -> (B, T, C)`, with rotary tables of shape (T, 1, rotary width); float32 out for float16."""
        q, k, v = self.to_qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim)).unbind(2)
        q, k = rotate(q, rope_cos, rope_sin), rotate(k, rope_cos, rope_sin)
        return self.to_out(attend(self.backend, q, k, v).flatten(2))


class TransformerBlock(nn.Module):
    """Pre-norm attention, then a pre-norm gated feed-forward, on a float32 residual stream."""

    def __init__(
        self,
        dim: int,
        *,
        head_dim: int,
        inner_dim: int,
        attention: AttentionBackend | None = None,
        operations: Operations = nn,
        dtype: torch.dtype = torch.float32,
        compute_dtype: torch.dtype | None = None,
        device: Device = None,
    ) -> None:
        super().__init__()
        self.compute_dtype = compute_dtype or dtype
        self.norm1 = operations.LayerNorm(dim, dtype=torch.float32, device=device)
        self.attn = Attention(
            dim,
            head_dim=head_dim,
            attention=attention,
            operations=operations,
            dtype=dtype,
            compute_dtype=compute_dtype,
            device=device,
        )
        self.norm2 = operations.LayerNorm(dim, dtype=torch.float32, device=device)
        self.ff_in = operations.Linear(dim, inner_dim * 2, dtype=dtype, device=device)
        self.ff_out = residual_linear(operations, self.compute_dtype)(inner_dim, dim, dtype=dtype, device=device)

    def forward(self, x: Tensor, rope_cos: Tensor, rope_sin: Tensor) -> Tensor:
        """`(B, T, C) -> (B, T, C)`, float32."""
        x = x + self.attn(self.norm1(x).to(self.compute_dtype), rope_cos, rope_sin)
        value, gate = self.ff_in(self.norm2(x).to(self.compute_dtype)).chunk(2, dim=-1)
        # In float32: rounding between the two products would cost up to 0.5 dB of a half-precision solve.
        gated = silu(gate.float()).mul_(value)
        return x + self.ff_out(gated if is_ranged(self.ff_out) else gated.to(self.compute_dtype))


class MiniMaxMusic3Transformer1DModel(nn.Module):
    """The velocity field `((B, 128, T), (B,), (B, 2048, T)) -> (B, 128, T)`."""

    def __init__(
        self,
        config: TransformerConfig | None = None,
        *,
        attention: AttentionBackend | None = None,
        operations: Operations = nn,
        dtype: torch.dtype = torch.float32,
        compute_dtype: torch.dtype | None = None,
        device: Device = None,
    ) -> None:
        super().__init__()
        self.config = config = config or TransformerConfig()
        latents, inputs = config.latent_channels, config.input_channels
        thin = {"dtype": torch.float32, "device": device}
        self.preprocess_conv = operations.Conv1d(inputs, inputs, 1, bias=False, **thin)
        self.postprocess_conv = operations.Conv1d(latents, latents, 1, bias=False, **thin)
        self.proj_in = operations.Linear(inputs, config.width, bias=False, **thin)
        self.proj_out = operations.Linear(config.width, latents, bias=False, **thin)
        self.time_proj = FourierFeatures(1, config.fourier_features, device=device)
        self.time_embed = TimestepEmbedding(config.fourier_features, config.width, operations=operations, device=device)
        self.transformer_blocks = nn.ModuleList(
            TransformerBlock(
                config.width,
                head_dim=config.head_width,
                inner_dim=config.ff_width,
                attention=attention,
                operations=operations,
                dtype=dtype,
                compute_dtype=compute_dtype,
                device=device,
            )
            for _ in range(config.depth)
        )

    @property
    def attention_backend_name(self) -> str:
        """The attention path that the blocks run, for the log."""
        return self._first_block.attn.backend_name

    @property
    def compute_dtype(self) -> torch.dtype:
        """Dtype of the wide matrix products."""
        return self._first_block.compute_dtype

    @property
    def _first_block(self) -> TransformerBlock:
        return cast(TransformerBlock, self.transformer_blocks[0])

    def forward(self, x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """Velocity at latent `x` and flow time `t`.

        Args:
            x: Current latent, (B, 128, T), float32.
            t: Flow time in [0, 1), (B,), float32: 0 is noise.
            condition: Aligned condition, (B, 2048, T), float32; zeros for the unconditional branch.

        Returns:
            The velocity, (B, 128, T), float32.
        """
        return self._velocity(self._embed(torch.cat((x, torch.zeros_like(x), condition), dim=1)), t)

    def embed_condition(self, condition: Tensor) -> Tensor:
        """`(B, 2048, T) -> (B, T, C)`: the condition's share of the first token states, the same at every step.

        The input projections are linear without bias, so that shares add up and zeros stay zeros.
        """
        latents = condition.new_zeros(condition.shape[0], 2 * self.config.latent_channels, condition.shape[-1])
        return self._embed(torch.cat((latents, condition), dim=1))

    def field(self, device: torch.device) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """The velocity as a function of (x, t, embedded condition), with the latent's input projections multiplied out.

        Equals `forward` with the condition that was embedded. `device` is where the solve's tensors are; a host may
        keep weights elsewhere.
        """
        unit = torch.eye(self.config.input_channels, self.config.latent_channels, device=device)
        weight = self._embed(unit[None])[0]

        def velocity(x: Tensor, t: Tensor, embedded: Tensor) -> Tensor:
            return self._velocity(x.transpose(1, 2) @ weight + embedded, t)

        return velocity

    def _embed(self, inputs: Tensor) -> Tensor:
        return self.proj_in((inputs + self.preprocess_conv(inputs)).transpose(1, 2))

    def _velocity(self, tokens: Tensor, t: Tensor) -> Tensor:
        # The time rides as token 0 and is dropped after the blocks: it shifts every rotary position by one.
        time = self.time_embed(self.time_proj(t[:, None]))
        h = torch.cat((time[:, None], tokens), dim=1)
        rope_cos, rope_sin = rope_tables(h.shape[1], self.config.rotary_width, h.device)
        for block in self.transformer_blocks:
            h = block(h, rope_cos, rope_sin)
        velocity = self.proj_out(h[:, 1:]).transpose(1, 2)
        return velocity + self.postprocess_conv(velocity)
