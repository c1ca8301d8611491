"""An optimizer's state: saved and loaded by name, or by position; what does not fit."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import optim
from tests.optim_support import parameter


def trained(kind=optim.SGD, names=("a", "b"), grads=(1.0, 2.0), **options):
    pairs = [(n, parameter([0.0, 0.0], grad=[g, g])) for n, g in zip(names, grads)]
    opt = kind(pairs, **options)
    opt.step()
    return opt


def buffers(opt):
    return [opt.state[p]["momentum_buffer"].tolist() for p in opt.param_groups[0]["params"]]


def test_state_is_found_by_name_whatever_the_order():
    saved = trained(momentum=0.9).state_dict()
    assert saved["param_groups"][0]["params"] == ["a", "b"]
    swapped = optim.SGD([("b", parameter([0.0, 0.0])), ("a", parameter([0.0, 0.0]))],
                        momentum=0.9)
    swapped.load_state_dict(saved)
    assert buffers(swapped) == [[2.0, 2.0], [1.0, 1.0]]


def test_name_hints_of_parameters_name_the_state():
    p = parameter([1.0], "layer.weight", [1.0])
    opt = optim.Adam([p])
    opt.step()
    p.name = "another hint"  # a later walk over part of the model changes nothing
    assert list(opt.state_dict()["state"]) == ["layer.weight"]


@pytest.mark.parametrize("names", [("a", "a"), ("a", None), (None, None)])
def test_double_or_missing_names_make_state_positional(names):
    saved = trained(names=names, momentum=0.9).state_dict()
    assert list(saved["state"]) == [0, 1]
    other = trained(names=("b", "a"), grads=(5.0, 6.0), momentum=0.9)
    other.load_state_dict(saved)
    assert buffers(other) == [[1.0, 1.0], [2.0, 2.0]]


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW])
def test_a_loaded_optimizer_continues_bit_for_bit(kind):
    options = dict(momentum=0.9, nesterov=True) if kind is optim.SGD else dict(amsgrad=True)
    draw = np.random.default_rng(0)
    grads = draw.normal(size=(6, 7))

    def run(p, opt, steps):
        for g in steps:
            p.grad = mt.Tensor(g.copy())
            opt.step()

    p = parameter(np.zeros(7), "w")
    opt = kind([p], lr=0.1, **options)
    run(p, opt, grads[:3])
    q = parameter(p.array.copy(), "w")
    resumed = kind([q], lr=5.0)
    resumed.load_state_dict(opt.state_dict())
    run(p, opt, grads[3:])  # the copies are the resumed one's own
    run(q, resumed, grads[3:])
    np.testing.assert_array_equal(p.array, q.array)


def test_loaded_state_takes_the_parameters_dtype():
    saved = trained(optim.Adam).state_dict()
    narrow = [(n, parameter([0.0, 0.0], dtype="float32")) for n in "ab"]
    opt = optim.Adam(narrow)
    opt.load_state_dict(saved)
    assert opt.state[narrow[0][1]]["exp_avg"].dtype == np.float32


def broken(**changes):
    state = trained(optim.Adam).state_dict()
    for path, value in changes.items():
        target, keys = state, path.split("__")
        for key in keys[:-1]:
            target = target[int(key) if isinstance(target, list) else key]
        target[keys[-1]] = value
    return state


@pytest.mark.parametrize(("bad", "message"), [
    ({}, '"state" and "param_groups"'),
    (broken(param_groups=[]), "0 parameter groups, this optimizer 1"),
    (broken(param_groups__0__params=["a", "c"]), r"lacks \['b'\] and has \['c'\]"),
    (broken(param_groups__0__params=[0]), "has 1 parameters in the state dict and 2"),
    (broken(param_groups__0__lr=-1.0), "lr=-1.0 must be a number"),
    (broken(param_groups__0__lr="x"), "lr='x' must be a number"),
    (broken(state__c={"step": 1}), r"state for \['c'\]"),
    (broken(state__a__exp_avg=mt.zeros(3)), r"exp_avg of parameter 'a' has shape \(3,\)"),
    (broken(state__a__step="9"), "step of parameter 'a'"),
    (broken(state__a={"momentum_buffer": mt.zeros(2)}), "lacks step, exp_avg, exp_avg_sq"),
    (trained(momentum=0.9).state_dict(), "lacks betas"),
])
def test_a_state_dict_that_does_not_fit_is_named_and_changes_nothing(bad, message):
    opt = trained(optim.Adam, grads=(7.0, 7.0), lr=0.125)
    before = copy.deepcopy(opt.state_dict())
    with pytest.raises(ValueError, match=message):
        opt.load_state_dict(bad)
    after = opt.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for key, values in before["state"].items():
        assert after["state"][key]["exp_avg"].tolist() == values["exp_avg"].tolist()
