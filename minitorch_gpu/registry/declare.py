"""The three declarations an op can have: elementwise, primitive, composite."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from minitorch_gpu.registry.rules import Vjp, bind, bind_fused
from minitorch_gpu.registry.scalar import OPS, Expr, text_of
from minitorch_gpu.registry.signature import Signature, parse

__all__ = ["Ints", "Op", "Vjp", "composite", "connect", "elementwise", "primitive"]

Function = Callable[..., Any]
Rules = dict[str, Function]


class Ints(NamedTuple):
    """An integer operand of an example: its shape and the range of its values."""

    shape: tuple[int, ...]
    high: int
    low: int = 0


class Op:
    """What was declared. Data only: dispatch and the tests read it."""

    def __init__(
        self,
        function: Function,
        kind: str,
        signature: str,
        *,
        vjp: Rules | None = None,
        promote: str | tuple[str, ...] | None = None,
        view: bool = False,
        normalise: Function | None = None,
        variadic: str | None = None,
        methods: tuple[str, ...] | None = None,
        operator: str | None = None,
        examples: tuple[dict[str, Any], ...] = (),
        domain: tuple[float, float] = (-2.0, 2.0),
        forward: Function | None = None,
        backward: Function | None = None,
    ) -> None:
        self.function, self.kind = function, kind
        self.name = function.__name__.rstrip("_")
        self.doc = inspect.getdoc(function) or ""
        self.signature: Signature = parse(signature)
        self.operands, self.params = _split_parameters(function, kind, self.signature)
        self.listed = any(o.listed for o in self.signature.inputs)
        # The dtype rule: "same" joins all operands, "float" joins and lifts integers to the
        # default float, a tuple joins just the operands it names, None leaves dtypes alone.
        self.promote = promote
        self.view = view
        self.normalise = normalise      # (params, *raw operands) -> params, hashable
        self.variadic = variadic        # the parameter that takes loose ints: permute(0, 2, 1)
        self.methods = (self.name,) if methods is None else methods
        self.operator = operator        # "add": also __add__, __radd__, __iadd__ and add_
        self.examples, self.domain = examples, domain
        self.forward = forward
        self.rules = vjp or {}
        self.vjp = self._bind(backward)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} {self.signature.text}>"

    def _bind(self, backward: Function | None) -> Vjp | None:
        outputs = len(self.signature.outputs)
        if any(o.listed for o in self.signature.outputs):
            outputs = -1  # as many as the body returns
        if backward is not None:
            return bind_fused(self.name, self.operands, outputs, self.function, backward)
        if not self.rules:
            return None
        return bind(self.name, self.operands, tuple(self.params), outputs, self.rules)

    def body(self, xp: Any, *operands: Any, **params: Any) -> Any:
        """The value on raw arrays, uniformly for the three kinds."""
        if self.kind == "primitive":
            return self.function(xp, *operands, **params)
        return self.function(*operands, **params)

    def formula(self, **params: Any) -> str:
        """An elementwise op's value as text: ``exp(x)``; empty for the other kinds."""
        if self.kind != "elementwise":
            return ""
        return text_of(self.function(*map(Expr, self.operands), **{**self.params, **params}))


