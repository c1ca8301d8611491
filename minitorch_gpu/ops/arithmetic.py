"""Elementwise arithmetic: operators, powers, exponentials, rounding."""

from __future__ import annotations

from typing import Any

from minitorch_gpu.registry import elementwise, scalar

Scalar = Any  # a number, an array, a Tensor or an Expr


@elementwise(vjp=dict(a=lambda g: g, b=lambda g: g), operator="add")
def add(a: Scalar, b: Scalar) -> Scalar:
    """Sum."""
    return a + b


@elementwise(vjp=dict(a=lambda g: g, b=lambda g: -g), operator="sub",
             methods=("sub", "subtract"))
def sub(a: Scalar, b: Scalar) -> Scalar:
    """Difference."""
    return a - b


@elementwise(vjp=dict(a=lambda g, b: g * b, b=lambda g, a: g * a), operator="mul",
             methods=("mul", "multiply"))
def mul(a: Scalar, b: Scalar) -> Scalar:
    """Product."""
    return a * b


@elementwise(
    vjp=dict(a=lambda g, b: g / b, b=lambda g, y, b: -(g * y) / b),
    promote="float", operator="truediv", methods=("div", "divide", "true_divide"),
    domain=(0.5, 2.0),
)
def div(a: Scalar, b: Scalar) -> Scalar:
    """Quotient; integers divide to the default float."""
    return a / b


@elementwise(operator="floordiv", domain=(0.5, 4.0))
def floor_divide(a: Scalar, b: Scalar) -> Scalar:
    """The largest integer not above the quotient."""
    return scalar.floor_divide(a, b)


@elementwise(
    vjp=dict(a=lambda g: g, b=lambda g, a, b: -g * scalar.floor(a / b)),
    operator="mod", domain=(0.5, 4.0),
)
def remainder(a: Scalar, b: Scalar) -> Scalar:
    """Remainder with the sign of the divisor, as Python's ``%``."""
    return scalar.remainder(a, b)


@elementwise(vjp=dict(x=lambda g: -g), operator="neg", methods=("neg", "negative"))
def neg(x: Scalar) -> Scalar:
    """Negation."""
    return -x


@elementwise(
    vjp=dict(
        # x ** 0 is constant, also at x = 0 where b * x ** (b - 1) would be 0 * inf.
        a=lambda g, a, b: g * scalar.where(
            b == 0, 0.0, b * a ** scalar.where(b == 0, 1.0, b - 1)),
        b=lambda g, y, a: g * scalar.where(
            a == 0, 0.0, y * scalar.log(scalar.where(a == 0, 1.0, a))),
    ),
    operator="pow", domain=(0.3, 2.0),
)
def pow_(a: Scalar, b: Scalar) -> Scalar:
    """``a`` to the power ``b``."""
    return a ** b


@elementwise(vjp=dict(x=lambda g: scalar.conj(g)))
def conj(x: Scalar) -> Scalar:
    """The complex conjugate; a copy of a real x."""
    return scalar.conj(x)


# Not holomorphic: conj undoes the conjugate that the engine puts around a complex rule.
@elementwise(vjp=dict(x=lambda g, x: g * scalar.conj(scalar.sign(x))), operator="abs",
             methods=("abs", "absolute"))
def abs_(x: Scalar) -> Scalar:
    """Absolute value; the gradient at 0 is 0."""
    return scalar.abs(x)


@elementwise(vjp=dict(x=lambda g: g * 0.0))
def sign(x: Scalar) -> Scalar:
    """-1, 0 or 1."""
    return scalar.sign(x)


@elementwise(vjp=dict(x=lambda g, y: g * y), promote="float")
def exp(x: Scalar) -> Scalar:
    """Exponential."""
    return scalar.exp(x)


@elementwise(vjp=dict(x=lambda g, y: g * (y + 1.0)), promote="float")
def expm1(x: Scalar) -> Scalar:
    """``exp(x) - 1``, exact for small x."""
    return scalar.expm1(x)


@elementwise(vjp=dict(x=lambda g, x: g / x), promote="float", domain=(0.2, 3.0))
def log(x: Scalar) -> Scalar:
    """Natural logarithm."""
    return scalar.log(x)


@elementwise(vjp=dict(x=lambda g, x: g / (x * 0.6931471805599453)), promote="float",
             domain=(0.2, 3.0))
def log2(x: Scalar) -> Scalar:
    """Logarithm to base 2."""
    return scalar.log2(x)


@elementwise(vjp=dict(x=lambda g, x: g / (x + 1.0)), promote="float", domain=(-0.5, 3.0))
def log1p(x: Scalar) -> Scalar:
    """``log(1 + x)``, exact for small x."""
    return scalar.log1p(x)


