"""The ops of layers: right values at the edges, and errors that name the thing.

Values come from closed forms; ``tests/parity`` compares with PyTorch over the options.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import minitorch_gpu as mt
import minitorch_gpu.nn.functional as F
from minitorch_gpu.registry import OPS
from tests.nn_support import gradient, leaf, near

INF, NAN = math.inf, math.nan


# ---------------------------------------------------------------- softmax
class TestSoftmax:
    def test_any_dim(self):
        x = mt.tensor(np.log([[1.0, 2.0], [3.0, 8.0]]))
        near(F.softmax(x, dim=0), [[1 / 4, 2 / 10], [3 / 4, 8 / 10]])
        near(x.softmax(-1), [[1 / 3, 2 / 3], [3 / 11, 8 / 11]])
        near(x.log_softmax(1).exp(), [[1 / 3, 2 / 3], [3 / 11, 8 / 11]])

    def test_large_inputs_do_not_overflow(self):
        x = mt.tensor([1e4, 0.0, -1e4])
        near(F.softmax(x, 0), [1, 0, 0])
        near(F.log_softmax(x, 0), [0, -1e4, -2e4])

    def test_minus_infinity_is_probability_zero(self):
        x = leaf([0.0, -INF, 0.0])
        y = F.softmax(x, 0)
        near(y, [0.5, 0, 0.5])
        near(F.log_softmax(x, 0), [-math.log(2), -INF, -math.log(2)])
        near(gradient(y * mt.tensor([1.0, 5.0, 0.0]), x)[0], [0.25, 0, -0.25])

    def test_plus_infinity_and_a_row_of_minus_infinity_are_nan(self):
        assert np.isnan(F.softmax(mt.tensor([0.0, INF]), 0).array).all()
        assert np.isnan(F.log_softmax(mt.tensor([-INF, -INF]), 0).array).all()

    def test_it_keeps_only_its_output(self):
        import weakref

        x = leaf(np.ones((3, 4)))
        hidden = x * 2.0
        alive = weakref.ref(hidden.array)
        y = F.softmax(hidden, -1)
        del hidden
        assert alive() is None and y.requires_grad

    def test_a_dim_out_of_range_is_named(self):
        with pytest.raises(IndexError, match="dim 2 is out of range"):
            F.softmax(mt.ones(2, 3), dim=2)

    def test_dtype_is_cast_before(self):
        assert F.softmax(mt.tensor([1, 2]), 0, dtype=mt.float64).dtype == mt.float64


def test_stable_functions_at_large_inputs():
    near(F.softplus(mt.tensor([1000.0, -1000.0])), [1000, 0])
    near(-F.softplus(-mt.tensor([-1000.0])), [-1000])  # logsigmoid
    near(mt.tensor([1000.0, 1000.0]).logsumexp(0), 1000 + math.log(2), 1e-7)


# ---------------------------------------------------------------- normalisation
class TestLayerNorm:
    def test_variance_does_not_cancel(self):
        x = mt.tensor([40000.0, 40001.0, 40002.0, 40003.0])
        near(F.layer_norm(x, (4,)), [-1.341635, -0.447212, 0.447212, 1.341635])
        near(F.layer_norm(mt.full((256,), 1234.0), 256), np.zeros(256))

    def test_variance_is_biased(self):
        y = F.layer_norm(mt.arange(1, 6).float(), 5, eps=0.0)
        near(y, [-1.414214, -0.707107, 0, 0.707107, 1.414214])

    def test_trailing_dims_together(self):
        x = mt.tensor(np.arange(12.0).reshape(2, 2, 3))
        flat = F.layer_norm(x.reshape(2, 6), 6)
        near(F.layer_norm(x, (2, 3)).reshape(2, 6), flat.array)

    def test_it_keeps_two_numbers_a_row(self):
        x, weight = leaf(np.ones((6, 5))), leaf(np.ones(5))
        y = F.layer_norm(x, 5, weight)
        residuals = y.edge.links[-1]
        assert [r.size for r in residuals] == [6, 6]

    def test_shapes_that_do_not_fit_are_named(self):
        with pytest.raises(ValueError, match=r"normalized_shape \(3,\) must be the last dims"):
            F.layer_norm(mt.zeros(3, 4), 3)
        with pytest.raises(ValueError, match=r"weight has shape \(3,\), normalized_shape is"):
            F.layer_norm(mt.zeros(3, 4), 4, mt.ones(3))

    def test_no_rows(self):
        x = leaf(np.zeros((0, 4)))
        weight = leaf(np.ones(4))
        y = F.layer_norm(x, 4, weight, weight)
        near(gradient(y, weight)[0], np.zeros(4))


def test_rms_norm():
    near(F.rms_norm(mt.tensor([3.0, 4.0]), 2), np.array([3, 4]) / math.sqrt(12.5))
    y = F.rms_norm(mt.tensor([3.0, 4.0]), 2, mt.tensor([1.0, 2.0]), eps=12.5)
    near(y, [3 / 5, 8 / 5])


class TestBatchNorm:
    def running(self):
        return mt.zeros(1), mt.ones(1)

    @pytest.mark.parametrize("x", [[[1.0], [3.0]], [[[[1.0, 3.0]]]]])
    def test_two_values_and_the_running_statistics(self, x):
        mean, variance = self.running()
        y = F.batch_norm(mt.tensor(x), mean, variance, training=True)
        near(y.flatten(), np.array([-1, 1]) * 0.999995)
        near(mean, [0.2])
        near(variance, [1.1])  # 0.9 * 1 + 0.1 * 2, the unbiased variance

    def test_one_value_per_channel_is_an_error_in_training_that_changes_nothing(self):
        mean, variance = mt.zeros(2), mt.ones(2)
        with pytest.raises(ValueError, match=r"more than 1 value per channel .* \(1, 2\)"):
            F.batch_norm(mt.ones(1, 2), mean, variance, training=True)
        near(mean, [0, 0])
        near(variance, [1, 1])
        near(F.batch_norm(mt.ones(1, 2), mean, variance), np.full((1, 2), 0.999995))

    def test_variance_does_not_cancel(self):
        x = mt.tensor([[40000.0], [40001.0], [40002.0], [40003.0]])
        y = F.batch_norm(x, None, None, training=True)
        near(y.flatten(), [-1.341635, -0.447212, 0.447212, 1.341635])

    def test_many_values_of_large_mean_in_channels_last_memory(self):
        rng = np.random.default_rng(0)
        wide = rng.normal(40000, 1, (32, 26, 26, 4)).transpose(0, 3, 1, 2)
        x = wide.astype(np.float32)
        _, mean, variance = OPS["batch_norm_training"](mt.Tensor(x))
        near(mean, x.astype(np.float64).mean((0, 2, 3)), 1e-6)
        near(variance, x.astype(np.float64).var((0, 2, 3)), 1e-5)

    def test_evaluation_is_an_affine_map(self):
        x = leaf([[1.0, 2.0], [3.0, 4.0]])
        mean, variance, weight, bias = map(mt.tensor, ([1.0, 2.0], [4.0, 16.0], [2.0, 4.0],
                                                       [0.0, 1.0]))
        y = F.batch_norm(x, mean, variance, weight, bias, eps=0.0)
        near(y, [[0, 1], [2, 3]])
        near(gradient(y, x)[0], np.ones((2, 2)))

    def test_gradients_reach_the_statistics_that_are_returned(self):
        x = leaf([[1.0], [2.0], [6.0]])
        _, mean, variance = OPS["batch_norm_training"](x)
        near(gradient(mean + variance, x)[0], 1 / 3 + 2 / 3 * np.array([[-2], [-1], [3]]))

    def test_an_empty_batch_leaves_the_running_statistics(self):
        mean, variance = mt.zeros(2), mt.ones(2)
        y = F.batch_norm(mt.zeros(0, 2), mean, variance, training=True)
        assert y.shape == (0, 2)
        near(mt.stack([mean, variance]), [[0, 0], [1, 1]])

    def test_two_forwards_before_one_backward(self):
        mean, variance = self.running()
        x = leaf([[1.0], [3.0], [4.0]], np.float32)
        y = sum(F.batch_norm(x * k, mean, variance, training=True) for k in (1.0, 2.0))
        assert np.isfinite(gradient(y * y, x)[0].array).all()

    @pytest.mark.parametrize(("running", "training", "words"), [
        ((None, None), False, "running_mean must be given in evaluation"),
        ((np.zeros(3), np.ones(2)), True, r"running_mean has shape \(3,\)"),
    ])
    def test_bad_statistics_are_named(self, running, training, words):
        tensors = [None if r is None else mt.Tensor(r) for r in running]
        with pytest.raises(ValueError, match=words):
            F.batch_norm(mt.zeros(3, 2), *tensors, training=training)


# ---------------------------------------------------------------- dropout
class TestDropout:
    def test_p_of_one_gives_zeros_and_zero_gradients(self):
        x = leaf([1.0, 2.0])
        y = F.dropout(x, 1.0)
        near(y, [0, 0])
        np.testing.assert_array_equal(gradient(y, x)[0].array, [0, 0])

    def test_p_of_zero_and_evaluation_are_the_identity(self):
        x = leaf([1.0, 2.0])
        assert F.dropout(x, 0.0) is x and F.dropout(x, 0.5, training=False) is x

    @pytest.mark.parametrize("p", [1.5, -0.1, NAN])
    def test_a_p_that_is_no_probability_is_an_error(self, p):
        with pytest.raises(ValueError, match=f"between 0 and 1, but got {p}"):
            F.dropout(mt.ones(2), p)

    def test_gradients_are_the_mask_also_where_the_input_is_zero(self):
        mt.manual_seed(0)
        x = leaf(np.zeros((40, 50)))
        y = F.dropout(x + 1.0, 0.25)
        z = F.dropout(x, 0.25)
        kept = y.array != 0
        assert set(np.unique(y.array)) == {0.0, 1 / 0.75}
        near(gradient(y, x)[0], kept / 0.75)
        x.grad = None
        slopes = gradient(z, x)[0].array
        assert 0.6 < (slopes != 0).mean() < 0.85 and set(np.unique(slopes)) == {0, 1 / 0.75}

    def test_the_dropped_share_is_within_four_sigma_and_masks_differ(self):
        mt.manual_seed(1)
        n, p = 100_000, 0.3
        first, second = (F.dropout(mt.ones(n), p).array == 0 for _ in range(2))
        for dropped in (first, second):
            assert abs(dropped.mean() - p) < 4 * math.sqrt(p * (1 - p) / n)
        correlation = np.corrcoef(first, second)[0, 1]
        assert abs(correlation) < 4 / math.sqrt(n)

    def test_a_shard_draws_its_part_of_the_global_mask(self):
        def draw(columns, start):
            mt.manual_seed(3)
            return F.dropout(mt.ones(4, columns), 0.5, shard={1: (start, 10)}).array

        mt.manual_seed(3)
        whole = F.dropout(mt.ones(4, 10), 0.5).array
        np.testing.assert_array_equal(np.concatenate([draw(3, 0), draw(7, 3)], 1), whole)


# ---------------------------------------------------------------- tables
class TestEmbedding:
    def test_padding_idx_is_looked_up_but_gets_no_gradient(self):
        weight = leaf(np.ones((3, 1)))
        y = F.embedding(mt.tensor([0, 1, 1]), weight, padding_idx=0)
        near(y, [[1], [1], [1]])
        near(gradient(y, weight)[0], [[0], [2], [0]])

    @pytest.mark.parametrize("number", [-1, 3])
    def test_a_number_out_of_range_is_an_error(self, number):
        with pytest.raises(IndexError, match=f"index {number} is out of range for size 3"):
            F.embedding(mt.tensor([number]), mt.ones(3, 2))

    def test_one_hot_and_normalize(self):
        assert F.one_hot(mt.tensor([1, 2])).tolist() == [[0, 1, 0], [0, 0, 1]]
        near(F.normalize(mt.tensor([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0, 0]])


# ---------------------------------------------------------------- names
def test_functions_take_input_by_name():
    x = mt.tensor([[-1.0, 2.0]])
    near(F.relu(input=x), [[0, 2]])
    near(F.leaky_relu(input=x, negative_slope=0.5), [[-0.5, 2]])
    near(F.linear(input=x, weight=mt.tensor([[1.0, 1.0]]), bias=mt.tensor([3.0])), [[4]])
    near(F.tanh(x), np.tanh([[-1, 2]]))
    near(F.sigmoid(input=x), 1 / (1 + np.exp([[1, -2]])))
    near(F.conv2d(input=mt.ones(1, 1, 3, 3), weight=mt.ones(1, 1, 3, 3)), [[[[9]]]])
    near(F.max_pool2d(input=mt.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), kernel_size=2), [[[[4]]]])


def test_relu_in_place():
    x = mt.tensor([-1.0, 2.0])
    assert F.relu(x, inplace=True) is x
    near(x, [0, 2])


def test_half_precision_is_computed_in_float32():
    x = mt.tensor(np.array([60000.0, 60000.0], np.float16))
    assert F.layer_norm(x, 2).dtype == mt.float16
    near(F.softmax(x, 0), [0.5, 0.5])
    logits = mt.tensor(np.zeros((2, 3), np.float16))
    near(F.cross_entropy(logits, mt.tensor([0, 1])), math.log(3), 1e-3)
