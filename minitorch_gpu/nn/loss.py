"""Losses as modules; each also answers with its sum and count, for means over uneven parts."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from minitorch_gpu.nn import functional as F
from minitorch_gpu.nn.module import Module
from minitorch_gpu.tensor import Tensor


class _Loss(Module):
    """A loss with a reduction: "mean", "sum" or "none"."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f'reduction is {reduction!r}; use "mean", "sum" or "none"')
        self.reduction = reduction

    def terms(self, input: Tensor, target: Tensor) -> tuple[Tensor, Any]:
        """(sum, count) with mean = sum / count; sums and counts of parts of a batch add up."""
        raise NotImplementedError(f"{type(self).__name__} defines no terms()")


class MSELoss(_Loss):
    """Squared difference."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of predictions of any shape against targets of the same."""
        return F.mse_loss(input, target, reduction=self.reduction)

    def terms(self, input: Tensor, target: Tensor) -> tuple[Tensor, Any]:
        """Summed squared differences and their number."""
        return F.mse_terms(input, target)


class L1Loss(_Loss):
    """Absolute difference."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of predictions of any shape against targets of the same."""
        return F.l1_loss(input, target, reduction=self.reduction)

    def terms(self, input: Tensor, target: Tensor) -> tuple[Tensor, Any]:
        """Summed absolute differences and their number."""
        count = prod(np.broadcast_shapes(input.shape, target.shape))
        return F.l1_loss(input, target, reduction="sum"), count


class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of logits, stable for large ones."""

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of logits of any shape against targets in [0, 1] of the same."""
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight)

    def terms(self, input: Tensor, target: Tensor) -> tuple[Tensor, Any]:
        """Summed losses and their number."""
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction="sum",
            pos_weight=self.pos_weight), input.numel()


class CrossEntropyLoss(_Loss):
    """Cross entropy of logits (N, C, ...) and class indices or probabilities."""

    def __init__(
        self, weight: Tensor | None = None, *, ignore_index: int = -100,
        reduction: str = "mean", label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """See ``F.cross_entropy``."""
        return F.cross_entropy(input, target, self.weight, ignore_index=self.ignore_index,
                               reduction=self.reduction, label_smoothing=self.label_smoothing)

    def terms(self, input: Tensor, target: Tensor) -> tuple[Tensor, Any]:
        """The weighted sum, and the number or summed weights of the rows not ignored."""
        return F.cross_entropy_terms(input, target, self.weight, ignore_index=self.ignore_index,
                                     label_smoothing=self.label_smoothing)


class NLLLoss(_Loss):
    """Negative log likelihood of log-probabilities (N, C, ...) and class indices."""

    def __init__(
        self, weight: Tensor | None = None, *, ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """See ``F.nll_loss``."""
        return F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index,
                          reduction=self.reduction)

    def terms(self, input: Tensor, target: Tensor) -> tuple[Tensor, Any]:
        """The weighted sum, and the number or summed weights of the rows not ignored."""
        total = F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index,
                           reduction="sum")
        return total, F.class_count(target, self.weight, self.ignore_index)
