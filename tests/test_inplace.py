"""The in-place policy: memory is written where nothing is recorded, else the object rebinds."""

from __future__ import annotations

import numpy as np
import pytest

import minitorch_gpu as mt


def leaf(values):
    return mt.tensor(values, dtype=mt.float64, requires_grad=True)


def gradient(function, values=(1.0, 2.0, 3.0, 4.0)):
    """Value and gradient of ``function(w).sum()``."""
    w = leaf(list(values))
    result = function(w)
    result.sum().backward()
    return result.detach().tolist(), w.grad.tolist()


def test_writing_without_recording_changes_the_memory_for_every_alias():
    p = mt.Parameter(mt.tensor([1.0, 2.0]))
    alias = p.detach()
    with mt.no_grad():
        p -= 0.5 * mt.ones(2)
    assert alias.tolist() == [0.5, 1.5] and p.requires_grad and isinstance(p, mt.Parameter)
    x = mt.zeros(4)
    view = x[1:3]
    view.add_(2.0)
    assert x.tolist() == [0.0, 2.0, 2.0, 0.0]


def test_a_leaf_that_requires_grad_and_its_views_refuse_at_once():
    a = mt.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf that requires grad"):
        a += 1
    b = a[1:2]
    with pytest.raises(RuntimeError, match="view of a leaf"):
        b += 1
    with pytest.raises(RuntimeError, match="functional"):
        a.mul_(2.0)
    with pytest.raises(RuntimeError, match="leaf"):
        a[0] = 1.0


def test_a_clone_takes_a_recorded_assignment_to_a_slice():
    def function(w):
        x = w.clone()
        x[1:3] = x[1:3] * 10.0
        return x

    assert gradient(function) == ([1.0, 20.0, 30.0, 4.0], [1.0, 10.0, 10.0, 1.0])


def test_augmented_assignment_to_a_slice_is_recorded_once():
    def function(w):
        x = w * 2.0
        x[1:3] += 1.0
        return x * x

    value, slope = gradient(function)
    assert value == [4.0, 25.0, 49.0, 64.0]
    assert slope == [8.0, 20.0, 28.0, 32.0]


def test_a_view_of_zeros_collects_recorded_values():
    def function(w):
        out = mt.zeros(4, dtype=mt.float64)
        for t in range(4):
            out[t : t + 1] = w[t : t + 1] * (t + 1.0)
        return out * out

    assert gradient(function)[1] == [2.0, 16.0, 54.0, 128.0]

    def through_view(w):
        out = mt.zeros(4, dtype=mt.float64)
        view = out[1:3]
        view += w[1:3]
        return out * out

    assert gradient(through_view)[1] == [0.0, 4.0, 6.0, 0.0]


def test_a_view_of_a_view_rebinds_the_tensor_they_show():
    def function(w):
        x = (w * 1.0).reshape(2, 2)
        row = x.transpose(0, 1)[1]
        row *= 10.0
        del row
        return x

    assert gradient(function) == ([[1.0, 20.0], [3.0, 40.0]], [1.0, 10.0, 1.0, 10.0])


def test_an_alias_of_the_object_sees_the_change():
    def function(w):
        a = w * 2.0
        b = a
        a += 1.0
        return b

    assert gradient(function) == ([3.0, 5.0, 7.0, 9.0], [2.0] * 4)


def test_other_live_views_see_a_recorded_write():
    def stale(w):
        x = w * 1.0
        view = x[0:2]
        x[0] = 5.0
        return view * x[0:2]

    assert gradient(stale) == ([25.0, 4.0], [0.0, 4.0, 0.0, 0.0])

    def siblings(w):
        x = w * 1.0
        u, v = x[0:2], x[1:3]
        u *= 3.0
        return v * 1.0

    assert gradient(siblings) == ([6.0, 3.0], [0.0, 3.0, 1.0, 0.0])


