"""Sums with factors, rounded quotients, and comparison within a tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np

from minitorch_gpu.registry import elementwise, primitive, scalar
from minitorch_gpu.registry.promotion import is_bfloat16, is_floating
from minitorch_gpu.registry.scalar import OPS

Scalar = Any  # a number, an array, a Tensor or an Expr
Array = Any


@elementwise(vjp=dict(start=lambda g, weight: g * (1.0 - weight),
                      end=lambda g, weight: g * weight,
                      weight=lambda g, start, end: g * (end - start)), promote="float")
def lerp(start: Scalar, end: Scalar, weight: Scalar) -> Scalar:
    """From ``start`` (weight 0) to ``end`` (weight 1), both met exactly."""
    way = end - start
    return scalar.where(scalar.abs(weight) < 0.5, start + weight * way,
                        end - way * (1.0 - weight))


@elementwise(vjp=dict(x=lambda g: g, a=lambda g, b, value: g * (b * value),
                      b=lambda g, a, value: g * (a * value)),
             examples=({}, dict(value=-0.5)))
def addcmul(x: Scalar, a: Scalar, b: Scalar, *, value: Any = 1) -> Scalar:
    """``x + value * a * b``."""
    return x + value * a * b


@elementwise(vjp=dict(x=lambda g: g, a=lambda g, b, value: g * (value / b),
                      b=lambda g, a, b, value: -g * (value * a / (b * b))),
             promote="float", domain=(0.5, 2.0), examples=({}, dict(value=-0.5)))
def addcdiv(x: Scalar, a: Scalar, b: Scalar, *, value: Any = 1) -> Scalar:
    """``x + value * a / b``."""
    return x + value * a / b


@elementwise(vjp=dict(a=lambda g: g, b=lambda g, alpha: g * alpha), methods=(),
             examples=(dict(alpha=-0.5), dict(alpha=3)))
def add_scaled(a: Scalar, b: Scalar, *, alpha: Any) -> Scalar:
    """``a + alpha * b``."""
    return a + alpha * b


@elementwise(vjp=dict(a=lambda g: g, b=lambda g, alpha: g * -alpha), methods=(),
             examples=(dict(alpha=-0.5), dict(alpha=3)))
def sub_scaled(a: Scalar, b: Scalar, *, alpha: Any) -> Scalar:
    """``a - alpha * b``."""
    return a - alpha * b


@primitive("(),()->()", vjp=dict(a=lambda g: g * 0.0, b=lambda g: g * 0.0), methods=(),
           domain=(0.5, 4.0), examples=(dict(a=(2, 3), b=(3,), rounding_mode="floor"),
                                        dict(a=(2, 1), b=(3,), rounding_mode="trunc")))
def rounded_quotient(xp: Any, a: Array, b: Array, *, rounding_mode: str) -> Array:
    """``a / b`` rounded: "floor" downwards, "trunc" towards zero; integers stay integers."""
    if rounding_mode == "floor":
        return xp.floor_divide(a, b)
    if rounding_mode != "trunc":
        raise ValueError(f"div: rounding_mode is {rounding_mode!r}; use None, \"floor\" or "
                         "\"trunc\"")
    if np.result_type(a, b).kind in "biu":
        return xp.floor_divide(a - xp.fmod(a, b), b)
    return xp.trunc(a / b)


# The methods and functions of these names; a + b, a - b and a / b go straight to the ops.
def add(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    """``a + alpha * b``."""
    return OPS["add"](a, b) if alpha == 1 else add_scaled(a, b, alpha=alpha)


def sub(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    """``a - alpha * b``."""
    return OPS["sub"](a, b) if alpha == 1 else sub_scaled(a, b, alpha=alpha)


def div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    """``a / b``: integers give the default float unless the quotient is rounded.

    Args:
        a: dividend.
        b: divisor, broadcast with a.
        rounding_mode: None, "floor" (downwards, as ``//``) or "trunc" (towards zero, as C).
    """
    if rounding_mode is None:
        return OPS["div"](a, b)
    return rounded_quotient(a, b, rounding_mode=rounding_mode)


# ---------------------------------------------------------------- numbers that are none
@primitive("()->()", vjp=dict(x=lambda g, x: scalar.where(scalar.isfinite(x), g, 0.0)),
           promote=None, examples=(dict(x=(2, 3)), dict(x=(3,), nan=1.0, posinf=2.0)))
def nan_to_num(
    xp: Any, x: Array, nan: float = 0.0, posinf: float | None = None,
    neginf: float | None = None,
) -> Array:
    """``x`` with NaN and infinities replaced, by default by 0 and the dtype's extremes."""
    if not is_floating(x.dtype):
        return x.copy()
    low, high = _extremes(x.dtype)
    number = xp.where(x != x, x.dtype.type(nan), x)
    number = xp.where(x == np.inf, x.dtype.type(high if posinf is None else posinf), number)
    return xp.where(x == -np.inf, x.dtype.type(low if neginf is None else neginf), number)


def _extremes(dtype: Any) -> tuple[Any, Any]:
    if is_bfloat16(dtype):
        import ml_dtypes

        return ml_dtypes.finfo(dtype).min, ml_dtypes.finfo(dtype).max
    return np.finfo(dtype).min, np.finfo(dtype).max


# ---------------------------------------------------------------- closeness
@primitive("(),()->()", examples=(dict(a=(2, 3), b=(3,)), dict(a=(2,), b=(2,), rtol=10.0)))
def isclose(
    xp: Any, a: Array, b: Array, rtol: float = 1e-5, atol: float = 1e-8,
    equal_nan: bool = False,
) -> Array:
    """Whether ``|a - b| <= atol + rtol * |b|``, or both are the same number, per element.

    Raises:
        ValueError: a negative tolerance.
    """
    if rtol < 0 or atol < 0:
        raise ValueError(f"isclose: rtol {rtol} and atol {atol} must not be negative")
    close = xp.asarray(a == b)
    if equal_nan:
        close = close | ((a != a) & (b != b))
    a, b = _subtractable(a), _subtractable(b)
    error = abs(a - b)
    return close | (xp.isfinite(error) & (error <= atol + abs(rtol * b)))


def _subtractable(value: Any) -> Any:
    """Booleans and integers as float64: differences of unsigned ones would wrap."""
    whole = getattr(value, "dtype", None) is not None and value.dtype.kind in "biu"
    return value.astype(np.float64) if whole else value


def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close; see ``isclose``."""
    return bool(isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan).all())


def equal(a: Any, b: Any) -> bool:
    """Whether shapes and all elements are equal (NaN is not)."""
    return bool(a.shape == b.shape and OPS["eq"](a, b).all())
