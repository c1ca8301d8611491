"""Initial values: bounds, spreads, fans, and slices that equal the whole's."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn
from minitorch_gpu.nn import init


@pytest.fixture(autouse=True)
def _seed():
    mt.manual_seed(3)


def values(tensor):
    return tensor.detach().numpy()


def is_uniform(tensor, bound):
    """Within +-bound, reaching close to it, with a uniform's spread (to 4 sigma)."""
    v = values(tensor).astype(np.float64)
    assert abs(v).max() <= bound and abs(v).max() > 0.98 * bound
    assert v.std() == pytest.approx(bound / math.sqrt(3), rel=4 * 0.45 / math.sqrt(v.size))
    assert abs(v.mean()) < 4 * bound / math.sqrt(3 * v.size)


def is_normal(tensor, std):
    """Mean 0 and the given spread (4 sigma of each estimate), and tails beyond 3 sigma."""
    v = values(tensor).astype(np.float64)
    assert v.std() == pytest.approx(std, rel=4 / math.sqrt(2 * v.size))
    assert abs(v.mean()) < 4 * std / math.sqrt(v.size)
    assert abs(v).max() > 3 * std


# ---------------------------------------------------------------- defaults of the layers
def test_linear_and_conv_start_within_one_over_the_root_of_their_fan():
    layer = nn.Linear(64, 500)
    is_uniform(layer.weight, 1 / 8)
    is_uniform(layer.bias, 1 / 8)
    layer = nn.Conv2d(8, 400, (3, 2), groups=2)
    is_uniform(layer.weight, 1 / math.sqrt(4 * 3 * 2))
    is_uniform(layer.bias, 1 / math.sqrt(4 * 3 * 2))


def test_embedding_is_standard_normal_with_a_zero_padding_row():
    layer = nn.Embedding(300, 40, padding_idx=-1)
    assert layer.padding_idx == 299 and not values(layer.weight)[299].any()
    is_normal(layer.weight[:299], 1.0)


def test_attention_is_xavier_uniform_with_zero_biases():
    layer = nn.MultiheadAttention(48, 4)
    is_uniform(layer.in_proj_weight, math.sqrt(6 / (48 + 3 * 48)))
    is_uniform(layer.out_proj.weight, 1 / math.sqrt(48))
    assert not values(layer.in_proj_bias).any() and not values(layer.out_proj.bias).any()
    layer = nn.MultiheadAttention(48, 4, kdim=20)
    is_uniform(layer.k_proj_weight, math.sqrt(6 / (48 + 20)))


def test_normalisation_starts_as_the_identity():
    for layer in (nn.BatchNorm2d(3), nn.LayerNorm(3)):
        assert values(layer.weight).tolist() == [1, 1, 1]
        assert values(layer.bias).tolist() == [0, 0, 0]


def test_the_seed_decides_and_no_two_draws_are_the_same():
    mt.manual_seed(5)
    first = [values(nn.Linear(3, 3).weight).copy() for _ in range(2)]
    mt.manual_seed(5)
    again = [values(nn.Linear(3, 3).weight).copy() for _ in range(2)]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(*first)


# ---------------------------------------------------------------- the functions
@pytest.mark.parametrize("fill, std", [
    (lambda t: init.xavier_normal_(t, gain=2.0), 2 * math.sqrt(2 / 300)),
    (lambda t: init.kaiming_normal_(t), math.sqrt(2 / 200)),
    (lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"),
     math.sqrt(2 / 100)),
    (lambda t: init.kaiming_normal_(t, a=1.0), math.sqrt(1 / 200)),
    (lambda t: init.normal_(t, 0.0, 3.0), 3.0),
])
def test_normal_families(fill, std):
    tensor = mt.zeros(100, 200)
    assert fill(tensor) is tensor
    is_normal(tensor, std)


@pytest.mark.parametrize("fill, bound", [
    (lambda t: init.xavier_uniform_(t, gain=5 / 3), 5 / 3 * math.sqrt(6 / 300)),
    (lambda t: init.kaiming_uniform_(t), math.sqrt(6 / 200)),
    (lambda t: init.kaiming_uniform_(t, nonlinearity="linear"), math.sqrt(3 / 200)),
    (lambda t: init.uniform_(t, -2, 2), 2.0),
])
def test_uniform_families(fill, bound):
    tensor = mt.zeros(100, 200)
    assert fill(tensor) is tensor
    is_uniform(tensor, bound)