def test_what_others_saved_is_untouched_by_a_recorded_write():
    r = leaf([3.0])
    y = r.exp()
    y *= 2.0
    y.sum().backward()
    assert r.grad.item() == pytest.approx(2 * np.exp(3.0))
    r = leaf([3.0])
    y = r * 2.0
    square = y ** 2.0
    y += 1.0
    square.sum().backward()
    assert r.grad.item() == 24.0
    r = leaf([3.0])
    y = r * 3.0
    y *= 2.0
    y.sum().backward()
    assert r.grad.item() == 6.0


def test_a_saved_array_written_behind_the_graph_is_an_error_that_names_it():
    a = leaf([1.0, 2.0])
    o = a.sigmoid()
    o.detach().zero_()
    with pytest.raises(RuntimeError, match=r"sigmoid saved an array of shape \(2,\)"):
        o.sum().backward()
    a = leaf([[1.0, 2.0], [3.0, 4.0]])
    o = a.exp()
    view = o.detach()[1]
    view.mul_(2.0)
    with pytest.raises(RuntimeError, match="exp"):
        o.sum().backward()


def test_a_write_beside_the_saved_bytes_is_no_error():
    memory = mt.zeros(6, dtype=mt.float64)
    w = memory[:3].detach().requires_grad_()
    y = (w * w).sum()
    memory[3:] = 1.0
    y.backward()
    memory[3:] = 2.0
    z = (w * w).sum()
    memory[:1] = 5.0
    with pytest.raises(RuntimeError, match="mul"):
        z.backward()


def test_an_optimizer_step_between_forward_and_backward_is_noticed():
    w = leaf([1.0, 2.0])
    loss = (w * w).sum()
    with mt.no_grad():
        w.sub_(0.1)
    with pytest.raises(RuntimeError, match="changed in place"):
        loss.backward()


def test_values_that_do_not_fit_are_refused():
    x = mt.zeros(3, dtype=mt.int64)
    with pytest.raises(TypeError, match="int64"):
        x += 0.5
    with pytest.raises(TypeError, match="int64"):
        x[0] = 0.5
    with pytest.raises(ValueError, match="shape"):
        mt.zeros(3).add_(mt.ones(2, 3))
    with pytest.raises(ValueError, match="expanded"):
        mt.zeros(1).expand(3).add_(1.0)


def test_in_place_forms_return_the_object():
    x = mt.tensor([1.0, -2.0])
    assert x.abs_() is x and x.tolist() == [1.0, 2.0]
    assert x.fill_(3.0) is x and x.zero_() is x and x.tolist() == [0.0, 0.0]
    assert x.copy_(mt.tensor([4, 5])) is x and x.tolist() == [4.0, 5.0]
    assert x.masked_fill_(mt.tensor([True, False]), -1.0).tolist() == [-1.0, 5.0]


def test_assignment_with_tensors_of_indices_and_masks():
    x = mt.zeros(4)
    x[mt.tensor([0, 2])] = mt.tensor([5.0, 6.0])
    x[x == 0] = 1.0
    assert x.tolist() == [5.0, 1.0, 6.0, 1.0]

    def function(w):
        y = w * 1.0
        y[mt.tensor([3, 0])] = w[1:3] * 2.0
        return y

    assert gradient(function) == ([6.0, 2.0, 3.0, 4.0], [0.0, 3.0, 3.0, 0.0])


def test_reading_by_mask_slices_steps_none_and_ellipsis_equals_numpy():
    a = np.arange(24.0).reshape(2, 3, 4)
    x = mt.tensor(a)
    for index in (np.s_[0], np.s_[:, 1:, ::2], np.s_[..., None, -1], np.s_[1, ..., 2:0:-1],
                  np.s_[[1, 0]], np.s_[:, [0, 2], 1], np.s_[None], np.s_[0, 1, 2]):
        np.testing.assert_array_equal(x[index].numpy(), a[index])
    np.testing.assert_array_equal(x[x > 7.5].numpy(), a[a > 7.5])
    with pytest.raises(IndexError, match="mask"):
        x[mt.tensor([True, False, True])]
    with pytest.raises(IndexError):
        x[5]