@elementwise(vjp=dict(x=lambda g, y: g / (2.0 * y)), promote="float", domain=(0.2, 3.0))
def sqrt(x: Scalar) -> Scalar:
    """Square root."""
    return scalar.sqrt(x)


@elementwise(vjp=dict(x=lambda g, y: -0.5 * g * y * y * y), promote="float", domain=(0.2, 3.0))
def rsqrt(x: Scalar) -> Scalar:
    """``1 / sqrt(x)``."""
    return 1.0 / scalar.sqrt(x)


@elementwise(vjp=dict(x=lambda g, x: g * (2.0 * x)))
def square(x: Scalar) -> Scalar:
    """``x * x``."""
    return x * x


@elementwise(vjp=dict(x=lambda g, y: -g * y * y), promote="float", domain=(0.4, 3.0))
def reciprocal(x: Scalar) -> Scalar:
    """``1 / x``."""
    return 1.0 / x


@elementwise(vjp=dict(x=lambda g, x: g * scalar.cos(x)), promote="float")
def sin(x: Scalar) -> Scalar:
    """Sine, x in radians."""
    return scalar.sin(x)


@elementwise(vjp=dict(x=lambda g, x: -g * scalar.sin(x)), promote="float")
def cos(x: Scalar) -> Scalar:
    """Cosine, x in radians."""
    return scalar.cos(x)


@elementwise(vjp=dict(x=lambda g, y: g * (1.0 - y * y)), promote="float")
def tanh(x: Scalar) -> Scalar:
    """Hyperbolic tangent."""
    return scalar.tanh(x)


@elementwise(vjp=dict(x=lambda g, y: g * y * (1.0 - y)), promote="float")
def sigmoid(x: Scalar) -> Scalar:
    """``1 / (1 + exp(-x))``."""
    return scalar.sigmoid(x)


@elementwise(vjp=dict(x=lambda g, x: g * (1.1283791670955126 * scalar.exp(-(x * x)))),
             promote="float")
def erf(x: Scalar) -> Scalar:
    """The error function."""
    return scalar.erf(x)


@elementwise(
    vjp=dict(
        # Ties share: each of two equal operands gets half.
        a=lambda g, a, b: scalar.where(a == b, g * 0.5, scalar.where(a > b, g, 0.0)),
        b=lambda g, a, b: scalar.where(a == b, g * 0.5, scalar.where(b > a, g, 0.0)),
    )
)
def maximum(a: Scalar, b: Scalar) -> Scalar:
    """The larger of two; NaN if either is."""
    return scalar.maximum(a, b)


@elementwise(
    vjp=dict(
        a=lambda g, a, b: scalar.where(a == b, g * 0.5, scalar.where(a < b, g, 0.0)),
        b=lambda g, a, b: scalar.where(a == b, g * 0.5, scalar.where(b < a, g, 0.0)),
    )
)
def minimum(a: Scalar, b: Scalar) -> Scalar:
    """The smaller of two; NaN if either is."""
    return scalar.minimum(a, b)


@elementwise(
    vjp=dict(x=lambda g, x, min, max: scalar.where(_inside(x, min, max), g, 0.0)),
    examples=(dict(min=-0.5), dict(max=0.7), dict(min=-1.0, max=1.0)),
    methods=("clamp", "clip"),
)
def clamp(x: Scalar, *, min: Any = None, max: Any = None) -> Scalar:
    """``x`` limited to [min, max]; the gradient flows where x is inside, ends included."""
    if min is None and max is None:
        raise ValueError("clamp: give min, max or both")
    y = x if min is None else scalar.maximum(x, min)
    return y if max is None else scalar.minimum(y, max)


def _inside(x: Any, low: Any, high: Any) -> Any:
    if low is None:
        return x <= high
    return x >= low if high is None else scalar.logical_and(x >= low, x <= high)


@elementwise(vjp=dict(x=lambda g: g * 0.0))
def floor(x: Scalar) -> Scalar:
    """The largest integer not above x."""
    return scalar.floor(x)


@elementwise(vjp=dict(x=lambda g: g * 0.0))
def ceil(x: Scalar) -> Scalar:
    """The smallest integer not below x."""
    return scalar.ceil(x)


@elementwise(vjp=dict(x=lambda g: g * 0.0))
def trunc(x: Scalar) -> Scalar:
    """x without its fraction."""
    return scalar.trunc(x)


@elementwise(vjp=dict(x=lambda g: g * 0.0))
def round_(x: Scalar) -> Scalar:
    """The nearest integer, ties to even."""
    return scalar.round(x)
