"""In-place forms: written to memory where nothing is recorded, else the object is rebound.

    with no_grad(): p -= lr * p.grad     the memory of p is written; every alias sees it
    y = w.exp(); y *= 2                  y becomes the result of mul, what exp saved stays
    x[1:3] *= 10                         x becomes view_put(x, new part); all its views follow
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitorch_gpu.device import array_module, is_array
from minitorch_gpu.engine import Leaf
from minitorch_gpu.engine.writes import clock
from minitorch_gpu.index import (
    as_plain,
    check_masks,
    has_integers,
    keeping_array,
    only_arrays,
    split_index,
    without_arrays,
)
from minitorch_gpu.modes import is_recording, no_grad
from minitorch_gpu.registry.promotion import is_bfloat16, kind_rank
from minitorch_gpu.registry.scalar import OPS
from minitorch_gpu.tensor import Tensor
from minitorch_gpu.views import retake_views


def in_place(function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """The in-place form of a functional op: ``add_`` from ``add``."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if _records(self, *args):
            _rebind(self, lambda: function(self, *args, **kwargs), name)
        else:
            with no_grad():
                write(self, function(self, *args, **kwargs), name)
        return self

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"In-place form of ``{name.rstrip('_')}``; returns this object."
    return method


def _records(*values: Any) -> bool:
    return is_recording() and any(isinstance(v, Tensor) and v.edge is not None for v in values)


def write(target: Tensor, value: Any, name: str = "copy_") -> None:
    """Write ``value`` into the memory of ``target``, unrecorded; it must broadcast to it.

    Raises:
        ValueError: the shapes do not fit, or the memory is an expanded view.
        TypeError: the value's kind does not fit the dtype (float into int).
    """
    raw = value.array if isinstance(value, Tensor) else value
    write_raw(target.array, raw, name)


def write_raw(array: Any, raw: Any, name: str) -> None:
    """``array[...] = raw`` for raw arrays, checked, and noted by the write clock."""
    if not getattr(array.flags, "writeable", True):
        raise ValueError(f"{name}: the tensor of shape {array.shape} is an expanded or "
                         "read-only view: clone it first")
    _check_kind(array, raw, name)
    if is_array(raw) and (is_bfloat16(raw.dtype) or is_bfloat16(array.dtype)):
        raw = raw.astype(array.dtype)
    try:
        array[...] = raw
    except ValueError as error:
        raise ValueError(f"{name}: a value of shape {np.shape(raw)} does not broadcast to the "
                         f"tensor's {array.shape}") from error
    clock.record(array)


def _check_kind(array: Any, raw: Any, name: str) -> None:
    if is_array(raw):
        if kind_rank(raw.dtype) > kind_rank(array.dtype):
            raise TypeError(f"{name}: a {raw.dtype} result does not fit the tensor's "
                            f"{array.dtype}")
    elif raw.__class__ is float and kind_rank(array.dtype) < 2:
        raise TypeError(f"{name}: the float {raw} does not fit the tensor's {array.dtype}")


def _rebind(target: Tensor, compute: Callable[[], Tensor], name: str) -> None:
    """Let the object stand for the result; a view first rebinds the tensor it shows."""
    root, path = getattr(target, "_view", (None, ()))
    for tensor in (target, root):
        if tensor is not None and tensor.edge.__class__ is Leaf:
            what = "a leaf that requires grad" if tensor is target else \
                "a view of a leaf that requires grad"
            raise RuntimeError(f"{name} on {what}: use the functional "
                               f"{name.strip('_') or name}, or write inside no_grad()")
    new = _fitting(target, compute(), name)
    if root is not None:
        new, target = OPS["view_put"](root, new, path=_hashable(path)), root
    target.array, target.edge = new.array, new.edge
    retake_views(target)


def _hashable(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """A view's path as a parameter of an op."""
    return tuple((name, tuple(params.items()), place) for name, params, place in path)


def _fitting(target: Tensor, new: Tensor, name: str) -> Tensor:
    """The result in the shape and dtype of the object that is to stand for it."""
    if new.shape != target.shape:
        raise ValueError(f"{name}: the result has shape {new.shape}, the tensor {target.shape}")
    if kind_rank(new.dtype) > kind_rank(target.dtype):
        raise TypeError(f"{name}: a {new.dtype} result does not fit the tensor's "
                        f"{target.dtype}")
    return new if new.dtype == target.dtype else OPS["cast"](new, dtype=target.dtype)


# ---------------------------------------------------------------- indexing
def get_item(self: Tensor, index: Any) -> Tensor:
    """``x[index]``: a view for integers and slices, a copy for tensors of indices or masks."""
    check_masks(self, index)
    parts, arrays = split_index(index)
    if arrays and has_integers(parts):
        self, parts = OPS["getitem"](self, index=without_arrays(parts)), only_arrays(parts)
    if arrays:
        return OPS["index"](self, arrays, spec=parts)
    return OPS["getitem"](self, index=parts)


def set_item(self: Tensor, index: Any, value: Any) -> None:
    """``x[index] = value``, with in-place semantics (see the module's text)."""
    check_masks(self, index)
    parts, arrays = split_index(index)
    if arrays and has_integers(parts):
        self, parts = OPS["getitem"](self, index=without_arrays(parts)), only_arrays(parts)
    if not _records(self, value):
        raw = value.array if isinstance(value, Tensor) else value
        xp = array_module(self.array)
        if arrays:
            where = iter(arrays)
            key = tuple(next(where) if p == "array" else as_plain(p) for p in parts)
            _check_kind(self.array, raw, "setitem")
            self.array[key] = xp.asarray(raw).astype(self.array.dtype)
            clock.record(self.array)
        else:
            key = tuple(map(as_plain, parts)) + keeping_array(parts)
            write_raw(self.array[key], raw, "setitem")
        return
    step = ("getitem", (("index", parts),), None)
    if arrays:
        _rebind(self, lambda: OPS["index_put"](self, value, arrays, spec=parts), "setitem")
        return
    root, path = getattr(self, "_view", (self, ()))
    source, taken = getattr(value, "_view", (None, ()))
    if source is root and _hashable(taken) == (*_hashable(path), step):
        return  # the view that ``x[i] += v`` took and has rebound already
    _rebind(self, lambda: OPS["view_put"](self, value, path=(step,)), "setitem")
