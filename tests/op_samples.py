"""Example calls of every op, drawn from its declaration: what the generated tests run on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import minitorch_gpu as mt
import minitorch_gpu.optim  # declares the update ops
from minitorch_gpu.registry import OPS, Ints, Op


class Sample(NamedTuple):
    """One call: raw operands (arrays, numbers, None, lists of arrays) and parameters."""

    operands: tuple[Any, ...]
    params: dict[str, Any]

    def flat(self) -> list[Any]:
        """Operands with lists spread out."""
        return [v for o in self.operands for v in (o if isinstance(o, list) else [o])]

    def rebuilt(self, flat: list[Any]) -> tuple[Any, ...]:
        """Operands again from their flat form."""
        values = iter(flat)
        return tuple(
            [next(values) for _ in o] if isinstance(o, list) else next(values)
            for o in self.operands
        )


ELEMENTWISE_SHAPES = [((2, 3), (3,), (2, 1)), ((), (), ()), ((4, 1), (1, 3), (3,)),
                      ((0, 2), (2,), (1, 2))]


def all_ops() -> list[Op]:
    """Every declared op, in order of name."""
    return [OPS[name].op for name in sorted(OPS)]


def samples(op: Op, seed: int = 0) -> Iterator[Sample]:
    """The calls to test ``op`` with: its examples; broadcast shapes if it is elementwise."""
    generator = np.random.default_rng(seed)
    if op.kind == "elementwise":
        for params in op.examples or ({},):
            for shapes in ELEMENTWISE_SHAPES:
                yield Sample(tuple(_floats(op, generator, shapes[i])
                                   for i in range(len(op.operands))), dict(params))
        return
    for example in op.examples:
        values = dict(example)
        given = [values.pop(name, None) for name in op.operands]
        operands = tuple(_operand(op, generator, value) for value in given)
        yield Sample(operands, values)


def _operand(op: Op, generator: Any, given: Any) -> Any:
    if given is None or isinstance(given, (int, float)):
        return given
    if isinstance(given, Ints):
        return generator.integers(given.low, given.high, given.shape)
    if isinstance(given, np.ndarray):
        return given.copy()
    if isinstance(given, tuple):
        return _floats(op, generator, given)
    if all(isinstance(g, (tuple, Ints, np.ndarray)) for g in given) and given:
        return [_operand(op, generator, g) for g in given]
    return np.array(given)


def _floats(op: Op, generator: Any, shape: tuple[int, ...]) -> np.ndarray:
    low, high = op.domain
    if isinstance(low, int):
        return generator.integers(low, high, shape)
    return generator.uniform(low, high, shape)


def is_differentiable(value: Any) -> bool:
    """Whether an operand of a sample can carry a gradient."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def as_tensors(flat: list[Any], grad: bool | list[bool] = True) -> list[Any]:
    """Arrays as Tensors (copies); floats among them require gradients where ``grad`` says."""
    flags = [grad] * len(flat) if isinstance(grad, bool) else grad
    return [
        mt.Tensor(v.copy(), requires_grad=g and is_differentiable(v))
        if isinstance(v, np.ndarray) else v
        for v, g in zip(flat, flags)
    ]


def outputs_of(result: Any) -> list[Any]:
    """The results of a call as a list."""
    return list(result) if isinstance(result, (tuple, list)) else [result]
