"""Names and shapes of the released files, as published; those of converted files by their rules."""

import torch
from other_writers import hot_step_condition, hot_step_dit, hot_step_vocoder

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


def dav_encoder():
    shapes = normed("encoder.block.0", (64, 1, 7), 64)
    for number, stride in enumerate((2, 4, 8, 8), start=1):
        width, stage = 32 * 2**number, f"encoder.block.{number}.block"
        for unit in range(3):
            shapes |= {f"{stage}.{unit}.block.{slope}.alpha": (1, width, 1) for slope in (0, 2)}
            shapes |= normed(f"{stage}.{unit}.block.1", (width, width, 7), width)
            shapes |= normed(f"{stage}.{unit}.block.3", (width, width, 1), width)
        shapes[f"{stage}.3.alpha"] = (1, width, 1)
        shapes |= normed(f"{stage}.4", (2 * width, width, 2 * stride), 2 * width)
    shapes |= {"encoder.block.5.alpha": (1, 1024, 1)} | normed("encoder.block.6", (1024, 1024, 3), 1024)
    for name in ("mean_proj", "logs_proj"):
        shapes |= {f"{name}.weight": (64, 1024, 1), f"{name}.bias": (64,)}
    return shapes


def simple_tuner():
    return dav_encoder() | comfy_vocoder()


def dav_pth():
    """The names of the flow are not published, only that there are 304."""
    return simple_tuner() | {f"flow.{number}": (1,) for number in range(304)}


def official_folded():
    """Weight norm multiplied out: only the weight itself is left of its two factors."""
    return {
        name.removesuffix("_v"): shape for name, shape in official_vocoder().items() if not name.endswith("weight_g")
    }


def cpp_vocoder():
    flat = {name: shape[1:2] if name.endswith("alpha") else shape for name, shape in official_folded().items()}
    return flat | {"encoder.conv_in.weight": (64, 1, 7), "encoder.mean_proj.weight": (64, 1024, 1)}


def meta(shapes):
    return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}


def shapes_of(state):
    return {name: tuple(value.shape) for name, value in state.items()}


def step_dit():
    return shapes_of(hot_step_dit({"transformer": meta(official_transformer())}))


def step_condition():
    return shapes_of(hot_step_condition({"condition_encoder": meta(official_condition_encoder())}))


def step_vocoder():
    names = hot_step_vocoder({"vocoder": meta(official_folded())})
    return shapes_of(names)


def step_bundle():
    depth = {f"depth.{number}": (1,) for number in range(47)}
    return step_dit() | step_condition() | step_vocoder() | depth


def whole_in_one_file():
    parts = {
        "transformer": official_transformer(),
        "condition_encoder": official_condition_encoder(),
        "vocoder": official_vocoder(),
    }
    return {f"{part}.{name}": shape for part, shapes in parts.items() for name, shape in shapes.items()}