def test_truncated_normal_stays_inside_and_has_its_closed_form_spread():
    v = values(init.trunc_normal_(mt.zeros(200, 200), std=1.0, a=-1.0, b=1.0))
    density = math.exp(-0.5) / math.sqrt(2 * math.pi)
    variance = 1 - 2 * density / math.erf(1 / math.sqrt(2))
    assert abs(v).max() <= 1 and abs(v).max() > 0.999
    assert v.std() == pytest.approx(math.sqrt(variance), rel=0.02)


@pytest.mark.parametrize("shape", [(5, 5), (7, 3), (3, 7), (4, 2, 3)])
def test_orthogonal_rows_or_columns(shape):
    v = values(init.orthogonal_(mt.zeros(*shape, dtype=mt.float64), gain=2.0))
    flat = v.reshape(shape[0], -1)
    product = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)


def test_orthogonal_matrices_are_not_all_of_one_sign():
    corners = {bool(values(init.orthogonal_(mt.zeros(3, 3)))[0, 0] > 0) for _ in range(20)}
    assert corners == {True, False}  # QR without the sign correction: always negative


def test_constants():
    tensor = mt.zeros(2)
    assert init.constant_(tensor, 0.5).tolist() == [0.5, 0.5]
    assert init.ones_(tensor).tolist() == [1, 1] and init.zeros_(tensor).tolist() == [0, 0]


def test_values_are_written_into_leaves_without_being_recorded():
    weight = nn.Parameter(mt.zeros(3, 3))
    assert init.uniform_(weight) is weight and weight.is_leaf and weight.requires_grad
    assert values(weight).any()


def test_a_stale_saved_weight_is_noticed():
    weight = nn.Parameter(mt.ones(2, 2))
    y = (weight * weight).sum()
    init.zeros_(weight)
    with pytest.raises(RuntimeError, match="mul"):
        y.backward()


@pytest.mark.parametrize("name, gain", [
    ("linear", 1.0), ("tanh", 5 / 3), ("relu", math.sqrt(2)),
    ("leaky_relu", math.sqrt(2 / 1.0001)),
])
def test_gains(name, gain):
    assert init.calculate_gain(name) == pytest.approx(gain)


@pytest.mark.parametrize("fault, text", [
    (lambda: init.calculate_gain("rely"), "no gain for nonlinearity 'rely'"),
    (lambda: init.kaiming_uniform_(mt.zeros(2, 2), mode="fan"), "mode is 'fan'"),
    (lambda: init.xavier_normal_(mt.zeros(3)), "at least 2 dims"),
    (lambda: init.orthogonal_(mt.zeros(3)), "at least 2 dims"),
])
def test_bad_input_is_named(fault, text):
    with pytest.raises(ValueError, match=text):
        fault()


# ---------------------------------------------------------------- slices
SHARDED = {
    "uniform": init.uniform_,
    "normal": init.normal_,
    "trunc_normal": init.trunc_normal_,
    "orthogonal": init.orthogonal_,
    "xavier_uniform": lambda t, **o: init.xavier_uniform_(t, **full(o)),
    "xavier_normal": lambda t, **o: init.xavier_normal_(t, **full(o)),
    "kaiming_uniform": lambda t, **o: init.kaiming_uniform_(t, **full(o)),
    "kaiming_normal": lambda t, **o: init.kaiming_normal_(t, **full(o)),
}


def full(options):
    return {**options, "fan_shape": (5, 7)}


@pytest.mark.parametrize("name", SHARDED)
@pytest.mark.parametrize("dim", [0, 1])
def test_parts_drawn_apart_are_the_whole(name, dim):
    def draw(*shape, **options):
        mt.manual_seed(11)
        return values(SHARDED[name](mt.zeros(*shape, dtype=mt.float64), **options))

    whole = draw(5, 7)
    for start, stop in ((0, 2), (2, 5)):
        shape, cut = [5, 7], [slice(None)] * 2
        shape[dim], cut[dim] = stop - start, slice(start, stop)
        part = draw(*shape, shard={dim: (start, (5, 7)[dim])})
        np.testing.assert_array_equal(part, whole[tuple(cut)])


def test_fans_are_those_of_the_full_shape():
    part = init.xavier_normal_(mt.zeros(8, 4096), shard={0: (0, 32)}, fan_shape=(32, 4096))
    is_normal(part, math.sqrt(2 / (4096 + 32)))
