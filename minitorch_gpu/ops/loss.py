"""Losses that compare element by element, and the reductions that all losses share."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from minitorch_gpu.registry import composite, elementwise, scalar
from minitorch_gpu.registry.scalar import OPS

Array = Any
Scalar = Any
Params = dict[str, Any]
Function = Callable[..., Any]
REDUCTIONS = ("mean", "sum", "none")


def check_reduction(name: str, reduction: str) -> None:
    """Raise ValueError unless ``reduction`` is one of the three."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"{name}: reduction is {reduction!r}; use one of "
                         f"{', '.join(map(repr, REDUCTIONS))}")


def reduced(losses: Any, reduction: str) -> Any:
    """The mean or sum of all losses, or the losses as they are."""
    return losses if reduction == "none" else OPS[reduction](losses)


def _check_shapes(name: str) -> Function:
    """Shapes that differ broadcast, with PyTorch's warning: it is rarely what was meant."""

    def check(params: Params, input: Any, target: Any) -> Params:
        check_reduction(name, params["reduction"])
        if input.shape != target.shape:
            warnings.warn(f"{name}: the target's shape {target.shape} differs from the input's "
                          f"{input.shape}; they are broadcast", stacklevel=4)
        return params

    return check


# ---------------------------------------------------------------- of the difference
def _pair(value: Function, slope: Function) -> tuple[Function, Function]:
    """The fused pair of a loss ``value(input - target)``: nothing but the operands is kept."""

    def forward(xp: Any, input: Array, target: Array, *, reduction: str) -> tuple[Array, None]:
        losses = value(xp, xp.asarray(input - target))
        if reduction == "none":
            return losses, None
        total = xp.add.reduce(losses, None)
        return (total if reduction == "sum" else total / losses.dtype.type(losses.size)), None

    def backward(xp: Any, g: Array, residuals: None, inputs: Any, needs: Any, *,
                 reduction: str) -> list[Any]:
        input, target = inputs
        slopes = xp.asarray(slope(xp, input - target))
        slopes *= g / max(slopes.size, 1) if reduction == "mean" else g
        return [slopes if needs[0] else None, -slopes if needs[1] else None]

    return forward, backward


def _squared(xp: Any, d: Array) -> Array:
    return xp.multiply(d, d, out=d)


def _absolute(xp: Any, d: Array) -> Array:
    return xp.abs(d, out=d)


_MSE = _pair(_squared, lambda xp, d: d * 2)
_L1 = _pair(_absolute, lambda xp, d: xp.sign(d))
_EXAMPLES = (dict(input=(3, 2), target=(3, 2)), dict(input=(3,), target=(3,), reduction="sum"),
             dict(input=(2, 3), target=(2, 3), reduction="none"), dict(input=(), target=()))


@composite("(...),(...)->(...)", forward=_MSE[0], backward=_MSE[1], methods=(),
           normalise=_check_shapes("mse_loss"), examples=_EXAMPLES)
def mse_loss(input: Any, target: Any, *, reduction: str = "mean") -> Any:
    """``(input - target) ** 2``, reduced by "mean", "sum" or "none".

    Args:
        input: any shape.
        target: the same shape; another one broadcasts, with a warning.
        reduction: "mean" over all elements, "sum", or "none".
    """
    difference = input - target
    return reduced(difference * difference, reduction)


@composite("(...),(...)->(...)", forward=_L1[0], backward=_L1[1], methods=(),
           normalise=_check_shapes("l1_loss"), examples=_EXAMPLES)
def l1_loss(input: Any, target: Any, *, reduction: str = "mean") -> Any:
    """``|input - target|``, reduced by "mean", "sum" or "none"; the gradient at 0 is 0.

    Args:
        input: any shape.
        target: the same shape; another one broadcasts, with a warning.
        reduction: "mean" over all elements, "sum", or "none".
    """
    return reduced(OPS["abs"](input - target), reduction)


# ---------------------------------------------------------------- of a logit
@elementwise(
    vjp=dict(x=lambda g, x, target: g * (scalar.sigmoid(x) - target),
             target=lambda g, x: -(g * x)),
    promote="float", methods=(),
)
def logit_cross_entropy(x: Scalar, target: Scalar) -> Scalar:
    """Binary cross entropy of ``sigmoid(x)`` with the probability ``target``.

    ``max(x, 0) - x * target + log(1 + exp(-|x|))``, which never overflows. An infinite x gives
    NaN, as in PyTorch: it is a sign of an overflow before, though its gradient exists.
    """
    return scalar.maximum(x, 0.0) - x * target + scalar.log1p(scalar.exp(-scalar.abs(x)))


def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, *, reduction: str = "mean",
    pos_weight: Any = None,
) -> Any:
    """Binary cross entropy between ``sigmoid(input)`` and ``target``, by a stable formula.

    Args:
        input: logits of any shape.
        target: probabilities of the same shape.
        weight: a factor per loss, broadcast; or None.
        reduction: "mean" over all elements, "sum", or "none".
        pos_weight: a factor for the positive part, broadcast (one per class); or None.

    Raises:
        ValueError: target has another shape than input, or the reduction is unknown.
    """
    name = "binary_cross_entropy_with_logits"
    check_reduction(name, reduction)
    if input.shape != target.shape:
        raise ValueError(f"{name}: the target's shape {target.shape} must be the input's, "
                         f"{input.shape}")
    if pos_weight is None:
        losses = OPS["logit_cross_entropy"](input, target)
    else:
        positive = target * (pos_weight - 1.0) + 1.0
        losses = (1.0 - target) * input + positive * OPS["softplus"](-input)
    return reduced(losses if weight is None else losses * weight, reduction)