def _split_parameters(
    function: Function, kind: str, signature: Signature
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The body's parameters: one operand per group of the signature, the rest are params."""
    parameters = list(inspect.signature(function).parameters.values())
    if kind == "primitive":
        parameters = parameters[1:]  # xp
    count = len(signature.inputs)
    if len(parameters) < count:
        raise TypeError(f"{function.__name__}: {signature.text} has {count} operands, "
                        f"the body takes {len(parameters)}")
    operands = tuple(p.name for p in parameters[:count])
    return operands, {p.name: p.default for p in parameters[count:]}


class _Dispatcher:
    """Set by the tensor layer: turns a declared Op into the function users call."""

    build: Function | None = None


def connect(build: Function) -> None:
    """Give declarations their dispatcher; the tensor layer calls this once at import."""
    _Dispatcher.build = staticmethod(build)


def declaration_of(call: Any) -> Op:
    """The declaration behind an op's function."""
    op: Op = call.op
    return op


def _declare(op: Op) -> Function:
    if _Dispatcher.build is None:
        raise RuntimeError(f"op {op.name}: import minitorch_gpu.dispatch before declaring ops")
    if op.name in OPS:
        raise ValueError(f"op {op.name} is declared twice")
    call: Any = _Dispatcher.build(op)
    call.op, call.__name__, call.__qualname__ = op, op.name, op.name
    call.__doc__, call.__module__ = _document(op), op.function.__module__
    call.__signature__ = _user_signature(op)
    OPS[op.name] = call
    return call


def _user_signature(op: Op) -> inspect.Signature:
    """What ``inspect.signature`` and ``help`` show: the user's arguments, without ``xp``."""
    parameters = list(inspect.signature(op.function).parameters.values())
    return inspect.Signature(parameters[1:] if op.kind == "primitive" else parameters)


def _document(op: Op) -> str:
    lines = [op.doc, "", f"Signature: {op.signature.text}"]
    if op.rules:
        lines.append(f"Differentiable in: {', '.join(op.rules)}")
    return "\n".join(lines)


def elementwise(
    *,
    vjp: Rules | None = None,
    promote: str = "same",
    methods: tuple[str, ...] | None = None,
    operator: str | None = None,
    domain: tuple[float, float] = (-2.0, 2.0),
    examples: tuple[dict[str, Any], ...] = (),
) -> Callable[[Function], Function]:
    """Declare an op on scalars: operators and the functions of ``registry.scalar`` only.

    Args:
        vjp: a rule per differentiable operand; its parameter names say what it needs.
        promote: "same" (joined dtype) or "float" (integers become the default float).
        methods: names of Tensor methods; default the op's own.
        operator: the Python operator it serves: "add" brings ``+``, ``+=`` and ``add_``.
        domain: where the tests draw operand values from; two ints mean integer operands.
        examples: keyword parameters the tests try; default just the defaults.
    """

    def decorate(function: Function) -> Function:
        parameters = inspect.signature(function).parameters.values()
        count = sum(p.kind != p.KEYWORD_ONLY and p.default is p.empty for p in parameters)
        signature = ",".join(["()"] * count) + "->()"
        return _declare(Op(function, "elementwise", signature, vjp=vjp, promote=promote,
                           methods=methods, operator=operator, domain=domain,
                           examples=examples))

    return decorate


def primitive(
    signature: str,
    *,
    vjp: Rules | None = None,
    promote: str | tuple[str, ...] | None = "same",
    view: bool = False,
    normalise: Function | None = None,
    variadic: str | None = None,
    methods: tuple[str, ...] | None = None,
    operator: str | None = None,
    examples: tuple[dict[str, Any], ...] = (),
    domain: tuple[float, float] = (-2.0, 2.0),
) -> Callable[[Function], Function]:
    """Declare an op by a body ``f(xp, *operands, **params)`` on raw arrays.

    Args:
        signature: core dims, e.g. ``(n,k),(k,m)->(n,m)``.
        vjp: a rule per differentiable operand; its parameter names say what it needs.
        promote: "same", "float", a tuple of operand names to join, or None.
        view: the result shares memory with the first operand.
        normalise: ``(params, *operands) -> params`` with non-negative dims, hashable.
        variadic: the parameter that also takes loose integers.
        methods: names of Tensor methods; default the op's own, ``()`` for none.
        operator: the Python operator it serves.
        examples: calls the tests make: shapes for operands, values for parameters.
        domain: where the tests draw operand values from.
    """

    def decorate(function: Function) -> Function:
        return _declare(Op(function, "primitive", signature, vjp=vjp, promote=promote,
                           view=view, normalise=normalise, variadic=variadic, methods=methods,
                           operator=operator, examples=examples, domain=domain))

    return decorate


def composite(
    signature: str,
    *,
    forward: Function | None = None,
    backward: Function | None = None,
    promote: str | tuple[str, ...] | None = "same",
    normalise: Function | None = None,
    methods: tuple[str, ...] | None = None,
    examples: tuple[dict[str, Any], ...] = (),
    domain: tuple[float, float] = (-2.0, 2.0),
) -> Callable[[Function], Function]:
    """Declare an op by its definition in other ops, with an optional fused pair.

    ``forward(xp, *operands, **params) -> (outputs, residuals)`` and
    ``backward(xp, g, residuals, inputs, needs, **params) -> one cotangent per operand`` run on
    raw arrays only; whatever sees Tensors (second order, tracing) uses the definition.
    """
    if (forward is None) != (backward is None):
        raise TypeError("a fused pair needs both forward and backward")

    def decorate(function: Function) -> Function:
        return _declare(Op(function, "composite", signature, promote=promote,
                           normalise=normalise, methods=methods, examples=examples,
                           domain=domain, forward=forward, backward=backward))

    return decorate
