"""Batch normalisation: by the batch's statistics in training, by given ones afterwards.

The variance takes two passes, about the mean, so nothing cancels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minitorch_gpu.ops.normalisation import affine
from minitorch_gpu.registry import composite
from minitorch_gpu.registry.scalar import OPS

Array = Any
Params = dict[str, Any]


def _over_batch(x: Any) -> tuple[int, ...]:
    """All dims but that of the channels."""
    return (0, *range(2, x.ndim))


def _per_channel(value: Any, x: Any) -> Any:
    """A value per channel, ready to broadcast with x (N, C, ...)."""
    return None if value is None else OPS["reshape"](value, shape=(-1,) + (1,) * (x.ndim - 2))


def _channel_mean(x: Array) -> Array:
    """Mean per channel, summed in float64: a batch of images has very many terms."""
    total = x.sum(_over_batch(x), dtype=np.float64)
    return total / np.float64(x.size // max(x.shape[1], 1))


def _check_channels(params: Params, x: Any, *operands: Any) -> Params:
    if x.ndim < 2:
        raise ValueError(f"batch_norm: the input must be (N, C, ...), its shape is {x.shape}")
    for operand in operands:
        if operand is not None and operand.shape != (x.shape[1],):
            raise ValueError(f"batch_norm: a value per channel has shape {operand.shape}; the "
                             f"input of shape {x.shape} has {x.shape[1]} channels")
    return params


def _batch_forward(
    xp: Any, x: Array, weight: Any, bias: Any, *, eps: float
) -> tuple[Any, Any]:
    mean = _channel_mean(x).astype(x.dtype)
    y = x - _per_channel(mean, x)
    variance = _channel_mean(y * y).astype(x.dtype)
    scale = 1 / xp.sqrt(variance + eps)
    y *= _per_channel(scale if weight is None else scale * weight, x)
    if bias is not None:
        y += _per_channel(bias, x)
    return (y, mean, variance), (mean, scale)


def _batch_backward(
    xp: Any, g: Any, residuals: Any, inputs: Any, needs: Any, *, eps: float
) -> list[Any]:
    """The slope of x is linear in g and x - mean, with a factor of each per channel."""
    (mean, scale), (x, weight, _), (g, g_mean, g_variance) = residuals, inputs, g
    count = max(x.size // max(x.shape[1], 1), 1)
    centred = x - _per_channel(mean, x)
    bias_slope, along = _channel_mean(g), _channel_mean(g * centred) * scale
    inner = None
    if needs[0]:
        gain = scale if weight is None else scale * weight
        lean = 2 * g_variance / count - gain * scale * along
        inner = _linear(xp, g, gain, centred, lean, g_mean / count - gain * bias_slope)
    return [inner, along * count if needs[1] else None,
            bias_slope * count if needs[2] else None]


def _linear(xp: Any, g: Array, gain: Array, x: Array, lean: Array, shift: Array) -> Array:
    """``g * gain + x * lean + shift`` with factors per channel; uses up x."""
    gain, lean, shift = (_per_channel(v.astype(x.dtype), x) for v in (gain, lean, shift))
    x *= lean
    x += g * gain
    x += shift
    return x


@composite(
    "(...),(c)?,(c)?->(...),(c),(c)", forward=_batch_forward, backward=_batch_backward,
    normalise=_check_channels, promote=("x", "weight", "bias"), methods=(),
    examples=(dict(x=(3, 2), weight=(2,), bias=(2,)), dict(x=(2, 3, 2), weight=(3,)),
              dict(x=(2, 2, 3, 1), bias=(2,)), dict(x=(4, 2))),
)
def batch_norm_training(
    x: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5
) -> tuple[Any, Any, Any]:
    """Batch normalisation by the batch's own statistics (Ioffe and Szegedy 2015, alg. 1).

    Args:
        x: (N, C, ...).
        weight: (C), or None.
        bias: (C), or None.
        eps: added to the variance.

    Returns:
        The normalised x, the mean (C) and the biased variance (C) of each channel.

    Raises:
        ValueError: shapes that do not fit.
    """
    mean = OPS["mean"](x, dim=_over_batch(x))
    centred = x - _per_channel(mean, x)
    variance = OPS["mean"](centred * centred, dim=_over_batch(x))
    y = centred * _per_channel(OPS["rsqrt"](variance + eps), x)
    return affine(y, _per_channel(weight, x), _per_channel(bias, x)), mean, variance


@composite(
    "(...),(c),(c),(c)?,(c)?->(...)", normalise=_check_channels, methods=(), domain=(0.3, 2.0),
    examples=(dict(x=(3, 2), mean=(2,), variance=(2,), weight=(2,), bias=(2,)),
              dict(x=(2, 3, 2), mean=(3,), variance=(3,), bias=(3,))),
)
def batch_norm_evaluation(
    x: Any, mean: Any, variance: Any, weight: Any = None, bias: Any = None, *,
    eps: float = 1e-5,
) -> Any:
    """Batch normalisation by given statistics: one affine map per channel.

    Args:
        x: (N, C, ...).
        mean: (C).
        variance: (C).
        weight: (C), or None.
        bias: (C), or None.
        eps: added to the variance.

    Raises:
        ValueError: shapes that do not fit.
    """
    gain = OPS["rsqrt"](variance + eps)
    gain = gain if weight is None else gain * weight
    shift = -(mean * gain) if bias is None else bias - mean * gain
    return x * _factor(gain, x) + _factor(shift, x)


def _factor(value: Any, x: Any) -> Any:
    """A value per channel in the dtype of x, so that half precision stays so."""
    value = value if value.dtype == x.dtype else OPS["cast"](value, dtype=x.dtype)
    return _per_channel(value, x)
