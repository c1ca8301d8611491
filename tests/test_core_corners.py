"""Corners of the core where a silent difference once hid: indexing, views, hooks, dtypes."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import minitorch_gpu as mt


def leaf(*values, dtype=mt.float32):
    return mt.tensor(values, dtype=dtype, requires_grad=True)


# ---------------------------------------------------------------- indexing
def test_a_position_beside_an_index_tensor_is_taken_first():
    x = mt.arange(24.0).reshape(2, 3, 4)
    assert x[0, :, [1, 2]].tolist() == [[1, 2], [5, 6], [9, 10]]
    assert x[mt.tensor(1), :, mt.tensor([0, 3])].shape == (3, 2)
    assert x[0, None, [1, 2]].shape == (1, 2, 4)
    assert x[..., 1, [0, 2]].shape == (2, 2)


def test_writing_at_a_position_beside_an_index_tensor():
    x, w = mt.zeros(2, 3, 4), leaf(2.0)
    x[0, :, [1, 2]] = mt.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]) * w
    assert x[0, :, 1:3].tolist() == [[2, 4], [6, 8], [10, 12]] and x[1].sum().item() == 0
    x.sum().backward()
    assert w.grad.tolist() == [21.0]


def test_a_single_bool_is_no_index():
    with pytest.raises(IndexError, match=r"x\[None\]"):
        mt.ones(2)[True]


def test_a_float_written_through_an_index_tensor_is_checked():
    x = mt.zeros(3, dtype=mt.int64)
    with pytest.raises(TypeError, match=r"float 1\.5"):
        x[[0]] = 1.5


# ---------------------------------------------------------------- views
def test_view_never_copies():
    x = mt.arange(6.0).reshape(2, 3)
    x.view(-1)[0] = 9.0
    assert x[0, 0].item() == 9.0
    with pytest.raises(ValueError, match="reshape"):
        x.T.view(-1)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 2, 3)])
def test_an_empty_batch_can_be_flattened(shape):
    flat = mt.zeros(*shape).flatten(1)
    assert flat.shape == (shape[0], int(np.prod(shape[1:])))


def test_unbind_takes_views_with_gradients():
    m = mt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    a, b = m.unbind(1)
    (a * b).sum().backward()
    assert m.grad.tolist() == [[2, 1], [4, 3]]


def test_nothing_in_chunks_is_as_many_empty_parts():
    assert [part.shape for part in mt.zeros(0, 3).chunk(2)] == [(0, 3), (0, 3)]


def test_a_view_taken_before_its_base_requires_grad_follows_it():
    x = mt.zeros(4)
    v = x[1:]
    x.requires_grad_()
    (v * 2).sum().backward()
    assert x.grad.tolist() == [0, 2, 2, 2]
    with pytest.raises(RuntimeError, match="view of a leaf"):
        v += 1


def test_zero_and_fill_stay_in_the_graph():
    w = leaf(1.0, 2.0)
    x = w * 3
    x.zero_()
    x.sum().backward()
    assert w.grad.tolist() == [0, 0]
    y = w * 3
    y[0].fill_(7.0)
    y.sum().backward()
    assert y.tolist() == [7, 6] and w.grad.tolist() == [0, 3]


def test_a_shallow_copy_shares_the_memory():
    x = mt.zeros(2)
    copy.copy(x).fill_(1.0)
    assert x.tolist() == [1, 1]


# ---------------------------------------------------------------- hooks and gradients
def test_retain_grad_twice_counts_once():
    w = leaf(1.0, 2.0)
    a = w * 2
    a.retain_grad()
    a.retain_grad()
    (a * a).sum().backward()
    assert a.grad.tolist() == [4, 8]


def test_retain_grad_sees_what_later_hooks_made():
    a = leaf(1.0) * 2
    a.retain_grad()
    a.register_hook(lambda g: g * 10)
    a.sum().backward()
    assert a.grad.tolist() == [10]


def test_removing_a_hook_twice_leaves_its_twin():
    w, double = leaf(1.0), lambda g: g * 2
    first, _ = w.register_hook(double), w.register_hook(double)
    first.remove()
    first.remove()
    w.sum().backward()
    assert w.grad.tolist() == [2]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("hook, error, match", [
    (lambda g: g.double(), RuntimeError, "float64"),
    (lambda g: g[:1], RuntimeError, r"\(1,\)"),
    (lambda g: 1, TypeError, "int"),
])
def test_a_hook_may_not_change_the_kind_of_gradient(hook, error, match, create_graph):
    w = leaf(1.0, 2.0)
    w.register_hook(hook)
    with pytest.raises(error, match=match):
        (w * w).sum().backward(create_graph=create_graph)


def test_a_leaf_switched_off_after_the_forward_pass_gets_nothing():
    w, v = leaf(1.0), leaf(2.0)
    y = w * v
    w.requires_grad_(False)
    y.backward()
    assert w.grad is None and v.grad.tolist() == [1]


@pytest.mark.parametrize("dtype", [mt.bfloat16, mt.float16, mt.float64, mt.complex64])
def test_a_cast_passes_the_gradient(dtype):
    w = leaf(1.0, 2.0)
    (w.to(dtype) * 3).to(mt.float64).sum().backward() if dtype != mt.complex64 else \
        mt.real(w.to(dtype) * 3).sum().backward()
    assert w.grad.tolist() == [3, 3] and w.grad.dtype == mt.float32


def test_the_gradient_of_a_complex_modulus_points_outwards():
    z = mt.tensor([3 + 4j, -1j], requires_grad=True)
    z.abs().sum().backward()
    assert np.allclose(z.grad.numpy(), [0.6 + 0.8j, -1j])


def test_every_step_of_a_decorated_generator_is_unrecorded():
    w = leaf(1.0)

    @mt.no_grad()
    def steps():
        sent = yield (w * 2).requires_grad
        try:
            yield sent, (w * 3).requires_grad
        except KeyError:
            yield (w * 4).requires_grad
        return "end"

    generator = steps()
    assert next(generator) is False
    assert (w * 1).requires_grad
    assert generator.send(5) == (5, False)
    assert generator.throw(KeyError()) is False
    with pytest.raises(StopIteration, match="end"):
        next(generator)


# ---------------------------------------------------------------- dtypes and arguments
@pytest.mark.parametrize("make, dtype", [
    (lambda: mt.where(mt.tensor([True]), 1.0, 0.0), mt.float32),
    (lambda: mt.where(mt.tensor([True]), 1, 0), mt.int64),
    (lambda: mt.tensor([1, 2]).clamp(min=0.5), mt.float32),
    (lambda: mt.tensor([1, 2]).clamp(min=0), mt.int64),
    (lambda: mt.tensor([1, 2]).round(), mt.int64),
    (lambda: mt.tensor([1, 2], dtype=mt.int32).prod(), mt.int64),
    (lambda: mt.tensor([np.float64(1), np.float64(2)]), mt.float64),
    (lambda: mt.tensor([mt.ones((), dtype=mt.float64), mt.ones(())]), mt.float64),
    (lambda: mt.tensor([mt.tensor(1), mt.tensor(2.5)]), mt.float32),
    (lambda: mt.tensor([1.0, 2.0]), mt.float32),
])
def test_dtypes(make, dtype):
    assert make().dtype == dtype


def test_an_integer_that_does_not_fit_is_an_error():
    with pytest.raises(ValueError, match="300 does not fit uint8"):
        mt.tensor([1, 300], dtype=mt.uint8)


def test_a_tensor_of_a_list_names_the_right_function():
    with pytest.raises(TypeError, match=r"mt\.tensor"):
        mt.Tensor([1.0, 2.0])


def test_extremes_along_a_dim_have_names():
    x = mt.tensor([[1.0, 5.0], [7.0, 2.0]])
    assert x.max(dim=1).values.tolist() == [5, 7] and x.max(1).indices.tolist() == [1, 0]
    assert x.min(1, keepdim=True).values.shape == (2, 1) and mt.max(x, 0).indices.shape == (2,)
    value, index = mt.tensor(2.5).max(0)
    assert value.item() == 2.5 and index.item() == 0


def test_the_older_form_of_variance():
    x = mt.tensor([[1.0, 2.0], [3.0, 8.0]])
    assert x.var(unbiased=False).item() == x.var(correction=0).item() == x.var(False).item()
    assert x.var(0, False).tolist() == [1, 9] and x.var(0, True).tolist() == [2, 18]
    assert x.std(1, False, True).tolist() == [[0.5], [2.5]]


@pytest.mark.parametrize("dim", [1.0, True, "1"])
def test_a_dim_is_an_integer(dim):
    with pytest.raises(TypeError):
        mt.ones(2, 3).sum(dim)


def test_no_dims_listed_are_all_dims():
    assert mt.ones(2, 3).sum([]).item() == mt.ones(2, 3).sum(()).item() == 6


def test_sums_that_overflow_do_not_warn():
    assert mt.tensor([3e38, 3e38]).sum().item() == float("inf")
    inf = mt.tensor([float("inf"), -float("inf")])
    assert all(np.isnan(y.item()) for y in (inf.sum(), inf.mean(), inf.var()))


def test_spellings_of_arguments():
    x = mt.tensor([[0.0, 2.0], [3.0, 0.0]])
    assert [i.tolist() for i in x.nonzero(as_tuple=True)] == [[0, 1], [1, 0]]
    assert mt.cat(tensors=[x, x], dim=1).shape == (2, 4)
    assert mt.full_like(x, fill_value=2).dtype == mt.float32
    assert x.to(mt.float64, non_blocking=True).dtype == mt.float64
    assert (+x) is x
    assert repr(mt.zeros(0, 3)) == "tensor([], size=(0, 3))"
