"""The public surface is typed and documented, all of it, and the stub file is up to date."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from minitorch_gpu.registry import OPS
from minitorch_gpu.stubs import DOCS, PATH, generate, op_table

PACKAGE = Path(__file__).resolve().parent.parent / "minitorch_gpu"
FILES = sorted(PACKAGE.rglob("*.py"))
name_of = lambda p: str(p.relative_to(PACKAGE))


def public(tree):
    """(name, node) of public functions and classes of a module, and of classes' methods."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                        yield f"{node.name}.{inner.name}", inner


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no module docstring"


def classes():
    """Class name -> its definition, over the whole package."""
    return {node.name: node for path in FILES for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ClassDef)}


def inherits_its_text(name, known):
    """Whether a method overrides one that a base class documents."""
    kind, _, method = name.rpartition(".")
    for base in known[kind].bases if kind in known else ():
        above = known.get(ast.unparse(base).rpartition(".")[2])
        if above is not None and any(
            isinstance(node, ast.FunctionDef) and node.name == method
            and ast.get_docstring(node) for node in above.body
        ):
            return True
    return False


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_public_names_are_documented(path):
    known = classes()
    missing = [name for name, node in public(ast.parse(path.read_text()))
               if not ast.get_docstring(node) and not _overload_or_setter(node)
               and not inherits_its_text(name, known)]
    assert not missing, f"{path}: no docstring on {missing}"


def _overload_or_setter(node):
    names = {ast.unparse(d) for d in node.decorator_list}
    return any(n.endswith((".setter", "overload")) for n in names)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_function_is_fully_typed(path):
    missing = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.FunctionDef):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        untyped = [a.arg for a in arguments if a.annotation is None
                   and a.arg not in ("self", "cls")]
        if untyped or (node.returns is None and node.name != "__init__"):
            missing.append(f"{node.name}({', '.join(untyped)})")
    assert not missing, f"{path}: untyped {missing}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_functions_and_files_stay_short(path):
    text = path.read_text()
    assert text.count("\n") <= 400, f"{path} has {text.count(chr(10))} lines"
    long = [f"{n.name}: {n.end_lineno - n.lineno + 1}" for n in ast.walk(ast.parse(text))
            if isinstance(n, ast.FunctionDef) and n.end_lineno - n.lineno + 1 > 50]
    assert not long, f"{path}: functions over 50 lines: {long}"


def test_the_stub_of_tensor_is_what_the_declarations_say():
    assert PATH.read_text() == generate(), "run python -m minitorch_gpu.stubs"


def test_the_table_of_ops_is_what_the_declarations_say():
    assert DOCS.read_text() == op_table(), "run python -m minitorch_gpu.stubs"


def test_every_op_shows_its_arguments_and_its_signature():
    import inspect

    for name, call in OPS.items():
        assert "xp" not in inspect.signature(call).parameters, name
        assert "Signature: " in call.__doc__, name
