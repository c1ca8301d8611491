"""Layers: values that a short calculation gives, and the ways they can be misused."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn, optim
from tests.nn_support import near


@pytest.fixture(autouse=True)
def _seed():
    mt.manual_seed(1)


def weighted(layer, weight, bias=None):
    """The layer with the given values in its parameters."""
    state = {"weight": np.array(weight, np.float32)}
    layer.load_state_dict(state if bias is None else {**state, "bias": np.array(bias)})
    return layer


# ---------------------------------------------------------------- batch norm
def test_batch_norm_refuses_one_value_per_channel_and_changes_nothing():
    layer = nn.BatchNorm1d(2)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        layer(mt.tensor([[1.0, 2.0]]))
    assert layer.running_mean.tolist() == [0, 0] and layer.running_var.tolist() == [1, 1]
    assert layer.num_batches_tracked.item() == 0
    near(layer.eval()(mt.tensor([[1.0, 2.0]])), [[1, 2]], 1e-5)


@pytest.mark.parametrize("layer, x", [
    (nn.BatchNorm1d(1), [[1.0], [3.0]]), (nn.BatchNorm2d(1), [[[[1.0, 3.0]]]]),
])
def test_batch_norm_of_two_values_moves_to_the_unbiased_variance(layer, x):
    y = layer(mt.tensor(x))
    near(y.detach().flatten(), [-0.999995, 0.999995])
    near(layer.running_mean, [0.2])
    near(layer.running_var, [1.1])
    assert layer.num_batches_tracked.item() == 1


def test_batch_norm_without_momentum_averages_all_batches():
    layer = nn.BatchNorm1d(1, momentum=None)
    for values in ([[1.0], [3.0]], [[5.0], [5.0]], [[0.0], [3.0]]):
        layer(mt.tensor(values))
    near(layer.running_mean, [(2 + 5 + 1.5) / 3])
    near(layer.running_var, [(2 + 0 + 4.5) / 3])


def test_batch_norm_without_running_statistics_uses_the_batch_always():
    layer = nn.BatchNorm1d(1, affine=False, track_running_stats=False).eval()
    near(layer(mt.tensor([[1.0], [3.0]])), [[-0.999995], [0.999995]])
    assert list(layer.state_dict()) == []


def test_batch_norm_forgets_on_request():
    layer = nn.BatchNorm1d(1)
    layer(mt.tensor([[1.0], [3.0]]))
    layer.reset_running_stats()
    assert layer.running_mean.tolist() == [0] and layer.running_var.tolist() == [1]
    assert layer.num_batches_tracked.item() == 0


@pytest.mark.parametrize("layer, shape", [
    (nn.BatchNorm1d(3), (2, 4)), (nn.BatchNorm1d(3), (3,)), (nn.BatchNorm2d(3), (2, 3, 4)),
    (nn.BatchNorm1d(3), (2, 3, 4, 5)),
])
def test_batch_norm_names_the_shape_it_expects(layer, shape):
    with pytest.raises(ValueError, match=r"BatchNorm.d\(3\) expects .* with 3 channels"):
        layer(mt.zeros(*shape))


def test_two_passes_before_one_backward():
    layer = nn.BatchNorm1d(1)
    first, second = layer(mt.tensor([[1.0], [3.0]])), layer(mt.tensor([[0.0], [4.0]]))
    (first + second).sum().backward()
    near(layer.bias.grad, [4])


# ---------------------------------------------------------------- layer norm
def test_layer_norm_survives_a_large_mean():
    layer = nn.LayerNorm(4)
    near(layer(mt.tensor([40000.0, 40001.0, 40002.0, 40003.0])),
         [-1.341635, -0.447212, 0.447212, 1.341635])
    assert nn.LayerNorm(256)(mt.full((256,), 1234.0)).tolist() == [0] * 256


def test_layer_norm_options_choose_the_parameters():
    assert list(nn.LayerNorm((2, 3)).state_dict()) == ["weight", "bias"]
    assert list(nn.LayerNorm(3, bias=False).state_dict()) == ["weight"]
    assert list(nn.LayerNorm(3, elementwise_affine=False).state_dict()) == []
    assert nn.LayerNorm((2, 3)).weight.shape == (2, 3)


# ---------------------------------------------------------------- dropout
def test_dropout_of_everything_has_gradient_zero():
    x = mt.tensor([1.0, 2.0], requires_grad=True)
    y = nn.Dropout(1.0)(x)
    y.sum().backward()
    assert y.tolist() == [0, 0] and x.grad.tolist() == [0, 0]


def test_dropout_of_nothing_and_in_evaluation_is_the_identity():
    x = mt.randn(5)
    assert nn.Dropout(0.0)(x).tolist() == x.tolist()
    assert nn.Dropout(0.9).eval()(x).tolist() == x.tolist()


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_dropout_refuses_what_is_no_probability(p):
    with pytest.raises(ValueError, match=str(p)):
        nn.Dropout(p)


def test_dropout_gradient_comes_from_the_mask_also_where_the_input_is_zero():
    x = mt.zeros(1000, requires_grad=True)
    nn.Dropout(0.5)(x).sum().backward()
    assert set(x.grad.tolist()) == {0.0, 2.0}


def test_dropout_drops_its_share_and_differs_between_layers_and_calls():
    model, x = nn.Sequential(nn.Dropout(0.3)), mt.ones(100, 200)
    dropped = lambda layer: layer(x).numpy() == 0
    other = nn.Dropout(0.3)
    masks = [dropped(model), dropped(model), dropped(other)]
    for mask in masks:
        assert abs(mask.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / mask.size)
    for a, b in ((0, 1), (0, 2)):
        together = (masks[a] & masks[b]).mean()
        assert abs(together - 0.09) < 4 * np.sqrt(0.09 * 0.91 / x.numel())


# ---------------------------------------------------------------- embedding
def test_embedding_padding_row_is_read_but_gets_no_gradient():
    layer = weighted(nn.Embedding(3, 1, padding_idx=0), [[1], [1], [1]])
    y = layer(mt.tensor([0, 1, 1]))
    y.sum().backward()
    assert y.flatten().tolist() == [1, 1, 1]
    assert layer.weight.grad.flatten().tolist() == [0, 2, 0]


@pytest.mark.parametrize("index", [-1, 3])
def test_embedding_refuses_rows_that_do_not_exist(index):
    with pytest.raises(IndexError, match=str(index)):
        nn.Embedding(3, 1)(mt.tensor([0, index]))


@pytest.mark.parametrize("make", [
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: optim.Adam(p, lr=0.1)])
def test_an_optimizer_leaves_the_padding_row(make):
    layer = nn.Embedding(3, 2, padding_idx=0)
    optimizer = make(layer.parameters())
    for _ in range(3):
        layer.zero_grad()
        layer(mt.tensor([0, 1, 2])).sum().backward()
        optimizer.step()
    assert layer.weight[0].tolist() == [0, 0]


def test_embedding_refuses_a_padding_row_outside():
    with pytest.raises(ValueError, match="padding_idx 3 is out of range for 3"):
        nn.Embedding(3, 2, padding_idx=3)


def test_a_tied_head_trains_the_table_twice():
    table, head = nn.Embedding(2, 1), nn.Linear(1, 2, bias=False)
    head.weight = table.weight
    model = weighted(nn.Sequential(table, head)[0], [[2], [3]])
    both = copy.deepcopy(nn.Sequential(model, head))
    both(mt.tensor([0])).sum().backward()  # 2 * (2 + 3)
    assert both[0].weight is both[1].weight
    assert both[1].weight.grad.flatten().tolist() == [2 + 5, 2]


# ---------------------------------------------------------------- linear, convolution, pools
def test_linear_of_any_leading_dims():
    layer = weighted(nn.Linear(2, 1), [[1, 2]], [10])
    assert layer(mt.tensor([[[1.0, 1.0]], [[0.0, 1.0]]])).tolist() == [[[13]], [[12]]]
    assert list(nn.Linear(2, 1, bias=False).state_dict()) == ["weight"]
    assert nn.Linear(2, 0)(mt.zeros(3, 2)).shape == (3, 0)


def test_a_strided_depthwise_convolution():
    layer = nn.Conv2d(2, 2, 3, stride=2, padding=1, groups=2, bias=False)
    weighted(layer, np.arange(18).reshape(2, 1, 3, 3))
    x = mt.arange(32, dtype=mt.float32).reshape(1, 2, 4, 4).requires_grad_()
    y = layer(x)
    y.sum().backward()
    assert y.tolist() == [[[[73, 154], [279, 438]], [[1123, 1762], [2034, 3120]]]]
    assert x.grad[0, 0].tolist() == [[4, 8, 4, 5], [8, 16, 8, 10], [4, 8, 4, 5], [7, 14, 7, 8]]


def test_groups_must_divide_the_channels():
    with pytest.raises(ValueError, match="groups=2 must divide in_channels=3"):
        nn.Conv2d(3, 4, 1, groups=2)


@pytest.mark.parametrize("make", [
    lambda: nn.Conv2d(1, 1, 2, stride=0), lambda: nn.Conv2d(1, 1, 2, dilation=0),
    lambda: nn.Conv2d(1, 1, 2, padding=-1), lambda: nn.Conv2d(1, 1, 4),
    lambda: nn.MaxPool2d(2, stride=-1), lambda: nn.MaxPool2d(4), lambda: nn.AvgPool2d(4),
])
def test_windows_that_cannot_be(make):
    with pytest.raises(ValueError):
        make()(mt.zeros(1, 1, 3, 3))


def test_average_pools_divide_by_what_they_cover():
    near(nn.AvgPool2d(2, 3, ceil_mode=True)(
        mt.arange(49, dtype=mt.float32).reshape(1, 1, 7, 7))[0, 0],
        [[4, 7, 9.5], [25, 28, 30.5], [42.5, 45.5, 48]])
    x = mt.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    near(nn.AvgPool2d(3, 1, 1)(x)[0, 0], [[10 / 9] * 2] * 2)
    near(nn.AvgPool2d(3, 1, 1, count_include_pad=False)(x)[0, 0], [[2.5] * 2] * 2)


def test_flatten_and_identity():
    assert nn.Flatten()(mt.zeros(2, 3, 4)).shape == (2, 12)
    assert nn.Flatten(0, 1)(mt.zeros(2, 3, 4)).shape == (6, 4)
    x = mt.zeros(2)
    assert nn.Identity("anything", at=3)(x) is x


# ---------------------------------------------------------------- activations
def test_activations_refuse_unknown_options_and_want_their_dim():
    with pytest.raises(TypeError, match=r"ReLU takes \['inplace'\], got \['slope'\]"):
        nn.ReLU(slope=1)
    with pytest.raises(TypeError, match="Softmax needs dim"):
        nn.Softmax()
    with pytest.raises(TypeError, match="LogSoftmax needs dim"):
        nn.LogSoftmax()


def test_relu_in_place_writes_to_its_input():
    x = mt.tensor([-1.0, 2.0])
    assert nn.ReLU(inplace=True)(x) is x and x.tolist() == [0, 2]
    assert repr(nn.ReLU(inplace=True)) == "ReLU(inplace=True)"


# ---------------------------------------------------------------- attention
def attention(**options):
    return nn.MultiheadAttention(4, 2, batch_first=True, **options).double()


def test_a_masked_key_changes_nothing():
    layer, x = attention(), mt.randn(2, 3, 4, dtype=mt.float64)
    y = mt.cat([x[:, :2], mt.full((2, 1, 4), 99.0, dtype=mt.float64)], 1)
    mask = mt.tensor([[False, False, True]] * 2)
    out, weights = layer(x, y, y, key_padding_mask=mask)
    expected, _ = layer(x, x[:, :2], x[:, :2])
    near(out, expected.detach().numpy(), 1e-12)
    assert weights.shape == (2, 3, 3) and not weights[..., 2].detach().numpy().any()
    near(weights.sum(-1), np.ones((2, 3)), 1e-12)


@pytest.mark.parametrize("need_weights", [True, False])
def test_boolean_and_added_masks_mean_the_same(need_weights):
    layer, x = attention(), mt.randn(2, 3, 4, dtype=mt.float64)
    blocked = np.triu(np.ones((3, 3), bool), 1)
    added = np.where(blocked, -np.inf, 0.0)
    run = lambda mask: layer(x, x, x, attn_mask=mt.tensor(mask), need_weights=need_weights)[0]
    near(run(blocked), run(added).detach().numpy(), 1e-12)
    near(run(np.stack([blocked] * 4)), run(added).detach().numpy(), 1e-12)


def test_a_mask_may_differ_by_head():
    layer, x = attention(), mt.randn(2, 2, 4, dtype=mt.float64)
    mask = np.zeros((4, 2, 2), bool)  # (sample, head) pairs, heads fastest
    mask[1, :, 1] = True  # the first sample's second head sees the first key only
    _, weights = layer(x, x, x, attn_mask=mt.tensor(mask), average_attn_weights=False)
    zeros = weights.detach().numpy() == 0
    assert zeros.shape == (2, 2, 2, 2) and zeros.sum() == 2 and zeros[0, 1, :, 1].all()


@pytest.mark.parametrize("name, shape", [
    ("key_padding_mask", (3, 2)), ("key_padding_mask", (2, 4)), ("attn_mask", (1, 3)),
    ("attn_mask", (2, 3, 3)), ("attn_mask", (3,)),
])
def test_a_mask_of_another_shape_is_refused(name, shape):
    layer, x = attention(), mt.zeros(2, 3, 4, dtype=mt.float64)
    with pytest.raises(ValueError, match=f"{name} has shape"):
        layer(x, x, x, **{name: mt.zeros(*shape, dtype=mt.bool)})


def test_attention_without_a_batch_or_with_the_batch_second():
    layer, x = attention(), mt.randn(1, 3, 4, dtype=mt.float64)
    expected, weights = (t.detach().numpy() for t in layer(x, x, x))
    out, w = layer(x[0], x[0], x[0])
    near(out, expected[0], 1e-12)
    near(w, weights[0], 1e-12)
    layer.batch_first = False
    z = x.transpose(0, 1)
    near(layer(z, z, z)[0], expected.swapaxes(0, 1), 1e-12)


def test_attention_dropout_acts_in_training_only():
    layer, x = attention(dropout=0.5), mt.randn(2, 3, 4, dtype=mt.float64)
    runs = [layer(x, x, x)[0].tolist() for _ in range(2)]
    assert runs[0] != runs[1]
    layer.eval()
    assert layer(x, x, x)[0].tolist() == layer(x, x, x)[0].tolist()


def test_attention_names_what_does_not_fit():
    with pytest.raises(ValueError, match="embed_dim 5 is not divisible by num_heads 2"):
        nn.MultiheadAttention(5, 2)
    x = mt.zeros(2, 3, 4)
    with pytest.raises(ValueError, match="is_causal is a hint"):
        nn.MultiheadAttention(4, 2)(x, x, x, is_causal=True)


# ---------------------------------------------------------------- losses
def test_terms_of_uneven_parts_give_the_mean_of_the_whole():
    logits, classes = mt.randn(5, 3), mt.tensor([0, 2, -100, 1, 1])
    values, targets = mt.randn(5, 3), mt.rand(5, 3)
    for loss, x, y in (
        (nn.CrossEntropyLoss(weight=mt.tensor([1.0, 2.0, 4.0])), logits, classes),
        (nn.CrossEntropyLoss(label_smoothing=0.1), logits, classes),
        (nn.NLLLoss(weight=mt.tensor([1.0, 2.0, 4.0])), logits.log_softmax(-1), classes),
        (nn.MSELoss(), values, targets), (nn.L1Loss(), values, targets),
        (nn.BCEWithLogitsLoss(pos_weight=mt.tensor([1.0, 2.0, 3.0])), values, targets),
    ):
        parts = [loss.terms(x[part], y[part]) for part in (slice(0, 1), slice(1, 5))]
        total, count = (float(a) + float(b) for a, b in zip(*parts))
        assert total / count == pytest.approx(loss(x, y).item(), rel=1e-6), type(loss).__name__


def test_the_count_of_a_broadcast_difference_is_that_of_the_result():
    with pytest.warns(UserWarning, match="broadcast"):
        total, count = nn.L1Loss().terms(mt.zeros(3, 1), mt.ones(3, 4))
    assert total.item() == count == 12


def test_a_reduction_must_exist():
    with pytest.raises(ValueError, match="reduction is 'average'"):
        nn.MSELoss(reduction="average")
