"""The state of random numbers: generators, and the default one of each context."""

from __future__ import annotations

import contextvars
import operator
from collections.abc import Mapping


class Generator:
    """The state of random numbers: a seed, and a tick that counts what was drawn from it."""

    def __init__(self, seed: int = 0) -> None:
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start again from ``seed``, an int in [-2**63, 2**64); negative ones wrap around.

        A frame that is open keeps the seed it was opened with.
        """
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise TypeError(f"a seed is an int, got {type(seed).__name__} {seed!r}")
        if not -(2**63) <= seed < 2**64:
            raise ValueError(f"a seed lies in [-2**63, 2**64), got {seed}")
        self._seed, self._tick = operator.index(seed) % 2**64, 0
        return self

    def initial_seed(self) -> int:
        """The seed, in [0, 2**64)."""
        return self._seed

    def next_tick(self) -> int:
        """Take a tick: its number, counted from 0 since seeding."""
        self._tick += 1
        return self._tick - 1

    def get_state(self) -> dict[str, int]:
        """All there is to save: ``{"seed": ..., "tick": ...}``, the same on every rank."""
        return {"seed": self._seed, "tick": self._tick}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Continue from what ``get_state`` gave: the next draws are the same bit for bit.

        Raises:
            ValueError: a key is missing or unknown, or the tick is not a count.
        """
        if set(state) != {"seed", "tick"}:
            raise ValueError(f"a generator's state has keys seed and tick, got {sorted(state)}")
        tick = state["tick"]
        if isinstance(tick, bool) or not isinstance(tick, int) or tick < 0:
            raise ValueError(f"a generator's tick is an int from 0 up, got {tick!r}")
        self.manual_seed(state["seed"])
        self._tick = tick

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, tick={self._tick})"


ambient: contextvars.ContextVar[Generator | None] = contextvars.ContextVar(
    "generator", default=None
)


def default_generator() -> Generator:
    """This context's generator; a fresh context makes its own, with seed 0."""
    generator = ambient.get()
    if generator is None:
        generator = Generator()
        ambient.set(generator)
    return generator


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, and return it."""
    return default_generator().manual_seed(seed)
