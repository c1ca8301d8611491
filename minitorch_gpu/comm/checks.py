"""What all communicators share: cutting lengths, checking arguments, reducing in rank order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minitorch_gpu.device import Array, array_module, is_array

# op -> the ufunc that joins two contributions (NumPy and CuPy use the same names)
UFUNCS = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "bor": "bitwise_or",
}
BLOCK = 1 << 15  # elements reduced at a time, so that a block stays in cache


def check_array(x: object, verb: str) -> None:
    """Raise TypeError unless ``x`` is a raw array of plain values."""
    if not is_array(x):
        raise TypeError(
            f"{verb} moves raw arrays, got {type(x).__name__}: pass tensor.array, "
            "or np.asarray(x) for a scalar"
        )
    if x.dtype.hasobject:  # type: ignore[attr-defined]
        raise TypeError(f"{verb} cannot move dtype object: use all_gather_object")


def check_op(op: str, dtype: np.dtype[Any], verb: str) -> None:
    """Raise unless reduction ``op`` exists and makes sense for ``dtype``."""
    if op not in UFUNCS:
        raise ValueError(f"{verb}: unknown op {op!r}, use one of {', '.join(UFUNCS)}")
    if op in ("max", "min") and dtype.kind == "c":
        raise TypeError(f"{verb}: complex numbers have no order, op {op!r} is not defined")
    if op == "bor" and dtype.kind not in "biu":
        raise TypeError(f"{verb}: op 'bor' needs integers or bool, got {dtype}")


def check_dim(x: Array, dim: int, verb: str) -> int:
    """``dim`` counted from the front.

    Raises:
        IndexError: ``x`` has no such dimension.
    """
    if not -x.ndim <= dim < x.ndim:
        raise IndexError(f"{verb}: dim {dim} does not exist in shape {x.shape}")
    return dim % x.ndim


def check_sizes(sizes: Sequence[int], size: int, length: int | None, verb: str) -> list[int]:
    """``sizes`` as a list of one non-negative length a rank, adding up to ``length``."""
    result = [int(n) for n in sizes]
    if len(result) != size or any(n < 0 for n in result):
        raise ValueError(f"{verb}: sizes must hold {size} lengths >= 0, got {result}")
    if length is not None and sum(result) != length:
        raise ValueError(f"{verb}: sizes {result} add up to {sum(result)}, not to {length}")
    return result


def check_out(out: Array | None, shape: tuple[int, ...], dtype: Any, verb: str) -> None:
    """Raise unless ``out`` (when given) can take a result of this shape and dtype."""
    if out is None:
        return
    check_array(out, verb)
    if out.shape != tuple(shape) or out.dtype != dtype:
        raise ValueError(
            f"{verb}: out has shape {out.shape} and dtype {out.dtype}, "
            f"the result has {tuple(shape)} and {dtype}"
        )


def check_rank(rank: int, size: int, what: str) -> None:
    """Raise ValueError unless ``rank`` is one of ``size`` ranks."""
    if not 0 <= rank < size:
        raise ValueError(f"{what} {rank} does not exist: ranks are 0 to {size - 1}")


def accumulator(dtype: Any) -> np.dtype[Any]:
    """The dtype a reduction runs in: float32 for float16, bfloat16 and smaller floats."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float32) if dtype.kind == "V" or dtype == np.float16 else dtype


def reduce_in_order(parts: Sequence[Array], op: str, out: Array | None = None) -> Array:
    """Join same-shaped arrays from rank 0 upwards; 16-bit floats are rounded once, at the end.

    Args:
        parts: one array a rank, any strides.
        op: a key of ``UFUNCS``.
        out: a C-contiguous array for the result; it may be one of ``parts`` if those are
            C-contiguous.
    """
    if out is None:
        out = array_module(parts[0]).empty(parts[0].shape, parts[0].dtype)
    target = out.reshape(-1)
    flats = [part.reshape(-1) for part in parts]
    for start in range(0, target.size, BLOCK):
        block = slice(start, start + BLOCK)
        target[block] = _reduce_block([flat[block] for flat in flats], op)
    return out


def _reduce_block(parts: list[Array], op: str) -> Array:
    join = getattr(array_module(parts[0]), UFUNCS[op])
    total = parts[0].astype(accumulator(parts[0].dtype))
    for part in parts[1:]:
        # The cast keeps the accumulator's dtype; sum of bool is "or", as in NumPy.
        join(total, part.astype(total.dtype, copy=False), out=total)
    return total


def deliver(result: Array, out: Array | None) -> Array:
    """``result`` itself, or ``out`` filled with it."""
    if out is None or out is result:
        return result
    out[...] = result
    return out


def to_front(x: Array, dim: int) -> Array:
    """``x`` with ``dim`` first, in memory order: what a transport cuts or joins."""
    return array_module(x).asarray(array_module(x).moveaxis(x, dim, 0), order="C")


def from_front(x: Array, dim: int) -> Array:
    """Undo ``to_front``: the first dimension back at ``dim``, in memory order."""
    return array_module(x).asarray(array_module(x).moveaxis(x, 0, dim), order="C")
