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


def encoded(start: float = 0.0, end: float = 0.0) -> dict:
    """The windows of the frames between two seconds."""
    return node("MM3ConditionEncoder", model=["load", 0], conditioning=["frames", 0], start=start, end=end)


def sampled(condition: str = "encode", **given) -> dict:
    """A quick solve of the condition that a node gives."""
    settings = {"steps": 3, "cfg": 1.0, "seed": 11, "model": ["load", 0], "condition": [condition, 0], **given}
    return node("MM3DiTEulerSampler", **settings)


def four_windows(**changes) -> dict:
    """The whole song, with the nodes in `changes` added, saved as `latent` from the one named there or `sample`."""
    graph = {key: value for key, value in song().items() if key in ("load", "frames", "latent")}
    graph["frames"]["inputs"]["file"] = "four.safetensors [input]"
    graph |= {"encode": encoded(), "sample": sampled()}
    result = changes.pop("result", "sample")
    graph |= changes
    graph["latent"]["inputs"]["samples"] = [result, 0]
    return graph
