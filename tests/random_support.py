"""What the tests of random numbers share: the draws, a stand-in for modules, comparison."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from minitorch_gpu import random

DRAWS: dict[str, Callable[..., np.ndarray]] = {
    "uniform": random.uniform,
    "uniform64": lambda shape, **kw: random.uniform(shape, -1, 3, dtype=np.float64, **kw),
    "normal": random.normal,
    "normal64": lambda shape, **kw: random.normal(shape, 1, 2, dtype=np.float64, **kw),
    "integers": lambda shape, **kw: random.integers(-5, 1000, shape, **kw),
    "bernoulli": lambda shape, **kw: random.bernoulli(shape, 0.5, **kw),
}
each_draw = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)


class Module:
    """What random asks of a module: ``training`` and ``named_modules()``."""

    def __init__(self, **children: Module) -> None:
        self.training, self.children = True, children

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        yield "", self
        for name, child in self.children.items():
            for below, module in child.named_modules():
                yield f"{name}.{below}".rstrip("."), module

    def __call__(self, forward: Callable[[], Any]) -> Any:
        frame = random.enter_module(self)
        try:
            return forward()
        finally:
            random.leave_module(frame)


def fresh(run: Callable[[], Any], seed: int = 0) -> Any:
    """``run()`` in a context of its own, whose default generator has this seed."""

    def seeded() -> Any:
        random.manual_seed(seed)
        return run()

    return contextvars.Context().run(seeded)


def words() -> np.ndarray:
    return random.random_words(random.claim((4,)))


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
