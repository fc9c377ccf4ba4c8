"""The acoustic stage of MiniMax Music 3 in pure torch: hidden frames of the language model in, stereo audio out.

    dit, vocoder = ...                                               # mm3.load: load_dit, load_vocoder
    condition = encode_song(dit.condition_encoder, hidden)           # per window
    latent, carry = solve_song(dit.transformer, condition, seed=0)   # in order, each pinned to the one before
    audio = decode(vocoder, latent)                                  # in tiles, exact

Letters in shapes: B batch, F frames (25 per second), T latent steps (44100/512 per second), N audio samples
(44,100 per second), C channels, H heads, D head width.
"""

from .attention import AttentionBackend
from .checkpoint import remap_transformer_state
from .condition import MiniMaxMusic3ConditionEncoder
from .config import ConditionEncoderConfig, TransformerConfig, VocoderConfig
from .decode import decode
from .flow import MiniMaxMusic3FlowMatchingDiT
from .song import Carry, NonFiniteError, SongCondition, encode_song, solve_song
from .transformer import (
    Attention,
    FourierFeatures,
    MiniMaxMusic3Transformer1DModel,
    TimestepEmbedding,
    TransformerBlock,
)
from .vocoder import MiniMaxMusic3Vocoder

__all__ = [
    "Attention",
    "AttentionBackend",
    "Carry",
    "ConditionEncoderConfig",
    "FourierFeatures",
    "MiniMaxMusic3ConditionEncoder",
    "MiniMaxMusic3FlowMatchingDiT",
    "MiniMaxMusic3Transformer1DModel",
    "MiniMaxMusic3Vocoder",
    "NonFiniteError",
    "SongCondition",
    "TimestepEmbedding",
    "TransformerBlock",
    "TransformerConfig",
    "VocoderConfig",
    "decode",
    "encode_song",
    "remap_transformer_state",
    "solve_song",
]
