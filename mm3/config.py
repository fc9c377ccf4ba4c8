"""Sizes of the three networks. The defaults are the released model; a checkpoint's tensors give any other."""

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class ConditionEncoderConfig:
    """`layers` hidden states of `hidden_width` per frame, mixed and projected to `condition_channels`."""

    hidden_width: int = 4096
    layers: int = 8
    condition_channels: int = 2048

    @property
    def input_width(self) -> int:
        """Width of one frame of `hidden`: all layers side by side."""
        return self.layers * self.hidden_width


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of the velocity field."""

    latent_channels: int = 128
    condition_channels: int = 2048
    width: int = 2048
    depth: int = 36
    head_width: int = 64
    ff_width: int = 8192
    fourier_features: int = 256
    rotary_width: int = 32

    def __post_init__(self) -> None:
        if self.head_width < 1 or self.width % self.head_width:
            raise ValueError(f"transformer width {self.width} is not a multiple of the head width {self.head_width}")
        if self.rotary_width % 2 or self.rotary_width > self.head_width:
            raise ValueError(
                f"rotary width {self.rotary_width} must be even and at most the head width {self.head_width}"
            )

    @property
    def input_channels(self) -> int:
        """Latent, a block of zeros as wide as the latent, condition."""
        return 2 * self.latent_channels + self.condition_channels

    @property
    def heads(self) -> int:
        return self.width // self.head_width


@dataclass(frozen=True)
class VocoderConfig:
    """Sizes of the decoder. `latent_channels` counts both stereo channels."""

    latent_channels: int = 128
    input_width: int = 1024
    width: int = 1536
    strides: tuple[int, ...] = (8, 8, 4, 2)

    def __post_init__(self) -> None:
        if self.latent_channels % 2:
            raise ValueError(f"latent channels hold two stereo channels, so {self.latent_channels} must be even")
        if self.width % 2 ** len(self.strides):
            raise ValueError(f"decoder width {self.width} cannot be halved {len(self.strides)} times")

    @property
    def hop(self) -> int:
        """Audio samples per latent step."""
        return prod(self.strides)

    @property
    def context(self) -> int:
        """Latent steps to each side that one audio sample can depend on, rounded up."""
        reach = 3  # conv_out, kernel 7
        for stride in reversed(self.strides):
            reach += 3 * (1 + 3 + 9)  # residual units, kernel 7, dilations 1, 3, 9
            reach = -(-reach // stride) + 1  # transposed convolution, kernel 2 * stride
        return reach + 3  # conv_in, kernel 7
