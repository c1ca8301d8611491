"""The one rule by which a length is cut into parts: batches, heads, vocabulary, stages."""

from __future__ import annotations


def split_sizes(n: int, k: int) -> tuple[int, ...]:
    """How ``n`` is cut into ``k`` parts: NumPy's array_split rule, the longer parts first.

    ``split_sizes(7, 3) == (3, 2, 2)``; parts beyond ``n`` are empty.

    Raises:
        ValueError: ``n`` is negative or ``k`` is not positive.
    """
    if n < 0 or k < 1:
        raise ValueError(f"cannot cut length {n} into {k} parts")
    each, longer = divmod(n, k)
    return (each + 1,) * longer + (each,) * (k - longer)


def split_range(n: int, k: int, index: int) -> tuple[int, int]:
    """Where part ``index`` of ``split_sizes(n, k)`` lies: (start, stop).

    Raises:
        ValueError: ``n`` is negative or ``k`` is not positive.
        IndexError: there is no part ``index``.
    """
    if n < 0 or k < 1:
        raise ValueError(f"cannot cut length {n} into {k} parts")
    if not 0 <= index < k:
        raise IndexError(f"part {index} of {k}: parts count from 0 to {k - 1}")
    each, longer = divmod(n, k)
    start = index * each + min(index, longer)
    return start, start + each + (index < longer)
