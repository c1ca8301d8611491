"""Activations: smooth ones, and those that are pieces of lines."""

from __future__ import annotations

import math
from typing import Any

from minitorch_gpu.ops.dims import along
from minitorch_gpu.registry import composite, elementwise, scalar
from minitorch_gpu.registry.scalar import OPS

Scalar = Any  # a number, an array, a Tensor or an Expr

# Klambauer et al. 2017, eq. 14: the fixed point of mean 0 and variance 1.
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def _negative_part(x: Scalar) -> Scalar:
    """x where it is not positive, else 0: keeps what is not chosen from overflowing."""
    return scalar.where(x > 0, 0.0, x)


def _between(x: Scalar, low: Any, high: Any) -> Scalar:
    return scalar.logical_and(x > low, x < high)


# ---------------------------------------------------------------- exponential below 0
@elementwise(
    vjp=dict(x=lambda g, x, alpha: scalar.where(
        x > 0, g, g * (alpha * scalar.exp(_negative_part(x))))),
    promote="float", methods=(), examples=({}, dict(alpha=0.5)),
)
def elu(x: Scalar, alpha: float = 1.0) -> Scalar:
    """x where positive, else ``alpha * (exp(x) - 1)`` (Clevert et al. 2016, eq. 15)."""
    return scalar.where(x > 0, x, alpha * scalar.expm1(_negative_part(x)))


@elementwise(
    vjp=dict(x=lambda g, x: scalar.where(
        x > 0, g * SELU_SCALE,
        g * (SELU_SCALE * SELU_ALPHA * scalar.exp(_negative_part(x))))),
    promote="float", methods=(),
)
def selu(x: Scalar) -> Scalar:
    """elu scaled to keep mean 0 and variance 1 (Klambauer et al. 2017, eq. 2)."""
    return scalar.where(x > 0, SELU_SCALE * x,
                        SELU_SCALE * SELU_ALPHA * scalar.expm1(_negative_part(x)))


@elementwise(
    vjp=dict(x=lambda g, x, alpha: scalar.where(
        x > 0, g, g * scalar.exp(_negative_part(x) / alpha))),
    promote="float", methods=(), examples=({}, dict(alpha=0.5)),
)
def celu(x: Scalar, alpha: float = 1.0) -> Scalar:
    """x where positive, else ``alpha * (exp(x / alpha) - 1)`` (Barron 2017, eq. 2)."""
    if alpha == 0:
        raise ZeroDivisionError("celu: alpha is 0; it divides x")
    return scalar.where(x > 0, x, alpha * scalar.expm1(_negative_part(x) / alpha))


# ---------------------------------------------------------------- smooth
def _softplus(x: Scalar) -> Scalar:
    return scalar.maximum(x, 0.0) + scalar.log1p(scalar.exp(-scalar.abs(x)))


def _mish_slope(g: Scalar, x: Scalar) -> Scalar:
    t = scalar.tanh(_softplus(x))
    return g * (t + x * scalar.sigmoid(x) * (1.0 - t * t))


@elementwise(vjp=dict(x=_mish_slope), promote="float", methods=())
def mish(x: Scalar) -> Scalar:
    """``x * tanh(softplus(x))`` (Misra 2020, eq. 1)."""
    return x * scalar.tanh(_softplus(x))


@elementwise(vjp=dict(x=lambda g, x: g * scalar.sigmoid(-x)), promote="float", methods=())
def logsigmoid(x: Scalar) -> Scalar:
    """``log(sigmoid(x))``, never overflowing."""
    return scalar.minimum(x, 0.0) - scalar.log1p(scalar.exp(-scalar.abs(x)))


def _softsign_slope(g: Scalar, x: Scalar) -> Scalar:
    spread = 1.0 + scalar.abs(x)
    return g / (spread * spread)


@elementwise(vjp=dict(x=_softsign_slope), promote="float", methods=())
def softsign(x: Scalar) -> Scalar:
    """``x / (1 + |x|)``."""
    return x / (1.0 + scalar.abs(x))


def _tanhshrink_slope(g: Scalar, x: Scalar) -> Scalar:
    t = scalar.tanh(x)
    return g * (t * t)


@elementwise(vjp=dict(x=_tanhshrink_slope), promote="float", methods=())
def tanhshrink(x: Scalar) -> Scalar:
    """``x - tanh(x)``."""
    return x - scalar.tanh(x)


# ---------------------------------------------------------------- pieces of lines
@elementwise(
    vjp=dict(x=lambda g, x, min_val, max_val: scalar.where(
        _between(x, min_val, max_val), g, 0.0)),
    methods=(), examples=({}, dict(min_val=-0.5, max_val=1.5)),
)
def hardtanh(x: Scalar, min_val: float = -1, max_val: float = 1) -> Scalar:
    """x limited to [min_val, max_val]; the gradient at both ends is 0."""
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val {min_val} is larger than max_val {max_val}")
    return scalar.minimum(scalar.maximum(x, min_val), max_val)


