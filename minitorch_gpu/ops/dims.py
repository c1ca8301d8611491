"""Normalising of dim parameters: non-negative, in range, hashable; one place for all ops."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

Params = dict[str, Any]


def one_dim(dim: Any, ndim: int) -> int:
    """``dim`` counted from the front.

    Raises:
        TypeError: it is no integer.
        IndexError: it lies outside ``-ndim .. ndim - 1`` (a 0-dim tensor has dims -1 and 0).
    """
    if isinstance(dim, bool):
        raise TypeError(f"dim must be an integer, not {dim}")
    dim, limit = index(dim), max(ndim, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"dim {dim} is out of range for a tensor of {ndim} dims: use "
                         f"{-limit}..{limit - 1}")
    return dim % limit


def many_dims(dim: Any, ndim: int) -> tuple[int, ...]:
    """A dim, several, or None for all, as a sorted tuple without repeats."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(ndim))
    dims = [dim] if not isinstance(dim, (tuple, list)) else list(dim)
    result = [one_dim(d, ndim) for d in dims]
    if len(set(result)) != len(result):
        raise ValueError(f"dim {tuple(dims)} names a dim twice")
    return tuple(sorted(result)) if ndim else ()


def reduces(params: Params, x: Any, *rest: Any) -> Params:
    """For reductions: ``dim`` may be one, several or None."""
    return {**params, "dim": many_dims(params["dim"], x.ndim)}


def along(params: Params, x: Any, *rest: Any) -> Params:
    """For ops along one dim."""
    return {**params, "dim": one_dim(params["dim"], x.ndim)}


def sizes(shape: Any) -> tuple[int, ...]:
    """A shape given as an int or a sequence of ints, as a tuple."""
    if isinstance(shape, Sequence):
        return tuple(index(s) for s in shape)
    return (index(shape),)


def kept(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` with the reduced ``dims`` as 1."""
    return tuple(1 if i in dims else s for i, s in enumerate(shape))


def count(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """How many elements a reduction over ``dims`` joins."""
    product = 1
    for dim in dims:
        product *= shape[dim]
    return product
