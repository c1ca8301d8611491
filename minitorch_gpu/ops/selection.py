"""Elementwise comparison, logic and selection; activations that are a choice of two lines."""

from __future__ import annotations

from typing import Any

from minitorch_gpu.registry import elementwise, primitive, scalar

Scalar = Any  # a number, an array, a Tensor or an Expr
Array = Any


@elementwise(operator="eq")
def eq(a: Scalar, b: Scalar) -> Scalar:
    """Whether equal, per element."""
    return a == b


@elementwise(operator="ne")
def ne(a: Scalar, b: Scalar) -> Scalar:
    """Whether different, per element."""
    return a != b


@elementwise(operator="lt")
def lt(a: Scalar, b: Scalar) -> Scalar:
    """Whether ``a < b``, per element."""
    return a < b


@elementwise(operator="le")
def le(a: Scalar, b: Scalar) -> Scalar:
    """Whether ``a <= b``, per element."""
    return a <= b


@elementwise(operator="gt")
def gt(a: Scalar, b: Scalar) -> Scalar:
    """Whether ``a > b``, per element."""
    return a > b


@elementwise(operator="ge")
def ge(a: Scalar, b: Scalar) -> Scalar:
    """Whether ``a >= b``, per element."""
    return a >= b


@elementwise()
def logical_and(a: Scalar, b: Scalar) -> Scalar:
    """Whether both are non-zero."""
    return scalar.logical_and(a, b)


@elementwise()
def logical_or(a: Scalar, b: Scalar) -> Scalar:
    """Whether one is non-zero."""
    return scalar.logical_or(a, b)


@elementwise()
def logical_xor(a: Scalar, b: Scalar) -> Scalar:
    """Whether exactly one is non-zero."""
    return scalar.logical_xor(a, b)


@elementwise()
def logical_not(x: Scalar) -> Scalar:
    """Whether zero."""
    return scalar.logical_not(x)


@elementwise(operator="and", methods=("bitwise_and",), domain=(0, 16))
def bitwise_and(a: Scalar, b: Scalar) -> Scalar:
    """Bitwise and of integers or booleans."""
    return a & b


@elementwise(operator="or", methods=("bitwise_or",), domain=(0, 16))
def bitwise_or(a: Scalar, b: Scalar) -> Scalar:
    """Bitwise or of integers or booleans."""
    return a | b


@elementwise(operator="xor", methods=("bitwise_xor",), domain=(0, 16))
def bitwise_xor(a: Scalar, b: Scalar) -> Scalar:
    """Bitwise exclusive or of integers or booleans."""
    return a ^ b


@elementwise(operator="invert", methods=("bitwise_not",), domain=(0, 16))
def bitwise_not(x: Scalar) -> Scalar:
    """Bitwise complement of integers, logical not of booleans."""
    return ~x


@elementwise()
def isnan(x: Scalar) -> Scalar:
    """Whether NaN."""
    return scalar.isnan(x)


@elementwise()
def isinf(x: Scalar) -> Scalar:
    """Whether plus or minus infinity."""
    return scalar.isinf(x)


@elementwise()
def isfinite(x: Scalar) -> Scalar:
    """Whether neither infinite nor NaN."""
    return scalar.isfinite(x)


def _choose_a(g: Scalar, condition: Scalar) -> Scalar:
    return scalar.where(condition, g, 0.0)


def _choose_b(g: Scalar, condition: Scalar) -> Scalar:
    return scalar.where(condition, 0.0, g)


@primitive("(),(),()->()", vjp=dict(a=_choose_a, b=_choose_b), promote=("a", "b"), methods=(),
           examples=(dict(condition=[True, False, True], a=(2, 3), b=(3,)),
                     dict(condition=[[True], [False]], a=(1,), b=(2, 3))))
def where(xp: Any, condition: Array, a: Array, b: Array) -> Array:
    """``a`` where ``condition`` holds, else ``b``.

    The gradient of the branch that was not chosen is zero times whatever that branch's own
    rule gives, so an infinite slope there yields NaN, as in PyTorch. Choose the input first:
    ``where(x > 0, sqrt(where(x > 0, x, 1.0)), x)``.
    """
    return xp.where(condition, a, b)


