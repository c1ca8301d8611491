"""Learning rates over time: functions of the number of steps taken, under PyTorch's names.

    optimizer.step(); scheduler.step()        # the next step uses scheduler.get_last_lr()

A schedule is a closed form of ``last_epoch``, so resuming needs that number alone and rounding
does not add up; what PyTorch computes step by step differs in the last bits.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from minitorch_gpu.optim.optimizer import Optimizer


class LRScheduler:
    """Base class: a subclass gives ``lr_at``, the rate of a group after some steps.

    ``base_lrs`` are the groups' rates when the first schedule was made ("initial_lr" in each
    group); making a schedule sets the rates of step 0.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        """Drive ``optimizer.param_groups[i]["lr"]``.

        Args:
            optimizer: the optimizer to drive.
            last_epoch: steps taken before, less one; above -1 the groups must hold
                "initial_lr", as a loaded optimizer's do.

        Raises:
            TypeError: ``optimizer`` is none.
            ValueError: resuming without "initial_lr".
        """
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__} drives an Optimizer, not "
                            f"{type(optimizer).__name__}")
        for place, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ValueError(f'last_epoch={last_epoch} resumes, but group {place} has no '
                                 '"initial_lr": load the optimizer\'s state first')
        self.optimizer = optimizer
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def lr_at(self, base_lr: float, epoch: int, group: int) -> float:
        """The rate of a group after ``epoch`` steps; subclasses give it."""
        raise NotImplementedError(f"{type(self).__name__} has no lr_at(base_lr, epoch, group)")

    def step(self) -> None:
        """Count one step and set the groups' rates."""
        self.last_epoch += 1
        self._apply([self.lr_at(base, self.last_epoch, group)
                     for group, base in enumerate(self.base_lrs)])

    def _apply(self, rates: list[float]) -> None:
        self._last_lr = rates
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate

    def get_last_lr(self) -> list[float]:
        """The rate of each group as last set."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and lists: all but the optimizer and functions."""
        return {name: list(value) if isinstance(value, list) else value
                for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken; sets the groups' rates to its last ones.

        Raises:
            ValueError: the keys are those of another schedule, or the groups differ in number.
        """
        missing, unknown = _differences(self.state_dict(), state_dict)
        if missing or unknown:
            raise ValueError(f"{type(self).__name__}: the state dict lacks {missing} and has "
                             f"{unknown}, which this schedule has not")
        rates = list(state_dict["_last_lr"])
        if len(rates) != len(self.optimizer.param_groups):
            raise ValueError(f"the state dict has rates of {len(rates)} groups, the optimizer "
                             f"has {len(self.optimizer.param_groups)}")
        vars(self).update({k: list(v) if isinstance(v, list) else v
                           for k, v in state_dict.items()})
        self._apply(rates)


def _differences(ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[list[str], list[str]]:
    return sorted(set(ours) - set(theirs)), sorted(set(theirs) - set(ours))


class LambdaLR(LRScheduler):
    """``base_lr * lr_lambda(epoch)``, with one function for all groups or one for each."""

    def __init__(
        self, optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        """``lr_lambda`` is not saved: make the schedule with the same one when resuming."""
        count = len(optimizer.param_groups)
        functions = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(functions) != count:
            raise ValueError(f"{len(functions)} lr_lambdas for {count} parameter groups")
        self.lr_lambdas = functions
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base_lr: float, epoch: int, group: int) -> float:
        """The base rate times the group's function."""
        return base_lr * self.lr_lambdas[group](epoch)

    def state_dict(self) -> dict[str, Any]:
        """Without the functions."""
        return {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}


class StepLR(LRScheduler):
    """Multiplies the rate by ``gamma`` every ``step_size`` steps."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        """See the class; ``step_size`` is at least 1."""
        self.step_size, self.gamma = _at_least_one("step_size", step_size), gamma
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base_lr: float, epoch: int, group: int) -> float:
        """``base_lr * gamma ** (epoch // step_size)``."""
        return float(base_lr * self.gamma ** (epoch // self.step_size))


class LinearLR(LRScheduler):
    """Warm-up: the factor goes straight from ``start_factor`` to ``end_factor``, then stays."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0,
        total_iters: int = 5, last_epoch: int = -1,
    ) -> None:
        """``total_iters`` steps lead from the start to the end; the start is above 0."""
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueError(f"start_factor={start_factor!r} must lie in (0, 1] and "
                             f"end_factor={end_factor!r} in [0, 1]")
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = _at_least_one("total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base_lr: float, epoch: int, group: int) -> float:
        """The base rate times the factor after ``epoch`` steps."""
        done = min(epoch, self.total_iters) / self.total_iters
        return base_lr * (self.start_factor + (self.end_factor - self.start_factor) * done)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the base rate to ``eta_min`` in ``T_max`` steps, and back again.

    Loshchilov & Hutter 2017, arXiv:1608.03983, equation 5 without restarts.
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1,
    ) -> None:
        """See the class; ``T_max`` is at least 1."""
        self.T_max, self.eta_min = _at_least_one("T_max", T_max), eta_min
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base_lr: float, epoch: int, group: int) -> float:
        """``eta_min + (base_lr - eta_min) (1 + cos(pi epoch / T_max)) / 2``."""
        share = (1.0 + math.cos(math.pi * epoch / self.T_max)) / 2.0
        return self.eta_min + (base_lr - self.eta_min) * share


class SequentialLR(LRScheduler):
    """One schedule after another, each from its own step 0 at its milestone.

        warmup = LinearLR(opt, 0.01, total_iters=100)
        SequentialLR(opt, [warmup, CosineAnnealingLR(opt, 900)], milestones=[100])
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler],
        milestones: Sequence[int], last_epoch: int = -1,
    ) -> None:
        """``milestones[i]`` is the step at which ``schedulers[i + 1]`` takes over.

        Raises:
            ValueError: the numbers do not match, milestones fall, or a schedule drives another
                optimizer.
        """
        if len(schedulers) != len(milestones) + 1:
            raise ValueError(f"{len(schedulers)} schedulers need {len(schedulers) - 1} "
                             f"milestones, not {len(milestones)}")
        if list(milestones) != sorted(milestones):
            raise ValueError(f"milestones={list(milestones)} must not fall")
        if any(schedule.optimizer is not optimizer for schedule in schedulers):
            raise ValueError("all schedulers of a SequentialLR drive its own optimizer")
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base_lr: float, epoch: int, group: int) -> float:
        """The rate of the schedule whose turn it is."""
        turn = bisect_right(self._milestones, epoch)
        start = self._milestones[turn - 1] if turn else 0
        return self._schedulers[turn].lr_at(base_lr, epoch - start, group)

    def state_dict(self) -> dict[str, Any]:
        """Its own count and the milestones; the schedules are functions of it."""
        return {k: v for k, v in super().state_dict().items() if k != "_schedulers"}


def _at_least_one(name: str, value: int) -> int:
    if not value >= 1:
        raise ValueError(f"{name}={value!r} must be at least 1")
    return value
