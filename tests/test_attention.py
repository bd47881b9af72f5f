"""Attention to the tree against a full mask: values, gradients, log-probs of whole models."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig

from ninegrid.tree.attention import Blocks, attend_to_tree, take_over_attention
from ninegrid.tree.layout import lay_out
from ninegrid.tree.token_tree import ROOT, TokenTree


def attend(query, trunk, keys, values, paths, scale):
    blocks = Blocks.of(lay_out(paths, trunk[0].shape[1]), query.shape[0] // keys.shape[0], query)
    keys, values = (torch.cat(pair, dim=1) for pair in zip(trunk, (keys, values), strict=True))
    return attend_to_tree(query, keys, values, blocks, scale)


def reference(query, trunk, keys, values, paths, scale):
    """Softmax over the trunk and the row's path, one row and one head at a time."""
    heads, rows, _ = query.shape
    group = heads // keys.shape[0]
    out = []
    for head in range(heads):
        k = torch.cat([trunk[0][head // group], keys[head // group]])
        v = torch.cat([trunk[1][head // group], values[head // group]])
        for row in range(rows):
            path = torch.from_numpy(paths[row][paths[row] != ROOT])
            columns = torch.cat([torch.arange(trunk[0].shape[1]), path + trunk[0].shape[1]])
            weight = torch.softmax(k[columns] @ query[head, row] * scale, dim=0)
            out.append(weight @ v[columns])
    return torch.stack(out).view(heads, rows, -1)


def case(sequences, start, trunk_length, seed=0, heads=4, key_heads=2, width=3):
    generator = torch.Generator().manual_seed(seed)
    tree = TokenTree()
    for sequence in sequences:
        tree.add(sequence)
    start = min(start, len(tree) - 1)
    paths = tree.paths(start)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    tensors = [
        random(heads, len(paths), width),
        random(key_heads, trunk_length, width),
        random(key_heads, trunk_length, width),
        random(key_heads, len(tree), width),
        random(key_heads, len(tree), width),
    ]
    return paths, tensors


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=12),
    st.integers(0, 8),
    st.sampled_from([0, 1, 5]),
)
def test_values_and_gradients_are_those_of_plain_attention(sequences, start, trunk_length):
    paths, (query, trunk_keys, trunk_values, keys, values) = case(sequences, start, trunk_length)
    inputs = (query, trunk_keys, trunk_values, keys, values)
    found = attend(query, (trunk_keys, trunk_values), keys, values, paths, 0.7)
    wanted = reference(query, (trunk_keys, trunk_values), keys, values, paths, 0.7)
    torch.testing.assert_close(found, wanted)
    weight = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found)
    got = torch.autograd.grad((found * weight).sum(), inputs)
    expected = torch.autograd.grad((wanted * weight).sum(), inputs)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_one_row_by_hand():
    # One head of width 1, scale 1: scores of the trunk token log 2, of the row's own node 0.
    query = torch.tensor([[[1.0]]])
    trunk = (torch.tensor([[[np.log(2.0)]]], dtype=torch.float32), torch.tensor([[[6.0]]]))
    keys, values = torch.tensor([[[0.0]]]), torch.tensor([[[3.0]]])
    # Weights 2/3 and 1/3: 6 * 2/3 + 3 * 1/3 = 5.
    assert attend(query, trunk, keys, values, np.array([[0]]), 1.0).item() == pytest.approx(5.0)


def test_scores_too_large_for_exp_are_no_problem():
    paths, tensors = case([[0, 1], [0, 2]], 0, 2)
    query, *rest = (t.detach().float() * 100 for t in tensors)
    trunk_keys, trunk_values, keys, values = rest
    found = attend(query, (trunk_keys, trunk_values), keys, values, paths, 1.0)
    assert torch.isfinite(found).all()
    torch.testing.assert_close(
        found, reference(query, (trunk_keys, trunk_values), keys, values, paths, 1.0), rtol=1e-4, atol=1e-3
    )


def test_half_precision_stays_close():
    paths, tensors = case([[0, 1, 2], [0, 2], [1]], 0, 3, width=16)
    query, trunk_keys, trunk_values, keys, values = (t.detach().bfloat16() for t in tensors)
    found = attend(query, (trunk_keys, trunk_values), keys, values, paths, 0.25)
    assert found.dtype == torch.bfloat16
    exact = [t.float() for t in (query, trunk_keys, trunk_values, keys, values)]
    wanted = reference(exact[0], (exact[1], exact[2]), exact[3], exact[4], paths, 0.25)
    torch.testing.assert_close(found.float(), wanted, rtol=0.05, atol=0.05)


def test_a_model_that_was_taken_over_is_an_ordinary_one_without_a_tree(tmp_path):
    config = LlamaConfig(
        vocab_size=24, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    before = model(ids, attention_mask=mask).logits
    model.save_pretrained(tmp_path / "before")
    take_over_attention(model)
    assert torch.equal(model(ids, attention_mask=mask).logits, before)
    model.save_pretrained(tmp_path / "after")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "after" / name).read_bytes() == (tmp_path / "before" / name).read_bytes()
