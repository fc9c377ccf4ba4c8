"""Condition encoder: the language model's hidden frames onto the latent grid."""

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from .config import ConditionEncoderConfig
from .operations import Device, Operations
from .timing import aligned_length


class MiniMaxMusic3ConditionEncoder(nn.Module):
    """Mix the layers of each frame, project, and stretch frames to latent steps. Float32.

    Encoding is not local at the edges: slice frames first, then encode.
    """

    def __init__(
        self,
        config: ConditionEncoderConfig | None = None,
        *,
        operations: Operations = nn,
        device: Device = None,
    ) -> None:
        super().__init__()
        self.config = config = config or ConditionEncoderConfig()
        self.layer_weight_logits = nn.Parameter(torch.empty(config.layers, dtype=torch.float32, device=device))
        self.layer_scale = nn.Parameter(torch.empty(1, dtype=torch.float32, device=device))
        self.proj = operations.Conv1d(
            config.hidden_width, config.condition_channels, 3, padding=1, dtype=torch.float32, device=device
        )

    def aligned_mel_length(self, frames: int) -> int:
        """Latent steps that `frames` frames cover: truncated, never rounded."""
        return aligned_length(frames)

    def condition(self, hidden: Tensor) -> Tensor:
        """`(B, F, layers * hidden_width) -> (B, condition_channels, F)`.

        Raises:
            ValueError: If `hidden` has another shape.
        """
        if hidden.ndim != 3 or hidden.shape[-1] != self.config.input_width:
            raise ValueError(f"hidden frames must be [B, F, {self.config.input_width}], got {list(hidden.shape)}")
        weights = self.layer_weight_logits.to(hidden).softmax(dim=0) * self.layer_scale.to(hidden)
        layers = hidden.unflatten(-1, (self.config.layers, self.config.hidden_width))
        mixed = torch.einsum("bflc,l->bcf", layers, weights)
        return self.proj(mixed)

    def aligned_condition(self, hidden: Tensor) -> Tensor:
        """`(B, F, layers * hidden_width) -> (B, condition_channels, aligned_mel_length(F))`, float32."""
        condition = self.condition(hidden.float())
        return interpolate(condition, size=self.aligned_mel_length(hidden.shape[1]), mode="nearest")

    forward = aligned_condition
