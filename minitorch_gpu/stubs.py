"""Writes what follows from the declarations: ``tensor.pyi`` and the table ``docs/ops.md``.

``python -m minitorch_gpu.stubs`` writes both; a test compares them with what is declared.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from minitorch_gpu.registry import OPS
from minitorch_gpu.registry.declare import Op, declaration_of
from minitorch_gpu.tensor import Parameter, Tensor

PATH = Path(__file__).with_name("tensor.pyi")
DOCS = Path(__file__).parent.parent / "docs" / "ops.md"

HEADER = '''\
"""Generated from the ops' declarations by ``python -m minitorch_gpu.stubs``: do not edit."""

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from minitorch_gpu.device import Device
from minitorch_gpu.engine import RemovableHandle
'''
KNOWN = ("Any", "Callable", "Device", "Iterator", "None", "Parameter", "RemovableHandle",
         "Sequence", "Tensor")  # other names of types are aliases local to their files
SKIPPED = {"__module__", "__doc__", "__dict__", "__weakref__", "__slots__", "__annotations__",
           "__hash__", "__array_ufunc__", "__array_priority__", "_restore"}


def generate() -> str:
    """The text of ``tensor.pyi``."""
    parts = [HEADER]
    parts.append("\n".join(_class(Tensor, "", ["array: Any", "edge: Any", "_view: Any",
                                                "_views: Any"])))
    parts.append("\n".join(_class(Parameter, "Tensor", ["placement: Any", "name: str | None"])))
    return "\n\n".join(parts) + "\n"


def _class(kind: type, base: str, attributes: list[str]) -> Iterator[str]:
    yield f"class {kind.__name__}{f'({base})' if base else ''}:"
    yield from (f"    {line}" for line in attributes)
    for name in sorted(vars(kind)):
        value = vars(kind)[name]
        if name in SKIPPED:
            continue
        if isinstance(value, property):
            yield from _property(name, value)
        elif isinstance(value, FunctionType):
            yield _function(name, value, "    ")


def _property(name: str, value: property) -> Iterator[str]:
    assert value.fget is not None
    answer = inspect.signature(value.fget).return_annotation
    yield f"    @property\n    def {name}(self) -> {_annotation(answer)}: ..."
    if value.fset is not None:
        yield f"    @{name}.setter\n    def {name}(self, value: Any) -> None: ..."


def _function(name: str, function: Callable[..., Any], indent: str) -> str:
    signature = inspect.signature(function)
    op = getattr(function, "op", None)
    parameters = [
        p.replace(annotation=inspect.Parameter.empty) if op is not None else p
        for p in signature.parameters.values()
    ]
    if indent and parameters:
        parameters[0] = parameters[0].replace(name="self", annotation=inspect.Parameter.empty)
    shown = _parameters(parameters, op, bool(indent))
    answer = _answer(op, signature)
    return f"{indent}def {name}({', '.join(shown)}) -> {answer}: ..."


def _parameters(parameters: list[inspect.Parameter], op: Any, method: bool) -> Iterator[str]:
    starred = False
    for place, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        if p.kind is p.VAR_POSITIONAL:
            starred = True
        prefix = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        if method and place == 0:
            yield p.name
            continue
        if op is not None and p.name == op.variadic:
            yield f"*{p.name}: Any"
            starred = True
            continue
        default = "" if p.default is p.empty else " = ..."
        yield f"{prefix}{p.name}: {_annotation(p.annotation)}{default}"


def _annotation(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return "Any"
    text = value if isinstance(value, str) else getattr(value, "__name__", "Any")
    text = re.sub(r"(?<![.\w])[A-Z]\w*", lambda m: m[0] if m[0] in KNOWN else "Any", text)
    return re.sub(r"(?<!\.)\b(bool|int|float)\b", r"builtins.\1", text)  # methods shadow them


def _answer(op: Any, signature: inspect.Signature) -> str:
    if op is not None:
        outputs = op.signature.outputs
        several = len(outputs) != 1 or outputs[0].listed
        return "tuple[Tensor, ...]" if several else "Tensor"
    return _annotation(signature.return_annotation)


OPS_HEADER = """\
# The ops

Generated from the declarations by `python -m minitorch_gpu.stubs`: do not edit.

An op's core dims, formula and differentiable operands are those it was declared with. Leading
dims broadcast, `?` marks an operand that may be None, `*` a list. A composite gets its
gradients from its definition in other ops."""
COLUMNS = "| op | kind | signature | value | gradient in | |\n|---|---|---|---|---|---|"


def op_table() -> str:
    """The text of ``docs/ops.md``: a line per op, by the file that declares it."""
    files: dict[str, list[str]] = {}
    for call in OPS.values():
        op = declaration_of(call)
        package, _, name = op.function.__module__.rpartition(".")
        if package == "minitorch_gpu.ops":
            files.setdefault(name, []).append(_row(op))
    parts = [f"## {name}.py\n\n{COLUMNS}\n" + "\n".join(sorted(rows))
             for name, rows in sorted(files.items())]
    return "\n\n".join([OPS_HEADER, *parts]) + "\n"


def _row(op: Op) -> str:
    simple = op.kind == "elementwise" and not op.params
    value = f"`{op.formula()}`" if simple else ""
    gradient = "by definition" if op.kind == "composite" else ", ".join(op.rules)
    summary = op.doc.split("\n\n")[0].replace("\n", " ").replace("``", "`")
    cells = [op.name, op.kind, f"`{op.signature.text}`", value, gradient, summary]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    """Write ``tensor.pyi`` beside ``tensor.py``, and the table of ops where docs are."""
    PATH.write_text(generate())
    if DOCS.parent.is_dir():
        DOCS.write_text(op_table())
    print(f"{len(OPS)} ops: {PATH}, {DOCS}")


if __name__ == "__main__":
    main()
