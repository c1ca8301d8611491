"""The closed list of scalar functions that elementwise ops are written in.

An elementwise op is a Python function over scalars. What it computes depends on what it is
called with: arrays compute, Tensors record, and ``Expr`` writes down the formula as text,
which documents the op and is the source its fused kernels are made from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitorch_gpu.device import array_module, is_array, special_module

OPS: dict[str, Callable[..., Any]] = {}  # every declared op by name


class Expr:
    """A formula under construction: ``Expr("x") * 2`` is the text ``(x * 2)``."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __neg__(self) -> Expr:
        return Expr(f"(-{self.text})")

    def __invert__(self) -> Expr:
        return Expr(f"(~{self.text})")

    __hash__ = object.__hash__


def text_of(value: object) -> str:
    """The formula of an Expr, or a constant as source text."""
    return value.text if isinstance(value, Expr) else repr(value)


_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "floordiv": "//",
    "mod": "%", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}


def _infix(symbol: str, reverse: bool) -> Callable[[Expr, object], Expr]:
    def build(self: Expr, other: object) -> Expr:
        left, right = (other, self) if reverse else (self, other)
        return Expr(f"({text_of(left)} {symbol} {text_of(right)})")

    return build


for _name, _symbol in _OPERATORS.items():
    setattr(Expr, f"__{_name}__", _infix(_symbol, False))
    if _symbol not in ("<", "<=", ">", ">=", "==", "!="):
        setattr(Expr, f"__r{_name}__", _infix(_symbol, True))


class Intrinsic:
    """One scalar function: a NumPy function on arrays, an op on Tensors, text on Expr."""

    def __init__(self, name: str, array_name: str, special: bool) -> None:
        self.name = self.__name__ = name
        self.array_name = array_name
        self.special = special
        self._numpy = None if special else getattr(np, array_name)

    def __call__(self, *args: Any) -> Any:
        first, function = args[0], self._numpy
        if function is not None and first.__class__ is np.ndarray and len(args) == 1:
            return function(first)
        if any(isinstance(a, Expr) for a in args):
            return Expr(f"{self.name}({', '.join(map(text_of, args))})")
        if all(isinstance(a, (float, int, complex, np.generic)) or is_array(a) for a in args):
            xp = array_module(*args)
            return getattr(special_module(xp) if self.special else xp, self.array_name)(*args)
        return OPS[self.name](*args)


class Sigmoid(Intrinsic):
    """``1 / (1 + exp(-x))``, exact to a few units in the last place for every x."""

    def __call__(self, *args: Any) -> Any:
        x = args[0]
        if isinstance(x, (float, int, complex, np.generic)):
            x = np.asarray(x)
        if not is_array(x):
            return super().__call__(x)
        y = array_module(x).exp(-x)
        y += 1.0
        return array_module(x).reciprocal(y, out=y if y.ndim else None)


class Where(Intrinsic):
    """Choice by a mask; with 0 on one side by bits, since branches on random masks are slow."""

    def __call__(self, *args: Any) -> Any:
        mask, a, b = args
        if mask.__class__ is np.ndarray and mask.dtype == bool:
            if b.__class__ is float and b == 0.0 and a.__class__ is np.ndarray:
                return keep(mask, a)
            if a.__class__ is float and a == 0.0 and b.__class__ is np.ndarray:
                return keep(~mask, b)
        return super().__call__(*args)


def keep(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    """``values`` where ``mask`` holds, else 0, without branches; inf and NaN leave no trace.

    A mask byte 1 negated is all ones: x & -1 is x, x & 0 is 0.
    """
    if values.dtype.kind != "f" or values.shape != mask.shape:
        return np.where(mask, values, values.dtype.type(0))
    bits = np.dtype(f"i{values.dtype.itemsize}")
    chosen = np.empty(values.shape, bits)
    np.negative(mask.view(np.int8), out=chosen, dtype=bits)
    np.bitwise_and(chosen, values.view(bits), out=chosen)
    return chosen.view(values.dtype)


def _make(special: bool, *names: str) -> dict[str, Intrinsic]:
    pairs = (name.split(":") if ":" in name else (name, name) for name in names)
    return {name: Intrinsic(name, array_name, special) for name, array_name in pairs}


INTRINSICS = {
    **_make(
        False,
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan",
        "asin:arcsin", "acos:arccos", "atan:arctan", "atan2:arctan2", "sinh", "cosh", "tanh",
        "asinh:arcsinh", "acosh:arccosh", "atanh:arctanh", "floor", "ceil", "trunc",
        "round", "abs", "sign", "maximum", "minimum", "isnan", "isinf",
        "isfinite", "fmod", "copysign", "hypot", "square", "conj:conjugate",
        "floor_divide", "remainder", "fmax", "fmin", "logaddexp",
        "logical_and", "logical_or", "logical_xor", "logical_not",
    ),
    "sigmoid": Sigmoid("sigmoid", "sigmoid", True),
    "where": Where("where", "where", False),
    **_make(True, "erf", "erfc", "erfinv", "lgamma:gammaln", "digamma", "zeta", "xlogy"),
}


def __getattr__(name: str) -> Intrinsic:
    """``scalar.exp``: the intrinsic of that name."""
    try:
        return INTRINSICS[name]
    except KeyError:
        known = ", ".join(sorted(INTRINSICS))
        raise AttributeError(f"no scalar function {name!r}; the list is {known}") from None
