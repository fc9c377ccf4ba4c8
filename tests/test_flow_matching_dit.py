"""The documented solve of one window, and the documented rewrite of an official transformer state."""

import inspect

import pytest
import torch

from mm3 import MiniMaxMusic3FlowMatchingDiT, remap_transformer_state
from mm3.demo import official_states

BLOCK = "transformer_blocks.3"


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def published_solve(transformer, align, seed, steps, guidance, latent=None):
    """Euler steps written out, with both branches apart."""
    noise = randn(1, 128, align.shape[-1], seed=seed)
    x, zeros = noise.clone(), torch.zeros_like(align)
    for step in range(steps):
        t = torch.tensor([step / steps])
        if latent is not None:
            left = latent.shape[-1]
            x[..., :left] = (1 - (1 - 1e-6) * t) * noise[..., :left] + t * latent
        x = x + (guidance * transformer(x, t, align) + (1 - guidance) * transformer(x, t, zeros)) / steps
    return x


def test_forward_has_the_documented_signature():
    parameters = inspect.signature(MiniMaxMusic3FlowMatchingDiT.forward).parameters
    assert list(parameters) == [
        *("self", "align", "generator", "initial_latent", "initial_condition", "num_steps", "cfg_scale"),
    ]
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in list(parameters)[2:])
    assert [parameters[name].default for name in list(parameters)[2:]] == [inspect.Parameter.empty, None, None, 30, 1.7]


@pytest.mark.parametrize("guidance", [1.0, 1.7])
def test_forward_solves_from_the_noise_of_the_generator(dit, guidance):
    align = randn(1, 32, 20, seed=1)
    latent = dit(align, generator=torch.Generator().manual_seed(5), num_steps=4, cfg_scale=guidance)
    expected = published_solve(dit.transformer, align, 5, 4, guidance)
    assert latent.shape == (1, 128, 20)
    assert (latent - expected).abs().max() <= 1e-5


def test_forward_pins_the_prompt_and_overwrites_the_condition_in_place(dit):
    align, carried = randn(1, 32, 20, seed=1), randn(1, 32, 6, seed=2)
    prompt, before = randn(1, 128, 6, seed=3), align.clone()
    latent = dit(
        align,
        generator=torch.Generator().manual_seed(5),
        initial_latent=prompt,
        initial_condition=carried,
        num_steps=4,
    )
    assert torch.equal(align[..., :6], carried) and torch.equal(align[..., 6:], before[..., 6:])
    assert torch.equal(latent[..., :6], prompt)
    expected = published_solve(dit.transformer, align, 5, 4, 1.7, prompt)
    assert (latent - expected)[..., 6:].abs().max() <= 1e-5


def test_forward_leaves_the_condition_alone_without_a_carried_one(dit):
    align = randn(1, 32, 20, seed=1)
    before = align.clone()
    dit(align, generator=torch.Generator(), initial_latent=randn(1, 128, 6), num_steps=1)
    assert torch.equal(align, before)


def test_forward_cuts_a_prompt_that_is_longer_than_the_window(dit):
    align, prompt = randn(1, 32, 5, seed=1), randn(1, 128, 9)
    latent = dit(align, generator=torch.Generator(), initial_latent=prompt, initial_condition=randn(1, 32, 9))
    assert torch.equal(latent, prompt[..., :5])


@pytest.mark.parametrize("steps", [0, -3])
def test_forward_refuses_to_run_without_steps_and_changes_nothing(dit, steps):
    align, generator = randn(1, 32, 5), torch.Generator().manual_seed(1)
    before, state = align.clone(), generator.get_state()
    with pytest.raises(ValueError, match=str(steps)):
        dit(
            align,
            generator=generator,
            initial_latent=randn(1, 128, 2),
            initial_condition=randn(1, 32, 2, seed=1),
            num_steps=steps,
        )
    assert torch.equal(align, before) and torch.equal(generator.get_state(), state)


def attention_state(letters="qkv"):
    return {f"{BLOCK}.attn.to_{letter}.weight": torch.full((2, 3), float(ord(letter))) for letter in letters}


@pytest.mark.parametrize("order", ["qkv", "vkq", "kvq"])
def test_remap_puts_query_rows_first_and_value_rows_last_whatever_the_order_of_keys(order):
    state = remap_transformer_state(attention_state(order))
    assert list(state) == [f"{BLOCK}.attn.to_qkv.weight"]
    assert state[f"{BLOCK}.attn.to_qkv.weight"][:, 0].tolist() == [ord(letter) for letter in "qqkkvv"]


def test_remap_drops_the_index_of_the_output_projection():
    out = torch.ones(3, 3)
    state = remap_transformer_state({f"{BLOCK}.attn.to_out.0.weight": out})
    assert list(state) == [f"{BLOCK}.attn.to_out.weight"] and state[f"{BLOCK}.attn.to_out.weight"] is out


def test_remap_copies_other_keys_through_and_leaves_its_argument_alone():
    given = official_states()["transformer"]
    names = list(given)
    state = remap_transformer_state(given)
    untouched = [name for name in names if ".attn." not in name]
    assert len(untouched) == 9 + 2 * 8
    assert all(state[name] is given[name] for name in untouched)
    assert len(state) == len(untouched) + 2 * 2 and list(given) == names


@pytest.mark.parametrize("letters", ["q", "qk", "kv", "v"])
def test_remap_refuses_a_block_without_all_three_projections(letters):
    absent = next(letter for letter in "qkv" if letter not in letters)
    with pytest.raises(ValueError, match=rf"transformer_blocks\.3\.attn\.to_{absent}\.weight"):
        remap_transformer_state(attention_state(letters))
