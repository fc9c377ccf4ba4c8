"""Socket types of this pack, and what travels on them."""

from comfy_api.latest import io
from torch import Tensor

Model = io.Custom("MM3_MODEL")
"""A nodes.host.Managed around mm3.MiniMaxMusic3FlowMatchingDiT."""

Vocoder = io.Custom("MM3_VOCODER")
"""A nodes.host.Managed around mm3.MiniMaxMusic3Vocoder."""

Condition = io.Custom("MM3_CONDITION")
"""An mm3.SongCondition: the encoded windows of a song."""

Conditioning = list[tuple[Tensor, dict[str, object]]]
Latent = dict[str, object]
