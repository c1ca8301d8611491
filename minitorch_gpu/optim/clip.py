"""Gradient clipping by total norm or by value; sharded parameters add up over their ranks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np

from minitorch_gpu.device import Device, array_module, device_of, transfer
from minitorch_gpu.engine.writes import clock
from minitorch_gpu.registry.promotion import float32, float64, is_half, join
from minitorch_gpu.tensor import Tensor

Tensors = Tensor | Iterable[Tensor]
CHUNK = 32768  # elements converted to float64 at a time


class Placement(Protocol):
    """How a parameter lies over ranks: what ``Parameter.placement`` holds for a sharded one.

    Over the ranks of ``sum_over`` the owned parts cover each element of the model once: a
    shard is owned whole, a replica by one rank. Parameters with equal ``sum_over`` share one
    reduction, in which every rank takes part, with or without gradients.
    """

    def owned(self, array: Any) -> Any:
        """The elements of a raw array, laid out as the parameter is here, that count here."""

    def sum_over(self, value: Any) -> Any:
        """The sum of a raw 0-dim float64 array over the ranks, the same bits on each."""


def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """The norm of all elements of ``tensors`` as one vector, summed in float64.

    Args:
        tensors: gradients, say; on one process, whatever their ``placement``.
        norm_type: a number above 0, or ``inf`` for the largest absolute value.
        error_if_nonfinite: raise RuntimeError, naming the tensor, if the norm is inf or nan.

    Returns:
        A 0-dim Tensor in the dtype of the tensors (float32 for half precision).
    """
    pieces = [_Piece(f"tensor {place}", t.array, t.array, None)
              for place, t in enumerate(_listed(tensors))]
    norm = _total_norm(pieces, norm_type, error_if_nonfinite)
    return Tensor(norm.astype(_dtype_of(pieces)))


def clip_grad_norm_(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients in place so that their total norm is at most ``max_norm``.

    The norm is summed in float64, where squares of large float32 gradients do not overflow, and
    over ranks for parameters with a ``placement``. Gradients are multiplied by
    ``min(1, max_norm / (norm + 1e-6))``; an infinite norm makes finite gradients 0, as in
    PyTorch.

    Args:
        parameters: one or several; those without a gradient are left out.
        max_norm: the norm allowed.
        norm_type: a number above 0, or ``inf`` for the largest absolute value.
        error_if_nonfinite: leave the gradients untouched and raise RuntimeError, naming the
            parameter, if the norm is inf or nan.

    Returns:
        The total norm before clipping, a 0-dim Tensor.
    """
    pieces = [_piece(p, place) for place, p in enumerate(_listed(parameters))]
    norm = _total_norm(pieces, norm_type, error_if_nonfinite)
    _scale([piece.gradient for piece in pieces], max_norm, norm)
    return Tensor(norm.astype(_dtype_of(pieces)))


def clip_grads_with_norm_(parameters: Tensors, max_norm: float, total_norm: Tensor) -> None:
    """Scale all gradients in place by ``min(1, max_norm / (total_norm + 1e-6))``."""
    pieces = [_piece(p, place) for place, p in enumerate(_listed(parameters))]
    _scale([piece.gradient for piece in pieces], max_norm, total_norm.array.astype(float64))


def clip_grad_value_(parameters: Tensors, clip_value: float) -> None:
    """Limit every element of every gradient to [-clip_value, clip_value], in place."""
    limit = float(clip_value)
    if not limit >= 0:
        raise ValueError(f"clip_value={clip_value!r} must be at least 0")
    for p in _listed(parameters):
        if p.grad is not None:
            array = p.grad.array
            array_module(array).clip(array, -limit, limit, out=array)
            clock.record(array)


class _Piece(NamedTuple):
    """What clipping looks at: a name for errors, raw arrays, and where it lies."""

    name: str
    array: Any
    gradient: Any  # None where there is none
    placement: Placement | None


