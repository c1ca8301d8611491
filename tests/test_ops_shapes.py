"""Ops on shapes drawn by Hypothesis from their signatures: values and gradients broadcast."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import minitorch_gpu as mt
from minitorch_gpu.registry import OPS
from tests.op_samples import all_ops, outputs_of, samples

name_of = lambda op: op.name
RELAXED = settings(max_examples=25, deadline=None,
                   suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def takes_floats(op):
    """Every operand a plain float array of the declared core dims, no other parameters."""
    signature = op.signature
    if len(signature.outputs) != 1 or any(o.dims is None or o.listed for o in signature.inputs):
        return False
    sample = next(iter(samples(op)), None)
    return sample is not None and not sample.params and all(
        v is None or (isinstance(v, np.ndarray) and v.dtype.kind == "f")
        for v in sample.operands)


LOOPING = [op for op in all_ops() if takes_floats(op) and (op.vjp or op.kind == "composite")]


def numpy_signature(op):
    """The signature with its inputs alone, as NumPy writes it: what shapes are drawn from."""
    inputs = ",".join("(" + ",".join(o.dims) + ")" for o in op.signature.inputs)
    return f"{inputs}->()"


@st.composite
def operands(draw, op):
    shapes = draw(hnp.mutually_broadcastable_shapes(
        signature=numpy_signature(op), min_side=1, max_side=3, max_dims=2)).input_shapes
    seed = draw(st.integers(0, 2**32 - 1))
    low, high = op.domain
    generator = np.random.default_rng(seed)
    return [generator.uniform(low, high, s) for s in shapes]


def accepted(op, arrays):
    """An op may restrict leading dims (linear's weight has none): then nothing is tested."""
    try:
        return OPS[op.name](*arrays)
    except ValueError:
        return None


@pytest.mark.parametrize("op", LOOPING, ids=name_of)
def test_the_gradient_is_the_adjoint_of_the_derivative_for_any_broadcast_shapes(op):
    @RELAXED
    @given(operands(op))
    def check(arrays):
        if accepted(op, arrays) is None:
            return
        generator = np.random.default_rng(0)
        tensors = [mt.Tensor(a, requires_grad=True) for a in arrays]
        (y,) = outputs_of(OPS[op.name](*tensors))
        directions = [generator.normal(size=a.shape) for a in arrays]
        weight = generator.normal(size=y.shape)
        y.backward(mt.Tensor(weight))
        step = 1e-6
        moved = [OPS[op.name](*(a + s * step * d for a, d in zip(arrays, directions)))
                 for s in (1, -1)]
        derivative = (np.asarray(moved[0]) - np.asarray(moved[1])) / (2 * step)
        pulled = sum((t.grad.array * d).sum() for t, d in zip(tensors, directions)
                     if t.grad is not None)
        np.testing.assert_allclose(pulled, (derivative * weight).sum(), rtol=1e-4, atol=1e-5)
        for t, a in zip(tensors, arrays):
            assert t.grad is None or t.grad.shape == a.shape

    check()


@RELAXED
@given(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4), st.data())
def test_any_index_reads_and_differentiates_as_numpy_reads(shape, data):
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    a = np.arange(float(np.prod(shape))).reshape(shape)
    x = mt.tensor(a, requires_grad=True)
    y = x[index]
    np.testing.assert_array_equal(y.detach().numpy(), a[index])
    y.sum().backward()
    expected = np.zeros(shape)
    expected[index] = 1
    np.testing.assert_array_equal(x.grad.numpy(), expected)


@RELAXED
@given(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), st.data())
def test_advanced_indices_add_up_their_gradients(shape, data):
    index = data.draw(hnp.integer_array_indices(
        shape, result_shape=hnp.array_shapes(max_dims=2, max_side=4)))
    a = np.arange(float(np.prod(shape))).reshape(shape)
    x = mt.tensor(a, requires_grad=True)
    y = x[index]
    np.testing.assert_array_equal(y.detach().numpy(), a[index])
    y.sum().backward()
    expected = np.zeros(shape)
    np.add.at(expected, index, 1.0)
    np.testing.assert_array_equal(x.grad.numpy(), expected)


@RELAXED
@given(hnp.array_shapes(min_dims=1, max_dims=4, max_side=3), st.data())
def test_sums_over_any_dims_equal_numpys(shape, data):
    dims = data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), unique_by=lambda d:
                              d % len(shape), min_size=1))
    keep = data.draw(st.booleans())
    a = np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(mt.tensor(a).sum(tuple(dims), keepdim=keep).numpy(),
                               a.sum(tuple(dims), keepdims=keep), rtol=1e-12)
