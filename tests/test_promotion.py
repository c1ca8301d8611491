"""dtype promotion in dispatch, against PyTorch's table written out."""

from __future__ import annotations

import numpy as np
import pytest

import minitorch_gpu as mt

CASES = [
    # dims, dims
    (mt.ones(2), mt.ones(2, dtype=mt.int64), mt.float32),
    (mt.ones(2), mt.ones(2, dtype=mt.float64), mt.float64),
    (mt.ones(2, dtype=mt.float16), mt.ones(2, dtype=mt.int64), mt.float16),
    (mt.ones(2, dtype=mt.float16), mt.ones(2, dtype=mt.bfloat16), mt.float32),
    (mt.ones(2, dtype=mt.bfloat16), mt.ones(2), mt.float32),
    (mt.ones(2, dtype=mt.bool), mt.ones(2, dtype=mt.uint8), mt.uint8),
    (mt.ones(2, dtype=mt.uint8), mt.ones(2, dtype=mt.int8), mt.int16),
    (mt.ones(2, dtype=mt.complex64), mt.ones(2, dtype=mt.float64), mt.complex128),
    # 0-dim tensors are weak within a kind
    (mt.ones(2), mt.tensor(1.0, dtype=mt.float64), mt.float32),
    (mt.ones(2, dtype=mt.int32), mt.tensor(1, dtype=mt.int64), mt.int32),
    (mt.ones(2, dtype=mt.int64), mt.tensor(1.0, dtype=mt.float64), mt.float64),
    (mt.tensor(1, dtype=mt.int32), mt.tensor(1, dtype=mt.int64), mt.int64),
    # Python numbers are weaker still
    (mt.ones(2, dtype=mt.int64), 1.5, mt.float32),
    (mt.ones(2, dtype=mt.float64), 1, mt.float64),
    (mt.ones(2, dtype=mt.float16), 1.5, mt.float16),
    (mt.ones(2, dtype=mt.bfloat16), 1.5, mt.bfloat16),
    (mt.ones(2, dtype=mt.bool), True, mt.bool),
    (mt.ones(2, dtype=mt.uint8), 1, mt.uint8),
    (mt.ones(2), 1j, mt.complex64),
    (mt.ones(2, dtype=mt.float64), 1j, mt.complex128),
]


@pytest.mark.parametrize(("a", "b", "expected"), CASES)
def test_mul_promotes_as_the_table_says(a, b, expected):
    assert (a * b).dtype == expected
    assert (b * a).dtype == expected


def test_division_and_exponentials_of_integers_are_float32():
    x = mt.tensor([1, 2, 4])
    assert (x / 2).dtype == mt.float32 and (x / x).tolist() == [1.0, 1.0, 1.0]
    assert x.exp().dtype == mt.float32 and x.sqrt().dtype == mt.float32
    assert (x // 2).dtype == mt.int64 and (x // 2).tolist() == [0, 1, 2]
    assert x.sum().dtype == mt.int64 and (x > 1).sum().item() == 2
    with pytest.raises(TypeError, match=r"\.float\(\)"):
        x.mean()


def test_comparisons_are_booleans_of_joined_operands():
    assert (mt.ones(2) == mt.ones(2, dtype=mt.int64)).dtype == mt.bool
    assert (mt.tensor([1, 2]) < 1.5).tolist() == [True, False]
    assert (mt.ones(2) == None) is False  # noqa: E711 - what Python does with None


def test_gradients_have_the_dtype_of_their_tensor():
    a = mt.ones(3, requires_grad=True)
    b = mt.ones(3, dtype=mt.float64, requires_grad=True)
    (a * b).sum().backward()
    assert (a.grad.dtype, b.grad.dtype) == (mt.float32, mt.float64)


@pytest.mark.parametrize("dtype", [mt.float16, mt.bfloat16])
def test_half_precision_computes_in_float32_and_rounds_once(dtype):
    many = mt.full((5000,), 1.0, dtype=dtype)
    assert many.sum().item() == pytest.approx(5000, rel=4e-3)
    x = mt.full((300, 300), 0.1, dtype=dtype)
    wide = (x.float() @ x.float()).to(dtype)
    assert (x @ x).tolist() == wide.tolist()
    w = mt.full((4,), 0.3, dtype=dtype, requires_grad=True)
    (w * w * w).sum().backward()
    assert w.grad.dtype == dtype
    np.testing.assert_allclose(w.grad.float().numpy(), 3 * 0.3 ** 2, rtol=1.5e-2)


def test_results_are_arrays_never_numpy_scalars():
    x = mt.tensor([1.0, 2.0])
    for y in (x.sum(), x[0], x.mean(), x.sum() * 2.0, x.max(), x.norm(), mt.tensor(3.0).exp()):
        assert type(y.array) is np.ndarray and y.shape == ()


def test_numpy_scalars_act_as_zero_dim_tensors():
    assert (mt.ones(2) * np.float64(2)).dtype == mt.float32


def test_data_chooses_the_dtype_of_a_new_tensor():
    assert mt.tensor([1, 2]).dtype == mt.int64
    assert mt.tensor([1.0]).dtype == mt.float32
    assert mt.tensor([True]).dtype == mt.bool
    assert mt.tensor(np.ones(1)).dtype == mt.float64
    assert mt.tensor([]).dtype == mt.float32
    with pytest.raises(TypeError, match="numbers"):
        mt.tensor(["a"])
    with pytest.raises(ValueError):
        mt.tensor([[1.0], [1.0, 2.0]])
