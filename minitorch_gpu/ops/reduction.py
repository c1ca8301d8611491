"""Reductions over dims: sums, means, extremes, norms, and cumulative sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from minitorch_gpu.ops.dims import along, count, kept, many_dims, one_dim, reduces
from minitorch_gpu.registry import composite, primitive, scalar
from minitorch_gpu.registry.promotion import is_floating, is_half
from minitorch_gpu.registry.scalar import OPS

Array = Any
Dims = tuple[int, ...]
DIMS = (dict(x=(2, 3, 4)), dict(x=(2, 3, 4), dim=-1),
        dict(x=(2, 3, 4), dim=(0, 2), keepdim=True), dict(x=(3,), dim=0), dict(x=()),
        dict(x=(2, 1, 3), dim=1, keepdim=True))


# Below, ``add.reduce`` and not ``.sum``: what overflows in it warns in this package's name.
def _sum_dtype(x: Any) -> Any:
    """Booleans and integers of every width add up and multiply in int64."""
    return None if is_floating(x.dtype) else np.int64


def _spread(value: Any, like: Any, dim: Dims, keepdim: bool) -> Any:
    """A reduced value back over the reduced dims, ready to broadcast."""
    return value if keepdim else OPS["reshape"](value, shape=kept(like.shape, dim))


@primitive(
    "(...)->(...)",
    vjp=dict(x=lambda g, x_like, dim, keepdim: OPS["expand"](
        _spread(g, x_like, dim, keepdim), shape=x_like.shape)),
    normalise=reduces, promote=None, examples=DIMS,
)
def sum_(
    xp: Any, x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Array:
    """Sum over ``dim`` (all by default); booleans and integers sum in int64."""
    dtype = _sum_dtype(x) if dtype is None else dtype
    if dtype is None and is_half(x.dtype):
        return xp.add.reduce(x, dim, np.float32, keepdims=keepdim).astype(x.dtype)
    return xp.add.reduce(x, dim, dtype, keepdims=keepdim)


@primitive(
    "(...)->(...)",
    vjp=dict(x=lambda g, x_like, dim, keepdim: OPS["expand"](
        _spread(g, x_like, dim, keepdim) * (1.0 / max(count(x_like.shape, dim), 1)),
        shape=x_like.shape)),
    normalise=reduces, promote=None, examples=DIMS,
)
def mean(
    xp: Any, x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Array:
    """Arithmetic mean over ``dim`` (all by default), computed in ``dtype`` (x's by default)."""
    dtype = x.dtype if dtype is None else np.dtype(dtype)
    if not is_floating(dtype):
        raise TypeError(f"mean: needs a floating dtype, not {dtype}: convert with .float()")
    working = np.float32 if is_half(dtype) else dtype
    total = xp.add.reduce(x, dim, working, keepdims=keepdim)
    size = count(x.shape, dim)
    result = total / size if size else xp.full(total.shape, xp.nan, dtype)
    return result.astype(dtype) if is_half(dtype) else result


def _spreads(params: dict[str, Any], x: Any) -> dict[str, Any]:
    """For var and std: PyTorch's older ``unbiased``, also as the only argument."""
    if isinstance(params["dim"], bool):
        params = {**params, "dim": None, "unbiased": params["dim"]}
    if params["unbiased"] is not None:
        params = {**params, "correction": int(params["unbiased"]), "unbiased": None}
    return reduces(params, x)


@composite("(...)->(...)", normalise=_spreads,
           examples=(*DIMS[:4], dict(x=(2, 3), dim=1, correction=0)))
def var(x: Array, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
        correction: int = 1) -> Array:
    """Variance over ``dim``, divided by N - correction; two passes, so nothing cancels.

    ``unbiased`` is PyTorch's older way to say correction 1 or 0.
    """
    centred = x - OPS["mean"](x, dim=dim, keepdim=True)
    freedom = max(count(x.shape, dim) - correction, 0)
    total = OPS["sum"](centred * centred, dim=dim, keepdim=keepdim)
    return total / freedom if freedom else total * float("nan")


@composite("(...)->(...)", normalise=_spreads, examples=DIMS[:4])
def std(x: Array, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
        correction: int = 1) -> Array:
    """Standard deviation over ``dim``: the root of ``var``; its gradient is 0 where it is 0."""
    square = OPS["var"](x, dim=dim, keepdim=keepdim, correction=correction)
    flat = OPS["eq"](square, 0.0)
    return OPS["where"](flat, square, OPS["sqrt"](OPS["where"](flat, 1.0, square)))


def _extreme_slope(g: Any, y: Any, x: Any, dim: Dims, keepdim: bool) -> Any:
    """The gradient of amax and amin, shared evenly among ties."""
    chosen = OPS["eq"](x, _spread(y, x, dim, keepdim))
    ties = OPS["sum"](chosen, dim=dim, keepdim=True)
    return scalar.where(chosen, _spread(g, x, dim, keepdim) / _as_like(ties, g), 0.0)


def _as_like(value: Any, like: Any) -> Any:
    return OPS["cast"](value, dtype=like.dtype)


@primitive("(...)->(...)", vjp=dict(x=_extreme_slope), normalise=reduces, promote=None,
           examples=DIMS)
def amax(xp: Any, x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    """Largest value over ``dim``; equal values share the gradient."""
    return x.max(dim, keepdims=keepdim)


@primitive("(...)->(...)", vjp=dict(x=_extreme_slope), normalise=reduces, promote=None,
           examples=DIMS)
def amin(xp: Any, x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    """Smallest value over ``dim``; equal values share the gradient."""
    return x.min(dim, keepdims=keepdim)


def _flat_or_along(params: dict[str, Any], x: Any) -> dict[str, Any]:
    dim = params["dim"]
    return {**params, "dim": None if dim is None else one_dim(dim, x.ndim)}


@primitive("(...)->(...)", normalise=_flat_or_along, promote=None)
def argmax(xp: Any, x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    """Index of the first largest value, over all elements or along ``dim``."""
    return x.argmax(dim, keepdims=keepdim)


@primitive("(...)->(...)", normalise=_flat_or_along, promote=None)
def argmin(xp: Any, x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    """Index of the first smallest value, over all elements or along ``dim``."""
    return x.argmin(dim, keepdims=keepdim)


@primitive("(...)->(...)", normalise=reduces, promote=None)
def all_(xp: Any, x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    """Whether every element is non-zero."""
    return (x != 0).all(dim, keepdims=keepdim)


@primitive("(...)->(...)", normalise=reduces, promote=None)
def any_(xp: Any, x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    """Whether some element is non-zero."""
    return (x != 0).any(dim, keepdims=keepdim)


def _prod_slope(g: Any, x: Any, dim: Dims, keepdim: bool) -> Any:
    """``g`` times the product of the others, without dividing, so zeros are right.

    With the reduced dims flattened to one, the others of element i are the exclusive running
    products from the left and from the right.
    """
    order = tuple(i for i in range(x.ndim) if i not in dim) + dim
    moved = OPS["permute"](x, dims=order)
    outer = tuple(x.shape[i] for i in order[: x.ndim - len(dim)])
    rows = OPS["reshape"](moved, shape=(*outer, count(x.shape, dim)))
    others = OPS["reshape"](_others_product(rows), shape=moved.shape)
    back = tuple(order.index(i) for i in range(x.ndim))
    return _spread(g, x, dim, keepdim) * OPS["permute"](others, dims=back)


def _others_product(rows: Any) -> Any:
    """Per element the product of its row without it: log2(n) doublings, all differentiable."""
    size = rows.shape[-1]
    left, right, step = _shifted(rows, 1), _shifted(rows, -1), 1
    while step < size:
        left = left * _shifted(left, step)
        right = right * _shifted(right, -step)
        step *= 2
    return left * right


def _shifted(rows: Any, step: int) -> Any:
    """Rows moved by ``step`` to the right (left if negative), ones moving in."""
    size, gap = rows.shape[-1], min(abs(step), rows.shape[-1])
    start = 0 if step > 0 else gap
    part = OPS["narrow"](rows, dim=-1, start=start, length=size - gap)
    ones = OPS["narrow"](rows, dim=-1, start=0, length=gap) * 0.0 + 1.0
    return OPS["cat"]([ones, part] if step > 0 else [part, ones], dim=-1)


@primitive("(...)->(...)", vjp=dict(x=_prod_slope), normalise=reduces, promote=None,
           examples=DIMS)
def prod(
    xp: Any, x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Array:
    """Product over ``dim``; the gradient is right where elements are zero."""
    dtype = _sum_dtype(x) if dtype is None else dtype
    return xp.multiply.reduce(x, dim, dtype, keepdims=keepdim)


@composite("(...)->(...)", normalise=reduces, promote="float", examples=DIMS)
def logsumexp(x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    """``log(sum(exp(x)))`` over ``dim``, the maximum taken out first."""
    top = OPS["amax"](_value(x), dim=dim, keepdim=True)
    top = OPS["where"](OPS["isfinite"](top), top, 0.0)
    total = OPS["log"](OPS["sum"](OPS["exp"](x - top), dim=dim, keepdim=True)) + top
    return total if keepdim else OPS["reshape"](total, shape=_reduced(x.shape, dim))


def _reduced(shape: tuple[int, ...], dim: Dims) -> tuple[int, ...]:
    return tuple(s for i, s in enumerate(shape) if i not in dim)


def _value(x: Any) -> Any:
    """x as a constant: the shift of logsumexp has no gradient of its own."""
    return x.detach() if hasattr(x, "detach") else x


@primitive("(...)->(...)", vjp=dict(x=lambda g, dim: OPS["flip"](
               OPS["cumsum"](OPS["flip"](g, dims=(dim,)), dim=dim), dims=(dim,))),
           normalise=along, promote=None,
           examples=(dict(x=(2, 3), dim=0), dict(x=(2, 3, 2), dim=-2)))
def cumsum(xp: Any, x: Array, dim: int, *, dtype: Any = None) -> Array:
    """Running sum along ``dim``; booleans and integers sum in int64."""
    if dtype is None and x.dtype.kind in "biu":
        dtype = np.int64
    return x.cumsum(dim, dtype) if x.ndim else x.astype(dtype or x.dtype)


def _norm_params(params: dict[str, Any], x: Any) -> dict[str, Any]:
    order = {"fro": 2.0, "inf": float("inf"), "-inf": -float("inf")}.get(params["ord"])
    order = float(params["ord"]) if order is None else order
    return {**params, "ord": order, "dim": many_dims(params["dim"], x.ndim)}


def _norm_slope(g: Any, y: Any, x: Any, ord: float, dim: Dims, keepdim: bool) -> Any:
    """0 at the zero vector (the subgradient); ties of an infinite norm share."""
    y, g = _spread(y, x, dim, keepdim), _spread(g, x, dim, keepdim)
    if abs(ord) == float("inf"):
        size = OPS["abs"](x)
        hit = OPS["logical_and"](OPS["eq"](size, y), OPS["ne"](size, 0.0))
        ties = OPS["clamp"](OPS["sum"](hit, dim=dim, keepdim=True), min=1)
        return scalar.where(hit, g * OPS["sign"](x) / _as_like(ties, g), 0.0)
    if ord == 0.0:
        return None
    if ord == 1.0:
        return g * OPS["sign"](x)
    safe = scalar.where(OPS["eq"](y, 0.0), 1.0, y)
    if ord == 2.0:
        return g * x / safe
    zero = OPS["eq"](x, 0.0)
    slope = OPS["sign"](x) * (scalar.where(zero, 1.0, OPS["abs"](x)) / safe) ** (ord - 1.0)
    return g * scalar.where(zero, 0.0, slope)


@primitive("(...)->(...)", vjp=dict(x=_norm_slope), normalise=_norm_params, promote=None,
           methods=(), examples=(dict(x=(2, 3)), dict(x=(2, 3), ord=1.0, dim=1),
                                 dict(x=(2, 3), ord=float("inf"), dim=0, keepdim=True),
                                 dict(x=(2, 3), ord=3.0)))
def vector_norm(
    xp: Any, x: Array, ord: Any = 2.0, dim: Any = None, keepdim: bool = False
) -> Array:
    """The p-norm ``(sum |x|^p)^(1/p)`` over ``dim``; max and min for p = inf, -inf."""
    size = xp.abs(x)
    if ord == float("inf"):
        return size.max(dim, keepdims=keepdim)
    if ord == -float("inf"):
        return size.min(dim, keepdims=keepdim)
    if ord == 0.0:
        return (size != 0).sum(dim, keepdims=keepdim).astype(x.dtype)
    if ord == 1.0:
        return xp.add.reduce(size, dim, keepdims=keepdim)
    if ord == 2.0:
        return xp.sqrt(xp.add.reduce(size * size, dim, keepdims=keepdim))
    return xp.add.reduce(size ** ord, dim, keepdims=keepdim) ** (1.0 / ord)
