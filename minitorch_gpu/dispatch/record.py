"""What a recorded call leaves behind: a node with its edges and just what its rules read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitorch_gpu.device import is_array
from minitorch_gpu.engine import Node, Output, next_number
from minitorch_gpu.engine.saved import saved
from minitorch_gpu.registry.declare import Op
from minitorch_gpu.registry.promotion import is_floating
from minitorch_gpu.registry.rules import Like, Vjp
from minitorch_gpu.tensor import Tensor

Call = Callable[..., Any]


def links_maker(vjp: Vjp, names: list[str], mask: int) -> Call:
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


def recorder(op: Op) -> Call | None:
    """Gives one output its node, on the quick route."""
    vjp = op.vjp
    if vjp is None:
        return None
    if op.listed or vjp.outputs != 1:
        return lambda operands, raw, params, out, residuals: record_outputs(
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
        if not mask:
            return
        if array.dtype.kind != "f":  # complex, bfloat16, or no float at all
            record_outputs(op, operands, raw, params, (out,), residuals, True, False)
            return
        make = makers.get(mask)
        if make is None:
            make = makers[mask] = links_maker(vjp, names, mask)
        links = make(*edges, *raw, array, residuals)
        if saved.in_use:
            links = links[:len(edges)] + tuple(map(saved.save, links[len(edges):]))
        out.edge = Node(vjp, links, params, next_number(), array.shape, array.dtype)

    return record


def record_outputs(
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
