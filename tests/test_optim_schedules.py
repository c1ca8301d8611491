"""Learning-rate schedules: their formulas, and resuming them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from minitorch_gpu import optim
from minitorch_gpu.optim import lr_scheduler
from tests.optim_support import parameter


def rates(make, steps=8, lr=1.0):
    opt = optim.SGD([parameter([0.0])], lr=lr)
    schedule = make(opt)
    found = []
    for _ in range(steps):
        found.append(opt.param_groups[0]["lr"])
        assert schedule.get_last_lr() == found[-1:]
        schedule.step()
    return found


WARM = lambda opt: lr_scheduler.LinearLR(opt, 0.25, total_iters=3)
SCHEDULES = {
    "step": lambda opt: lr_scheduler.StepLR(opt, 3, 0.5),
    "cosine": lambda opt: lr_scheduler.CosineAnnealingLR(opt, 4, 0.2),
    "linear": WARM,
    "lambda": lambda opt: lr_scheduler.LambdaLR(opt, lambda epoch: 1 / (1 + epoch)),
    "sequence": lambda opt: lr_scheduler.SequentialLR(
        opt, [WARM(opt), lr_scheduler.CosineAnnealingLR(opt, 4)], [3]),
}
RIGHT = {
    "step": [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25],
    "cosine": [1, 0.6 + 0.4 * math.sqrt(0.5), 0.6, 0.6 - 0.4 * math.sqrt(0.5), 0.2,
               0.6 - 0.4 * math.sqrt(0.5), 0.6, 0.6 + 0.4 * math.sqrt(0.5)],
    "linear": [0.25, 0.5, 0.75, 1, 1, 1, 1, 1],
    "lambda": [1 / n for n in range(1, 9)],
    "sequence": [0.25, 0.5, 0.75, 1, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0],
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_follow_their_formula(name):
    np.testing.assert_allclose(rates(SCHEDULES[name]), RIGHT[name], atol=1e-15)
    np.testing.assert_allclose(rates(WARM, lr=0.1), np.array(RIGHT["linear"]) * 0.1)


@pytest.mark.parametrize("order", ["optimizer first", "schedule first", "made after loading"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_resumed_schedule_goes_on_exactly(name, order):
    opt = optim.SGD([parameter([0.0], "w")], lr=0.3)
    schedule = SCHEDULES[name](opt)
    for _ in range(4):
        schedule.step()
    saved_opt, saved = opt.state_dict(), schedule.state_dict()
    fresh = optim.SGD([parameter([0.0], "w")], lr=7.0)
    if order == "made after loading":
        fresh.load_state_dict(saved_opt)
        resumed = SCHEDULES[name](fresh)
        resumed.load_state_dict(saved)
    else:
        resumed = SCHEDULES[name](fresh)
        loads = [lambda: fresh.load_state_dict(saved_opt),
                 lambda: resumed.load_state_dict(saved)]
        for load in loads if order == "optimizer first" else loads[::-1]:
            load()
    for _ in range(4):
        assert fresh.param_groups[0]["lr"] == opt.param_groups[0]["lr"]
        schedule.step()
        resumed.step()


def test_each_group_has_its_own_base_rate_and_function():
    opt = optim.SGD([{"params": [parameter([0.0])], "lr": 1.0},
                     {"params": [parameter([0.0])], "lr": 0.1}])
    schedule = lr_scheduler.LambdaLR(opt, [lambda epoch: 1.0, lambda epoch: 2.0**epoch])
    schedule.step()
    assert schedule.get_last_lr() == [1.0, 0.2]


def test_schedules_refuse_what_does_not_fit():
    opt = optim.SGD([parameter([0.0])], lr=1.0)
    for call, message in (
        (lambda: lr_scheduler.StepLR(3, 1), "drives an Optimizer"),
        (lambda: lr_scheduler.StepLR(opt, 0), "step_size=0"),
        (lambda: lr_scheduler.CosineAnnealingLR(opt, 0), "T_max=0"),
        (lambda: lr_scheduler.LinearLR(opt, 0.0), "start_factor"),
        (lambda: lr_scheduler.LambdaLR(opt, []), "0 lr_lambdas for 1"),
        (lambda: lr_scheduler.StepLR(opt, 1, last_epoch=5), "initial_lr"),
        (lambda: lr_scheduler.SequentialLR(opt, [], [1]), "schedulers need"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()
    cosine = lr_scheduler.CosineAnnealingLR(opt, 4).state_dict()
    with pytest.raises(ValueError, match=r"lacks \['gamma', 'step_size'\]"):
        lr_scheduler.StepLR(opt, 3).load_state_dict(cosine)
