"""Mathematical functions beyond arithmetic: trigonometric, hyperbolic, gamma and error ones."""

from __future__ import annotations

from typing import Any

from minitorch_gpu.registry import Ints, elementwise, primitive, scalar

Scalar = Any  # a number, an array, a Tensor or an Expr

PI, LN2, LN10 = 3.141592653589793, 0.6931471805599453, 2.302585092994046
TWO_OVER_ROOT_PI, HALF_ROOT_PI = 1.1283791670955126, 0.886226925452758


# ---------------------------------------------------------------- powers and logarithms
@elementwise(vjp=dict(x=lambda g, y: g * (y * LN2)), promote="float")
def exp2(x: Scalar) -> Scalar:
    """2 to the power x."""
    return scalar.exp2(x)


@elementwise(vjp=dict(x=lambda g, x: g / (x * LN10)), promote="float", domain=(0.2, 3.0))
def log10(x: Scalar) -> Scalar:
    """Logarithm to base 10."""
    return scalar.log10(x)


@elementwise(vjp=dict(a=lambda g, a, b: g * scalar.sigmoid(a - b),
                      b=lambda g, a, b: g * scalar.sigmoid(b - a)), promote="float")
def logaddexp(a: Scalar, b: Scalar) -> Scalar:
    """``log(exp(a) + exp(b))``, never overflowing."""
    return scalar.logaddexp(a, b)


@elementwise(
    vjp=dict(
        a=lambda g, a, b: scalar.where(scalar.logical_and(a == 0, b <= 0), 0.0,
                                       scalar.xlogy(g, b)),
        b=lambda g, a, b: g * a / b,
    ),
    promote="float", domain=(0.3, 2.0),
)
def xlogy(a: Scalar, b: Scalar) -> Scalar:
    """``a * log(b)``; 0 where a is 0 and b is not NaN."""
    return scalar.xlogy(a, b)


def _logit_slope(g: Scalar, x: Scalar, eps: Any) -> Scalar:
    slope = g / (x * (1.0 - x))
    if eps is None:
        return scalar.where(scalar.logical_and(x >= 0, x <= 1), slope, float("nan"))
    return scalar.where(scalar.logical_and(x >= eps, x <= 1.0 - eps), slope, 0.0)


@elementwise(vjp=dict(x=_logit_slope), promote="float", domain=(0.1, 0.9),
             examples=({}, dict(eps=0.25)))
def logit(x: Scalar, eps: Any = None) -> Scalar:
    """``log(x / (1 - x))``, the inverse of sigmoid; with ``eps`` of x in [eps, 1 - eps]."""
    if eps is not None:
        x = scalar.minimum(scalar.maximum(x, eps), 1.0 - eps)
    return scalar.log(x / (1.0 - x))


# ---------------------------------------------------------------- trigonometric
@elementwise(vjp=dict(x=lambda g, y: g * (1.0 + y * y)), promote="float", domain=(-1.2, 1.2))
def tan(x: Scalar) -> Scalar:
    """Tangent, x in radians."""
    return scalar.tan(x)


@elementwise(vjp=dict(x=lambda g, x: g / scalar.sqrt(1.0 - x * x)), promote="float",
             domain=(-0.8, 0.8), methods=("asin", "arcsin"))
def asin(x: Scalar) -> Scalar:
    """The angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1]."""
    return scalar.asin(x)


@elementwise(vjp=dict(x=lambda g, x: -g / scalar.sqrt(1.0 - x * x)), promote="float",
             domain=(-0.8, 0.8), methods=("acos", "arccos"))
def acos(x: Scalar) -> Scalar:
    """The angle in [0, pi] whose cosine is x; NaN outside [-1, 1]."""
    return scalar.acos(x)


@elementwise(vjp=dict(x=lambda g, x: g / (x * x + 1.0)), promote="float",
             methods=("atan", "arctan"))
def atan(x: Scalar) -> Scalar:
    """The angle in (-pi/2, pi/2) whose tangent is x."""
    return scalar.atan(x)


