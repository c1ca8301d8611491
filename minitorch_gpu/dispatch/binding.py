"""Splits a call's arguments into operands and parameters, as Python would bind them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from minitorch_gpu.registry.declare import Op


def binder(op: Op) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
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