@elementwise(vjp=dict(x=lambda g, x: scalar.where(_between(x, 0, 6), g, 0.0)), methods=())
def relu6(x: Scalar) -> Scalar:
    """x limited to [0, 6]."""
    return scalar.minimum(scalar.maximum(x, 0), 6)


@elementwise(vjp=dict(x=lambda g, x: scalar.where(_between(x, -3, 3), g * (1 / 6), 0.0)),
             promote="float", methods=(), domain=(-4.0, 4.0))
def hardsigmoid(x: Scalar) -> Scalar:
    """``(x + 3) / 6`` limited to [0, 1]."""
    return scalar.minimum(scalar.maximum(x + 3.0, 0.0), 6.0) / 6.0


def _hardswish_slope(g: Scalar, x: Scalar) -> Scalar:
    middle = scalar.where(x > -3, g * (x * (1 / 3) + 0.5), 0.0)
    return scalar.where(x >= 3, g, middle)


@elementwise(vjp=dict(x=_hardswish_slope), promote="float", methods=(), domain=(-4.0, 4.0))
def hardswish(x: Scalar) -> Scalar:
    """``x * hardsigmoid(x)`` (Howard et al. 2019, section 5.2)."""
    return x * scalar.minimum(scalar.maximum(x + 3.0, 0.0), 6.0) / 6.0


def _beyond(g: Scalar, x: Scalar, lambd: float) -> Scalar:
    return scalar.where(scalar.logical_and(x >= -lambd, x <= lambd), 0.0, g)


@elementwise(vjp=dict(x=_beyond), examples=({}, dict(lambd=1.0)))
def hardshrink(x: Scalar, lambd: float = 0.5) -> Scalar:
    """0 for x in [-lambd, lambd], else x."""
    return _beyond(x, x, lambd)


@elementwise(vjp=dict(x=_beyond), promote="float", methods=(),
             examples=({}, dict(lambd=1.0)))
def softshrink(x: Scalar, lambd: float = 0.5) -> Scalar:
    """x moved towards 0 by ``lambd``, 0 for what is nearer than that."""
    if lambd < 0:
        raise ValueError(f"softshrink: lambd is {lambd}; it must not be negative")
    below = scalar.where(x < -lambd, x + lambd, x * 0.0)
    return scalar.where(x > lambd, x - lambd, below)


@elementwise(vjp=dict(x=lambda g, x, threshold: scalar.where(x <= threshold, 0.0, g)),
             methods=(), examples=(dict(threshold=0.3, value=-1.0),))
def threshold_(x: Scalar, *, threshold: float, value: float) -> Scalar:
    """x where above ``threshold``, else ``value``."""
    return scalar.where(x <= threshold, value, x)


# ---------------------------------------------------------------- with a partner
@elementwise(vjp=dict(x=lambda g, x, weight: scalar.where(x > 0, g, g * weight),
                      weight=lambda g, x: scalar.where(x > 0, 0.0, g * x)), methods=())
def sloped(x: Scalar, weight: Scalar) -> Scalar:
    """x where positive, else ``weight * x``."""
    return scalar.where(x > 0, x, weight * x)


def prelu(x: Any, weight: Any) -> Any:
    """x where positive, else ``weight * x`` with a learned weight (He et al. 2015, eq. 1).

    Args:
        x: any shape; channels are dim 1.
        weight: one value, or one per channel.

    Raises:
        ValueError: as many weights as neither one nor the channels.
    """
    channels = x.shape[1] if x.ndim > 1 else 1
    count = math.prod(weight.shape)
    if weight.ndim > 1 or count not in (1, channels):
        raise ValueError(f"prelu: weight has shape {weight.shape}; x of shape {x.shape} needs "
                         f"1 value or {channels}")
    shape = (1,) * min(x.ndim, 1) + (count,) + (1,) * (x.ndim - 2)
    return sloped(x, OPS["reshape"](weight, shape=shape if x.ndim > 1 else (1,) * x.ndim))


@composite("(...)->(...)", normalise=along, promote="float", methods=(),
           examples=(dict(x=(2, 4)), dict(x=(4, 3), dim=0)))
def glu(x: Any, dim: int = -1) -> Any:
    """The first half along ``dim`` times the sigmoid of the second (Dauphin et al. 2017)."""
    if x.ndim == 0 or x.shape[dim] % 2:
        raise ValueError(f"glu: x of shape {x.shape} has no two halves along dim {dim}")
    a, b = OPS["split"](x, x.shape[dim] // 2 or (0, 0), dim=dim)
    return a * OPS["sigmoid"](b)