@elementwise(vjp=dict(a=lambda g, a, b: g * (b / (a * a + b * b)),
                      b=lambda g, a, b: g * (-a / (a * a + b * b))),
             promote="float", methods=("atan2", "arctan2"), domain=(0.3, 2.0))
def atan2(a: Scalar, b: Scalar) -> Scalar:
    """The angle in [-pi, pi] of the point with ordinate a and abscissa b."""
    return scalar.atan2(a, b)


@elementwise(
    vjp=dict(x=lambda g, x, y: scalar.where(
        x == 0, 0.0, g * (scalar.cos(PI * x) - y) / scalar.where(x == 0, 1.0, x))),
    promote="float",
)
def sinc(x: Scalar) -> Scalar:
    """``sin(pi x) / (pi x)``; 1 at 0."""
    angle = PI * scalar.where(x == 0, 1.0, x)
    return scalar.where(x == 0, 1.0, scalar.sin(angle) / angle)


# ---------------------------------------------------------------- hyperbolic
@elementwise(vjp=dict(x=lambda g, x: g * scalar.cosh(x)), promote="float")
def sinh(x: Scalar) -> Scalar:
    """Hyperbolic sine."""
    return scalar.sinh(x)


@elementwise(vjp=dict(x=lambda g, x: g * scalar.sinh(x)), promote="float")
def cosh(x: Scalar) -> Scalar:
    """Hyperbolic cosine."""
    return scalar.cosh(x)


@elementwise(vjp=dict(x=lambda g, x: g / scalar.sqrt(x * x + 1.0)), promote="float",
             methods=("asinh", "arcsinh"))
def asinh(x: Scalar) -> Scalar:
    """Inverse of sinh."""
    return scalar.asinh(x)


@elementwise(vjp=dict(x=lambda g, x: g / scalar.sqrt(x * x - 1.0)), promote="float",
             domain=(1.2, 3.0), methods=("acosh", "arccosh"))
def acosh(x: Scalar) -> Scalar:
    """The inverse of cosh that is not negative; NaN below 1."""
    return scalar.acosh(x)


@elementwise(vjp=dict(x=lambda g, x: g / (1.0 - x * x)), promote="float", domain=(-0.8, 0.8),
             methods=("atanh", "arctanh"))
def atanh(x: Scalar) -> Scalar:
    """Inverse of tanh; NaN outside [-1, 1]."""
    return scalar.atanh(x)


# ---------------------------------------------------------------- error and gamma functions
@elementwise(vjp=dict(x=lambda g, x: -g * (TWO_OVER_ROOT_PI * scalar.exp(-(x * x)))),
             promote="float")
def erfc(x: Scalar) -> Scalar:
    """``1 - erf(x)``, exact for large x."""
    return scalar.erfc(x)


@elementwise(vjp=dict(x=lambda g, y: g * (HALF_ROOT_PI * scalar.exp(y * y))), promote="float",
             domain=(-0.8, 0.8))
def erfinv(x: Scalar) -> Scalar:
    """Inverse of erf; NaN outside [-1, 1]."""
    return scalar.erfinv(x)


@elementwise(vjp=dict(x=lambda g, x: g * scalar.digamma(x)), promote="float",
             domain=(0.3, 4.0))
def lgamma(x: Scalar) -> Scalar:
    """Logarithm of the absolute value of the gamma function."""
    return scalar.lgamma(x)


@elementwise(vjp=dict(x=lambda g, x: g * scalar.zeta(2.0, x)), promote="float",
             domain=(0.3, 4.0))
def digamma(x: Scalar) -> Scalar:
    """The slope of lgamma."""
    return scalar.digamma(x)


@primitive("(),()->()", vjp=dict(q=lambda g, s, q: g * (-s * scalar.zeta(s + 1.0, q))),
           promote="float", domain=(0.5, 4.0), methods=(),
           examples=(dict(s=Ints((3,), 6, 2), q=(2, 3)),))
