"""The quick paths: Tensors of one float dtype and Python numbers, in NumPy arrays.

An op without parameters gets a closure specialised by its arity. Whatever does not fit goes to
the slow path, which handles everything.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from minitorch_gpu.dispatch.binding import binder
from minitorch_gpu.dispatch.record import links_maker, recorder
from minitorch_gpu.dispatch.slow import explained, finish, slowly
from minitorch_gpu.engine import Node, next_number
from minitorch_gpu.engine.saved import saved
from minitorch_gpu.modes import is_recording
from minitorch_gpu.registry.declare import Op
from minitorch_gpu.registry.promotion import float32, float64
from minitorch_gpu.tensor import Parameter, Tensor
from minitorch_gpu.views import track_view

ndarray = np.ndarray
_new = Tensor.__new__
Call = Callable[..., Any]


def unary(op: Op, general: Call) -> Call:
    """An elementwise op of one Tensor."""
    body, vjp = op.function, op.vjp
    make = links_maker(vjp, ["x"], 1) if vjp else None

    def call(x: Any) -> Any:
        kind = x.__class__
        if kind is not Tensor and kind is not Parameter:
            return general(x)
        array, edge = x.array, x.edge
        dtype = array.dtype
        if (dtype is not float32 and dtype is not float64) or array.__class__ is not ndarray:
            return general(x)
        y = body(array)
        if y.__class__ is not ndarray:
            y = np.asarray(y)
        out = _new(Tensor)
        out.array = y
        if edge is not None and make is not None and is_recording():
            links = make(edge, array, y)
            if saved.in_use:
                links = links[:1] + tuple(map(saved.save, links[1:]))
            out.edge = Node(vjp, links, None, next_number(), y.shape, y.dtype)
        else:
            out.edge = None
        return out

    return call


def binary(op: Op, general: Call) -> Call:
    """An elementwise op of two operands: two Tensors, or a Tensor and a Python number."""
    body, vjp = op.function, op.vjp
    makers = [links_maker(vjp, ["a", "b"], mask) for mask in range(4)] if vjp else None

    def call(a: Any, b: Any) -> Any:
        x, z, ea, eb = a, b, None, None
        kind = a.__class__
        if kind is Tensor or kind is Parameter:
            x, ea = a.array, a.edge
        elif kind is not float and kind is not int:
            return general(a, b)
        kind = b.__class__
        if kind is Tensor or kind is Parameter:
            z, eb = b.array, b.edge
            if z.__class__ is not ndarray or (x is not a and z.dtype is not x.dtype):
                return general(a, b)
            dtype = z.dtype
        elif x is not a and (kind is float or kind is int):
            dtype = x.dtype
        else:
            return general(a, b)
        if (dtype is not float32 and dtype is not float64) or (
            x is not a and x.__class__ is not ndarray
        ):
            return general(a, b)
        try:
            y = body(x, z)
        except Exception:
            return general(a, b)  # for its message
        if y.__class__ is not ndarray:
            y = np.asarray(y)
        out = _new(Tensor)
        out.array = y
        if (ea is not None or eb is not None) and makers is not None and is_recording():
            mask = 3 if eb is not None and ea is not None else 1 if eb is None else 2
            links = makers[mask](ea, eb, x, z, y)
            if saved.in_use:
                links = links[:2] + tuple(map(saved.save, links[2:]))
            out.edge = Node(vjp, links, None, next_number(), y.shape, y.dtype)
        else:
            out.edge = None
        return out

    return call


def general(op: Op) -> Call:
    """The quick route for Tensors of one float dtype on the CPU, the slow one for the rest."""
    bind = binder(op)
    if op.kind == "composite" and op.forward is None:
        return _defined(op, bind)
    count, defaults, normalise, view = len(op.operands), op.params, op.normalise, op.view
    compute, record, free = _computer(op), recorder(op), _unpromoted(op)
    complete = inspect.Parameter.empty not in defaults.values()

    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and complete and len(args) == count:
            operands, params = args, defaults
        else:
            operands, params = bind(args, kwargs)
        raw: list[Any] = []
        dtype = None
        for place, operand in enumerate(operands):
            kind = operand.__class__
            if kind is Tensor or kind is Parameter:
                array = operand.array
                if dtype is None:
                    dtype = array.dtype
                    fits = dtype is float32 or dtype is float64
                else:
                    fits = array.dtype is dtype or (free[place] and array.dtype.kind in "iub")
                if not fits or array.__class__ is not ndarray:
                    return slowly(op, operands, params)
                raw.append(array)
            elif operand is None:
                raw.append(None)
            else:
                return slowly(op, operands, params)
        if normalise is not None:
            params = normalise(params, *raw)
        y, residuals = compute(raw, params)
        if y.__class__ is not ndarray:
            if y.__class__ is tuple:
                return finish(op, operands, raw, params, y, residuals, False)
            y = np.asarray(y)
        out = _new(Tensor)
        out.array, out.edge = y, None
        if record is not None and is_recording():
            record(operands, raw, params, out, residuals)
        if view:
            track_view(out, operands[0], op, params, None)
        return out

    return call


def _unpromoted(op: Op) -> list[bool]:
    """Per operand, whether promotion leaves it alone: indices and masks."""
    if op.promote is None or isinstance(op.promote, tuple):
        named = op.promote or op.operands[:1]
        return [name not in named for name in op.operands]
    return [False] * len(op.operands)


def _defined(op: Op, bind: Call) -> Call:
    """A composite without a fused pair is its definition, on normalised parameters."""

    def call(*args: Any, **kwargs: Any) -> Any:
        operands, params = bind(args, kwargs)
        if op.normalise is not None:
            params = op.normalise(params, *(getattr(o, "array", o) for o in operands))
        return op.function(*operands, **params)

    return call


def _computer(op: Op) -> Call:
    """The body on NumPy arrays: ``(raw, params) -> (outputs, residuals)``."""
    body, forward = op.function, op.forward

    def compute(raw: list[Any], params: dict[str, Any]) -> tuple[Any, Any]:
        try:
            if forward is not None:
                return forward(np, *raw, **params)
            if op.kind == "primitive":
                return body(np, *raw, **params), None
            return body(*raw, **params), None
        except (ValueError, TypeError, IndexError) as error:
            raise explained(op, raw, error) from error

    return compute
