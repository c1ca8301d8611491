"""Layers against closed forms: known faults, uneven inputs, errors that name."""

from __future__ import annotations

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn, optim
from minitorch_gpu.nn import init


def near(tensor, expected, tolerance=1e-5):
    np.testing.assert_allclose(tensor.numpy(force=True), expected, rtol=tolerance,
                               atol=tolerance)


# ---------------------------------------------------------------- batch norm
class TestBatchNorm:
    def test_one_value_per_channel_is_an_error_in_training_and_changes_no_buffer(self):
        layer = nn.BatchNorm1d(2)
        before = {k: v.tolist() for k, v in layer.state_dict().items()}
        with pytest.raises(ValueError, match=r"more than 1 value per channel .*\(1, 2\)"):
            layer(mt.ones(1, 2))
        assert {k: v.tolist() for k, v in layer.state_dict().items()} == before
        near(layer.eval()(mt.tensor([[3.0, -2.0]])), [[2.999985, -1.999990]], 1e-6)

    @pytest.mark.parametrize("layer, x", [
        (nn.BatchNorm1d(1), [[1.0], [3.0]]), (nn.BatchNorm2d(1), [[[[1.0, 3.0]]]])])
    def test_two_values_per_channel(self, layer, x):
        y = layer(mt.tensor(x))
        near(y.flatten(), [-0.999995, 0.999995], 1e-6)
        near(layer.running_mean, [0.2])
        near(layer.running_var, [1.1])  # 0.9 * 1 + 0.1 * 2: unbiased
        assert layer.num_batches_tracked.item() == 1

    def test_momentum_none_is_the_plain_average(self):
        layer = nn.BatchNorm1d(1, momentum=None)
        for values in ([0.0, 2.0], [4.0, 8.0], [1.0, 3.0]):
            layer(mt.tensor(values).reshape(2, 1))
        near(layer.running_mean, [(1 + 6 + 2) / 3])
        near(layer.running_var, [(2 + 8 + 2) / 3])
        layer.reset_running_stats()
        assert [v.item() for v in layer.buffers()] == [0, 1, 0]

    def test_equal_and_nearly_equal_large_values(self):
        near(nn.BatchNorm1d(1)(mt.full((256, 1), 1234.0)), np.zeros((256, 1)))
        x = mt.tensor([[40000.0], [40001.0], [40002.0], [40003.0]])
        near(nn.BatchNorm1d(1)(x).flatten(), [-1.341635, -0.447212, 0.447212, 1.341635])

    def test_evaluation_changes_no_buffer(self):
        layer = nn.BatchNorm2d(2).eval()
        layer(mt.randn(3, 2, 4, 4))
        assert layer.running_mean.tolist() == [0, 0]
        assert layer.num_batches_tracked.item() == 0

    @pytest.mark.parametrize("kind, shape, dims", [
        (nn.BatchNorm1d, (2, 3, 4, 5), "2 or 3 dims"), (nn.BatchNorm2d, (2, 3, 4), "4 dims"),
        (nn.BatchNorm2d, (2, 4, 1, 1), "3 channels")])
    def test_other_inputs_are_named(self, kind, shape, dims):
        with pytest.raises(ValueError, match=dims) as error:
            kind(3)(mt.zeros(shape))
        assert str(shape) in str(error.value)


# ---------------------------------------------------------------- layer norm, dropout
@pytest.mark.parametrize("layer", [nn.LayerNorm(2), nn.LayerNorm(2, bias=False),
                                   nn.LayerNorm(2, elementwise_affine=False),
                                   nn.BatchNorm1d(2), nn.BatchNorm1d(2, affine=False)])
def test_norms_are_reset_to_what_they_start_as(layer):
    start = {name: value.tolist() for name, value in layer.state_dict().items()}
    for value in layer.state_dict().values():
        value.fill_(7)
    layer.reset_parameters()
    assert {name: value.tolist() for name, value in layer.state_dict().items()} == start


def test_layer_norm_takes_any_integer_or_shape():
    for shape, expected in ((3, (3,)), (np.int64(3), (3,)), ([2, 3], (2, 3))):
        layer = nn.LayerNorm(shape, bias=False)
        assert layer.weight.shape == expected == layer.normalized_shape and layer.bias is None


# ---------------------------------------------------------------- embedding, tied weights
class TestEmbedding:
    def test_the_padding_row_is_looked_up_and_gets_no_gradient(self):
        layer = nn.Embedding(3, 1, padding_idx=0)
        assert layer.weight[0].tolist() == [0]
        init.ones_(layer.weight)
        y = layer(mt.tensor([0, 1, 1]))
        assert y.tolist() == [[1], [1], [1]]
        y.sum().backward()
        assert layer.weight.grad.tolist() == [[0], [2], [0]]

    @pytest.mark.parametrize("number", [-1, 3])
    def test_a_number_out_of_range_is_an_error(self, number):
        with pytest.raises(IndexError, match=str(number)):
            nn.Embedding(3, 2)(mt.tensor([0, number]))

    def test_padding_idx_counts_from_the_end_too_and_stays_in_range(self):
        assert nn.Embedding(4, 2, padding_idx=-1).padding_idx == 3
        with pytest.raises(ValueError, match="padding_idx 4 is out of range for 4"):
            nn.Embedding(4, 2, padding_idx=4)

    @pytest.mark.parametrize("make, factor", [
        (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), 1.0),
        (lambda p: optim.Adam(p, lr=0.1), 1.0),
        (lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.5), 0.95 ** 3)])
    def test_only_weight_decay_moves_the_padding_row(self, make, factor):
        layer = nn.Embedding(3, 2, padding_idx=0)
        init.ones_(layer.weight)
        optimizer = make(layer.parameters())
        for ids in ([0, 1], [0, 2], [0, 0]):
            optimizer.zero_grad()
            layer(mt.tensor(ids)).sum().backward()
            optimizer.step()
        near(layer.weight[0], [factor, factor], 1e-6)