def _piece(p: Tensor, place: int) -> _Piece:
    name = getattr(p, "name", None)
    return _Piece(f"the gradient of parameter {place if name is None else repr(name)}", p.array,
                  None if p.grad is None else p.grad.array, getattr(p, "placement", None))


def _listed(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _dtype_of(pieces: list[_Piece]) -> Any:
    if not pieces:
        return float32
    dtype = functools.reduce(join, (piece.array.dtype for piece in pieces))
    return float32 if is_half(dtype) else dtype


# ---------------------------------------------------------------- the norm
def _total_norm(pieces: list[_Piece], norm_type: float, error_if_nonfinite: bool) -> Any:
    """The norm as a raw 0-dim float64 array; the same on all ranks."""
    if not norm_type > 0:
        raise ValueError(f"norm_type={norm_type!r} must be above 0")
    sums: dict[Callable[[Any], Any], Any] = {}  # by the reduction they share, in order
    xp = array_module(*(piece.array for piece in pieces))
    combine = xp.maximum if norm_type == math.inf else xp.add
    zero = total = xp.zeros((), float64)
    for piece in pieces:
        reduce = _reduction(piece, norm_type)
        part = _power_sum(piece, norm_type, device_of(zero))
        sums[reduce] = combine(sums.get(reduce, zero), zero if part is None else part)
    for reduce, part in sums.items():
        total = combine(total, reduce(xp.asarray(part)))
    norm = xp.asarray(total if norm_type == math.inf else total ** (1.0 / norm_type))
    if error_if_nonfinite and not math.isfinite(float(norm)):
        raise RuntimeError(f"the total norm is {float(norm)}: {_culprit(pieces)}; no gradient "
                           "was changed")
    return norm


def _reduction(piece: _Piece, norm_type: float) -> Callable[[Any], Any]:
    if piece.placement is None:
        return _only_here
    if norm_type == math.inf:
        raise ValueError("norm_type inf is a maximum, and parameters with a placement are "
                         "summed over ranks: use a finite norm_type")
    return piece.placement.sum_over


def _only_here(value: Any) -> Any:
    return value


def _power_sum(piece: _Piece, norm_type: float, where: Device) -> Any:
    """Sum of |x|^norm_type (largest |x| for inf) over a piece's owned gradient, or None."""
    x = piece.gradient
    if x is not None and piece.placement is not None:
        x = piece.placement.owned(x)
    if x is None or x.size == 0:
        return None
    xp = array_module(x)
    if norm_type == math.inf:
        result = xp.maximum(x.max(), -x.min()).astype(float64)
    else:
        flat = x.reshape(-1)
        step = CHUNK if xp is np else flat.size
        result = sum(_chunk_sum(xp, flat[start : start + step].astype(float64), norm_type)
                     for start in range(0, flat.size, step))
    return transfer(xp.asarray(result), where)


def _chunk_sum(xp: Any, x: Any, norm_type: float) -> Any:
    return xp.dot(x, x) if norm_type == 2 else (xp.abs(x) ** norm_type).sum()


def _culprit(pieces: list[_Piece]) -> str:
    for piece in pieces:
        x = piece.gradient
        if x is not None and not bool(array_module(x).isfinite(x).all()):
            return f"{piece.name} is not finite"
    return "the gradients here are finite, so their powers overflow or another rank's are not"


def _scale(arrays: list[Any], max_norm: float, norm: Any) -> None:
    """Multiply by ``min(1, max_norm / (norm + 1e-6))``; nan stays nan, and 1 writes nothing."""
    if not max_norm >= 0:
        raise ValueError(f"max_norm={max_norm!r} must be at least 0")
    xp = array_module(norm)
    factor = xp.asarray(xp.minimum(max_norm / (norm + 1e-6), 1.0))
    if xp is np and factor == 1.0:
        return
    for array in arrays:
        if array is not None:
            here = transfer(factor, device_of(array))
            wide = here.astype(float32 if is_half(array.dtype) else array.dtype)
            array_module(array).multiply(array, wide, out=array, casting="unsafe")
            clock.record(array)
