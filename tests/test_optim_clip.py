"""Gradient clipping: norms that do not overflow, broken gradients, sums over ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import optim
from minitorch_gpu.comm import run_ranks
from tests.optim_support import parameter


def gradients(*grads, dtype="float32", names=True):
    return [parameter(np.zeros_like(g), f"p{i}" if names else None, g, dtype)
            for i, g in enumerate(grads)]


def test_a_finite_norm_does_not_overflow_in_float32():
    (p,) = gradients([1e20] * 4)
    assert optim.clip_grad_norm_([p], 1.0).item() == pytest.approx(2e20, rel=1e-6)
    np.testing.assert_allclose(p.grad.array, 0.5, rtol=1e-6)
    (p,) = gradients([1e19] * 128)
    assert optim.clip_grad_norm_([p], 2.0).item() == pytest.approx(1.131371e20, rel=1e-6)
    np.testing.assert_allclose(p.grad.array, 0.176777, rtol=1e-5)


def test_an_infinite_gradient_gives_pytorchs_zeros_and_nan():
    (p,) = gradients([math.inf, 1, 1, 1])
    assert optim.clip_grad_norm_(p, 1.0).item() == math.inf
    np.testing.assert_array_equal(p.grad.array, [math.nan, 0, 0, 0])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_error_if_nonfinite_names_the_parameter_and_changes_nothing(bad):
    good, broken = gradients([2.0, 3.0], [bad, 1, 1, 1])
    with pytest.raises(RuntimeError, match="parameter 'p1' is not finite"):
        optim.clip_grad_norm_([good, broken], 1.0, error_if_nonfinite=True)
    np.testing.assert_array_equal(good.grad.array, [2, 3])
    np.testing.assert_array_equal(broken.grad.array, [bad, 1, 1, 1])


@pytest.mark.parametrize(("norm_type", "norm"), [(2, 13.0), (1, 19.0), (math.inf, 12.0)])
def test_norms_are_over_all_elements(norm_type, norm):
    ps = gradients([3.0, -4.0], [-12.0], names=False)
    ps.append(parameter([1.0], dtype="float32"))  # without gradient
    total = optim.clip_grad_norm_(iter(ps), 6.5, norm_type)
    assert total.item() == pytest.approx(norm) and total.dtype == np.float32
    np.testing.assert_allclose(ps[0].grad.array, np.array([3, -4]) * 6.5 / norm, rtol=1e-6)
    after = optim.get_total_norm([p.grad for p in ps[:2]], norm_type)
    assert after.item() == pytest.approx(6.5)


def test_gradients_within_the_norm_keep_their_bits():
    (p,) = gradients([0.1, 0.2])
    before = p.grad.array.copy()
    optim.clip_grad_norm_([p], 1.0)
    np.testing.assert_array_equal(p.grad.array, before)
    optim.clip_grads_with_norm_([p], 1.0, mt.tensor(10.0))
    np.testing.assert_allclose(p.grad.array, before / 10, rtol=1e-6)


def test_clipping_nothing_gives_norm_zero():
    assert optim.clip_grad_norm_([parameter([1.0])], 1.0).item() == 0.0
    assert optim.clip_grad_norm_([], 1.0).item() == 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_gradients_are_clipped_with_a_float32_factor(dtype):
    dtype = mt.bfloat16 if dtype == "bfloat16" else dtype
    (p,) = gradients([300.0, 400.0], dtype=dtype)
    total = optim.clip_grad_norm_([p], 1.0)
    assert total.item() == pytest.approx(500, rel=1e-2) and total.dtype == np.float32
    np.testing.assert_allclose(p.grad.array.astype("f"), [0.6, 0.8], rtol=5e-3)
    (p,) = gradients([60000.0], dtype=dtype)
    optim.clip_grad_norm_([p], 1e-3)  # a factor of 1.7e-8, which float16 cannot hold
    np.testing.assert_allclose(p.grad.array.astype("f"), 1e-3, rtol=1e-2)


def test_values_are_limited_and_nan_stays():
    (p,) = gradients([-3.0, 0.5, 9.0, math.nan])
    optim.clip_grad_value_([p, parameter([1.0])], 1.0)
    np.testing.assert_array_equal(p.grad.array, [-1, 0.5, 1, math.nan])


@pytest.mark.parametrize(("call", "message"), [
    (lambda p: optim.clip_grad_norm_(p, -1.0), "max_norm"),
    (lambda p: optim.clip_grad_norm_(p, 1.0, 0.0), "norm_type"),
    (lambda p: optim.clip_grad_value_(p, -1.0), "clip_value"),
])
def test_limits_below_zero_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(gradients([1.0]))


class Owned:
    """A toy placement: a rank counts the elements before ``count``; one sum over ``comm``."""

    def __init__(self, comm, count=None):
        self.sum_over, self.count = comm, count

    def owned(self, array):
        return array.reshape(-1)[: self.count]


class Summing:
    """Counts its reductions."""

    def __init__(self, comm):
        self.comm, self.calls = comm, 0

    def __call__(self, value):
        self.calls += 1
        return self.comm.all_reduce(value)


def clipped_on_rank(comm, replicas):
    """Grads [3] and [4] sharded; a replicated one [12] owned by rank 0; one only here, 84."""
    total = Summing(comm)
    mine = comm.rank % 2
    shard, copied, local = gradients([[3.0], [4.0]][mine], [12.0], [84.0], dtype="float64")
    shard.placement = Owned(total, None if comm.rank < 2 else 0)
    copied.placement = Owned(total, None if comm.rank == 0 else 0)
    if comm.rank == comm.size - 1:
        copied.grad = None  # takes part in the sum all the same
    norm = optim.clip_grad_norm_([shard, copied, local], 1.0)
    return norm.item(), shard.grad.item(), total.calls, replicas


@pytest.mark.parametrize("replicas", [1, 2])
def test_owned_squares_are_summed_over_ranks_once(replicas):
    for rank, result in enumerate(run_ranks(2 * replicas, clipped_on_rank, replicas)):
        norm, grad, calls, _ = result
        assert norm == pytest.approx(85.0)  # 3, 4, 12, 84: five and thirteen and 85
        assert grad == pytest.approx((3.0, 4.0)[rank % 2] / 85.0, rel=1e-6)
        assert calls == 1


def test_the_infinity_norm_of_placed_parameters_is_refused():
    (p,) = gradients([1.0])
    p.placement = Owned(lambda value: value)
    with pytest.raises(ValueError, match="finite norm_type"):
        optim.clip_grad_norm_(p, 1.0, math.inf)
