"""From a declared op to the function users call: unwrap, promote, compute, record.

An op without parameters gets a closure specialised by its arity; it handles Tensors of one
float dtype and Python numbers, and hands everything else to the one general path.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from minitorch_gpu.device import array_module, device_of, is_array
from minitorch_gpu.engine import Node, Output, next_number, walk
from minitorch_gpu.engine.saved import saved
from minitorch_gpu.modes import is_recording
from minitorch_gpu.registry.declare import Op, connect
from minitorch_gpu.registry.promotion import (
    float32,
    float64,
    is_floating,
    is_half,
    result_type,
    to_floating,
)
from minitorch_gpu.registry.rules import Like, Vjp
from minitorch_gpu.registry.scalar import OPS
from minitorch_gpu.tensor import RECORDED, Parameter, Tensor, track_view

ndarray = np.ndarray
_new = Tensor.__new__
Call = Callable[..., Any]


def build(op: Op) -> Call:
    """The function users call for ``op``."""
    general = _general(op)
    if op.vjp is not None and op.vjp.definition is not None:
        op.vjp.definition = _pull_through(op)
    if op.kind == "elementwise" and not op.params and op.promote in ("same", "float"):
        if len(op.operands) == 1:
            return _unary(op, general)
        if len(op.operands) == 2:
            return _binary(op, general)
    return general


# ---------------------------------------------------------------- specialised by arity
def _links_maker(vjp: Vjp, names: list[str], mask: int) -> Call:
    """Builds a node's links from edges, operands, output and residuals of a call.

    For mul with both edges: ``lambda ea, eb, a, b, y, residuals: (ea, eb, b, a)``.
    """
    edges = [f"e{name}" for name in names]
    items = list(edges)
    for source, keep in zip(vjp.sources, vjp.keeps(mask)):
        items.append(_source_text(source, names) if keep else "None")
    text = f"lambda {', '.join(edges + names)}, y, residuals=None: ({', '.join(items)},)"
    return eval(text, {"Like": Like})


def _source_text(source: Any, names: list[str]) -> str:
    if source.kind == "output":
        return "y"
    if source.kind == "residuals":
        return "residuals"
    name = names[source.place]
    if source.kind == "operand":
        return name
    return f"(e{name} if e{name} is not None else Like({name}.shape, {name}.dtype))"


def _unary(op: Op, general: Call) -> Call:
    body, vjp = op.function, op.vjp
    make = _links_maker(vjp, ["x"], 1) if vjp else None

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


def _binary(op: Op, general: Call) -> Call:
    body, vjp = op.function, op.vjp
    makers = [_links_maker(vjp, ["a", "b"], mask) for mask in range(4)] if vjp else None

    def call(a: Any, b: Any) -> Any:
        kind = a.__class__
        if kind is Tensor or kind is Parameter:
            x, ea = a.array, a.edge
            dtype = x.dtype
            if x.__class__ is not ndarray:
                return general(a, b)
            kind = b.__class__
            if kind is Tensor or kind is Parameter:
                z, eb = b.array, b.edge
                if z.dtype is not dtype or z.__class__ is not ndarray:
                    return general(a, b)
            elif kind is float or kind is int:
                z, eb = b, None
            else:
                return general(a, b)
        elif kind is float or kind is int:
            kind = b.__class__
            if kind is not Tensor and kind is not Parameter:
                return general(a, b)
            x, ea, z, eb = a, None, b.array, b.edge
            dtype = z.dtype
            if z.__class__ is not ndarray:
                return general(a, b)
        else:
            return general(a, b)
        if dtype is not float32 and dtype is not float64:
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


# ---------------------------------------------------------------- any arity, with parameters
def _general(op: Op) -> Call:
    """The quick route for Tensors of one float dtype on the CPU, the slow one for the rest."""
    bind = _binder(op)
    if op.kind == "composite" and op.forward is None:
        return _defined(op, bind)
    count, defaults, normalise, view = len(op.operands), op.params, op.normalise, op.view
    compute, record, mixed = _computer(op), _recorder(op), op.promote is None
    complete = inspect.Parameter.empty not in defaults.values()

    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and complete and len(args) == count:
            operands, params = args, defaults
        else:
            operands, params = bind(args, kwargs)
        raw: list[Any] = []
        dtype = None
        for operand in operands:
            kind = operand.__class__
            if kind is Tensor or kind is Parameter:
                array = operand.array
                if dtype is None:
                    dtype = array.dtype
                    if dtype is not float32 and dtype is not float64:
                        return _slowly(op, operands, params)
                elif array.dtype is not dtype and not mixed:
                    return _slowly(op, operands, params)
                if array.__class__ is not ndarray:
                    return _slowly(op, operands, params)
                raw.append(array)
            elif operand is None:
                raw.append(None)
            else:
                return _slowly(op, operands, params)
        if normalise is not None:
            params = normalise(params, *raw)
        y, residuals = compute(raw, params)
        if y.__class__ is not ndarray:
            if y.__class__ is tuple:
                return _finish(op, operands, raw, params, y, residuals, False)
            y = np.asarray(y)
        out = _new(Tensor)
        out.array, out.edge = y, None
        if record is not None and is_recording():
            record(operands, raw, params, out, residuals)
        if view:
            track_view(out, operands[0], op, params, None)
        return out

    return call


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
            raise _explained(op, raw, error) from error

    return compute


def _recorder(op: Op) -> Call | None:
    """Gives one output its node, on the quick route."""
    vjp = op.vjp
    if vjp is None:
        return None
    if op.listed or vjp.outputs != 1:
        return lambda operands, raw, params, out, residuals: _record(
            op, operands, raw, params, (out,), residuals, True, False)
    differentiable = [vjp.joint is not None or p is not None for p in vjp.pulls or [None] * 9]
    names = [f"x{i}" for i in range(vjp.arity)]
    makers: dict[int, Call] = {}

    def record(operands: Any, raw: Any, params: Any, out: Tensor, residuals: Any) -> None:
        mask, edges = 0, []
        for place, operand in enumerate(operands):
            edge = operand.edge if operand is not None and differentiable[place] else None
            if edge is not None:
                mask |= 1 << place
            edges.append(edge)
        array = out.array
        if not mask or array.dtype.kind != "f":
            return
        make = makers.get(mask)
        if make is None:
            make = makers[mask] = _links_maker(vjp, names, mask)
        links = make(*edges, *raw, array, residuals)
        if saved.in_use:
            links = links[:len(edges)] + tuple(map(saved.save, links[len(edges):]))
        out.edge = Node(vjp, links, params, next_number(), array.shape, array.dtype)

    return record


# ---------------------------------------------------------------- the slow path
def _slowly(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Any mix of Tensors, raw arrays, numbers, dtypes and devices."""
    flat = (*operands[:-1], *operands[-1]) if op.listed else operands
    raw = [o.array if isinstance(o, Tensor) else _constant(op, o) for o in flat]
    if op.normalise is not None:
        params = op.normalise(params, *raw)
    if not any(isinstance(o, Tensor) for o in flat):
        return _compute(op, raw, params)[0]
    return _on_tensors(op, flat, raw, params)


