"""MM3 Load Checkpoint."""

from pathlib import Path

from comfy_api.latest import io

from ..mm3.checkpoint import CheckpointError, open_checkpoint
from ..mm3.load import load_dit, load_vocoder, open_dit
from . import host, types

_DIT_FOLDERS = ("diffusion_models", "checkpoints")
_VOCODER_FOLDERS = ("vae", "checkpoints")
_FROM_CHECKPOINT = "from checkpoint"


class LoadCheckpoint(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        transformers, encoders = host.checkpoint_choices(_DIT_FOLDERS, "transformer", "condition_encoder")
        (vocoders,) = host.checkpoint_choices(_VOCODER_FOLDERS, "vocoder")
        return io.Schema(
            node_id="MM3LoadCheckpoint",
            display_name="MM3 Load Checkpoint",
            category="MM3",
            description="Loads the acoustic stage of MiniMax Music 3: the model that turns conditioning into a latent, "
            "and the vocoder that turns the latent into 44.1 kHz stereo audio.",
            search_aliases=["minimax music 3 loader", "mm3 model"],
            inputs=[
                io.Combo.Input(
                    "checkpoint",
                    options=transformers,
                    tooltip="DiT file in models/diffusion_models (minimax_music3_dit_*.safetensors, "
                    "flowmatching_vae.pth), or a whole model folder in models/diffusers (ends in a slash). Only files "
                    "that hold this model are listed; press R after adding one.",
                ),
                io.Combo.Input(
                    "vocoder",
                    options=vocoders,
                    tooltip="Vocoder file in models/vae (minimax_music3_dav.safetensors, dav.pth), or a model folder "
                    "in models/diffusers. Always computed in float32.",
                ),
                io.Combo.Input(
                    "weight_dtype",
                    options=["auto", *host.DTYPES],
                    default="auto",
                    tooltip="Dtype of the wide weights in memory: fp32 about 9.8 GB, bf16 and fp16 about 5 GB. auto "
                    "takes the file's own where the device allows (fp16 for bf16 on cards without bf16), and fp32 on a "
                    "CPU. Float16 is computed only where it is trusted. int8, scaled fp8 and GGUF files stay as small "
                    "as they are, and are computed in this dtype. Latents stay float32 in any case.",
                ),
                io.Combo.Input(
                    "condition_encoder",
                    options=[_FROM_CHECKPOINT, *encoders],
                    default=_FROM_CHECKPOINT,
                    optional=True,
                    tooltip="Where the condition encoder is: in the checkpoint itself, as in the Comfy-Org files and "
                    "whole folders, or in a file or folder of its own, for a DiT file without one.",
                ),
            ],
            outputs=[
                types.Model.Output(display_name="model", tooltip="Condition encoder and transformer."),
                types.Vocoder.Output(display_name="vocoder", tooltip="Decoder of latents to audio."),
            ],
        )

    @classmethod
    def validate_inputs(
        cls, checkpoint: str | None, vocoder: str | None, condition_encoder: str | None = _FROM_CHECKPOINT
    ) -> bool | str:
        try:
            if checkpoint is not None:  # a linked input is not known before it runs
                host.checkpoint_path(_DIT_FOLDERS, checkpoint)
            if vocoder is not None:
                host.checkpoint_path(_VOCODER_FOLDERS, vocoder)
            if condition_encoder is not None:
                _encoder_path(condition_encoder)
        except CheckpointError as error:
            return str(error)
        return True

    @classmethod
    def execute(
        cls, checkpoint: str, vocoder: str, weight_dtype: str, condition_encoder: str = _FROM_CHECKPOINT
    ) -> io.NodeOutput:
        dit_file = open_dit(host.checkpoint_path(_DIT_FOLDERS, checkpoint), _encoder_path(condition_encoder))
        vocoder_file = open_checkpoint(host.checkpoint_path(_VOCODER_FOLDERS, vocoder))
        transformer = dit_file.component("transformer")
        vocoder_file.component("vocoder")

        stored = host.DTYPES["bf16"] if transformer.packed else transformer.dtype
        dtype = host.weight_dtype(weight_dtype, stored, transformer.parameters)
        compute = host.compute_dtype(dtype, transformer.parameters)
        dit = load_dit(
            dit_file,
            dtype=dtype,
            compute_dtype=compute,
            operations=host.operations(dtype, compute),
            attention=host.attention(),
            packed_layer=host.packed_layer(compute),
        )
        decoder = load_vocoder(vocoder_file, operations=host.operations(*[host.DTYPES["fp32"]] * 2))
        host.log.info(
            "MM3 %s: weights %s, %.2f GB, computed in %s, attention %s",
            checkpoint,
            f"kept as {transformer.stored_as}" if transformer.packed else dtype,
            host.gigabytes(dit),
            compute,
            dit.transformer.attention_backend_name,
        )
        return io.NodeOutput(
            host.manage(dit, checkpoint, *host.model_devices()),
            host.manage(decoder, vocoder, *host.vocoder_devices()),
        )


def _encoder_path(choice: str) -> Path | None:
    """The path of a condition encoder of its own; raises as `host.checkpoint_path`."""
    return None if choice == _FROM_CHECKPOINT else host.checkpoint_path(_DIT_FOLDERS, choice)
