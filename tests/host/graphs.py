"""API prompts for the tests, one function a graph."""


def node(class_type: str, **inputs) -> dict:
    return {"class_type": class_type, "inputs": inputs}


def song(**sampler) -> dict:
    """Saved conditioning to a saved latent and a preview of the audio."""
    settings = {"steps": 6, "cfg": 1.7, "seed": 11, **sampler}
    return {
        "load": node("MM3LoadCheckpoint", checkpoint="tiny/", vocoder="tiny/", weight_dtype="auto"),
        "frames": node("MM3LoadConditioning", file="hidden.safetensors [input]"),
        "encode": node("MM3ConditionEncoder", model=["load", 0], conditioning=["frames", 0]),
        "sample": node("MM3DiTEulerSampler", model=["load", 0], condition=["encode", 0], **settings),
        "decode": node("MM3DACDecode", vocoder=["load", 1], latent=["sample", 0], tile=128),
        "latent": node("SaveLatent", samples=["sample", 0], filename_prefix="latents/song"),
        "audio": node("SaveAudio", audio=["decode", 0], filename_prefix="audio/song"),
    }
