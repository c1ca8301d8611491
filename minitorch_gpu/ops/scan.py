"""Running results along a dim: products, extremes, log-sum-exps, differences.

Each takes log2(n) steps, every step joining neighbours twice as far apart (Hillis and Steele,
"Data Parallel Algorithms", 1986), so none divides and the gradients are made of ops as well:

    a   b   c   d
    a  ab  bc  cd      step 1
    a  ab abc abcd     step 2
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitorch_gpu.ops.dims import along, one_dim
from minitorch_gpu.ops.indexing import Extreme
from minitorch_gpu.registry import primitive
from minitorch_gpu.registry.promotion import is_floating
from minitorch_gpu.registry.scalar import OPS

Array = Any
ALONG = (dict(x=(2, 3), dim=0), dict(x=(2, 5, 2), dim=-2), dict(x=(1, 2), dim=0),
         dict(x=(), dim=0))


def _shifted(x: Any, dim: int, step: int, fill: float) -> Any:
    """x moved by ``step`` to the right along ``dim`` (left if negative), ``fill`` moving in."""
    size = x.shape[dim]
    gap = min(abs(step), size)
    part = OPS["narrow"](x, dim=dim, start=0 if step > 0 else gap, length=size - gap)
    edge = (gap, 0) if step > 0 else (0, gap)
    pads = tuple(edge if i == dim else (0, 0) for i in range(len(x.shape)))
    return OPS["pad_constant"](part, pads=pads, value=fill)


def _backward_recurrence(g: Any, decay: Any, dim: int) -> Any:
    """``r[i] = g[i] + decay[i] * r[i + 1]`` along ``dim``, by joining the affine maps."""
    step = 1
    while step < g.shape[dim]:
        g = g + decay * _shifted(g, dim, -step, 0.0)
        decay = decay * _shifted(decay, dim, -step, 1.0)
        step *= 2
    return g


def _line(x: Any) -> Any:
    """A 0-dim value as a line of one."""
    return x if len(x.shape) else OPS["reshape"](x, shape=(1,))


def _like_shape(value: Any, x: Any) -> Any:
    return value if value.shape == x.shape else OPS["reshape"](value, shape=x.shape)


def _cumprod_slope(g: Any, x: Any, dim: int) -> Any:
    """The product left of i, times g of every later place with what lies between, x[i] not."""
    line = _line(x)
    left = OPS["cumprod"](_shifted(line, dim, 1, 1.0), dim=dim)
    later = _backward_recurrence(_line(g), _shifted(line, dim, -1, 1.0), dim)
    return _like_shape(left * later, x)


def _whole_dtype(x: Any, dtype: Any) -> Any:
    """Booleans and integers of every width multiply in int64."""
    if dtype is None:
        return x.dtype if is_floating(x.dtype) else np.dtype(np.int64)
    return np.dtype(dtype)


@primitive("(...)->(...)", vjp=dict(x=_cumprod_slope), normalise=along, examples=(
    *ALONG, dict(x=np.array([[0.0, 2, 3], [1, 0, 0.5], [0, 0, 2]]), dim=1)))
def cumprod(xp: Any, x: Array, dim: int, *, dtype: Any = None) -> Array:
    """Running product along ``dim``; the gradient is right where elements are zero."""
    dtype = _whole_dtype(x, dtype)
    return xp.cumprod(x, dim, dtype) if x.ndim else x.astype(dtype)


# ---------------------------------------------------------------- extremes
def _running_places(xp: Any, x: Array, dim: int, wins: Callable[[Any, Any], Any]) -> Array:
    """Where the best value so far is; of equal ones the latest. A NaN beats all numbers."""
    x = xp.moveaxis(x, dim, 0)
    places = xp.broadcast_to(
        xp.arange(x.shape[0]).reshape(-1, *(1,) * (x.ndim - 1)), x.shape).copy()
    best, step = x.copy(), 1
    while step < x.shape[0]:
        left, right = best[:-step], best[step:]
        keep = wins(right, left) & (left == left) | (right != right)
        best[step:] = xp.where(keep, right, left)
        places[step:] = xp.where(keep, places[step:], places[:-step])
        step *= 2
    return xp.moveaxis(places, 0, dim).copy()


@primitive("(...)->(...)", normalise=along, promote=None, methods=())
def cummax_places(xp: Any, x: Array, dim: int) -> Array:
    """Indices along ``dim`` of the running maximum, int64."""
    if not x.ndim:
        return xp.zeros((), np.int64)
    return _running_places(xp, x, dim, lambda new, old: new >= old)


@primitive("(...)->(...)", normalise=along, promote=None, methods=())
def cummin_places(xp: Any, x: Array, dim: int) -> Array:
    """Indices along ``dim`` of the running minimum, int64."""
    if not x.ndim:
        return xp.zeros((), np.int64)
    return _running_places(xp, x, dim, lambda new, old: new <= old)


def cummax(x: Any, dim: int) -> Extreme:
    """The largest value so far along ``dim`` and its index, the latest of equal ones."""
    return _with_values(x, dim, OPS["cummax_places"])


def cummin(x: Any, dim: int) -> Extreme:
    """The smallest value so far along ``dim`` and its index, the latest of equal ones."""
    return _with_values(x, dim, OPS["cummin_places"])


def _with_values(x: Any, dim: int, places_of: Any) -> Extreme:
    dim = one_dim(dim, x.ndim)
    line = _line(x)
    places = places_of(line, dim=dim)
    values = OPS["gather_along"](line, places, dim=dim)
    return Extreme(_like_shape(values, x), _like_shape(places, x))


# ---------------------------------------------------------------- log-sum-exp
def _logcumsumexp_slope(g: Any, x: Any, y: Any, dim: int) -> Any:
    """``exp(x[i])`` times the sum of ``g[j] exp(-y[j])`` over j >= i; no factor exceeds 1.

    Where all so far is -inf, y is too: 0 stands for it, and ``exp(x)`` is 0 there.
    """
    x_line, y_line = _line(x), _line(y)
    safe = OPS["where"](OPS["eq"](y_line, -float("inf")), 0.0, y_line)
    decay = OPS["exp"](y_line - _shifted(safe, dim, -1, float("inf")))
    later = _backward_recurrence(_line(g), decay, dim)
    return _like_shape(OPS["exp"](x_line - safe) * later, x)


@primitive("(...)->(...)", vjp=dict(x=_logcumsumexp_slope), normalise=along, promote="float",
           examples=ALONG)
def logcumsumexp(xp: Any, x: Array, dim: int) -> Array:
    """``log(cumsum(exp(x)))`` along ``dim``, never overflowing."""
    y = xp.moveaxis(x.copy(), dim, 0) if x.ndim else x.copy()
    step = 1
    while x.ndim and step < y.shape[0]:
        y[step:] = xp.logaddexp(y[step:], y[:-step])
        step *= 2
    return xp.moveaxis(y, 0, dim).copy() if x.ndim else y


# ---------------------------------------------------------------- differences
def diff(x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along ``dim``, ``n`` times over; booleans compare.

    Args:
        x: at least 1-D.
        n: how often, at least 0.
        dim: along which.
        prepend: put in front of x along ``dim`` first.
        append: put behind x along ``dim`` first.
    """
    if n < 0 or not x.ndim:
        raise ValueError(f"diff: needs n >= 0 and at least 1 dim, n is {n}, x has {x.ndim}")
    dim = one_dim(dim, x.ndim)
    parts = [part for part in (prepend, x, append) if part is not None]
    x = OPS["cat"](parts, dim=dim) if len(parts) > 1 else x
    minus = OPS["ne"] if x.dtype == bool else OPS["sub"]
    for _ in range(min(n, x.shape[dim])):
        length = max(x.shape[dim] - 1, 0)
        start = min(1, x.shape[dim])
        x = minus(OPS["narrow"](x, dim=dim, start=start, length=length),
                  OPS["narrow"](x, dim=dim, start=0, length=length))
    return x
