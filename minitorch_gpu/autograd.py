"""``mt.autograd``: gradients as values, and checks of gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minitorch_gpu.backward import run_walk, seed_cotangent
from minitorch_gpu.device import array_module
from minitorch_gpu.tensor import Tensor

Tensors = Tensor | Sequence[Tensor]


def _sequence(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """d(outputs)/d(inputs) as new Tensors; no ``.grad`` is touched.

    Args:
        outputs: what to differentiate; several are summed, weighted by ``grad_outputs``.
        inputs: leaves or intermediate results.
        grad_outputs: the cotangents, one per output; None for outputs of one element.
        retain_graph: keep what the graph saved; by default only with ``create_graph``.
        create_graph: record the backward pass, for higher orders.
        allow_unused: None for an input that no output depends on, instead of an error.

    Raises:
        RuntimeError: an output or input requires no gradient (a constant derivative has
            none of its own), or an input is unused.
    """
    results, sources = _sequence(outputs), _sequence(inputs)
    seeds = _sequence(grad_outputs) if grad_outputs is not None else [None] * len(results)
    for place, source in enumerate(sources):
        if source.edge is None:
            raise RuntimeError(f"input {place} of grad does not require gradients")
    for place, result in enumerate(results):
        if result.edge is None:
            raise RuntimeError(
                f"output {place} of grad does not depend on anything that requires gradients: "
                "the derivative is constant; its gradient would be zero"
            )
    roots = [(y.edge, seed_cotangent(y, seed, create_graph)) for y, seed in zip(results, seeds)]
    retain = create_graph if retain_graph is None else retain_graph
    found = run_walk(roots, create_graph, retain, [x.edge for x in sources])
    for place, source in enumerate(sources):
        if source.edge not in found and not allow_unused:
            raise RuntimeError(f"input {place} of grad, of shape {source.shape}, is not used "
                               "by the outputs: pass allow_unused=True to get None for it")
    return tuple(_as_result(found.get(x.edge), x) for x in sources)


def _as_result(g: Any, x: Tensor) -> Tensor | None:
    if g is None or isinstance(g, Tensor):
        return g
    return Tensor(array_module(x.array).array(g, copy=True))


def gradcheck(
    function: Callable[..., Any],
    inputs: Tensors,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
) -> bool:
    """Compare the gradients of ``function`` with central differences, in float64.

    Args:
        function: takes the inputs, returns a Tensor or several.
        inputs: float64 Tensors; those that require gradients are checked.
        eps: the step of the differences.
        atol: absolute tolerance.
        rtol: relative tolerance.

    Raises:
        ValueError: an input to check is not float64.
        AssertionError: a gradient differs; the message says which input and by how much.
    """
    sources = _sequence(inputs)
    checked = [i for i, x in enumerate(sources) if isinstance(x, Tensor) and x.requires_grad]
    for i in checked:
        if sources[i].dtype != np.float64:
            raise ValueError(f"gradcheck input {i} is {sources[i].dtype}: use .double()")
    outputs = [y for y in _sequence(function(*sources)) if y.is_floating_point()]
    weights = [_weights(y, k) for k, y in enumerate(outputs)]
    live = [(y, w) for y, w in zip(outputs, weights) if y.requires_grad]
    if not live:
        raise RuntimeError("gradcheck: no output of the function depends on the inputs")
    analytic = grad([y for y, _ in live], [sources[i] for i in checked],
                    [Tensor(w) for _, w in live], allow_unused=True)
    for i, g in zip(checked, analytic):
        numeric = _numeric(function, sources, i, weights, eps)
        value = np.zeros_like(numeric) if g is None else g.detach().numpy()
        if not np.allclose(value, numeric, rtol=rtol, atol=atol):
            worst = float(np.max(np.abs(value - numeric)))
            raise AssertionError(f"gradcheck: input {i} of shape {sources[i].shape} differs by "
                                 f"up to {worst:.3g}\nanalytic {value}\nnumeric {numeric}")
    return True


def _weights(y: Tensor, seed: int) -> np.ndarray:
    """Fixed random cotangents, so that no two errors cancel."""
    return np.random.default_rng(seed).uniform(0.5, 1.5, y.shape)


def _numeric(function: Any, sources: list[Any], place: int, weights: Any, eps: float) -> Any:
    base = sources[place].array
    result = np.zeros(base.shape)
    for at in np.ndindex(base.shape):
        total = 0.0
        for side in (1, -1):
            moved = base.copy()
            moved[at] += side * eps
            varied = [*sources]
            varied[place] = Tensor(moved, requires_grad=True)
            outputs = [y for y in _sequence(function(*varied)) if y.is_floating_point()]
            total += side * sum(float((y.array * w).sum()) for y, w in zip(outputs, weights))
        result[at] = total / (2 * eps)
    return result


def gradgradcheck(function: Callable[..., Any], inputs: Tensors, **tolerances: float) -> bool:
    """``gradcheck`` of the gradient: second order against finite differences.

    Cotangents of the outputs are inputs of the gradient too, and are checked with them.
    """
    sources = _sequence(inputs)
    outputs = [y for y in _sequence(function(*sources)) if y.is_floating_point()]
    cotangents = [Tensor(_weights(y, 7 + k), requires_grad=True) for k, y in enumerate(outputs)]
    count = len(sources)

    def gradient(*arguments: Any) -> tuple[Tensor, ...]:
        xs, gs = arguments[:count], arguments[count:]
        ys = [y for y in _sequence(function(*xs)) if y.is_floating_point()]
        pairs = [(y, g) for y, g in zip(ys, gs) if y.requires_grad]
        wanted = [x for x in xs if isinstance(x, Tensor) and x.requires_grad]
        found = grad([y for y, _ in pairs], wanted, [g for _, g in pairs], create_graph=True,
                     allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(gradient, [*sources, *cotangents], **tolerances)
