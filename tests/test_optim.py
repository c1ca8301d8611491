"""Optimizers: steps against closed forms, groups, gradients, and bad input."""

from __future__ import annotations

import copy
import math
import tracemalloc

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import optim
from minitorch_gpu.optim import updates
from tests.optim_support import parameter


# ---------------------------------------------------------------- one step by hand
def test_adam_adds_eps_outside_the_bias_correction():
    p = parameter([1.0], grad=[1e-8])
    optim.Adam([p], lr=0.1, eps=1e-8).step()
    assert p.item() == pytest.approx(0.95, abs=1e-12)  # inside it would be 0.996935


def test_adamw_decays_before_the_step_and_adam_through_the_gradient():
    for kind, right in ((optim.AdamW, 0.85), (optim.Adam, 0.90)):
        p = parameter([1.0], grad=[1.0])
        kind([p], lr=0.1, weight_decay=0.5, eps=0.0).step()
        assert p.item() == pytest.approx(right, abs=1e-12), kind


def test_sgd_momentum_takes_the_first_gradient_whole():
    p = parameter([0.0], grad=[1.0])
    opt = optim.SGD([p], lr=1.0, momentum=0.5, dampening=0.5)
    opt.step()
    assert p.item() == -1.0
    opt.step()  # buffer = 0.5 * 1 + 0.5 * 1
    assert p.item() == -2.0


def test_maximize_climbs():
    for kind in (optim.SGD, optim.Adam):
        p = parameter([0.0], grad=[2.0])
        kind([p], lr=0.5, maximize=True).step()
        assert p.item() > 0


def test_parameters_without_gradient_are_untouched_and_keep_no_state():
    used, unused = parameter([1.0], "used", [1.0]), parameter([1.0], "unused")
    opt = optim.AdamW([used, unused], weight_decay=0.5)
    opt.step()
    assert unused.item() == 1.0
    assert list(opt.state_dict()["state"]) == ["used"]


def test_a_frozen_parameter_is_accepted_and_stays():
    frozen, p = parameter([1.0]), parameter([1.0])
    frozen.requires_grad_(False)
    opt = optim.AdamW([frozen, p], weight_decay=0.5)
    (frozen * p).sum().backward()
    opt.step()
    assert frozen.item() == 1.0 and p.item() != 1.0


def test_a_step_writes_memory_and_keeps_nothing_but_state():
    p = parameter(np.ones((4, 5)), grad=np.ones((4, 5)))
    before, alias = p.array, p.detach()
    opt = optim.AdamW([p])
    opt.step()
    assert p.array is before and (alias.array != 1).all()
    first = opt.state[p]["exp_avg"].array
    opt.step()
    assert opt.state[p]["exp_avg"].array is first and opt.state[p]["step"] == 2


@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW])
def test_a_step_allocates_less_than_a_tenth_of_the_parameter(kind):
    p = parameter(np.ones(1_000_000), grad=np.ones(1_000_000), dtype="float32")
    opt = kind([p], lr=0.1)
    opt.step()
    tracemalloc.start()
    opt.step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < p.nbytes / 10


def test_a_step_between_forward_and_backward_is_found():
    w = parameter([2.0])
    loss = (w * w * w).sum()
    w.grad = mt.ones(1, dtype="float64")
    optim.SGD([w], lr=0.1).step()
    with pytest.raises(RuntimeError, match="in place"):
        loss.backward()


