"""The write clock: a saved array that was changed in place is found before it is used.

A node's creation number is the time it saved its arrays. An in-place write notes (the array
that owns the memory, the byte range, the time). The backward walk compares the time of the
latest write with the node's number, one integer comparison, and looks further only if there
was a later write.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import numpy as np

from minitorch_gpu.device import array_module
from minitorch_gpu.engine.graph import next_number

ByteRange = tuple[int, int]


class WriteClock:
    """Who wrote where, and when: ``latest`` is the number of the latest write of all."""

    def __init__(self) -> None:
        self.latest = 0
        self._log: dict[int, tuple[Any, dict[ByteRange, int]]] = {}

    def record(self, array: Any) -> None:
        """Note that ``array`` has just been written in place."""
        owner = owner_of(array)
        key = id(owner)
        entry = self._log.get(key)
        if entry is None or entry[0]() is not owner:
            # The entry goes when the memory does, so an id is never mistaken for another.
            alive = weakref.ref(owner, partial(self._forget, key))
            entry = self._log[key] = (alive, {})
        self.latest = entry[1][byte_range(array)] = next_number()

    def _forget(self, key: int, _: Any) -> None:
        self._log.pop(key, None)

    def written_since(self, array: Any, number: int) -> bool:
        """Whether any byte of ``array`` was written after time ``number``."""
        entry = self._log.get(id(owner_of(array)))
        if entry is None:
            return False
        low, high = byte_range(array)
        return any(
            time > number and begin < high and low < end
            for (begin, end), time in list(entry[1].items())
        )


clock = WriteClock()


def owner_of(array: Any) -> Any:
    """The array at the end of the chain of views: the one that owns the memory."""
    while isinstance(array.base, type(array)):
        array = array.base
    return array


def byte_range(array: Any) -> ByteRange:
    """First byte and one past the last byte that ``array`` touches."""
    xp = array_module(array)
    if xp is np:
        return np.lib.array_utils.byte_bounds(array)
    bounds: ByteRange = xp.byte_bounds(array)
    return bounds