@primitive("(),()->()", vjp=dict(x=lambda g, mask: masked_fill(g, mask, value=0.0)),
           promote=None, examples=(dict(x=(2, 3), mask=[True, False, True], value=-1.5),
                                   dict(x=(3,), mask=[[True, False, True]], value=0.0)))
def masked_fill(xp: Any, x: Array, mask: Array, value: float) -> Array:
    """``x`` with ``value`` where the boolean ``mask`` holds."""
    if mask.dtype != bool:
        raise TypeError(f"masked_fill: mask must be boolean, it is {mask.dtype}")
    return xp.where(mask, xp.asarray(value, dtype=x.dtype), x)


@elementwise(vjp=dict(x=lambda g, y: scalar.where(y > 0, g, 0.0)))
def relu(x: Scalar) -> Scalar:
    """``max(x, 0)``; the gradient at 0 is 0."""
    return scalar.maximum(x, 0)


@elementwise(vjp=dict(x=lambda g, x, negative_slope: scalar.where(
                 x > 0, g, g * negative_slope)), methods=(),
             examples=({}, dict(negative_slope=0.2)))
def leaky_relu(x: Scalar, *, negative_slope: float = 0.01) -> Scalar:
    """x where positive, else ``negative_slope * x``."""
    return scalar.where(x > 0, x, x * negative_slope)


_GELU, _CUBE = 0.7978845608028654, 0.044715  # sqrt(2 / pi)
_HALF_ROOT, _DENSITY = 0.7071067811865476, 0.3989422804014327  # sqrt(1/2), 1 / sqrt(2 pi)


def _gelu_slope(g: Scalar, x: Scalar, approximate: str) -> Scalar:
    if approximate == "tanh":
        square = x * x
        t = scalar.tanh(x * (_GELU + _GELU * _CUBE * square))
        inner = _GELU + 3.0 * _GELU * _CUBE * square
        return g * ((0.5 + 0.5 * t) * (1.0 + x * (1.0 - t) * inner))
    density = _DENSITY * scalar.exp(-0.5 * x * x)
    return g * (0.5 * (1.0 + scalar.erf(x * _HALF_ROOT)) + x * density)


@elementwise(vjp=dict(x=_gelu_slope), promote="float", methods=(),
             examples=({}, dict(approximate="tanh")))
def gelu(x: Scalar, *, approximate: str = "none") -> Scalar:
    """``x * P(Z <= x)`` for a standard normal Z (Hendrycks and Gimpel 2016, eq. 1).

    ``approximate="tanh"`` is the paper's tanh form, its second equation.
    """
    if approximate == "tanh":
        return 0.5 * x * (1.0 + scalar.tanh(x * (_GELU + _GELU * _CUBE * (x * x))))
    if approximate != "none":
        raise ValueError(f'gelu: approximate is {approximate!r}; use "none" or "tanh"')
    return 0.5 * x * (1.0 + scalar.erf(x * _HALF_ROOT))


def _silu_slope(g: Scalar, x: Scalar) -> Scalar:
    s = scalar.sigmoid(x)
    return g * (s + x * s * (1.0 - s))


@elementwise(vjp=dict(x=_silu_slope), promote="float", methods=())
def silu(x: Scalar) -> Scalar:
    """``x * sigmoid(x)``."""
    return x * scalar.sigmoid(x)


@elementwise(
    vjp=dict(x=lambda g, x, beta: g * scalar.sigmoid(beta * x)),
    promote="float", methods=(), examples=({}, dict(beta=2.0)),
)
def softplus(x: Scalar, *, beta: float = 1.0) -> Scalar:
    """``log(1 + exp(beta x)) / beta``, never overflowing: the larger part is taken out."""
    rest = scalar.log1p(scalar.exp(-scalar.abs(beta * x)))
    return (scalar.maximum(beta * x, 0.0) + rest) / beta
