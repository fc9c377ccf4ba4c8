"""The published names and shapes, official and Comfy-Org, mapped onto the modules of the release."""

import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from release_names import (
    comfy_dit,
    comfy_vocoder,
    cpp_vocoder,
    dav_pth,
    official_condition_encoder,
    official_folded,
    official_transformer,
    official_vocoder,
    simple_tuner,
    step_bundle,
    step_condition,
    step_dit,
    step_vocoder,
    whole_in_one_file,
)

from mm3 import ConditionEncoderConfig, TransformerConfig, VocoderConfig
from mm3.checkpoint.checkpoint import _split
from mm3.checkpoint.files import StoredTensor
from mm3.load import skeleton

DIT, CONDITION, VOCODER = 2_431_905_920, 25_167_881, 54_170_722
GAINS = 13_057
ENCODER = 22_439_168
BOTH, WHOLE = ["transformer", "condition_encoder"], ["transformer", "condition_encoder", "vocoder"]
# Names and shapes, how many, how many numbers they hold (None: not published), components, tensors not needed.
RELEASE = {
    "official transformer": (official_transformer, 441, DIT, ["transformer"], 0),
    "official condition encoder": (official_condition_encoder, 4, CONDITION, ["condition_encoder"], 0),
    "official vocoder": (official_vocoder, 121, VOCODER, ["vocoder"], 0),
    "official in one file": (whole_in_one_file, 566, DIT + CONDITION + VOCODER, WHOLE, 0),
    "Comfy-Org DiT": (comfy_dit, 374, DIT + CONDITION + 16, BOTH, 1),
    "Comfy-Org vocoder": (comfy_vocoder, 121, VOCODER, ["vocoder"], 0),
    "SimpleTuner": (simple_tuner, 244, VOCODER + ENCODER, ["vocoder"], 123),
    "dav.pth": (dav_pth, 548, VOCODER + ENCODER + 304, ["vocoder"], 427),
    "folded vocoder": (official_folded, 91, VOCODER - GAINS, ["vocoder"], 0),
    "minimaxmusic.cpp vocoder": (cpp_vocoder, 93, None, ["vocoder"], 2),
    "HOT-Step transformer": (step_dit, 370, DIT + 16, ["transformer"], 1),
    "HOT-Step condition encoder": (step_condition, 4, CONDITION, ["condition_encoder"], 0),
    "HOT-Step vocoder": (step_vocoder, 91, VOCODER - GAINS, ["vocoder"], 0),
    "HOT-Step bundle": (step_bundle, 512, None, WHOLE, 48),
}
PREFIXES = {
    "official transformer": ("transformer.", "model.diffusion_model.", "diffusion_model."),
    "official condition encoder": ("condition_encoder.",),
    "official vocoder": ("vocoder.",),
    "Comfy-Org DiT": ("model.diffusion_model.", "diffusion_model."),
}
CONFIGS = {
    "transformer": TransformerConfig(),
    "condition_encoder": ConditionEncoderConfig(),
    "vocoder": VocoderConfig(),
}


def stored(shapes, prefix=""):
    return {
        prefix + key: StoredTensor(Path("release.safetensors"), prefix + key, shape, torch.float32)
        for key, shape in shapes.items()
    }


@pytest.mark.parametrize(("names", "count", "parameters", "_", "__"), RELEASE.values(), ids=RELEASE)
def test_names_here_have_the_published_number_and_parameters(names, count, parameters, _, __):
    assert len(names()) == count
    assert parameters in (None, sum(math.prod(shape) for shape in names().values()))


@pytest.mark.parametrize(
    ("layout", "prefix"),
    [(layout, prefix) for layout in RELEASE for prefix in ("", *PREFIXES.get(layout, ()))],
)
def test_released_names_map_one_to_one_onto_the_modules_of_the_release(layout, prefix):
    names, _, _, held, ignored = RELEASE[layout]
    tensors = stored(names(), prefix)
    components = _split(tensors, {}, "release")
    assert set(components) == set(held)
    used = Counter()
    for name, component in components.items():
        assert component.config == CONFIGS[name]
        expected = skeleton(component)
        assert {key: recipe.shape for key, recipe in component.recipes.items()} == {
            key: tuple(parameter.shape) for key, parameter in expected.items()
        }
        component.check(expected)
        used.update(part.key for recipe in component.recipes.values() for part in recipe.parts)
        used.update(component.ignored)
    assert set(used.values()) == {1} and set(used) == set(tensors)
    assert sum(len(component.ignored) for component in components.values()) == ignored


def test_parameters_of_the_modules_are_those_of_the_release():
    (transformer,) = _split(stored(official_transformer()), {}, "").values()
    (encoder,) = _split(stored(official_condition_encoder()), {}, "").values()
    assert (transformer.parameters, encoder.parameters) == (DIT, CONDITION)
    (vocoder,) = _split(stored(official_vocoder()), {}, "").values()
    gains = sum(math.prod(shape) for name, shape in official_vocoder().items() if name.endswith("weight_g"))
    assert (vocoder.parameters, gains) == (VOCODER - gains, GAINS)


def test_codec_names_lead_to_the_same_parameters_as_official_ones():
    (one,), (other,) = (_split(stored(names()), {}, "").values() for names in (official_vocoder, comfy_vocoder))
    assert {key: recipe.folded for key, recipe in one.recipes.items()} == {
        key: recipe.folded for key, recipe in other.recipes.items()
    }
    assert sum(recipe.folded for recipe in one.recipes.values()) == 1 + 4 * 7 + 1