def zeta(xp: Any, s: Any, q: Any) -> Any:
    """Hurwitz' zeta function: the sum over k >= 0 of ``(q + k) ** -s``; differentiable in q."""
    return scalar.zeta(s, q)


def _sign_and_factorial(n: int) -> float:
    """``(-1) ** (n + 1) * n!``."""
    product = -1.0
    for factor in range(1, n + 1):
        product *= -factor
    return product


@elementwise(
    vjp=dict(x=lambda g, x, n: g * (_sign_and_factorial(n + 1) * scalar.zeta(n + 2.0, x))),
    promote="float", domain=(0.5, 4.0), examples=(dict(n=0), dict(n=1), dict(n=2)),
)
def polygamma_(x: Scalar, *, n: int) -> Scalar:
    """The n-th derivative of digamma (n! times a zeta function for n > 0)."""
    if n < 0:
        raise ValueError(f"polygamma: n is {n}; it must not be negative")
    return scalar.digamma(x) if n == 0 else _sign_and_factorial(n) * scalar.zeta(n + 1.0, x)


def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of digamma at x; as a method ``x.polygamma(n)``."""
    return polygamma_(x, n=n)


# ---------------------------------------------------------------- parts and lengths
@elementwise(vjp=dict(a=lambda g: g, b=lambda g, a, b: -g * scalar.trunc(a / b)),
             domain=(0.5, 4.0))
def fmod(a: Scalar, b: Scalar) -> Scalar:
    """Remainder with the sign of the dividend, as in C."""
    return scalar.fmod(a, b)


@elementwise(vjp=dict(x=lambda g: g))
def frac(x: Scalar) -> Scalar:
    """The part of x behind the point, with its sign."""
    return x - scalar.trunc(x)


@elementwise(vjp=dict(a=lambda g, a, b: g * (scalar.sign(a) * scalar.copysign(1.0, b)),
                      b=lambda g: g * 0.0), promote="float")
def copysign(a: Scalar, b: Scalar) -> Scalar:
    """The magnitude of ``a`` with the sign of ``b``; the gradient at 0 is 0."""
    return scalar.copysign(a, b)


@elementwise(vjp=dict(a=lambda g, a, y: g * (a / y), b=lambda g, b, y: g * (b / y)),
             promote="float", domain=(0.3, 2.0))
def hypot(a: Scalar, b: Scalar) -> Scalar:
    """``sqrt(a * a + b * b)``, never overflowing."""
    return scalar.hypot(a, b)


def _first_of_larger(a: Scalar, b: Scalar) -> Scalar:
    return scalar.logical_or(a >= b, scalar.isnan(b))


def _first_of_smaller(a: Scalar, b: Scalar) -> Scalar:
    return scalar.logical_or(a <= b, scalar.isnan(b))


@elementwise(vjp=dict(a=lambda g, a, b: scalar.where(_first_of_larger(a, b), g, 0.0),
                      b=lambda g, a, b: scalar.where(_first_of_larger(a, b), 0.0, g)))
def fmax(a: Scalar, b: Scalar) -> Scalar:
    """The larger of two, the number where the other is NaN; a tie's gradient is a's."""
    return scalar.fmax(a, b)


@elementwise(vjp=dict(a=lambda g, a, b: scalar.where(_first_of_smaller(a, b), g, 0.0),
                      b=lambda g, a, b: scalar.where(_first_of_smaller(a, b), 0.0, g)))
def fmin(a: Scalar, b: Scalar) -> Scalar:
    """The smaller of two, the number where the other is NaN; a tie's gradient is a's."""
    return scalar.fmin(a, b)


# ---------------------------------------------------------------- bits
@elementwise(operator="lshift", methods=("bitwise_left_shift",), domain=(0, 16))
def bitwise_left_shift(a: Scalar, b: Scalar) -> Scalar:
    """``a * 2 ** b`` for integers."""
    return a << b


@elementwise(operator="rshift", methods=("bitwise_right_shift",), domain=(0, 16))
def bitwise_right_shift(a: Scalar, b: Scalar) -> Scalar:
    """``a // 2 ** b`` for integers."""
    return a >> b
