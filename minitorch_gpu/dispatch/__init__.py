"""From a declared op to the function users call: unwrap, promote, compute, record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minitorch_gpu.backward import RECORDED
from minitorch_gpu.dispatch.quick import binary, general, unary
from minitorch_gpu.engine import walk
from minitorch_gpu.registry.declare import Op, connect
from minitorch_gpu.registry.scalar import OPS

Call = Callable[..., Any]


def build(op: Op) -> Call:
    """The function users call for ``op``."""
    whole = general(op)
    if op.vjp is not None and op.vjp.definition is not None:
        op.vjp.definition = _pull_through(op)
    if op.kind == "elementwise" and not op.params and op.promote in ("same", "float"):
        if len(op.operands) == 1:
            return unary(op, whole)
        if len(op.operands) == 2:
            return binary(op, whole)
    return whole



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
