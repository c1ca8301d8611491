"""The gufunc-style signature of an op: its operands' core dims, and how shape errors read."""

from __future__ import annotations

import re
from typing import NamedTuple


class Operand(NamedTuple):
    """One operand: core dims by name, ``None`` for any shape; may be absent, or a list."""

    dims: tuple[str, ...] | None
    optional: bool = False
    listed: bool = False


class Signature(NamedTuple):
    """``(n,k),(k,m)->(n,m)``: core dims of every operand and output.

    Leading dims before the core dims broadcast together, as in NumPy's generalised ufuncs.
    ``(...)`` is any shape, ``(m)?`` may be None, ``(...)*`` is a list of tensors.
    """

    text: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    def mismatch(self, names: tuple[str, ...], shapes: list[tuple[int, ...] | None]) -> str:
        """Why these operand shapes do not fit, in words; empty when core dims agree."""
        sizes: dict[str, tuple[int, str]] = {}
        for operand, name, shape in zip(self.inputs, names, shapes):
            if operand.dims is None or shape is None:
                continue
            if len(shape) < len(operand.dims):
                return f"{name} has shape {shape}, which lacks dims {operand.dims}"
            core = shape[len(shape) - len(operand.dims):]
            for dim, size in zip(operand.dims, core):
                seen, where = sizes.setdefault(dim, (size, name))
                if seen != size:
                    return f"dim {dim} is {seen} in {where} and {size} in {name}"
        return ""


_GROUP = re.compile(r"\(([^)]*)\)([?*]?)")


def parse(text: str) -> Signature:
    """The signature written as ``text``.

    Raises:
        ValueError: the text has no ``->`` or holds something besides groups and commas.
    """
    head, arrow, tail = text.replace(" ", "").partition("->")
    if not arrow or re.sub(_GROUP, "", head + tail).strip(","):
        raise ValueError(f'signature {text!r} does not read "(n,k),(k,m)->(n,m)"')
    return Signature(text, _operands(head), _operands(tail))


def _operands(text: str) -> tuple[Operand, ...]:
    return tuple(
        Operand(
            None if dims == "..." else tuple(d for d in dims.split(",") if d),
            optional=mark == "?",
            listed=mark == "*",
        )
        for dims, mark in _GROUP.findall(text)
    )