@pytest.mark.parametrize("shape", [(), (0, 8), (1,), (3, 5), (200, 331)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_chunks_and_strides_do_not_change_the_numbers(shape, order):
    draw = lambda: np.random.default_rng(0).uniform(0.1, 1.0, (4, *shape))
    plain, other = list(draw()), [np.array(a, order=order) for a in draw()]
    q = np.full([2 * s for s in shape], 7.0)[tuple(slice(0, 2 * s, 2) for s in shape)]
    if shape:
        q[...] = other[0]
        other[0] = q
    pure = updates.adam_update(*other, 0.1, 3, decay=0.1, l2=0.2)
    updates.adam_update(*other, 0.1, 3, decay=0.1, l2=0.2, out=(other[0], *other[2:]))
    p, g, m, v = plain
    d = g + 0.2 * p
    m, v = 0.9 * m + 0.1 * d, 0.999 * v + 0.001 * d * d
    step = 0.1 * (m / (1 - 0.9**3)) / (np.sqrt(v / (1 - 0.999**3)) + 1e-8)
    for result, new, right in zip((other[0], *other[2:]), pure, (p * 0.99 - step, m, v)):
        np.testing.assert_allclose(result, right, rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(result, new)


def test_an_update_is_pure_without_out():
    p, g = np.ones(3), np.ones(3)
    (new,) = updates.sgd_update(p, g, 0.5)
    assert (p == 1).all() and (new == 0.5).all()
    (tensor,) = updates.sgd_update(mt.Tensor(p), mt.Tensor(g), 0.5)
    assert (tensor.array == 0.5).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype):
    dtype = mt.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    p = mt.Tensor(np.ones(4, "f").astype(dtype), requires_grad=True)
    p.grad = mt.Tensor(np.full(4, 1e-3, "f").astype(dtype))
    optim.AdamW([p], lr=0.1).step()  # eps = 1e-8 is 0 in float16
    assert p.dtype == dtype
    np.testing.assert_allclose(p.array.astype("f"), 0.899, atol=4e-3)


# ---------------------------------------------------------------- groups and the rest
def test_groups_take_their_options_over_the_defaults():
    a, b = parameter([1.0], grad=[1.0]), parameter([1.0], grad=[1.0])
    opt = optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
    opt.step()
    assert (a.item(), b.item()) == (0.9, 0.5)
    c = parameter([1.0], grad=[1.0])
    opt.add_param_group({"params": [c], "lr": 1.0})
    opt.step()
    assert c.item() == 0.0


def test_zero_grad_drops_gradients_or_zeroes_them():
    p, unused = parameter([1.0], grad=[3.0]), parameter([1.0])
    opt = optim.SGD([p, unused])
    opt.zero_grad(set_to_none=False)
    assert p.grad.item() == 0.0 and unused.grad is None
    opt.zero_grad()
    assert p.grad is None
    (p * p).sum().backward(create_graph=True)
    opt.zero_grad(set_to_none=False)
    assert p.grad.item() == 0.0 and not p.grad.requires_grad


def test_the_closure_runs_recording_and_its_loss_is_returned():
    p = parameter([3.0])
    opt = optim.SGD([p], lr=0.5)

    def closure():
        opt.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with mt.no_grad():
        assert opt.step(closure).item() == 9.0
    assert p.item() == 0.0


def test_a_copy_of_an_optimizer_trains_its_own_parameters():
    p = parameter([1.0], grad=[1.0])
    opt = optim.Adam([p])
    opt.step()
    other = copy.deepcopy(opt)
    other.step()
    (q,) = other.param_groups[0]["params"]
    assert q is not p and other.state[q]["step"] == 2 and opt.state[p]["step"] == 1


def test_repr_shows_the_options():
    assert "lr: 0.25" in repr(optim.SGD([parameter([1.0])], lr=0.25))


# ---------------------------------------------------------------- what cannot be optimised
def test_a_parameter_listed_twice_is_an_error():
    w = parameter([1.0], "w")
    with pytest.raises(ValueError, match="'w' is listed twice"):
        optim.SGD([w, w], lr=0.1)
    opt = optim.SGD([w], lr=0.1)
    with pytest.raises(ValueError, match="'w' is listed twice"):
        opt.add_param_group({"params": [w]})
    assert len(opt.param_groups) == 1


@pytest.mark.parametrize(("params", "error", "message"), [
    (lambda w: w, TypeError, "pass a list"),
    (lambda w: {w}, TypeError, "no order"),
    (lambda w: [{"params": {w}}], TypeError, "no order"),
    (lambda w: 3, TypeError, "pass a list"),
    (lambda w: [], ValueError, "empty"),
    (lambda w: [w, 3.0], TypeError, "parameter 1 is float"),
    (lambda w: [("w", w * 2)], ValueError, "'w' of shape .* result of a recorded op"),
    (lambda w: [mt.ones(2, dtype="complex64")], TypeError, "complex64"),
    (lambda w: [{"param": [w]}], TypeError, '"params"'),
])
def test_what_cannot_be_optimised_is_named(params, error, message):
    with pytest.raises(error, match=message):
        optim.SGD(params(parameter([1.0, 2.0])), lr=0.1)


@pytest.mark.parametrize("options", [
    dict(lr=-1.0), dict(lr=math.nan), dict(betas=(0.9, 1.0)), dict(betas=0.9), dict(eps=-1e-8),
    dict(weight_decay=-0.1),
])
def test_options_out_of_range_are_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        optim.Adam([parameter([1.0])], **options)
    with pytest.raises(ValueError, match="nesterov"):
        optim.SGD([parameter([1.0])], nesterov=True)
