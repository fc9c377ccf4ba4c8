"""The nodes of this pack."""

from comfy_api.latest import ComfyExtension, io

from .conditioning import AlignedMelLength, ConditionEncoder, LoadConditioning, SaveConditioning
from .decoding import DACDecode
from .loaders import LoadCheckpoint
from .sampling import DiTEulerSampler

NODES: list[type[io.ComfyNode]] = [
    LoadCheckpoint,
    ConditionEncoder,
    SaveConditioning,
    LoadConditioning,
    AlignedMelLength,
    DiTEulerSampler,
    DACDecode,
]


class MM3Extension(ComfyExtension):
    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return NODES
