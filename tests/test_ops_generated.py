"""Every op in the registry, tested from its declaration: a new op is tested by existing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu.registry import OPS
from minitorch_gpu.registry.scalar import INTRINSICS
from tests.op_samples import (
    all_ops,
    as_tensors,
    is_differentiable,
    outputs_of,
    samples,
)

DIFFERENTIABLE = [op for op in all_ops() if op.vjp is not None or op.kind == "composite"]
FUSED = [op for op in all_ops() if op.forward is not None]
name_of = lambda op: op.name


def call(op, sample, flat):
    return OPS[op.name](*sample.rebuilt(flat), **sample.params)


def live_samples(op, seed=0):
    """Samples in which some operand can carry a gradient and the result is not empty."""
    for sample in samples(op, seed):
        flat = sample.flat()
        if any(is_differentiable(v) and v.size for v in flat):
            yield sample, flat


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name_of)
def test_an_op_with_a_gradient_has_samples(op):
    assert list(samples(op)), f"{op.name}: declare examples="


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name_of)
def test_gradient_equals_finite_differences(op):
    for sample, flat in live_samples(op):
        check = lambda *xs, sample=sample: call(op, sample, list(xs))
        assert mt.autograd.gradcheck(check, as_tensors(flat), atol=1e-6, rtol=1e-5), sample


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name_of)
def test_second_order_equals_finite_differences(op):
    for sample, flat in live_samples(op):
        check = lambda *xs, sample=sample: call(op, sample, list(xs))
        if any(y.requires_grad for y in outputs_of(check(*as_tensors(flat)))):
            assert mt.autograd.gradgradcheck(check, as_tensors(flat), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("op", all_ops(), ids=name_of)
def test_tensors_and_raw_arrays_give_the_same_values(op):
    for sample in samples(op):
        flat = sample.flat()
        raw = outputs_of(call(op, sample, flat))
        for a, b in zip(raw, outputs_of(call(op, sample, as_tensors(flat)))):
            assert isinstance(b, mt.Tensor), "Tensors in, Tensors out"
            assert not isinstance(a, mt.Tensor), "arrays in, arrays out"
            np.testing.assert_array_equal(np.asarray(a), b.array)


@pytest.mark.parametrize("op", all_ops(), ids=name_of)
def test_strided_operands_give_the_same_values(op):
    for sample in samples(op):
        flat = sample.flat()
        strided = [_strided(v) if isinstance(v, np.ndarray) else v for v in flat]
        views = [mt.Tensor(v) if isinstance(v, np.ndarray) else v for v in strided]
        for a, b in zip(outputs_of(call(op, sample, as_tensors(flat))),
                        outputs_of(call(op, sample, views))):
            np.testing.assert_allclose(a.array, b.array, rtol=1e-12, atol=1e-12)


def _strided(array):
    """The same values with every dim stepping by 2 in a larger memory, in Fortran order."""
    base = np.full([2 * s for s in array.shape], 7, array.dtype, order="F")
    view = base[tuple(slice(0, 2 * s, 2) for s in array.shape)] if array.ndim else base
    view[...] = array
    return view


@pytest.mark.parametrize("op", all_ops(), ids=name_of)
def test_operands_are_untouched_and_never_returned(op):
    for sample in samples(op):
        flat = sample.flat()
        before = [v.copy() if isinstance(v, np.ndarray) else v for v in flat]
        results = outputs_of(call(op, sample, flat))
        for value, old in zip(flat, before):
            np.testing.assert_array_equal(value, old)
        for result, value in itertools.product(results, flat):
            assert result is not value or not isinstance(value, np.ndarray), "same object"
            if not op.view and isinstance(value, np.ndarray) and isinstance(result, np.ndarray):
                assert not np.shares_memory(result, value), f"{op.name} needs view=True"


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name_of)
def test_float32_operands_give_float32_gradients_close_to_float64(op):
    for sample, flat in live_samples(op):
        narrow = [v.astype("f") if is_differentiable(v) else v for v in flat]
        wide = [v.astype("d") if is_differentiable(v) else v for v in narrow]
        for a, b in zip(_gradients(op, sample, narrow), _gradients(op, sample, wide)):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.dtype == np.float32, op.name
                scale = max(1.0, float(np.abs(b.array).max(initial=0)))
                np.testing.assert_allclose(a.array, b.array, rtol=2e-4, atol=2e-5 * scale)


def _gradients(op, sample, flat, grad=True):
    tensors = as_tensors(flat, grad)
    outputs = [y for y in outputs_of(call(op, sample, tensors)) if y.requires_grad]
    for k, y in enumerate(outputs):
        weight = np.random.default_rng(k).uniform(0.5, 1.5, y.shape).astype(y.dtype)
        y.backward(mt.Tensor(weight), retain_graph=True)
    return [getattr(t, "grad", None) for t in tensors]


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name_of)
def test_a_frozen_operand_does_not_change_the_other_gradients(op):
    for sample, flat in live_samples(op):
        places = [i for i, v in enumerate(flat) if is_differentiable(v)]
        everything = _gradients(op, sample, flat)
        for mask in itertools.product([True, False], repeat=len(places)):
            if not any(mask):
                continue
            needs = [dict(zip(places, mask)).get(i, False) for i in range(len(flat))]
            for need, a, b in zip(needs, _gradients(op, sample, flat, needs), everything):
                if need and b is not None:
                    np.testing.assert_allclose(a.array, b.array, rtol=1e-12, atol=1e-12)
                elif not need:
                    assert a is None


@pytest.mark.parametrize("op", FUSED, ids=name_of)
def test_the_fused_pair_equals_the_definition(op):
    for sample, flat in live_samples(op):
        fused = outputs_of(call(op, sample, as_tensors(flat)))
        tensors = as_tensors(flat)
        params = {**op.params, **sample.params}
        if op.normalise is not None:
            params = op.normalise(params, *flat)
        plain = outputs_of(op.function(*sample.rebuilt(tensors), **params))
        for a, b in zip(fused, plain):
            np.testing.assert_allclose(a.array, b.array, rtol=1e-9, atol=1e-11)
        for k, y in enumerate(plain):
            if y.requires_grad:
                weight = np.random.default_rng(k).uniform(0.5, 1.5, y.shape)
                y.backward(mt.Tensor(weight), retain_graph=True)
        expected = [getattr(t, "grad", None) for t in tensors]
        for a, b in zip(_gradients(op, sample, flat), expected):
            if a is not None and b is not None:
                np.testing.assert_allclose(a.array, b.array, rtol=1e-8, atol=1e-10)
            elif a is not None:
                np.testing.assert_allclose(a.array, 0.0, atol=1e-12)


# NumPy has none of these for bool.
NO_BOOLEANS = ("sub", "neg", "sign", "floor_divide", "remainder", "frac")
ELEMENTWISE = [op for op in all_ops() if op.kind == "elementwise"]


@pytest.mark.parametrize("op", ELEMENTWISE, ids=name_of)
def test_an_elementwise_formula_computes_what_the_op_computes(op):
    names = {name: OPS[name] for name in OPS}
    for sample in samples(op):
        text = op.formula(**sample.params)
        values = eval(text, {**names, **INTRINSICS}, dict(zip(op.operands, sample.operands)))
        expected = OPS[op.name](*sample.operands, **sample.params)
        np.testing.assert_allclose(values, expected, rtol=1e-12)


@pytest.mark.parametrize("op", ELEMENTWISE, ids=name_of)
def test_elementwise_ops_take_bools_integers_and_empty_operands(op):
    params = (op.examples or ({},))[0]
    for dtype in (mt.bool, mt.int64):
        if dtype == mt.bool and op.name in NO_BOOLEANS:
            continue
        ones = [mt.ones(2, 3, dtype=dtype) for _ in op.operands]
        assert OPS[op.name](*ones, **params).shape == (2, 3)
        empty = [mt.zeros(0, 3, dtype=dtype) for _ in op.operands]
        assert OPS[op.name](*empty, **params).shape == (0, 3)


@pytest.mark.parametrize("op", all_ops(), ids=name_of)
def test_an_op_is_documented(op):
    assert op.doc and op.doc[0] != " ", f"{op.name} has no docstring"
