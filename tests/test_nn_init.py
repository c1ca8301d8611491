"""Initial values in parts, in every dtype, and bad arguments of initialisers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn
from minitorch_gpu.nn import init


def drawn(shape, initialise, **options):
    mt.manual_seed(5)
    return initialise(mt.zeros(shape, dtype=mt.float64), **options).numpy()


@pytest.mark.parametrize("initialise", [
    init.uniform_, init.normal_, init.trunc_normal_, init.xavier_uniform_, init.xavier_normal_,
    init.kaiming_uniform_, init.kaiming_normal_, init.orthogonal_])
@pytest.mark.parametrize("shard, index", [
    ({0: (2, 8)}, np.s_[2:5]), ({1: (1, 6)}, np.s_[:, 1:5]),
    ({0: (5, 8), 1: (2, 6)}, np.s_[5:8, 2:6])])
def test_a_shard_is_the_slice_of_the_whole(initialise, shard, index):
    whole = [shard.get(dim, (0, size))[1] for dim, size in enumerate((3, 4, 2))]
    assert np.array_equal(drawn((3, 4, 2), initialise, shard=shard),
                          drawn(whole, initialise)[index])


def test_fan_shape_is_for_parameters_made_of_several_weights():
    packed = drawn((12, 4), init.xavier_uniform_, fan_shape=(4, 4))
    assert math.sqrt(6 / 16) < np.abs(packed).max() < math.sqrt(6 / 8)


@pytest.mark.parametrize("call, words", [
    (lambda w: init.xavier_uniform_(w[0]), r"at least 2 dims, the shape is \(3,\)"),
    (lambda w: init.orthogonal_(w[0]), r"at least 2 dims, the shape is \(3,\)"),
    (lambda w: init.kaiming_normal_(w, mode="fan"), "'fan'; use \"fan_in\""),
    (lambda w: init.calculate_gain("swish"), "'swish'; there are linear"),
    (lambda w: init.uniform_(w, 1.0, 0.0), r"\[1.0, 0.0\)"),
    (lambda w: init.normal_(w, 0.0, -1.0), "-1.0"),
    (lambda w: init.trunc_normal_(w, std=0.0), "std=0.0"),
    (lambda w: init.trunc_normal_(w, a=1.0, b=-1.0), "a=1.0, b=-1.0")])
def test_bad_arguments_of_initialisers_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call(mt.zeros(2, 3))


@pytest.mark.parametrize("dtype", [mt.float16, mt.bfloat16, mt.float32])
def test_every_floating_dtype_is_initialised(dtype):
    for initialise in (init.uniform_, init.trunc_normal_, init.orthogonal_):
        values = initialise(mt.zeros(4, 3, dtype=dtype))
        assert values.dtype == dtype and len(set(values.flatten().tolist())) > 6


def test_layers_are_made_in_the_dtype_asked_for():
    for make in (lambda d: nn.Linear(2, 2, dtype=d), lambda d: nn.Conv2d(1, 1, 1, dtype=d),
                 lambda d: nn.Embedding(2, 2, dtype=d), lambda d: nn.BatchNorm2d(2, dtype=d),
                 lambda d: nn.LayerNorm(2, dtype=d), lambda d: nn.LSTM(2, 2, dtype=d),
                 lambda d: nn.MultiheadAttention(2, 1, dtype=d)):
        for dtype in (mt.float32, mt.float64, mt.bfloat16):
            assert {p.dtype for p in make(dtype).parameters()} == {dtype}
