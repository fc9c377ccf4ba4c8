"""The nodes of this pack."""

from comfy_api.latest import ComfyExtension, io

from .conditioning import ConditionEncoder, LoadConditioning, SaveConditioning
from .decoding import DACDecode
from .editing import JoinLatents, Repaint
from .lengths import AlignedMelLength, SongPosition
from .loaders import LoadCheckpoint
from .report import WindowReport
from .sampling import DiTEulerSampler

NODES: list[type[io.ComfyNode]] = [
    LoadCheckpoint,
    ConditionEncoder,
    SaveConditioning,
    LoadConditioning,
    AlignedMelLength,
    DiTEulerSampler,
    JoinLatents,
    Repaint,
    DACDecode,
    WindowReport,
    SongPosition,
]


class MM3Extension(ComfyExtension):
    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return NODES
