"""Full backward hooks: what a module's inputs and outputs get as gradients, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minitorch_gpu.modes import no_grad
from minitorch_gpu.registry.scalar import OPS
from minitorch_gpu.tensor import Tensor

Hook = Callable[..., Any]


def with_backward_hooks(module: Any, hooks: Sequence[Hook], args: Any, kwargs: Any) -> Any:
    """``module.forward`` between two boundaries at which the backward walk is seen.

        args -> boundary -> forward -> outputs        forward
        grad_input <- hooks <- ... <- grad_output     backward
    """
    boundary = _Boundary(module, list(hooks))
    places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
    if places:
        inside = list(args)
        seen = OPS["boundary"]([args[i] for i in places], on_backward=boundary)
        for place, tensor in zip(places, seen):
            inside[place] = tensor
        args = tuple(inside)
    result = module.forward(*args, **kwargs)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    boundary.grad_output = [None] * len(outputs)
    live = [i for i, y in enumerate(outputs) if isinstance(y, Tensor) and y.requires_grad]
    for place in live:
        outputs[place].register_hook(boundary.output_hook(place))
    boundary.last = min(live, default=-1) if not places else -1
    return result


class _Boundary:
    """Collects the outputs' gradients and calls the hooks with the inputs'."""

    def __init__(self, module: Any, hooks: list[Hook]) -> None:
        self.module, self.hooks = module, hooks
        self.grad_output: list[Tensor | None] = []
        self.last = -1  # the output that completes last, where no input has a gradient

    def output_hook(self, place: int) -> Callable[[Tensor], None]:
        def see(g: Tensor) -> None:
            self.grad_output[place] = g
            if place == self.last:
                self.call_hooks((None,))

        return see

    def call_hooks(self, grad_input: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.hooks:
            answer = hook(self.module, grad_input, tuple(self.grad_output))
            if answer is not None:
                grad_input = answer if isinstance(answer, tuple) else (answer,)
        return grad_input

    def __call__(self, g: tuple[Any, ...]) -> tuple[Any, ...]:
        """The boundary's rule: raw cotangents are shown as Tensors and unwrapped again."""
        if isinstance(g[0], Tensor):
            return self.call_hooks(g)
        with no_grad():
            shown = self.call_hooks(tuple(Tensor(np.asarray(c)) for c in g))
        return tuple(None if c is None else c.array for c in shown)