def _binder(op: Op) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """Splits a call's arguments into operands and parameters, as Python would bind them."""
    count, names, defaults = len(op.operands), tuple(op.params), op.params
    every = op.operands + names
    required = [n for n, d in defaults.items() if d is inspect.Parameter.empty]

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = len(args)
        if op.variadic and given > count + 1 and all(map(_is_int, args[count:])):
            args = (*args[:count], tuple(args[count:]))
            given = count + 1
        if given > len(every):
            raise TypeError(f"{op.name} takes at most {len(every)} arguments "
                            f"({', '.join(every)}), got {given}")
        params = {**defaults, **dict(zip(names, args[count:]))}
        operands = args[:count]
        if given < count:
            operands, kwargs = _operands_by_name(op, args, kwargs)
        if kwargs:
            for name in kwargs:
                if name not in params or name in names[: max(given - count, 0)]:
                    raise TypeError(f"{op.name} got an unexpected argument {name!r}; it takes "
                                    f"{', '.join(every)}")
            params.update(kwargs)
        for name in required:
            if params[name] is inspect.Parameter.empty:
                raise TypeError(f"{op.name} is missing argument {name!r}")
        return operands, params

    return bind


def _operands_by_name(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operands after ``args`` taken from ``kwargs``; optional ones may be left out."""
    operands, rest = list(args), dict(kwargs)
    for name, operand in list(zip(op.operands, op.signature.inputs))[len(args):]:
        if name not in rest and not operand.optional:
            raise TypeError(f"{op.name} is missing argument {name!r}")
        operands.append(rest.pop(name, None))
    return tuple(operands), rest


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _constant(op: Op, value: Any) -> Any:
    """A raw operand as the body takes it: arrays, Python numbers and None."""
    if isinstance(value, np.generic):  # before float, which np.float64 derives from
        return np.asarray(value)
    if value is None or isinstance(value, (bool, int, float, complex)) or is_array(value):
        return value
    raise TypeError(f"{op.name}: expected a Tensor, got {type(value).__name__} "
                    f"({value!r:.60}); make one with mt.tensor(...)")


def _on_tensors(op: Op, flat: tuple[Any, ...], raw: list[Any], params: dict[str, Any]) -> Any:
    _check_devices(op, raw)
    raw = _promoted(op, raw)
    half = op.promote is not None and any(
        is_array(v) and is_half(v.dtype) and device_of(v).type == "cpu" for v in raw
    )
    working = [_to_float32(v) for v in raw] if half else raw
    outputs, residuals = _compute(op, working, params)
    single = not isinstance(outputs, tuple)
    arrays = [_as_array(y, raw) for y in ((outputs,) if single else outputs)]
    if half:
        dtype = next(v.dtype for v in raw if is_array(v) and is_half(v.dtype))
        arrays = [y.astype(dtype) if y.dtype == float32 else y for y in arrays]
    outputs = arrays[0] if single else tuple(arrays)
    return _finish(op, flat, raw, params, outputs, residuals, half)


def _finish(
    op: Op, flat: tuple[Any, ...], raw: list[Any], params: dict[str, Any], outputs: Any,
    residuals: Any, half: bool,
) -> Any:
    """Wrap, record, and remember views."""
    single = not isinstance(outputs, tuple)
    results = tuple(_wrap(_as_array(y, raw)) for y in ((outputs,) if single else outputs))
    if op.vjp is not None and is_recording():
        _record(op, flat, raw, params, results, residuals, single, half)
    if op.view and isinstance(flat[0], Tensor):
        for place, result in enumerate(results):
            track_view(result, flat[0], op, params, None if single else place)
    return results[0] if single else results


def _wrap(array: Any) -> Tensor:
    out = _new(Tensor)
    out.array, out.edge = array, None
    return out


def _as_array(value: Any, raw: list[Any]) -> Any:
    return value if is_array(value) else array_module(*raw).asarray(value)


def _to_float32(value: Any) -> Any:
    return value.astype(float32) if is_array(value) and is_half(value.dtype) else value


def _check_devices(op: Op, raw: list[Any]) -> None:
    """Arrays of one call live on one device; Python numbers and None live anywhere."""
    if all(v.__class__ is ndarray for v in raw):
        return
    places = sorted({str(device_of(v)) for v in raw if is_array(v)})
    if len(places) > 1:
        raise RuntimeError(f"{op.name}: operands are on {' and '.join(places)}; move them to "
                           "one device with .to(...)")


def _promoted(op: Op, raw: list[Any]) -> list[Any]:
    if op.promote is None:
        return raw
    named = op.promote if isinstance(op.promote, tuple) else op.operands
    chosen = [op.listed or name in named for name in (op.operands * len(raw))[:len(raw)]]
    values = [v for v, c in zip(raw, chosen) if c and v is not None]
    dtype = result_type(values)
    if op.promote == "float":
        dtype = to_floating(dtype)
    return [_cast(v, dtype) if c else v for v, c in zip(raw, chosen)]


def _cast(value: Any, dtype: Any) -> Any:
    if is_array(value):
        return value if value.dtype == dtype else value.astype(dtype)
    if isinstance(value, (bool, int, float)) and not is_half(dtype):
        return _python_number(value, dtype)
    return value


def _python_number(value: Any, dtype: Any) -> Any:
    """A Python number as the computing dtype sees it: True + int64 is 1."""
    return float(value) if dtype.kind == "f" else value


def _compute(op: Op, raw: list[Any], params: dict[str, Any]) -> tuple[Any, Any]:
    """Outputs and residuals on raw arrays; a failure is explained by the signature."""
    xp = array_module(*raw)
    try:
        if op.forward is not None:
            outputs, residuals = op.forward(xp, *raw, **params)
            return outputs, residuals
        if op.listed:
            fixed = len(op.operands) - 1
            return op.body(xp, *raw[:fixed], raw[fixed:], **params), None
        return op.body(xp, *raw, **params), None
    except (ValueError, TypeError, IndexError) as error:
        raise _explained(op, raw, error) from error


def _explained(op: Op, raw: list[Any], error: Exception) -> Exception:
    """The body's error with the op's name, the operands' shapes and what was expected."""
    if str(error).startswith(op.name):
        return error
    shapes = [tuple(v.shape) if is_array(v) else None for v in raw]
    reason = "" if op.listed else op.signature.mismatch(op.operands, shapes)
    shown = ", ".join(
        f"{name} {shape if shape is not None else value!r}"
        for name, shape, value in zip(op.operands * len(raw), shapes, raw)
    )
    kind = ValueError if reason else next(
        k for k in (IndexError, TypeError, ValueError) if isinstance(error, k))
    return kind(f"{op.name}: {reason or error} (operands {shown}; expected "
                f"{op.signature.text})")


def _record(
    op: Op,
    flat: tuple[Any, ...],
    raw: list[Any],
    params: dict[str, Any],
    results: tuple[Tensor, ...],
    residuals: Any,
    single: bool,
    half: bool,
) -> None:
    """Give the results their edges, if a differentiable operand has one."""
    vjp = op.vjp
    assert vjp is not None
    pulls = vjp.pulls + vjp.pulls[-1:] * (len(flat) - vjp.arity)
    edges = tuple(
        o.edge if isinstance(o, Tensor) and (vjp.joint is not None or pulls[i] is not None)
        else None
        for i, o in enumerate(flat)
    )
    if all(edge is None for edge in edges):
        return
    differentiable = [is_floating(r.array.dtype) for r in results]
    if not any(differentiable):
        return
    if op.listed:
        vjp = vjp.with_count(len(flat) - len(op.operands) + 1)
    mask = sum(1 << i for i, edge in enumerate(edges) if edge is not None)
    complex_values = any(is_array(v) and v.dtype.kind == "c"
                         for v in (*raw, *(r.array for r in results)))
    vjp = vjp.variant(complex_values=complex_values, half=half)
    arrays = tuple(r.array for r in results)
    kept = tuple(
        _source(op, source, edges, raw, arrays, residuals) if keep else None
        for source, keep in zip(vjp.sources, vjp.keeps(mask))
    )
    if saved.in_use:
        kept = tuple(map(saved.save, kept))
    if single and vjp.outputs == 1:
        y = arrays[0]
        results[0].edge = Node(vjp, edges + kept, params, next_number(), y.shape, y.dtype)
        return
    node = Node(vjp, edges + kept, params, next_number(),
                tuple(y.shape for y in arrays), tuple(y.dtype for y in arrays))
    for place, result in enumerate(results):
        if differentiable[place]:
            result.edge = Output(node, place)


def _source(
    op: Op, source: Any, edges: Any, raw: list[Any], arrays: Any, residuals: Any
) -> Any:
    """The value a rule asked for, as the node keeps it."""
    if source.kind == "output":
        return arrays[0]
    if source.kind == "outputs":
        return arrays
    if source.kind == "residuals":
        return residuals
    places = [source.place]
    if op.listed and source.place == len(op.operands) - 1:
        places = list(range(source.place, len(raw)))
    if source.kind == "operand":
        values = tuple(raw[i] for i in places)
    else:
        values = tuple(edges[i] or Like(np.shape(raw[i]), getattr(raw[i], "dtype", None))
                       for i in places)
    return values if op.listed and source.place == len(op.operands) - 1 else values[0]


def _pull_through(op: Op) -> Call:
    """A composite's cotangents as differentiable Tensors: back through its definition.

    The definition runs on aliases of the operands, so the inner walk stops at the aliases,
    whose own edges lead on to the operands for higher orders.
    """

    def pull(g: Any, links: tuple[Any, ...], params: dict[str, Any]) -> list[Any]:
        count = len(op.operands)
        inside = [
            x if edge is None else OPS["alias"](x)
            for x, edge in zip(links[count:], links[:count])
        ]
        outputs = op.function(*inside, **params)
        pairs = zip(outputs, g) if isinstance(outputs, tuple) else [(outputs, g)]
        roots = [(y.edge, part) for y, part in pairs if y.edge is not None]
        targets = [x.edge for x, edge in zip(inside, links[:count]) if edge is not None]
        found = walk(roots, RECORDED, retain=True, targets=targets)
        return [None if edge is None else found.get(x.edge)
                for x, edge in zip(inside, links[:count])]

    return pull


connect(build)
