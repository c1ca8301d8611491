"""Reductions that answer in pairs, skip NaN, count, or take the middle."""

from __future__ import annotations

from typing import Any, NamedTuple

from minitorch_gpu.ops.dims import one_dim, reduces
from minitorch_gpu.ops.sorting import picked
from minitorch_gpu.registry import composite, primitive, scalar
from minitorch_gpu.registry.promotion import is_floating
from minitorch_gpu.registry.scalar import OPS

Array = Any


class Range(NamedTuple):
    """The smallest and the largest values."""

    min: Any
    max: Any


def var_mean(x: Any, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
             correction: int = 1) -> tuple[Any, Any]:
    """Variance and mean over ``dim``; see ``var``."""
    return _with_mean("var", x, dim, unbiased, keepdim, correction)


def std_mean(x: Any, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
             correction: int = 1) -> tuple[Any, Any]:
    """Standard deviation and mean over ``dim``; see ``std``."""
    return _with_mean("std", x, dim, unbiased, keepdim, correction)


def _with_mean(name: str, x: Any, dim: Any, unbiased: Any, keepdim: bool,
               correction: int) -> tuple[Any, Any]:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    spread = OPS[name](x, dim=dim, unbiased=unbiased, keepdim=keepdim, correction=correction)
    return spread, OPS["mean"](x, dim=dim, keepdim=keepdim)


def aminmax(x: Any, *, dim: int | None = None, keepdim: bool = False) -> Range:
    """Smallest and largest values, of all elements or along ``dim``."""
    return Range(OPS["amin"](x, dim=dim, keepdim=keepdim),
                 OPS["amax"](x, dim=dim, keepdim=keepdim))


def count_nonzero(x: Any, dim: Any = None) -> Any:
    """How many elements are not zero, int64, over ``dim`` (all by default)."""
    return OPS["sum"](OPS["ne"](x, 0), dim=dim)


# ---------------------------------------------------------------- skipping NaN
@composite("(...)->(...)", normalise=reduces, promote=None, examples=(
    dict(x=(2, 3)), dict(x=[[1.0, float("nan"), 2.0], [0.5, -1.0, 3.0]], dim=1, keepdim=True)))
def nansum(x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """Sum over ``dim``, a NaN counting as 0 and getting no gradient."""
    kept = OPS["masked_fill"](x, OPS["isnan"](x), value=0.0) if is_floating(x.dtype) else x
    return OPS["sum"](kept, dim=dim, keepdim=keepdim, dtype=dtype)


@composite("(...)->(...)", normalise=reduces, promote=None, examples=(
    dict(x=(2, 3)), dict(x=[[1.0, float("nan"), 2.0], [0.5, -1.0, 3.0]], dim=1, keepdim=True)))
def nanmean(x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """Mean over ``dim`` of what is no NaN; NaN where nothing is left."""
    if not is_floating(x.dtype):
        raise TypeError(f"nanmean: needs a floating dtype, x is {x.dtype}: use .float()")
    total = OPS["nansum"](x, dim=dim, keepdim=keepdim, dtype=dtype)
    count = OPS["sum"](OPS["eq"](x, x), dim=dim, keepdim=keepdim)
    return total / OPS["cast"](count, dtype=total.dtype)


# ---------------------------------------------------------------- the middle
@primitive("(...)->(...)", promote=None, methods=())
def median_places(xp: Any, x: Array, skip_nan: bool = False) -> Array:
    """Index along the last dim of the lower median, the first of equal ones, kept as a dim.

    A NaN is the median of what holds one, or is passed over with ``skip_nan``.
    """
    if not x.shape[-1]:
        raise IndexError(f"median: the dim reduced of shape {x.shape} is empty")
    ordered = xp.sort(x, -1)  # NaN last
    holes = (x != x).sum(-1, keepdims=True)
    middle = xp.maximum(x.shape[-1] - (holes if skip_nan else 0) - 1, 0) // 2
    value = xp.take_along_axis(ordered, xp.broadcast_to(middle, holes.shape), -1)
    hole = (holes > 0) if not skip_nan else (holes == x.shape[-1])
    return xp.where(hole, x != x, x == value).argmax(-1, keepdims=True)


def _middle_slope(g: Any, y: Any, x: Any) -> Any:
    """Shared evenly among the elements that equal the median; a NaN equals a NaN here."""
    holes = OPS["logical_and"](OPS["isnan"](x), OPS["isnan"](y))
    chosen = OPS["logical_or"](OPS["eq"](x, y), holes)
    ties = OPS["cast"](OPS["sum"](chosen), dtype=g.dtype)
    return scalar.where(chosen, g / ties, 0.0)


@primitive("(...)->(...)", vjp=dict(x=_middle_slope), promote=None, methods=(),
           examples=(dict(x=(5,)), dict(x=(3, 2), skip_nan=True), dict(x=())))
def median_value(xp: Any, x: Array, skip_nan: bool = False) -> Array:
    """The lower median of all elements; NaN if there are none."""
    if not x.size:
        return xp.full((), xp.nan, x.dtype)
    line = x.reshape(-1)
    return line[OPS["median_places"](line, skip_nan=skip_nan)].reshape(())


def median(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements; with ``dim`` the values and their indices.

    Equal values share the gradient of the median of all; along ``dim`` one index gets it.
    """
    return _median(x, dim, keepdim, False)


def nanmedian(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """``median`` of what is no NaN."""
    return _median(x, dim, keepdim, True)


def _median(x: Any, dim: int | None, keepdim: bool, skip_nan: bool) -> Any:
    if dim is None:
        return OPS["median_value"](x, skip_nan=skip_nan)
    place = one_dim(dim, x.ndim)
    line = x if x.ndim else OPS["reshape"](x, shape=(1,))
    places = OPS["median_places"](OPS["transpose"](line, place, -1), skip_nan=skip_nan)
    return picked(x, OPS["transpose"](places, place, -1), place, keepdim)
