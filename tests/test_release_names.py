"""The published names and shapes, official and Comfy-Org, mapped onto the modules of the release."""

import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from mm3 import ConditionEncoderConfig, TransformerConfig, VocoderConfig
from mm3.checkpoint.checkpoint import _split
from mm3.checkpoint.files import StoredTensor
from mm3.load import skeleton

INV_FREQ = "diffusion_transformer.transformer.rotary_pos_emb.inv_freq"


def official_transformer():
    shapes = {
        "time_proj.weight": (128, 1),
        "time_embed.linear_1.weight": (2048, 256),
        "time_embed.linear_1.bias": (2048,),
        "time_embed.linear_2.weight": (2048, 2048),
        "time_embed.linear_2.bias": (2048,),
        "preprocess_conv.weight": (2304, 2304, 1),
        "proj_in.weight": (2048, 2304),
        "proj_out.weight": (128, 2048),
        "postprocess_conv.weight": (128, 128, 1),
    }
    for block in range(36):
        root = f"transformer_blocks.{block}."
        for name in ("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"):
            shapes[root + name] = (2048,)
        for name in ("to_q", "to_k", "to_v", "to_out.0"):
            shapes[f"{root}attn.{name}.weight"] = (2048, 2048)
        shapes |= {root + "ff_in.weight": (16384, 2048), root + "ff_in.bias": (16384,)}
        shapes |= {root + "ff_out.weight": (2048, 8192), root + "ff_out.bias": (2048,)}
    return shapes


def official_condition_encoder():
    proj = {"proj.weight": (2048, 4096, 3), "proj.bias": (2048,)}
    return {"layer_weight_logits": (8,), "layer_scale": (1,)} | proj


def normed(name, weight, outputs):
    return {f"{name}.weight_g": (weight[0], 1, 1), f"{name}.weight_v": weight, f"{name}.bias": (outputs,)}


def official_vocoder():
    shapes = {"dec_in_proj.weight": (1024, 64, 1), "dec_in_proj.bias": (1024,)}
    shapes |= normed("conv_in", (1536, 1024, 7), 1536)
    for index, (wide, narrow, kernel) in enumerate([(1536, 768, 16), (768, 384, 16), (384, 192, 8), (192, 96, 4)]):
        stage = f"blocks.{index}"
        shapes[f"{stage}.snake1.alpha"] = (1, wide, 1)
        shapes |= normed(f"{stage}.conv_t1", (wide, narrow, kernel), narrow)
        for unit in (f"{stage}.res_unit1", f"{stage}.res_unit2", f"{stage}.res_unit3"):
            shapes |= {f"{unit}.snake1.alpha": (1, narrow, 1), f"{unit}.snake2.alpha": (1, narrow, 1)}
            shapes |= normed(f"{unit}.conv1", (narrow, narrow, 7), narrow)
            shapes |= normed(f"{unit}.conv2", (narrow, narrow, 1), narrow)
    return shapes | {"snake_out.alpha": (1, 96, 1)} | normed("conv_out", (1, 96, 7), 1)


def comfy_dit():
    root = "diffusion_transformer."
    shapes = {"cond_layer_logits": (8,), "cond_layer_scale": (1,), INV_FREQ: (16,)}
    shapes |= {"latent_conditioners.0.weight": (2048, 4096, 3), "latent_conditioners.0.bias": (2048,)}
    shapes |= {root + "preprocess_conv.weight": (2304, 2304, 1), root + "postprocess_conv.weight": (128, 128, 1)}
    shapes |= {root + "timestep_features.weight": (128, 1)}
    shapes |= {root + "to_timestep_embed.0.weight": (2048, 256), root + "to_timestep_embed.0.bias": (2048,)}
    shapes |= {root + "to_timestep_embed.2.weight": (2048, 2048), root + "to_timestep_embed.2.bias": (2048,)}
    shapes |= {root + "transformer.project_in.weight": (2048, 2304)}
    shapes |= {root + "transformer.project_out.weight": (128, 2048)}
    for number in range(36):
        layer = f"{root}transformer.layers.{number}."
        for name in ("pre_norm.gamma", "pre_norm.beta", "ff_norm.gamma", "ff_norm.beta"):
            shapes[layer + name] = (2048,)
        shapes |= {layer + "self_attn.to_qkv.weight": (6144, 2048), layer + "self_attn.to_out.weight": (2048, 2048)}
        shapes |= {layer + "ff.ff.0.proj.weight": (16384, 2048), layer + "ff.ff.0.proj.bias": (16384,)}
        shapes |= {layer + "ff.ff.2.weight": (2048, 8192), layer + "ff.ff.2.bias": (2048,)}
    return shapes


