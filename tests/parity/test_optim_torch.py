"""The optimizers, clipping and schedules give PyTorch's numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import optim
from minitorch_gpu.optim import lr_scheduler

torch = pytest.importorskip("torch", reason="compares with PyTorch")

CASES = [
    ("SGD", dict(lr=0.1)),
    ("SGD", dict(lr=0.1, weight_decay=0.2, maximize=True)),
    ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1)),
    ("SGD", dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)),
    ("SGD", dict(lr=0.1, momentum=0.9, maximize=True)),
    *((kind, options) for kind in ("Adam", "AdamW") for options in (
        dict(lr=0.1), dict(lr=0.1, betas=(0.5, 0.7), eps=1e-3, weight_decay=0.3),
        dict(lr=0.1, amsgrad=True, weight_decay=0.1),
        dict(lr=0.1, maximize=True, weight_decay=0.1))),
]


def both(kind, options, shapes=((3, 4), (5,), ()), dtype="float64"):
    """Our optimizer and PyTorch's over equal parameters."""
    draw = np.random.default_rng(0)
    values = [np.asarray(draw.normal(size=s), dtype) for s in shapes]
    ours = [mt.Tensor(v.copy(), requires_grad=True) for v in values]
    theirs = [torch.nn.Parameter(torch.tensor(v)) for v in values]
    return ours, getattr(optim, kind)(ours, **options), theirs, \
        getattr(torch.optim, kind)(theirs, **options)


def set_gradients(ours, theirs, seed, skip=None):
    draw = np.random.default_rng(seed)
    for place, (a, b) in enumerate(zip(ours, theirs)):
        g = np.asarray(draw.normal(size=a.shape), a.dtype)
        a.grad = None if place == skip else mt.Tensor(g)
        b.grad = None if place == skip else torch.tensor(g)


@pytest.mark.parametrize(("kind", "options"), CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-6)])
def test_ten_steps(kind, options, dtype, tolerance):
    ours, opt, theirs, other = both(kind, options, dtype=dtype)
    for seed in range(10):
        set_gradients(ours, theirs, seed, skip=1 if seed in (0, 4) else None)
        opt.step()
        other.step()
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a.array, b.detach().numpy(), rtol=tolerance, atol=tolerance)
        state = other.state[b]
        assert set(opt.state[a]) == set(state)
        for name, value in opt.state[a].items():
            np.testing.assert_allclose(
                value if name == "step" else value.array, state[name].numpy(), rtol=tolerance,
                atol=tolerance)


def test_defaults_are_pytorchs():
    for kind in ("SGD", "Adam", "AdamW"):
        _, opt, _, other = both(kind, {})
        for name, value in opt.defaults.items():
            assert value == other.defaults[name], (kind, name)


def test_groups_and_a_rate_that_changes():
    ours, _, theirs, _ = both("SGD", {})
    make = lambda ps: [{"params": ps[:1], "lr": 0.5, "weight_decay": 0.0}, {"params": ps[1:]}]
    opt, other = optim.AdamW(make(ours)), torch.optim.AdamW(make(theirs))
    for seed in range(5):
        set_gradients(ours, theirs, seed)
        for o in (opt, other):
            o.param_groups[1]["lr"] = 0.1 / (1 + seed)
            o.step()
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a.array, b.detach().numpy(), rtol=1e-12, atol=1e-12)


def test_pytorchs_state_dict_continues_here():
    ours, opt, theirs, other = both("Adam", dict(lr=0.1, amsgrad=True))
    for seed in range(3):
        set_gradients(ours, theirs, seed)
        other.step()
    state = other.state_dict()
    convert = lambda v: mt.Tensor(v.numpy()) if isinstance(v, torch.Tensor) else v
    opt.load_state_dict({
        "param_groups": state["param_groups"],
        "state": {k: {n: convert(v) for n, v in s.items()} for k, s in state["state"].items()}})
    for a, b in zip(ours, theirs):
        a.array[...] = b.detach().numpy()
    for seed in range(3, 6):
        set_gradients(ours, theirs, seed)
        opt.step()
        other.step()
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a.array, b.detach().numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.5, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clip_grad_norm(norm_type, max_norm):
    ours, _, theirs, _ = both("SGD", {})
    set_gradients(ours, theirs, 0, skip=1)
    total = optim.clip_grad_norm_(ours, max_norm, norm_type)
    right = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    assert total.item() == pytest.approx(right.item(), rel=1e-12)
    for a, b in zip(ours, theirs):
        if b.grad is not None:
            np.testing.assert_allclose(a.grad.array, b.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_clip_grad_norm_of_broken_gradients(bad):
    g = np.array([bad, 1, 1, 1], "f")
    p, q = mt.zeros(4, requires_grad=True), torch.zeros(4, requires_grad=True)
    p.grad, q.grad = mt.Tensor(g.copy()), torch.tensor(g)
    total, right = optim.clip_grad_norm_(p, 1.0), torch.nn.utils.clip_grad_norm_(q, 1.0)
    np.testing.assert_array_equal(total.array, right.numpy())
    np.testing.assert_array_equal(p.grad.array, q.grad.numpy())


PAIRS = {
    "StepLR": lambda s, o: s.StepLR(o, 3, gamma=0.3),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 7, eta_min=0.01),
    "LinearLR": lambda s, o: s.LinearLR(o, 0.1, 0.9, total_iters=6),
    "LambdaLR": lambda s, o: s.LambdaLR(o, lambda epoch: 0.9**epoch),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=5), s.CosineAnnealingLR(o, 9)], [5]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_schedules(name):
    p, q = mt.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    opt, other = optim.SGD([p], lr=0.2), torch.optim.SGD([q], lr=0.2)
    schedule, right = PAIRS[name](lr_scheduler, opt), \
        PAIRS[name](torch.optim.lr_scheduler, other)
    for _ in range(14):
        np.testing.assert_allclose(opt.param_groups[0]["lr"], other.param_groups[0]["lr"],
                                   rtol=1e-12, atol=1e-15)
        other.step()
        schedule.step()
        right.step()
    assert schedule.last_epoch == right.last_epoch
