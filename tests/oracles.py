"""The published classes in this library's sizes."""

from diffusers.models import MiniMaxMusic3Transformer1DModel

from mm3 import TransformerConfig


def reference_transformer(config: TransformerConfig) -> MiniMaxMusic3Transformer1DModel:
    """diffusers' transformer with torch's own initialisation."""
    return MiniMaxMusic3Transformer1DModel(
        in_channels=config.latent_channels,
        condition_dim=config.condition_channels,
        num_layers=config.depth,
        num_attention_heads=config.heads,
        ff_inner_dim=config.ff_width,
        fourier_embedding_dim=config.fourier_features,
    ).eval()
