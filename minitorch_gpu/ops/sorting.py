"""Order: sorting, the largest k, the k-th smallest, distinct values."""

from __future__ import annotations

from typing import Any, NamedTuple

from minitorch_gpu.device import array_module
from minitorch_gpu.ops.dims import one_dim
from minitorch_gpu.ops.indexing import Extreme
from minitorch_gpu.registry.scalar import OPS
from minitorch_gpu.tensor import Tensor

Array = Any


class Ordered(NamedTuple):
    """Values in order along a dim, and where they were."""

    values: Any
    indices: Any


def picked(x: Any, places: Any, dim: int, keepdim: bool) -> Extreme:
    """The values of x at ``places`` (size 1 along ``dim``), with or without that dim."""
    line = x if x.ndim else OPS["reshape"](x, shape=(1,))
    values = OPS["gather_along"](line, places, dim=dim)
    if keepdim and x.ndim:
        return Extreme(values, places)
    shape = x.shape[:dim] + x.shape[dim + 1:]
    return Extreme(OPS["reshape"](values, shape=shape), OPS["reshape"](places, shape=shape))


def sort(x: Any, dim: int = -1, descending: bool = False, *, stable: bool = True) -> Ordered:
    """Values in order along ``dim`` and their indices; NaN counts as the largest.

    Equal values keep their order, asked for by ``stable`` or not.
    """
    return _first(x, None, dim, descending)


def _first(x: Any, k: int | None, dim: int, descending: bool) -> Ordered:
    """The first ``k`` in order, all for None."""
    place = one_dim(dim, x.ndim)
    line = x if x.ndim else OPS["reshape"](x, shape=(1,))
    places = OPS["argsort"](line, dim=place, descending=descending)
    if k is not None:
        places = OPS["narrow"](places, dim=place, start=0, length=k)
    values = OPS["gather_along"](line, places, dim=place)
    if x.ndim:
        return Ordered(values, places)
    return Ordered(OPS["reshape"](values, shape=values.shape[1:]),
                   OPS["reshape"](places, shape=places.shape[1:]))


def msort(x: Any) -> Any:
    """Values in order along the first dim."""
    return sort(x, 0).values


def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Ordered:
    """The ``k`` largest (or smallest) values along ``dim`` in order, and their indices.

    Raises:
        IndexError: ``k`` is negative or more than the dim holds.
    """
    size = x.shape[one_dim(dim, x.ndim)] if x.ndim else 1
    if not 0 <= k <= size:
        raise IndexError(f"topk: k {k} is out of range for dim {dim} of size {size}")
    return _first(x, k, dim, largest)


def kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Extreme:
    """The ``k``-th smallest value along ``dim``, counted from 1, and its index.

    Raises:
        IndexError: ``k`` is below 1 or more than the dim holds.
    """
    place = one_dim(dim, x.ndim)
    size = x.shape[place] if x.ndim else 1
    if not 1 <= k <= size:
        raise IndexError(f"kthvalue: k {k} is out of range for dim {dim} of size {size}")
    line = x if x.ndim else OPS["reshape"](x, shape=(1,))
    places = OPS["narrow"](OPS["argsort"](line, dim=place), dim=place, start=k - 1, length=1)
    return picked(x, places, place, keepdim)


# ---------------------------------------------------------------- distinct values
def unique(x: Any, sorted: bool = True, return_inverse: bool = False,
           return_counts: bool = False, dim: int | None = None) -> Any:
    """The distinct values in order; or with ``dim`` the distinct slices along it.

    Args:
        x: any shape.
        sorted: they are in order whatever it says.
        return_inverse: also, per element (or slice) of x, the index of its value.
        return_counts: also how often each occurs, int64.
        dim: None for values of all of x, 1-D.

    Returns:
        The values, or a tuple of them and of what was asked for.
    """
    raw: Any = getattr(x, "array", x)
    place = None if dim is None else one_dim(dim, raw.ndim)
    values, inverse, counts = array_module(raw).unique(
        raw, return_inverse=True, return_counts=True, axis=place, equal_nan=False)
    inverse = inverse.reshape(raw.shape if place is None else -1)
    wanted = [values] + [inverse] * return_inverse + [counts] * return_counts
    wrapped = tuple(Tensor(part) if isinstance(x, Tensor) else part for part in wanted)
    return wrapped if len(wrapped) > 1 else wrapped[0]
