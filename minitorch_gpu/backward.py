"""``Tensor.backward``, and the arithmetic the engine is given: on arrays or on Tensors."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from minitorch_gpu.device import array_module
from minitorch_gpu.engine import Helpers, walk
from minitorch_gpu.engine.hooks import Keep
from minitorch_gpu.modes import RECORDING
from minitorch_gpu.registry.scalar import OPS
from minitorch_gpu.tensor import Tensor


def backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Add d(self)/d(leaf) to the ``grad`` of every leaf under this Tensor.

    Args:
        gradient: the cotangent, of this Tensor's shape; not needed for one element.
        retain_graph: keep what the graph saved, for another call.
        create_graph: record the backward pass too, for higher orders.

    Raises:
        RuntimeError: nothing requires a gradient, the graph was freed by an earlier
            call, or a saved array was changed in place.
    """
    if self.edge is None:
        raise RuntimeError("backward on a tensor that does not require gradients: nothing "
                           "under it has requires_grad=True, or it was made in no_grad()")
    seed = seed_cotangent(self, gradient, create_graph)
    retain = create_graph if retain_graph is None else retain_graph
    run_walk([(self.edge, seed)], create_graph, retain, None)


def retain_grad(self: Tensor) -> None:
    """Keep this intermediate result's gradient in ``grad`` after a backward pass.

    It is what the other hooks made of it, whenever they were registered.
    """
    if self.edge is None:
        raise RuntimeError("retain_grad on a tensor that does not require gradients")
    if self.is_leaf or any(isinstance(hook, Keep) for hook in self.edge.hooks or ()):
        return
    me = weakref.ref(self)

    def keep(g: Tensor) -> None:
        tensor = me()
        if tensor is not None:
            value = OPS["clone"](g)
            tensor.grad = value if tensor.grad is None else tensor.grad + value

    self.register_hook(Keep(keep))


# ---------------------------------------------------------------- what the engine is given
def _sum_to(g: Any, shape: tuple[int, ...]) -> Any:
    return OPS["sum_to"](g, shape=shape)


def _raw_cast(g: Any, dtype: Any) -> Any:
    if g.dtype == dtype:
        return g
    if g.dtype.kind == "c" and dtype.kind != "c":
        g = g.real
    return g.astype(dtype)


def _raw_zeros(shape: tuple[int, ...], dtype: Any, like: Any) -> Any:
    return array_module(like).zeros(shape, dtype)


def _raw_hook(hook: Any, g: Any) -> Any:
    token = RECORDING.set(False)
    try:
        answer = hook(Tensor(array_module(g).asarray(g)))
    finally:
        RECORDING.reset(token)
    return g if answer is None else _checked(answer, g).array


def _checked(answer: Any, g: Any) -> Tensor:
    """What a hook returned in a gradient's place has its shape and dtype."""
    if not isinstance(answer, Tensor):
        raise TypeError(f"a gradient hook returned {type(answer).__name__}: return a Tensor or "
                        "None")
    if answer.shape != g.shape or answer.dtype != g.dtype:
        raise RuntimeError(f"a gradient hook returned {answer.shape} {answer.dtype} for a "
                           f"gradient of {g.shape} {g.dtype}")
    return answer


def _recorded_cast(g: Tensor, dtype: Any) -> Tensor:
    if g.dtype.kind == "c" and dtype.kind != "c":
        g = OPS["real"](g)
    return g.to(dtype=dtype)


def _recorded_zeros(shape: tuple[int, ...], dtype: Any, like: Tensor) -> Tensor:
    return Tensor(_raw_zeros(shape, dtype, like.array))


def _recorded_hook(hook: Any, g: Tensor) -> Tensor:
    answer = hook(g)
    return g if answer is None else _checked(answer, g)


def view_as_tensor(array: Any, edge: Any) -> Any:
    """A saved array as a Tensor that carries its edge; Python numbers stay numbers."""
    if not hasattr(array, "dtype"):
        return array
    result = Tensor(array)
    result.edge = edge
    return result


RAW = Helpers(_sum_to, _raw_cast, _raw_zeros, view_as_tensor, _raw_hook, recorded=False)
RECORDED = Helpers(_sum_to, _recorded_cast, _recorded_zeros, view_as_tensor, _recorded_hook,
                   recorded=True)


def seed_cotangent(output: Tensor, gradient: Any, create_graph: bool) -> Any:
    """The cotangent a walk starts with: the one given, or 1 for a single element.

    Raises:
        RuntimeError: the output has several elements and no gradient was given.
        ValueError: the gradient has another shape.
    """
    if gradient is None:
        if output.array.size != 1:
            raise RuntimeError(f"backward from an output of shape {output.shape} needs its "
                               "gradient: reduce it to one element, e.g. with .sum()")
        seed = array_module(output.array).ones_like(output.array)
        return Tensor(seed) if create_graph else seed
    if not isinstance(gradient, Tensor):
        raise TypeError(f"gradient must be a Tensor, not {type(gradient).__name__}")
    if gradient.shape != output.shape:
        raise ValueError(f"gradient of shape {gradient.shape} for an output of {output.shape}")
    return gradient if create_graph else gradient.array


def run_walk(
    roots: Sequence[tuple[Any, Any]], create_graph: bool, retain: bool, targets: Any
) -> dict[Any, Any]:
    """One walk, recorded or raw."""
    if not create_graph:
        return walk(roots, RAW, retain=retain, targets=targets)
    token = RECORDING.set(True)
    try:
        return walk(roots, RECORDED, retain=retain, targets=targets)
    finally:
        RECORDING.reset(token)
