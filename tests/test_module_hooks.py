"""Hooks of modules: what they see, and what they replace."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn


def test_forward_hooks_see_and_replace():
    layer, seen = nn.ReLU(), []
    before = layer.register_forward_pre_hook(lambda m, args: (args[0] - 1,))
    after = layer.register_forward_hook(lambda m, args, y: seen.append(args[0].tolist()))
    times_ten = layer.register_forward_hook(lambda m, args, y: y * 10)
    assert layer(mt.tensor([0.0, 3.0])).tolist() == [0, 20]
    assert seen == [[-1, 2]]
    for handle in (before, after, times_ten):
        handle.remove()
    assert layer(mt.tensor([0.0, 3.0])).tolist() == [0, 3]


class Cross(nn.Module):
    """(a, b) -> (2 b, 3 a)."""

    def forward(self, a, b):
        return 2 * b, 3 * a


def hooked(module, *args):
    calls = []
    as_lists = lambda grads: [None if g is None else g.tolist() for g in grads]
    module.register_full_backward_hook(
        lambda m, gi, go: calls.append((as_lists(gi), as_lists(go))))
    return module(*args), calls


def leaf(*values):
    return mt.tensor(list(values), requires_grad=True)


def test_a_backward_hook_sees_both_sides_once():
    (p, q), calls = hooked(Cross(), leaf(1.0), leaf(1.0))
    (5 * p + 7 * q).sum().backward()
    assert calls == [([[21], [10]], [[5], [7]])]


def test_gradients_stand_at_the_places_of_the_arguments():
    (p, q), calls = hooked(Cross(), mt.tensor([1.0]), leaf(1.0))
    (5 * p + 7 * q).sum().backward()
    assert calls == [([None, [10]], [[5], None])]


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_a_backward_hook_fires_without_inputs_that_have_gradients(used):
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(mt.ones(1))

        def forward(self, x):
            first = self.weight * x
            return self.weight * 2 * x, first

    outputs, calls = hooked(Weighted(), mt.ones(1))
    sum(outputs[i].sum() for i in used).backward()
    assert calls == [([None], [[float(0 in used)], [float(1 in used)]])]


def test_a_backward_hook_replaces_the_gradient_also_of_second_order():
    layer, x = nn.Tanh(), leaf(0.5)
    layer.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))
    (first,) = mt.autograd.grad(layer(x).sum(), x, create_graph=True)
    t = np.tanh(0.5)
    assert first.item() == pytest.approx(10 * (1 - t * t), rel=1e-6)
    (second,) = mt.autograd.grad(first.sum(), x)
    assert second.item() == pytest.approx(10 * -2 * t * (1 - t * t), rel=1e-5)


Pair = namedtuple("Pair", "value extra")


def test_hooks_on_scalars_and_named_results():
    class Named(nn.Module):
        def forward(self, x):
            return Pair(x.sum(), "text")

    result, calls = hooked(Named(), leaf(1.0, 2.0))
    assert isinstance(result, Pair) and result.extra == "text"
    result.value.backward()
    assert calls == [([[1, 1]], [1, None])]


@pytest.mark.parametrize("answer", [lambda g: (g, g), lambda g: (mt.ones(5),)])
def test_a_backward_hook_must_answer_gradients_that_fit(answer):
    layer, x = nn.ReLU(), leaf(1.0)
    layer.register_full_backward_hook(lambda m, gi, go: answer(gi[0]))
    with pytest.raises(RuntimeError, match="backward hook of ReLU returned"):
        layer(x).sum().backward()


def test_a_removed_backward_hook_is_silent_and_no_grad_records_nothing():
    layer, calls = nn.ReLU(), []
    handle = layer.register_full_backward_hook(lambda *a: calls.append(a))
    with mt.no_grad():
        assert not layer(leaf(1.0)).requires_grad
    handle.remove()
    layer(leaf(1.0)).sum().backward()
    assert calls == []
