"""Normalisation layers: over the batch, or over each sample's features."""

from __future__ import annotations

from typing import Any

import numpy as np

from minitorch_gpu.nn import functional as F
from minitorch_gpu.nn import init
from minitorch_gpu.nn.module import Module
from minitorch_gpu.ops.creation import ones, tensor, zeros
from minitorch_gpu.registry.promotion import DEFAULT
from minitorch_gpu.tensor import Parameter, Tensor


def _reset(weight: Tensor | None, bias: Tensor | None) -> None:
    for parameter, initialise in ((weight, init.ones_), (bias, init.zeros_)):
        if parameter is not None:
            initialise(parameter)


class LayerNorm(Module):
    """Each sample's trailing dims to mean 0 and variance 1, then scaled and shifted.

    ``weight`` (ones) and ``bias`` (zeros) have shape ``normalized_shape`` (Ba et al. 2016).
    """

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Any = "cpu", dtype: Any = DEFAULT,
    ) -> None:
        super().__init__()
        shape = normalized_shape if np.iterable(normalized_shape) else (normalized_shape,)
        self.normalized_shape, self.eps = tuple(shape), eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", Parameter(
            ones(self.normalized_shape, dtype=dtype, device=device))
            if elementwise_affine else None)
        self.register_parameter("bias", Parameter(
            zeros(self.normalized_shape, dtype=dtype, device=device))
            if elementwise_affine and bias else None)

    def reset_parameters(self) -> None:
        """Weights back to 1, biases to 0."""
        _reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """(..., *normalized_shape), the same shape out."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The shape and eps."""
        return (f"{self.normalized_shape}, eps={self.eps}, "
                f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}")


class _BatchNorm(Module):
    """Each channel to mean 0 and variance 1 over the batch (Ioffe and Szegedy 2015).

    Training normalises by the batch's biased variance and moves ``running_mean`` and
    ``running_var`` (unbiased) towards the batch's; evaluation normalises by the running ones.

    Args:
        num_features: C of the input (N, C, ...).
        eps: added to the variance.
        momentum: how far the running statistics move; None is their plain average.
        affine: whether there are ``weight`` (ones) and ``bias`` (zeros) per channel.
        track_running_stats: without, evaluation uses the batch's statistics too.
    """

    dims: tuple[int, ...]

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, device: Any = "cpu",
        dtype: Any = DEFAULT,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        options = dict(dtype=dtype, device=device)
        for name, make in (("weight", ones), ("bias", zeros)):
            self.register_parameter(
                name, Parameter(make(num_features, **options)) if affine else None)
        for name, make in (("running_mean", zeros), ("running_var", ones)):
            self.register_buffer(
                name, make(num_features, **options) if track_running_stats else None)
        self.register_buffer("num_batches_tracked",
                             tensor(0).to(device) if track_running_stats else None)

    def reset_parameters(self) -> None:
        """Weights back to 1, biases to 0, and no running statistics."""
        self.reset_running_stats()
        _reset(self.weight, self.bias)

    def reset_running_stats(self) -> None:
        """Running statistics back to mean 0, variance 1, no batches."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, ...), the same shape out.

        Raises:
            ValueError: the number of dims or channels, or one value per channel in training.
        """
        if input.ndim not in self.dims or input.shape[1] != self.num_features:
            raise ValueError(f"{type(self).__name__}({self.num_features}) expects "
                             f"{' or '.join(map(str, self.dims))} dims with "
                             f"{self.num_features} channels in dim 1, got {input.shape}")
        training = self.training or not self.track_running_stats
        momentum = self.momentum
        if training and momentum is None:
            momentum = 1.0 / (self.num_batches_tracked.item() + 1) \
                if self.track_running_stats else 0.0
        result: Tensor = F.batch_norm(input, self.running_mean, self.running_var, self.weight,
                                      self.bias, training, momentum or 0.0, self.eps)
        if training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
        return result

    def extra_repr(self) -> str:
        """The options."""
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
                f"affine={self.affine}, track_running_stats={self.track_running_stats}")


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L)."""

    __doc__ = f"{__doc__}\n\n{_BatchNorm.__doc__}"
    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of images (N, C, H, W)."""

    __doc__ = f"{__doc__}\n\n{_BatchNorm.__doc__}"
    dims = (4,)