def comfy_vocoder():
    shapes = {"dec_in_proj.weight": (1024, 64, 1), "dec_in_proj.bias": (1024,)}
    shapes |= normed("decoder.model.0", (1536, 1024, 7), 1536)
    for number, (wide, narrow, kernel) in enumerate([(1536, 768, 16), (768, 384, 16), (384, 192, 8), (192, 96, 4)]):
        stage = f"decoder.model.{number + 1}.block"
        shapes[f"{stage}.0.alpha"] = (1, wide, 1)
        shapes |= normed(f"{stage}.1", (wide, narrow, kernel), narrow)
        for unit in (f"{stage}.2.block", f"{stage}.3.block", f"{stage}.4.block"):
            shapes |= {f"{unit}.0.alpha": (1, narrow, 1), f"{unit}.2.alpha": (1, narrow, 1)}
            shapes |= normed(f"{unit}.1", (narrow, narrow, 7), narrow)
            shapes |= normed(f"{unit}.3", (narrow, narrow, 1), narrow)
    return shapes | {"decoder.model.5.alpha": (1, 96, 1)} | normed("decoder.model.6", (1, 96, 7), 1)


RELEASE = {
    "official transformer": (official_transformer, 441, 2_431_905_920, ["transformer"]),
    "official condition encoder": (official_condition_encoder, 4, 25_167_881, ["condition_encoder"]),
    "official vocoder": (official_vocoder, 121, 54_170_722, ["vocoder"]),
    "Comfy-Org DiT": (comfy_dit, 374, 2_431_905_920 + 25_167_881 + 16, ["transformer", "condition_encoder"]),
    "Comfy-Org vocoder": (comfy_vocoder, 121, 54_170_722, ["vocoder"]),
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


@pytest.mark.parametrize("layout", RELEASE)
def test_names_here_have_the_published_number_and_parameters(layout):
    names, count, parameters, _ = RELEASE[layout]
    assert len(names()) == count
    assert sum(math.prod(shape) for shape in names().values()) == parameters


@pytest.mark.parametrize(
    ("layout", "prefix"),
    [*((layout, "") for layout in RELEASE), ("Comfy-Org DiT", "model.diffusion_model.")],
)
def test_released_names_map_one_to_one_onto_the_modules_of_the_release(layout, prefix):
    tensors = stored(RELEASE[layout][0](), prefix)
    components = _split(tensors, {}, "release")
    assert list(components) == RELEASE[layout][3]
    used = Counter()
    for name, component in components.items():
        assert component.layout == layout
        assert component.config == CONFIGS[name]
        expected = skeleton(component)
        assert {key: recipe.shape for key, recipe in component.recipes.items()} == {
            key: tuple(parameter.shape) for key, parameter in expected.items()
        }
        component.check(expected)
        used.update(part.key for recipe in component.recipes.values() for part in recipe.parts)
    assert set(used.values()) == {1}
    assert set(tensors) - set(used) == ({prefix + INV_FREQ} if layout == "Comfy-Org DiT" else set())


def test_parameters_of_the_modules_are_those_of_the_release():
    (transformer,) = _split(stored(official_transformer()), {}, "").values()
    (encoder,) = _split(stored(official_condition_encoder()), {}, "").values()
    assert (transformer.parameters, encoder.parameters) == (2_431_905_920, 25_167_881)
    (vocoder,) = _split(stored(official_vocoder()), {}, "").values()
    gains = sum(math.prod(shape) for name, shape in official_vocoder().items() if name.endswith("weight_g"))
    assert vocoder.parameters == 54_170_722 - gains


@pytest.mark.parametrize(("official", "comfy"), [(official_vocoder, comfy_vocoder)])
def test_codec_names_lead_to_the_same_parameters_as_official_ones(official, comfy):
    (one,), (other,) = (_split(stored(names()), {}, "").values() for names in (official, comfy))
    assert {key: recipe.folded for key, recipe in one.recipes.items()} == {
        key: recipe.folded for key, recipe in other.recipes.items()
    }
    assert sum(recipe.folded for recipe in one.recipes.values()) == 1 + 4 * 7 + 1
