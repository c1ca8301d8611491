"""Adam, and AdamW with decoupled weight decay."""

from __future__ import annotations

from typing import Any

from minitorch_gpu.device import array_module
from minitorch_gpu.optim.optimizer import Optimizer, Params
from minitorch_gpu.optim.updates import adam_update
from minitorch_gpu.tensor import Tensor


class Adam(Optimizer):
    """Steps scaled by running means of the gradient and its square; see ``adam_update``.

    ``state[p]`` is {"step", "exp_avg", "exp_avg_sq"} and, with AMSGrad, {"max_exp_avg_sq"}.
    Weight decay is added to the gradient (L2).
    """

    decay = "l2"  # what adam_update does with weight_decay

    def __init__(
        self, params: Params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.0, amsgrad: bool = False, *,
        maximize: bool = False,
    ) -> None:
        """See ``Optimizer`` for ``params``; PyTorch's names and defaults for the options.

        Args:
            lr: the step size.
            betas: how much the means of the gradient and of its square keep each step.
            eps: added to the square root, outside the bias correction.
            weight_decay: L2 (Adam) or decoupled (AdamW) decay.
            amsgrad: divide by the largest mean square so far (Reddi et al. 2018,
                arXiv:1904.09237).
            maximize: climb instead.
        """
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
            maximize=maximize))

    def slots(self, options: dict[str, Any]) -> tuple[str, ...]:
        """The step count and the means; AMSGrad adds their maximum."""
        return ("step", *_moments(options))

    def update(self, p: Any, g: Any, state: dict[str, Any], options: dict[str, Any]) -> None:
        """Write ``p`` and its means."""
        xp = array_module(p)
        for name in _moments(options):
            if name not in state:
                state[name] = Tensor(xp.zeros_like(p))
        state["step"] = state.get("step", 0) + 1
        moments = [state[name].array for name in _moments(options)]
        exp_avg, exp_avg_sq, largest = [*moments, None][:3]
        adam_update(
            p, g, exp_avg, exp_avg_sq, float(options["lr"]), state["step"], largest,
            betas=options["betas"], eps=float(options["eps"]), maximize=options["maximize"],
            out=(p, *moments), **{self.decay: float(options["weight_decay"])})


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself, before the step."""

    decay = "decay"

    def __init__(
        self, params: Params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *,
        maximize: bool = False,
    ) -> None:
        """As ``Adam``, with PyTorch's default ``weight_decay`` of 0.01."""
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)


def _moments(options: dict[str, Any]) -> tuple[str, ...]:
    means = ("exp_avg", "exp_avg_sq")
    return (*means, "max_exp_avg_sq") if options["amsgrad"] else means
