"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from minitorch_gpu.device import array_module
from minitorch_gpu.optim.optimizer import Optimizer, Params
from minitorch_gpu.optim.updates import sgd_update
from minitorch_gpu.tensor import Tensor


class SGD(Optimizer):
    """Gradient descent with momentum, Nesterov's or the classical; see ``sgd_update``.

    ``state[p]`` is {"momentum_buffer"} from the first step with momentum on.
    """

    def __init__(
        self, params: Params, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False, *, maximize: bool = False,
    ) -> None:
        """See ``Optimizer`` for ``params``; PyTorch's names and defaults for the options.

        Args:
            lr: the step size.
            momentum: how much of the last direction is kept.
            dampening: the share of the gradient left out of the momentum after its first step.
            weight_decay: the factor of p added to its gradient.
            nesterov: look ahead along the momentum; needs momentum and no dampening.
            maximize: climb instead.
        """
        super().__init__(params, dict(
            lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
            nesterov=nesterov, maximize=maximize))

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise ValueError if an option is out of range, or Nesterov has no momentum."""
        super().check_options(options)
        if options["nesterov"] and (options["momentum"] == 0 or options["dampening"] != 0):
            raise ValueError(f"SGD: nesterov=True needs momentum > 0 and dampening = 0, not "
                             f"{options['momentum']} and {options['dampening']}")

    def slots(self, options: dict[str, Any]) -> tuple[str, ...]:
        """The momentum buffer, where momentum is on."""
        return ("momentum_buffer",) if options["momentum"] else ()

    def update(self, p: Any, g: Any, state: dict[str, Any], options: dict[str, Any]) -> None:
        """Write ``p`` and its momentum."""
        buffer, dampening = None, float(options["dampening"])
        if options["momentum"]:
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = Tensor(array_module(p).zeros_like(p))
                dampening = 0.0  # the first direction is the gradient, whole
            buffer = state["momentum_buffer"].array
        sgd_update(
            p, g, float(options["lr"]), buffer, momentum=float(options["momentum"]),
            dampening=dampening, nesterov=options["nesterov"],
            weight_decay=float(options["weight_decay"]), maximize=options["maximize"],
            out=(p,) if buffer is None else (p, buffer))
