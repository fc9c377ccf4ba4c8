"""MM3: the acoustic stage of MiniMax Music 3 as ComfyUI nodes. Nothing of ComfyUI is imported until it asks."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comfy_api.latest import ComfyExtension

WEB_DIRECTORY = "./web"

__all__ = ["WEB_DIRECTORY", "comfy_entrypoint"]


async def comfy_entrypoint() -> "ComfyExtension":
    """Called by ComfyUI for the nodes of this pack."""
    from .nodes import MM3Extension

    return MM3Extension()
