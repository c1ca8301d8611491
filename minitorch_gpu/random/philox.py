"""Philox4x32-10: random words as a pure function of a counter and a key.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minitorch_gpu.device import Array, array_module

LOW = 0xFFFFFFFF
_TILE = 16384  # counters worked on at a time: eight uint64 temporaries stay in the L2 cache


def philox(counter: Sequence[Any], key: tuple[int, int]) -> Array:
    """Philox4x32-10 of broadcastable counters.

    Args:
        counter: four words, each an int or an array of integers in [0, 2**32).
        key: two words.

    Returns:
        uint32, shape (4, *broadcast shape of the counters).
    """
    xp = array_module(*counter)
    shape = np.broadcast_shapes(*(np.shape(word) for word in counter))
    out = xp.empty((4, *shape), np.uint32)
    rows = [xp.broadcast_to(xp.asarray(w, np.uint64), shape).reshape(1, -1) for w in counter]
    fill(out.reshape(4, 1, -1), rows, key)
    return out


def fill(out: Array, counter: Sequence[Any], key: tuple[int, int]) -> None:
    """Philox into ``out`` (4, rows, columns); counters are ints, (r, 1), (1, c) or (r, c)."""
    rows, columns = out.shape[1:]
    width = max(1, min(columns, _TILE))
    height = max(1, _TILE // width)
    if isinstance(out, np.ndarray):
        corners = [(r, c) for r in range(0, rows, height) for c in range(0, columns, width)]
    else:  # a GPU wants all the work at once
        corners, height, width = [(0, 0)], rows, columns
    for r, c in corners:
        spot = (slice(r, r + height), slice(c, c + width))
        for target, word in zip(out, _rounds([_tile(w, spot) for w in counter], key)):
            target[spot] = word


def _tile(word: Any, spot: tuple[slice, slice]) -> Any:
    if isinstance(word, int):
        return word
    return word[tuple(s if n > 1 else slice(None) for s, n in zip(spot, word.shape))]


def _rounds(counter: Sequence[Any], key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """Ten rounds on 32-bit words held in uint64; broadcasting makes the first ones cheap."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p, q = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = (q >> 32) ^ (c1 ^ k0), q & LOW
        c2, c3 = (p >> 32) ^ (c3 ^ k1), p & LOW
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return c0, c1, c2, c3
