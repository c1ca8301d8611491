"""Attention: tiles, masks, dropout, memory, and errors that name the thing."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minitorch_gpu as mt
import minitorch_gpu.nn.functional as F
from tests.nn_support import leaf, near

INF = math.inf


# ---------------------------------------------------------------- attention
def attention_by_hand(q, k, v, seen=None, scale=None):
    """One matrix each; ``seen`` (L, S) says which keys a query sees."""
    scores = q @ k.T * (q.shape[-1] ** -0.5 if scale is None else scale)
    weights = np.exp(scores - scores.max()) * (1 if seen is None else seen)
    return weights / np.maximum(weights.sum(1, keepdims=True), 1e-300) @ v


def heads(length, features, *lead, seed=0, dtype=np.float64):
    """(*lead, L, E), as heads cut from (..., L, H * E): not contiguous."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(*lead[:-1], length, lead[-1], features)).astype(dtype)
    return mt.Tensor(x.swapaxes(-2, -3), requires_grad=True)


class TestAttention:
    @pytest.mark.parametrize(("rows", "keys"), [(5, 5), (130, 130), (70, 150), (150, 70)])
    def test_causal_attention_in_tiles(self, rows, keys):
        q = heads(rows, 4, 2, 3)
        k, v = heads(keys, 4, 2, 3, seed=1), heads(keys, 2, 2, 3, seed=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        seen, last = np.tri(rows, keys), [x.array[1, 2] for x in (q, k, v)]
        near(y[1, 2], attention_by_hand(*last, seen), 1e-9)
        mask = mt.Tensor(seen > 0)
        slope = mt.Tensor(np.random.default_rng(3).normal(size=y.shape))
        tiled = mt.autograd.grad((y * slope).sum(), [q, k, v])
        masked = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        for a, b in zip(tiled, mt.autograd.grad((masked * slope).sum(), [q, k, v])):
            near(a, b.array, 1e-9)

    def test_half_the_memory_of_causal_probabilities_is_saved(self):
        q = heads(256, 4, 1, 1)
        count = lambda causal: sum(w.size for w in F.scaled_dot_product_attention(
            q, q, q, is_causal=causal).edge.links[-1])
        assert count(False) == 256 * 256 and count(True) == 256 * 256 * 5 // 8

    def test_what_it_returns_lies_in_memory_as_the_query_does(self):
        q = heads(6, 4, 2, 3)
        y = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        assert y.transpose(1, 2).array.flags.c_contiguous
        assert mt.autograd.grad(y.sum(), [q])[0].transpose(1, 2).array.flags.c_contiguous

    def test_scale(self):
        q, k, v = heads(3, 4, 1), heads(5, 4, 1, seed=1), heads(5, 2, 1, seed=2)
        y = F.scaled_dot_product_attention(q, k, v, scale=0.3)
        near(y[0], attention_by_hand(q.array[0], k.array[0], v.array[0], scale=0.3), 1e-12)

    @pytest.mark.parametrize("boolean", [True, False])
    def test_a_row_that_sees_no_key_is_zero_and_so_are_its_gradients(self, boolean):
        seen = np.array([[True, False, True], [False] * 3, [True] * 3])
        mask = seen if boolean else np.where(seen, 0.0, -INF)
        q, k, v = heads(3, 2, 1), heads(3, 2, 1, seed=1), heads(3, 2, 1, seed=2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mt.Tensor(mask))
        near(y[0], attention_by_hand(q.array[0], k.array[0], v.array[0], seen), 1e-12)
        assert (y.array[0, 1] == 0).all()
        first = mt.autograd.grad(y.sum(), [q, k, v], retain_graph=True)
        second = mt.autograd.grad(y.sum(), [q, k, v], create_graph=True)
        for a, b in zip(first, second):
            assert np.isfinite(a.array).all()
            near(a, b.array, 1e-12)
        assert (first[0].array[0, 1] == 0).all()

    def test_masks_broadcast(self):
        q, k, v = heads(3, 2, 2, 2), heads(4, 2, 2, 2, seed=1), heads(4, 2, 2, 2, seed=2)
        padding = mt.tensor([[True, True, False, False], [True] * 4]).reshape(2, 1, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=padding)
        short = F.scaled_dot_product_attention(q[:1], k[:1, :, :2], v[:1, :, :2])
        near(y[:1], short.array, 1e-12)

    def test_large_scores_do_not_overflow(self):
        q = mt.tensor([[[100.0, 0.0]]])
        k = mt.tensor([[[100.0, 0.0], [-100.0, 0.0]]])
        near(F.scaled_dot_product_attention(q, k, mt.tensor([[[1.0], [2.0]]])), [[[1]]])

    def test_dropout_of_probabilities(self):
        mt.manual_seed(0)
        q, k = heads(40, 2, 1, 1), heads(50, 2, 1, 1, seed=1)
        v = mt.Tensor(np.eye(50)[None, None])  # so that the output is the weights
        whole = F.scaled_dot_product_attention(q, k, v)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)
        kept = y.array != 0
        assert abs(kept.mean() - 0.8) < 4 * math.sqrt(0.16 / kept.size)
        near(y, whole.array * kept / 0.8, 1e-12)
        none = F.scaled_dot_product_attention(q, k, v, dropout_p=1.0)
        np.testing.assert_array_equal(none.array, np.zeros((1, 1, 40, 50)))

    def test_no_samples(self):
        q = leaf(np.zeros((0, 2, 5, 4)))
        assert F.scaled_dot_product_attention(q, q, q, is_causal=True).shape == (0, 2, 5, 4)

    @pytest.mark.parametrize(("shapes", "mask", "error", "words"), [
        ([(3, 4), (3, 5), (3, 4)], None, ValueError, r"query \(3, 4\), key \(3, 5\)"),
        ([(3, 4), (3, 4), (2, 4)], None, ValueError, r"value \(2, 4\)"),
        ([(3, 4), (5, 4), (5, 4)], np.zeros((2, 5)), ValueError, r"\(2, 5\) does not"),
        ([(3, 4), (3, 4), (3, 4)], np.zeros((3, 3), int), TypeError, "it is int64"),
    ])
    def test_bad_operands_are_named(self, shapes, mask, error, words):
        operands = [mt.zeros(*s) for s in shapes]
        with pytest.raises(error, match=words):
            F.scaled_dot_product_attention(
                *operands, attn_mask=None if mask is None else mt.Tensor(mask))
