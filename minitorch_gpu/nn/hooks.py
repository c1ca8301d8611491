"""Full backward hooks: what a module's inputs and outputs get as gradients, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minitorch_gpu.modes import no_grad
from minitorch_gpu.registry.scalar import OPS
from minitorch_gpu.tensor import Tensor

Hook = Callable[..., Any]
Gradients = tuple[Any, ...]


def with_backward_hooks(module: Any, hooks: Sequence[Hook], args: Any, kwargs: Any) -> Any:
    """``module.forward`` between two boundaries at which the backward walk is seen.

        args -> boundary -> forward -> boundary -> result        forward
        grad_input <- hooks <- ... <- ... <- grad_output         backward

    Where no argument has a gradient the hooks run at the outer boundary, with Nones.
    """
    call = _Call(module, list(hooks))
    entrance, way_out = _Boundary(call.at_inputs), _Boundary(call.at_outputs)
    args = _through(args, entrance)
    call.width, call.reaches_inputs = entrance.length, bool(entrance.places)
    result = module.forward(*args, **kwargs)
    if not isinstance(result, (tuple, list)):
        return _through((result,), way_out)[0]
    parts = _through(result, way_out)
    named = hasattr(result, "_fields")  # a namedtuple takes its fields one by one
    return type(result)(*parts) if named else type(result)(parts)


class _Boundary:
    """The recorded tensors among some values; the rule of the op that they pass through."""

    def __init__(self, see: Callable[[Gradients], Gradients]) -> None:
        self.see = see
        self.length = 0
        self.places: list[int] = []

    def __call__(self, g: Gradients) -> Gradients:
        if isinstance(g[0], Tensor):
            return self._seen(g)
        with no_grad():
            seen = self._seen(tuple(map(Tensor, g)))
        return tuple(None if c is None else c.array for c in seen)

    def _seen(self, g: Gradients) -> Gradients:
        padded = [None] * self.length
        for place, gradient in zip(self.places, g):
            padded[place] = gradient
        answer = self.see(tuple(padded))
        return tuple(answer[place] for place in self.places)


def _through(values: Sequence[Any], boundary: _Boundary) -> tuple[Any, ...]:
    passed = list(values)
    boundary.length = len(passed)
    boundary.places = [place for place, value in enumerate(passed)
                       if isinstance(value, Tensor) and value.requires_grad]
    if boundary.places:
        inside = OPS["boundary"]([passed[p] for p in boundary.places], on_backward=boundary)
        for place, tensor in zip(boundary.places, inside):
            passed[place] = tensor
    return tuple(passed)


class _Call:
    """One call of a module: keeps the outputs' gradients until the inputs' are known.

    The boundaries point here and nothing points back, so the graph dies with its last user.
    """

    def __init__(self, module: Any, hooks: list[Hook]) -> None:
        self.module, self.hooks = module, hooks
        self.width, self.reaches_inputs = 0, False
        self.grad_output: Gradients | None = None

    def at_outputs(self, grad_output: Gradients) -> Gradients:
        self.grad_output = grad_output
        if not self.reaches_inputs:
            answer = self.at_inputs((None,) * self.width)
            if any(gradient is not None for gradient in answer):
                raise RuntimeError("a backward hook returned a gradient for inputs of "
                                   f"{type(self.module).__name__} that have none: return None")
        return grad_output

    def at_inputs(self, grad_input: Gradients) -> Gradients:
        """Run the hooks, unless the gradient came round the module's outputs."""
        grad_output, self.grad_output = self.grad_output, None
        for hook in self.hooks if grad_output is not None else ():
            answer = hook(self.module, grad_input, grad_output)
            if answer is not None:
                answer = answer if isinstance(answer, tuple) else (answer,)
                self._check(answer, grad_input)
                grad_input = answer
        return grad_input

    def _check(self, answer: Gradients, known: Gradients) -> None:
        shapes = [[getattr(g, "shape", g) for g in gradients] for gradients in (answer, known)]
        fits = len(answer) == len(known) and all(
            a is None or (isinstance(a, Tensor) and (k is None or a.shape == k.shape))
            for a, k in zip(answer, known))
        if not fits:
            raise RuntimeError(f"a backward hook of {type(self.module).__name__} returned "
                               f"gradients of shapes {shapes[0]} in place of {shapes[1]}")
