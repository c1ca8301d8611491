"""Layer and RMS normalisation over trailing dims: fused pairs that keep a number or two a row.

The variance takes two passes, about the mean, so nothing cancels.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from minitorch_gpu.ops.dims import sizes
from minitorch_gpu.registry import composite
from minitorch_gpu.registry.promotion import is_half
from minitorch_gpu.registry.scalar import OPS

Array = Any
Params = dict[str, Any]
Shape = tuple[int, ...]


def affine(y: Any, weight: Any, bias: Any) -> Any:
    """``y * weight + bias``, each of the two where it is given."""
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


# ---------------------------------------------------------------- shapes and pieces
def _trailing(params: Params, x: Any, *operands: Any) -> Params:
    """``normalized_shape`` as a tuple that x ends in and the affine operands have."""
    shape = sizes(params["normalized_shape"])
    if not shape or tuple(x.shape[-len(shape):]) != shape:
        raise ValueError(f"normalized_shape {shape} must be the last dims of the input, whose "
                         f"shape is {x.shape}")
    for name, operand in zip(("weight", "bias"), operands):
        if operand is not None and operand.shape != shape:
            raise ValueError(f"{name} has shape {operand.shape}, normalized_shape is {shape}")
    return {**params, "normalized_shape": shape}


def _trailing_eps(params: Params, x: Any, *operands: Any) -> Params:
    params = _trailing(params, x, *operands)
    if params["eps"] is None:
        dtype = np.float32 if is_half(x.dtype) else x.dtype
        return {**params, "eps": float(np.finfo(dtype).eps)}
    return params


def _rows(x: Array, shape: Shape) -> Array:
    """The normalised dims joined: (rows, size)."""
    size = prod(shape)
    return x.reshape(x.size // max(size, 1), size)


def _mean_product(xp: Any, a: Array, b: Array) -> Array:
    """The mean of ``a * b`` over each row: (rows, 1)."""
    total: Array = xp.einsum("ij,ij->i", a, b)[:, None]
    total /= max(a.shape[1], 1)
    return total


def _scaled(xp: Any, rows: Array, scale: Array, weight: Any, bias: Any, out: Array) -> Array:
    """``rows * scale * weight + bias`` in ``out``."""
    xp.multiply(rows, scale, out=out)
    if weight is not None:
        out *= weight.reshape(-1)
    if bias is not None:
        out += bias.reshape(-1)
    return out


def _weighted(g: Array, weight: Any) -> Array:
    return g.copy() if weight is None else g * weight.reshape(-1)


def _through_scale(xp: Any, slopes: Array, normed: Array, scale: Array) -> Array:
    """Slopes of the rows from those of rows * scale, in place; uses up ``normed``."""
    normed *= _mean_product(xp, slopes, normed)
    slopes -= normed
    slopes *= scale
    return slopes


def _affine_slopes(xp: Any, g: Array, normed: Array, shape: Shape, needs: Any) -> list[Any]:
    weight = xp.einsum("ij,ij->j", g, normed).reshape(shape) if needs[1] else None
    return [weight] if len(needs) == 2 else \
        [weight, g.sum(0).reshape(shape) if needs[2] else None]


# ---------------------------------------------------------------- the ops
def _layer_forward(
    xp: Any, x: Array, weight: Any, bias: Any, *, normalized_shape: Shape, eps: float
) -> tuple[Array, Any]:
    rows = _rows(x, normalized_shape)
    mean = rows.mean(1, keepdims=True)
    y = rows - mean
    scale = 1 / xp.sqrt(_mean_product(xp, y, y) + eps)
    return _scaled(xp, y, scale, weight, bias, y).reshape(x.shape), (mean, scale)


def _layer_backward(
    xp: Any, g: Array, residuals: Any, inputs: Any, needs: Any, *, normalized_shape: Shape,
    eps: float,
) -> list[Any]:
    (mean, scale), (x, weight, _) = residuals, inputs
    g = _rows(g, normalized_shape)
    normed = _rows(x, normalized_shape) - mean
    normed *= scale
    rest = _affine_slopes(xp, g, normed, normalized_shape, needs)
    if not needs[0]:
        return [None, *rest]
    slopes = _weighted(g, weight)
    slopes -= slopes.mean(1, keepdims=True)
    return [_through_scale(xp, slopes, normed, scale).reshape(x.shape), *rest]


_NORMED = (dict(x=(3, 4), normalized_shape=(4,)), dict(x=(2, 2, 3), normalized_shape=(2, 3)))


def _with(*names: str) -> tuple[dict[str, Any], ...]:
    return tuple({**e, **dict.fromkeys(names, e["normalized_shape"])} for e in _NORMED)


@composite(
    "(...),(...)?,(...)?->(...)", forward=_layer_forward, backward=_layer_backward,
    normalise=_trailing, promote=("x", "weight", "bias"), methods=(),
    examples=(*_with("weight", "bias"), *_with("bias"), *_with()),
)
def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, *, normalized_shape: Any, eps: float = 1e-5
) -> Any:
    """Layer normalisation (Ba, Kiros and Hinton 2016): mean 0 and variance 1 per sample.

    Args:
        x: (..., *normalized_shape).
        weight: normalized_shape, or None.
        bias: normalized_shape, or None.
        normalized_shape: the trailing dims that are normalised together.
        eps: added to the biased variance.

    Raises:
        ValueError: shapes that do not fit.
    """
    dims = tuple(range(-len(normalized_shape), 0))
    centred = x - OPS["mean"](x, dim=dims, keepdim=True)
    variance = OPS["mean"](centred * centred, dim=dims, keepdim=True)
    return affine(centred * OPS["rsqrt"](variance + eps), weight, bias)


def _rms_forward(
    xp: Any, x: Array, weight: Any, *, normalized_shape: Shape, eps: float
) -> tuple[Array, Array]:
    rows = _rows(x, normalized_shape)
    scale = 1 / xp.sqrt(_mean_product(xp, rows, rows) + eps)
    y = _scaled(xp, rows, scale, weight, None, xp.empty(rows.shape, x.dtype))
    return y.reshape(x.shape), scale


def _rms_backward(
    xp: Any, g: Array, scale: Array, inputs: Any, needs: Any, *, normalized_shape: Shape,
    eps: float,
) -> list[Any]:
    x, weight = inputs
    g = _rows(g, normalized_shape)
    normed = _rows(x, normalized_shape) * scale
    rest = _affine_slopes(xp, g, normed, normalized_shape, needs)
    if not needs[0]:
        return [None, *rest]
    slopes = _through_scale(xp, _weighted(g, weight), normed, scale)
    return [slopes.reshape(x.shape), *rest]


@composite(
    "(...),(...)?->(...)", forward=_rms_forward, backward=_rms_backward,
    normalise=_trailing_eps, promote=("x", "weight"), methods=(),
    examples=(*_with("weight"), *_with()),
)
def rms_norm(x: Any, weight: Any = None, *, normalized_shape: Any, eps: Any = None) -> Any:
    """``x / sqrt(mean(x * x) + eps) * weight`` over the trailing dims (Zhang, Sennrich 2019).

    Args:
        x: (..., *normalized_shape).
        weight: normalized_shape, or None.
        normalized_shape: the trailing dims that are normalised together.
        eps: by default the machine epsilon of the dtype.

    Raises:
        ValueError: shapes that do not fit.
    """
    dims = tuple(range(-len(normalized_shape), 0))
    square = OPS["mean"](x * x, dim=dims, keepdim=True)
    return affine(x * OPS["rsqrt"](square + eps), weight, None)