# ---------------------------------------------------------------- convolution
@pytest.mark.parametrize("options, words", [
    (dict(stride=0), "stride is 0"), (dict(dilation=0), "dilation is 0"),
    (dict(padding=-1), "padding is -1"), (dict(kernel_size=0), "kernel_size is 0"),
    (dict(kernel_size=(2, 2, 2)), r"kernel_size is \(2, 2, 2\)"),
    (dict(padding="full"), 'padding is \'full\'; use "same"'),
    (dict(groups=2), "groups=2 must divide in_channels=1"), (dict(groups=0), "groups=0")])
def test_bad_options_of_a_convolution_are_named_when_it_is_made(options, words):
    with pytest.raises(ValueError, match=words):
        nn.Conv2d(1, 1, **{"kernel_size": 2, **options})


def test_bad_inputs_of_a_convolution_are_named():
    with pytest.raises(ValueError, match="4"):
        nn.Conv2d(1, 1, 4)(mt.zeros(1, 1, 3, 3))
    with pytest.raises(ValueError, match="1 channels"):
        nn.Conv2d(3, 1, 2)(mt.zeros(1, 1, 3, 3))
    with pytest.raises(ValueError, match="stride 1"):
        nn.Conv2d(1, 1, 2, stride=2, padding="same")(mt.zeros(1, 1, 4, 4))


# ---------------------------------------------------------------- arguments that are named
def zeros3(*shapes):
    return [mt.zeros(shape) for shape in shapes]


@pytest.mark.parametrize("call, error, words", [
    (lambda: nn.Linear(4, 3)(mt.zeros(2, 5)), ValueError, "5 in x and 4 in weight"),
    (lambda: nn.Linear(2.5, 3), TypeError, "float"),
    (lambda: nn.Softmax(), TypeError, "Softmax needs dim"),
    (lambda: nn.ReLU(True, 2), TypeError, "ReLU takes"),
    (lambda: nn.LeakyReLU(slope=2), TypeError, "LeakyReLU takes .*negative_slope.*slope"),
    (lambda: nn.LeakyReLU(0.1, negative_slope=2), TypeError, "needs negative_slope once"),
    (lambda: nn.GELU("fast")(mt.zeros(1)), ValueError, "'fast'"),
    (lambda: nn.MSELoss("average"), ValueError, "'average'.*mean"),
    (lambda: nn.MultiheadAttention(4, 3), ValueError, "embed_dim 4 .* num_heads 3"),
    (lambda: nn.MultiheadAttention(4, 0), ValueError, "num_heads 0"),
])
def test_a_bad_argument_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("shapes", [
    [(2, 1, 4), (3, 1, 4), (2, 1, 4)], [(2, 1, 4), (3, 2, 4), (3, 2, 4)],
    [(2, 1, 1, 4)] * 3, [(2, 4), (2, 1, 4), (2, 1, 4)]])
def test_attention_names_shapes_that_do_not_fit(shapes):
    with pytest.raises(ValueError, match="query, key and value") as error:
        nn.MultiheadAttention(4, 2)(*zeros3(*shapes))
    assert str(tuple(shapes)) in str(error.value)


@pytest.mark.parametrize("masks, error, words", [
    (dict(attn_mask=mt.zeros(3, 2)), ValueError, r"attn_mask has shape \(3, 2\).*\(2, 3\)"),
    (dict(key_padding_mask=mt.zeros(3, 1)), ValueError, r"key_padding_mask .*\(1, 3\)"),
    (dict(attn_mask=mt.zeros(2, 3, dtype=mt.int64)), TypeError, "attn_mask is int64"),
    (dict(is_causal=True), ValueError, "give the mask as well")])
def test_attention_names_masks_that_do_not_fit(masks, error, words):
    with pytest.raises(error, match=words):
        nn.MultiheadAttention(4, 2)(*zeros3((2, 1, 4), (3, 1, 4), (3, 1, 4)), **masks)


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_mask_of_another_dtype_does_not_change_the_outputs(need_weights):
    x = mt.ones(2, 1, 4)
    y, _ = nn.MultiheadAttention(4, 2)(x, x, x, attn_mask=mt.zeros(2, 2, dtype=mt.float64),
                                       need_weights=need_weights)
    assert y.dtype == mt.float32


def test_attention_of_no_samples():
    x = mt.zeros(3, 0, 4)
    y, weights = nn.MultiheadAttention(4, 2)(x, x, x)
    assert y.shape == (3, 0, 4) and weights.shape == (0, 3, 3)


# ---------------------------------------------------------------- losses
