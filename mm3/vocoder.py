"""DAC-style decoder: latent steps to stereo samples. Float32, plain convolutions, weight norm already folded."""

import math

import torch
from torch import Tensor, nn

from .config import VocoderConfig
from .operations import Device, Operations

_EPSILON = 1e-9


class Snake(nn.Module):
    """`(B, C, N) -> (B, C, N)`: x + sin(alpha x)^2 / alpha, one learned alpha per channel."""

    def __init__(self, channels: int, *, device: Device = None) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(1, channels, 1, dtype=torch.float32, device=device))

    def forward(self, x: Tensor) -> Tensor:
        alpha = self.alpha.to(x)
        return (x * alpha).sin_().square_().mul_((alpha + _EPSILON).reciprocal()).add_(x)


class ResidualUnit(nn.Module):
    """`(B, C, N) -> (B, C, N)`: a dilated and a pointwise convolution beside the identity."""

    def __init__(self, dim: int, dilation: int, *, operations: Operations = nn, device: Device = None) -> None:
        super().__init__()
        options = {"dtype": torch.float32, "device": device}
        self.snake1 = Snake(dim, device=device)
        self.conv1 = operations.Conv1d(dim, dim, 7, dilation=dilation, padding=3 * dilation, **options)
        self.snake2 = Snake(dim, device=device)
        self.conv2 = operations.Conv1d(dim, dim, 1, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.snake2(self.conv1(self.snake1(x)))).add_(x)


class DecoderBlock(nn.Module):
    """`(B, C, N) -> (B, C/2, stride * N)`: stretch, then refine."""

    def __init__(self, dim: int, stride: int, *, operations: Operations = nn, device: Device = None) -> None:
        super().__init__()
        self.snake1 = Snake(dim, device=device)
        self.conv_t1 = operations.ConvTranspose1d(
            dim,
            dim // 2,
            2 * stride,
            stride=stride,
            padding=math.ceil(stride / 2),
            dtype=torch.float32,
            device=device,
        )
        self.res_unit1 = ResidualUnit(dim // 2, 1, operations=operations, device=device)
        self.res_unit2 = ResidualUnit(dim // 2, 3, operations=operations, device=device)
        self.res_unit3 = ResidualUnit(dim // 2, 9, operations=operations, device=device)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_t1(self.snake1(x))
        return self.res_unit3(self.res_unit2(self.res_unit1(x)))


class MiniMaxMusic3Vocoder(nn.Module):
    """`(B, 128, T) -> (B, 2, 512 T)`, samples in [-1, 1]. The two halves of the channels are left and right."""

    def __init__(
        self, config: VocoderConfig | None = None, *, operations: Operations = nn, device: Device = None
    ) -> None:
        super().__init__()
        self.config = config = config or VocoderConfig()
        options = {"dtype": torch.float32, "device": device}
        self.dec_in_proj = operations.Conv1d(config.latent_channels // 2, config.input_width, 1, **options)
        self.conv_in = operations.Conv1d(config.input_width, config.width, 7, padding=3, **options)
        widths = [config.width // 2**index for index in range(len(config.strides) + 1)]
        self.blocks = nn.ModuleList(
            DecoderBlock(width, stride, operations=operations, device=device)
            for width, stride in zip(widths, config.strides, strict=False)
        )
        self.snake_out = Snake(widths[-1], device=device)
        self.conv_out = operations.Conv1d(widths[-1], 1, 7, padding=3, **options)

    def forward(self, latent: Tensor) -> Tensor:
        batch, channels, length = latent.shape
        x = self.conv_in(self.dec_in_proj(latent.reshape(2 * batch, channels // 2, length)))
        for block in self.blocks:
            x = block(x)
        return torch.tanh(self.conv_out(self.snake_out(x))).reshape(batch, 2, -1)
