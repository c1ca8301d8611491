"""Cross entropy and negative log likelihood over classes, with all of PyTorch's options.

Classes lie along dim 1 of (N, C, d1, ...), or along dim 0 of (C). The fused pair looks at them
as (N, C, D) and keeps two numbers per row: the maximum and the sum of the exponentials.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from minitorch_gpu.ops.loss import check_reduction, reduced
from minitorch_gpu.registry import Ints, composite
from minitorch_gpu.registry.scalar import OPS

Array = Any
Params = dict[str, Any]
Shape = tuple[int, ...]


# ---------------------------------------------------------------- checks
def class_dim(x: Any) -> int:
    """Where the classes lie: dim 1, or dim 0 of a single row."""
    return min(1, x.ndim - 1)


def _without_classes(shape: Shape) -> Shape:
    return () if len(shape) == 1 else (shape[0], *shape[2:])


def _check_classes(name: str) -> Callable[..., Params]:
    def check(params: Params, input: Any, target: Any, weight: Any) -> Params:
        _check_options(name, params, input, weight)
        expected = _without_classes(input.shape)
        if target.shape != expected:
            raise ValueError(f"{name}: input of shape {input.shape} needs a target of shape "
                             f"{expected}, it has {target.shape}")
        if target.dtype.kind not in "iu":
            raise TypeError(f"{name}: the target must hold integer classes, it is "
                            f"{target.dtype}; probabilities need the shape of the input")
        _check_range(name, target, input.shape[class_dim(input)], params["ignore_index"])
        return params

    return check


def _check_options(name: str, params: Params, input: Any, weight: Any) -> None:
    check_reduction(name, params["reduction"])
    if input.ndim < 1:
        raise ValueError(f"{name}: input must have a dim of classes, its shape is ()")
    classes = input.shape[class_dim(input)]
    if weight is not None and weight.shape != (classes,):
        raise ValueError(f"{name}: weight has shape {weight.shape}; {classes} classes need "
                         f"({classes},)")
    smoothing = params.get("label_smoothing", 0.0)
    if not 0.0 <= smoothing <= 1.0:
        raise ValueError(f"{name}: label_smoothing must lie in [0, 1], it is {smoothing}")


def _check_range(name: str, target: Any, classes: int, ignore_index: int) -> None:
    if not target.size or (int(target.min()) >= 0 and int(target.max()) < classes):
        return
    wrong = target[((target < 0) | (target >= classes)) & (target != ignore_index)]
    if wrong.size:
        raise IndexError(f"{name}: target {int(wrong.reshape(-1)[0])} is out of range for "
                         f"{classes} classes; ignore_index is {ignore_index}")


# ---------------------------------------------------------------- the fused pair
def _blocks(input: Array, target: Array) -> tuple[Array, Array]:
    """Input as (N, C, D) and target as (N, D)."""
    place = class_dim(input)
    lead, rest = prod(input.shape[:place]), prod(input.shape[place + 1:])
    return input.reshape(lead, input.shape[place], rest), target.reshape(lead, rest)


def _row_weights(
    xp: Any, target: Array, weight: Any, ignore_index: int, dtype: Any
) -> tuple[Array, tuple[Array, ...], Array]:
    """Which rows count, where their classes lie in (N, C, D), and the weights of the rows."""
    valid = target != ignore_index
    classes = xp.where(valid, target, 0).astype(np.int64, copy=False)
    count, rest = target.shape
    places = (xp.arange(count)[:, None], classes, xp.arange(rest))
    weights = valid.astype(dtype) if weight is None else weight[classes] * valid
    return valid, places, weights


def _forward(
    xp: Any, input: Array, target: Array, weight: Any, *, ignore_index: int, reduction: str,
    label_smoothing: float,
) -> tuple[Array, tuple[Array, Array]]:
    x, rows = _blocks(input, target)
    valid, places, weights = _row_weights(xp, rows, weight, ignore_index, x.dtype)
    top = x.max(1, keepdims=True)
    shifted = x - top
    losses, uniform = -shifted[places], 0.0
    if label_smoothing:
        uniform = -(shifted if weight is None else shifted * weight[:, None]).sum(1)
    total = xp.exp(shifted, out=shifted).sum(1)
    log_total = xp.log(total)
    losses += log_total
    losses *= weights
    if label_smoothing:
        uniform += log_total * _weight_sum(weight, x)
        losses = losses * (1 - label_smoothing) + uniform * (label_smoothing / x.shape[1])
    losses = xp.where(valid, losses, x.dtype.type(0))
    if reduction == "none":
        return losses.reshape(target.shape), (top, total)
    loss = xp.add.reduce(losses, None)  # .sum() would warn in NumPy's name when it overflows
    return (loss / weights.sum() if reduction == "mean" else loss), (top, total)


def _weight_sum(weight: Any, x: Array) -> Any:
    return x.shape[1] if weight is None else weight.sum()


def _backward(
    xp: Any, g: Array, residuals: Any, inputs: Any, needs: Any, *, ignore_index: int,
    reduction: str, label_smoothing: float,
) -> list[Any]:
    """With p = softmax(x): ``p * (sum of the row's target weights) - target weights``."""
    (top, total), (input, target, weight) = residuals, inputs
    x, rows = _blocks(input, target)
    valid, places, weights = _row_weights(xp, rows, weight, ignore_index, x.dtype)
    g = g.reshape(rows.shape) if reduction == "none" else g
    g = g / weights.sum() if reduction == "mean" else g
    g = xp.where(valid, g, x.dtype.type(0))  # also where all rows are ignored: g is 1 / 0
    hit = g * weights * (1 - label_smoothing)
    uniform = g * (label_smoothing / x.shape[1])
    slopes = x - top
    xp.exp(slopes, out=slopes)
    slopes *= ((hit + uniform * _weight_sum(weight, x)) / total)[:, None]
    slopes[places] -= hit
    if label_smoothing:
        slopes -= uniform[:, None] if weight is None else uniform[:, None] * weight[:, None]
    return [slopes.reshape(input.shape), None, None]


# ---------------------------------------------------------------- definitions
def _constant(x: Any) -> Any:
    return x.detach() if hasattr(x, "detach") else x


def _hard_losses(
    log_p: Any, target: Any, weight: Any, ignore_index: int, smoothing: float
) -> tuple[Any, Any]:
    """The loss of every row, 0 where it is ignored, and the weight of every row."""
    place, weight = class_dim(log_p), _constant(weight)
    valid = OPS["ne"](target, ignore_index)
    classes = OPS["where"](valid, target, 0)
    index = OPS["reshape"](classes, shape=_kept(log_p.shape, place))
    losses = OPS["reshape"](-OPS["gather_along"](log_p, index, dim=place), shape=target.shape)
    weights = OPS["cast"](valid, dtype=log_p.dtype)
    if weight is not None:
        chosen = OPS["index"](weight, [classes], spec=("array",))
        losses, weights = losses * chosen, OPS["where"](valid, chosen, 0.0)
    if smoothing:
        share = log_p if weight is None else log_p * _along_classes(weight, log_p)
        uniform = -OPS["sum"](share, dim=(place,)) * (smoothing / log_p.shape[place])
        losses = losses * (1.0 - smoothing) + uniform
    return OPS["where"](valid, losses, 0.0), weights


def _kept(shape: Shape, place: int) -> Shape:
    return (*shape[:place], 1, *shape[place + 1:])


def _along_classes(weight: Any, x: Any) -> Any:
    return OPS["reshape"](weight, shape=(-1,) + (1,) * (x.ndim - 1 - class_dim(x)))


def _weighted(losses: Any, weights: Any, reduction: str) -> Any:
    total = reduced(losses, "none" if reduction == "none" else "sum")
    return total / OPS["sum"](weights) if reduction == "mean" else total


_ROWS = dict(input=(4, 3), target=[1, 0, 2, 2])
_IMAGE = dict(input=(2, 3, 2), target=[[1, 0], [2, -100]])
_WEIGHT = dict(weight=Ints((3,), 5, 1))  # integers: a weight has no gradient


@composite(
    "(...),(...),(c)?->(...)", forward=_forward, backward=_backward, methods=(),
    normalise=_check_classes("cross_entropy"), promote=("input", "weight"),
    examples=(_ROWS, dict(**_ROWS, **_WEIGHT, ignore_index=0),
              dict(**_ROWS, **_WEIGHT, label_smoothing=0.3, reduction="sum"),
              dict(**_IMAGE, label_smoothing=0.2), dict(**_IMAGE, reduction="none"),
              dict(**_IMAGE, **_WEIGHT, label_smoothing=1.0, reduction="none"),
              dict(input=(3,), target=np.array(1)),
              dict(input=(2, 3), target=[-1, -1], ignore_index=-1, reduction="sum")),
)
def hard_cross_entropy(
    input: Any, target: Any, weight: Any = None, *, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:
    """Cross entropy of logits with integer classes; see ``nn.functional.cross_entropy``."""
    log_p = OPS["log_softmax"](input, dim=class_dim(input))
    losses, weights = _hard_losses(log_p, target, weight, ignore_index, label_smoothing)
    return _weighted(losses, weights, reduction)


@composite(
    "(...),(...),(c)?->(...)", methods=(), normalise=_check_classes("nll_loss"),
    examples=(_ROWS, dict(**_ROWS, **_WEIGHT), dict(**_IMAGE, reduction="sum"),
              dict(**_IMAGE, **_WEIGHT, reduction="none"),
              dict(input=(3,), target=np.array(2))),
)
def nll_loss(
    input: Any, target: Any, weight: Any = None, *, ignore_index: int = -100,
    reduction: str = "mean",
) -> Any:
    """Negative log likelihood: minus the entry of each row at its class.

    Args:
        input: log-probabilities (N, C), (C) or (N, C, d1, ...).
        target: integer classes (N), () or (N, d1, ...).
        weight: a factor per class (C), without gradient; or None.
        ignore_index: rows of this class count nowhere.
        reduction: "mean" (weighted by the rows' class weights), "sum" or "none".

    Raises:
        IndexError: a class out of range.
        ValueError: shapes that do not fit.
        TypeError: classes that are no integers.
    """
    return _weighted(*_hard_losses(input, target, weight, ignore_index, 0.0), reduction)


def _check_probabilities(params: Params, input: Any, target: Any, weight: Any) -> Params:
    _check_options("cross_entropy", params, input, weight)
    if target.shape != input.shape:
        raise ValueError(f"cross_entropy: probabilities of shape {target.shape} for an input "
                         f"of shape {input.shape}")
    if target.dtype.kind in "biu":
        raise TypeError(f"cross_entropy: a target of the input's shape {input.shape} holds "
                        f"probabilities and must be floating, it is {target.dtype}")
    return params


@composite(
    "(...),(...),(c)?->(...)", methods=(), normalise=_check_probabilities,
    examples=(dict(input=(4, 3), target=(4, 3), **_WEIGHT),
              dict(input=(2, 3, 2), target=(2, 3, 2), label_smoothing=0.3, reduction="none"),
              dict(input=(3,), target=(3,), reduction="sum")),
)
def soft_cross_entropy(
    input: Any, target: Any, weight: Any = None, *, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Cross entropy of logits with probabilities; see ``nn.functional.cross_entropy``."""
    place, weight = class_dim(input), _constant(weight)
    log_p = OPS["log_softmax"](input, dim=place)
    if label_smoothing:
        target = target * (1.0 - label_smoothing) + label_smoothing / input.shape[place]
    product = log_p * target
    if weight is not None:
        product = product * _along_classes(weight, input)
    losses = -OPS["sum"](product, dim=(place,))
    if reduction != "mean":
        return reduced(losses, reduction)
    return OPS["sum"](losses) / prod(losses.shape)


def class_count(target: Any, weight: Any, ignore_index: int) -> Any:
    """How much the rows of integer classes count together: their number or summed weights."""
    valid = OPS["ne"](target, ignore_index)
    if weight is None:
        return OPS["sum"](valid)
    classes = OPS["where"](valid, target, 0)
    chosen = OPS["index"](_constant(weight), [classes], spec=("array",))
    return OPS["sum"](OPS["where"](valid, chosen, 0.0))
