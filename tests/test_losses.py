"""The losses: right values at the edges, and errors that name the thing."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minitorch_gpu as mt
import minitorch_gpu.nn.functional as F
from tests.nn_support import gradient, leaf, near

INF, NAN = math.inf, math.nan


# ---------------------------------------------------------------- cross entropy
class TestCrossEntropy:
    def test_all_targets_ignored(self):
        target = mt.tensor([-100] * 3)
        for reduction, value in dict(mean=NAN, sum=0.0, none=[0.0] * 3).items():
            x = leaf(np.arange(9.0).reshape(3, 3))
            loss = F.cross_entropy(x, target, reduction=reduction)
            np.testing.assert_array_equal(loss.array, value)
            np.testing.assert_array_equal(gradient(loss, x)[0].array, np.zeros((3, 3)))

    def test_all_ignored_through_the_definition_has_zero_gradients_too(self):
        x, target = leaf(np.arange(6.0).reshape(2, 3)), mt.tensor([-100, -100])
        (g,) = mt.autograd.grad(F.cross_entropy(x, target), [x], create_graph=True)
        np.testing.assert_array_equal(g.array, np.zeros((2, 3)))
        y = leaf(np.zeros((2, 3)))
        loss = F.nll_loss(F.log_softmax(y, 1), target)
        assert np.isnan(loss.item())
        np.testing.assert_array_equal(gradient(loss, y)[0].array, np.zeros((2, 3)))

    def test_label_smoothing_leaves_ignored_rows_out(self):
        logits, target = [[1, 2, 3], [3, 1, 0.5], [0, 0, 0]], [2, -100, 0]
        for reduction, value in dict(mean=0.853109, sum=1.706218,
                                     none=[0.607606, 0, 1.098612]).items():
            loss = F.cross_entropy(leaf(logits), mt.tensor(target), reduction=reduction,
                                   label_smoothing=0.2)
            near(loss, value)
        kept = F.cross_entropy(leaf([logits[0], logits[2]]), mt.tensor([2, 0]),
                               label_smoothing=0.2)
        near(kept, 0.853109)

    def test_ignore_index_may_be_a_class_that_stays_in_the_softmax(self):
        x = leaf(np.ones((2, 3)))
        loss = F.cross_entropy(x, mt.tensor([0, 2]), ignore_index=0)
        near(loss, math.log(3))
        near(gradient(loss, x)[0], [[0, 0, 0], [1 / 3, 1 / 3, -2 / 3]])

    def test_a_target_out_of_range_is_an_error_that_names_it(self):
        x = mt.zeros(3, 3)
        with pytest.raises(IndexError, match=r"target -4 .* 3 classes; ignore_index is -1"):
            F.cross_entropy(x, mt.tensor([1, 2, -4]), ignore_index=-1)
        with pytest.raises(IndexError, match="target 3 "):
            F.cross_entropy(x, mt.tensor([0, 3, 2]))
        with pytest.raises(IndexError, match="target 7 "):
            F.cross_entropy(x, mt.tensor([0, 7, 255]), ignore_index=255)
        with pytest.raises(IndexError, match="target 3 "):
            F.nll_loss(x, mt.tensor([0, 3, 2]))

    def test_ignore_index_may_lie_beyond_the_classes(self):
        for target in ([0, 255, 2], np.array([0, 255, 2], np.uint8)):
            loss = F.cross_entropy(mt.zeros(3, 3), mt.tensor(target), ignore_index=255,
                                   reduction="none")
            near(loss, [math.log(3), 0, math.log(3)])

    def test_large_logits(self):
        x = leaf([[1e4, 0, -1e4]])
        loss = F.cross_entropy(x, mt.tensor([2]))
        near(loss, 20000)
        near(gradient(loss, x)[0], [[1, 0, -1]])

    def test_a_common_shift_of_float32_logits_changes_nothing(self):
        base = np.array([[0.0, 1.0, 2.0]], np.float32)
        for shift in (0.0, 1e6, -1e6):
            x = leaf(base + np.float32(shift), np.float32)
            loss = F.cross_entropy(x, mt.tensor([0]), label_smoothing=0.1)
            p = np.exp(base) / np.exp(base).sum()
            near(loss, -(0.9 * np.log(p[0, 0]) + 0.1 * np.log(p).mean()))
            near(gradient(loss, x)[0], p - [[0.9 + 0.1 / 3, 0.1 / 3, 0.1 / 3]])

    def test_infinite_logits(self):
        x = leaf([[0.0, -INF, 0.0]])
        near(F.cross_entropy(x, mt.tensor([0])), math.log(2))
        loss = F.cross_entropy(x, mt.tensor([1]))
        assert loss.item() == INF
        near(gradient(loss, x)[0], [[0.5, -1, 0.5]])
        assert np.isnan(F.cross_entropy(mt.tensor([[0.0, INF]]), mt.tensor([1])).item())

    def test_class_weights(self):
        logits = np.array([[1, 2, 3], [3, 1, 0.5], [0, 0, 0]])
        weight, target = np.array([1.0, 2, 4]), [2, 1, 0]
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        losses = -log_p[range(3), target] * weight[target]
        loss = F.cross_entropy(leaf(logits), mt.tensor(target), mt.tensor(weight))
        near(loss, losses.sum() / weight[target].sum())
        near(loss, 1.017501)
        smooth = F.cross_entropy(leaf(logits), mt.tensor(target), mt.tensor(weight),
                                 label_smoothing=0.3)
        uniform = -(log_p * weight).sum(1) / 3
        near(smooth, (0.7 * losses + 0.3 * uniform).sum() / weight[target].sum())

    def test_probabilities_as_target(self):
        x, target = leaf([[0.0, 0.0], [0.0, math.log(3)]]), mt.tensor([[0.5, 0.5], [1.0, 0.0]])
        near(F.cross_entropy(x, target, reduction="none"), [math.log(2), math.log(4)])
        near(F.cross_entropy(x, target), (math.log(2) + math.log(4)) / 2)
        with pytest.raises(ValueError, match="ignore_index 0 has no meaning"):
            F.cross_entropy(x, target, ignore_index=0)
        with pytest.raises(TypeError, match="must be floating, it is int64"):
            F.cross_entropy(x, mt.ones(2, 2, dtype=mt.int64))

    def test_no_rows_give_nan(self):
        assert np.isnan(F.cross_entropy(mt.zeros(0, 3), mt.zeros(0, dtype=mt.int64)).item())
        assert np.isnan(F.cross_entropy(mt.zeros(0, 3), mt.zeros(0, 3)).item())

    @pytest.mark.parametrize(("arguments", "error", "words"), [
        (dict(target=[0, 1]), ValueError, r"shape \(3, 4\) needs a target of shape \(3,\)"),
        (dict(target=[0.0, 1.0, 1.0]), TypeError, "integer classes, it is float32"),
        (dict(weight=[1.0, 1.0]), ValueError, r"weight has shape \(2,\); 4 classes"),
        (dict(label_smoothing=1.5), ValueError, r"label_smoothing .* it is 1.5"),
        (dict(reduction="avg"), ValueError, "reduction is 'avg'; use one of 'mean'"),
    ])
    def test_bad_arguments_are_named(self, arguments, error, words):
        given = {"target": [0, 1, 2], **arguments}
        tensors = {k: mt.tensor(v) if isinstance(v, list) else v for k, v in given.items()}
        with pytest.raises(error, match=words):
            F.cross_entropy(mt.zeros(3, 4), **tensors)

    def test_terms_of_uneven_parts_add_up_to_the_mean_of_the_whole(self):
        rng = np.random.default_rng(0)
        x, weight = mt.tensor(rng.normal(size=(7, 3))), mt.tensor([1.0, 2.0, 4.0])
        hard = mt.tensor([0, 1, -1, 2, -1, -1, 2])
        soft = mt.tensor(rng.dirichlet(np.ones(3), 7))
        for target, options in [
            (hard, dict(ignore_index=-1)),
            (hard, dict(ignore_index=-1, weight=weight, label_smoothing=0.2)),
            (soft, dict(weight=weight)),
        ]:
            parts = [F.cross_entropy_terms(x[part], target[part], **options)
                     for part in (slice(0, 3), slice(3, 4), slice(4, 6), slice(6, 7))]
            mean = sum(float(s) for s, _ in parts) / sum(float(n) for _, n in parts)
            near(F.cross_entropy(x, target, **options), mean, 1e-12)

    def test_terms_of_no_valid_row_are_zero_and_zero(self):
        x = leaf(np.ones((2, 3)))
        total, count = F.cross_entropy_terms(x, mt.tensor([-100, -100]))
        assert (total.item(), count.item()) == (0.0, 0)
        np.testing.assert_array_equal(gradient(total, x)[0].array, np.zeros((2, 3)))


# ---------------------------------------------------------------- other losses
class TestDifferences:
    def test_values_and_gradients(self):
        x, target = leaf([1.0, -2.0, 5.0]), mt.tensor(np.array([0.0, 0.0, 5.0]))
        near(F.mse_loss(x, target), 5 / 3)
        near(F.l1_loss(x, target, reduction="sum"), 3)
        near(F.mse_loss(x, target, reduction="none"), [1, 4, 0])
        near(gradient(F.mse_loss(x, target), x)[0], np.array([2, -4, 0]) / 3)
        x.grad = None
        near(gradient(F.l1_loss(x, target), x)[0], np.array([1, -1, 0]) / 3)

    def test_both_operands_get_gradients(self):
        x, target = leaf([3.0]), leaf([1.0])
        near(mt.stack(gradient(F.mse_loss(x, target), x, target)), [[4], [-4]])

    def test_shapes_that_broadcast_warn(self):
        for loss in (F.mse_loss, F.l1_loss):
            with pytest.warns(UserWarning, match=r"target's shape \(3,\) differs .* \(3, 1\)"):
                near(loss(mt.ones(3, 1), mt.zeros(3)), 1)

    def test_terms(self):
        total, count = F.mse_terms(mt.ones(2, 3), mt.zeros(2, 3))
        assert (total.item(), count) == (6.0, 6)

    def test_no_elements_give_nan(self):
        assert np.isnan(F.mse_loss(mt.zeros(0), mt.zeros(0)).item())

    def test_an_unknown_reduction_is_named(self):
        with pytest.raises(ValueError, match="l1_loss: reduction is 'avg'"):
            F.l1_loss(mt.ones(2), mt.ones(2), reduction="avg")


class TestBinaryCrossEntropy:
    def test_values_at_large_logits(self):
        x = leaf([1000.0, -1000.0, 1000.0, 0.0])
        loss = F.binary_cross_entropy_with_logits(x, mt.tensor([1.0, 0.0, 0.0, 0.5]),
                                                  reduction="none")
        near(loss, [0, 0, 1000, math.log(2)])
        near(gradient(loss, x)[0], [0, 0, 1, 0])

    def test_infinite_logits_are_nan_as_in_pytorch(self):
        for options in ({}, dict(pos_weight=mt.tensor([2.0]))):
            loss = F.binary_cross_entropy_with_logits(
                mt.tensor([INF, -INF]), mt.tensor([1.0, 0.0]), reduction="none", **options)
            assert np.isnan(loss.array).all()

    def test_weights(self):
        x, target = leaf([[0.0, math.log(3)]]), mt.tensor([[1.0, 0.0]])
        loss = F.binary_cross_entropy_with_logits(
            x, target, mt.tensor([2.0, 1.0]), pos_weight=mt.tensor([3.0, 5.0]), reduction="sum")
        near(loss, 2 * 3 * math.log(2) + math.log(4))

    def test_shapes_must_be_equal(self):
        with pytest.raises(ValueError, match=r"\(3, 1\) must be the input's, \(3,\)"):
            F.binary_cross_entropy_with_logits(mt.zeros(3), mt.zeros(3, 1))
