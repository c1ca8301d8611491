"""Softmax and its logarithm along one dim, and their gradients, which read only the output."""

from __future__ import annotations

from typing import Any

from minitorch_gpu.ops.dims import along
from minitorch_gpu.registry import primitive, scalar
from minitorch_gpu.registry.scalar import OPS

Array = Any

_CASES = (((2, 3), -1), ((2, 3, 2), 1), ((3,), 0), ((), 0))
_ONE = tuple(dict(x=shape, dim=dim) for shape, dim in _CASES)
_TWO = tuple(dict(slope=shape, value=shape, dim=dim) for shape, dim in _CASES)


def _total(x: Any, dim: int) -> Any:
    return OPS["sum"](x, dim=(dim,), keepdim=True)


# ---------------------------------------------------------------- softmax
def _value_slope(g: Any, slope: Any, value: Any, dim: int) -> Any:
    return g * (slope - _total(slope * value, dim)) - slope * _total(g * value, dim)


@primitive(
    "(...),(...)->(...)",
    vjp=dict(slope=lambda g, value, dim: OPS["softmax_slope"](g, value, dim=dim),
             value=_value_slope),
    normalise=along, methods=(), examples=_TWO,
)
def softmax_slope(xp: Any, slope: Array, value: Array, dim: int) -> Array:
    """The gradient of softmax with output v: ``v * (slope - sum(slope * v))``."""
    result = xp.multiply(slope, value, out=xp.empty_like(value))
    xp.subtract(slope, result.sum(dim, keepdims=True), out=result)
    result *= value
    return result


@primitive("(...)->(...)",
           vjp=dict(x=lambda g, y, dim: OPS["softmax_slope"](g, y, dim=dim)),
           normalise=along, promote="float", examples=_ONE)
def softmax(xp: Any, x: Array, dim: int) -> Array:
    """``exp(x) / sum(exp(x))`` along ``dim``, the maximum taken out first."""
    y = xp.subtract(x, x.max(dim, keepdims=True), out=xp.empty_like(x))
    xp.exp(y, out=y)
    y /= y.sum(dim, keepdims=True)
    return y


# ---------------------------------------------------------------- its logarithm
@primitive(
    "(...),(...)->(...)",
    vjp=dict(slope=lambda g, value, dim: g - _total(g * scalar.exp(value), dim),
             value=lambda g, slope, value, dim: -(g * scalar.exp(value)) * _total(slope, dim)),
    normalise=along, methods=(), examples=_TWO,
)
def log_softmax_slope(xp: Any, slope: Array, value: Array, dim: int) -> Array:
    """The gradient of log_softmax with output v: ``slope - exp(v) * sum(slope)``."""
    result = xp.exp(value, out=xp.empty_like(value))
    result *= slope.sum(dim, keepdims=True)
    return xp.subtract(slope, result, out=result)


@primitive("(...)->(...)",
           vjp=dict(x=lambda g, y, dim: OPS["log_softmax_slope"](g, y, dim=dim)),
           normalise=along, promote="float", examples=_ONE)
def log_softmax(xp: Any, x: Array, dim: int) -> Array:
    """``x - log(sum(exp(x)))`` along ``dim``, the maximum taken out first."""
    y = xp.subtract(x, x.max(dim, keepdims=True), out=xp.empty_like(x))
    y -= xp.log(xp.exp(y).sum(dim, keepdims=True))
    return y
