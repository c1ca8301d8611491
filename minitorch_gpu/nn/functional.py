"""``F``: the functions behind the layers, by PyTorch's names and argument names.

A ``dim`` is always named, ``size_average`` and ``reduce`` do not exist, what follows them is
keyword-only, and ``shard=`` says which part of the global tensor a dropout mask belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from minitorch_gpu import random
from minitorch_gpu.modes import no_grad
from minitorch_gpu.nn.nonlinear import (
    celu,
    elu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softmax,
    softplus,
    softshrink,
    softsign,
    taking_input,
    tanh,
    tanhshrink,
    threshold,
)
from minitorch_gpu.ops import convolution, linalg, padding, patches, pooling
from minitorch_gpu.ops.cross_entropy import class_count, class_dim, nll_loss
from minitorch_gpu.ops.loss import binary_cross_entropy_with_logits, l1_loss, mse_loss
from minitorch_gpu.registry import OPS
from minitorch_gpu.tensor import Tensor

__all__ = [
    "adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d", "batch_norm",
    "binary_cross_entropy_with_logits", "celu", "conv1d", "conv2d", "conv3d", "cross_entropy",
    "cross_entropy_terms", "dropout", "elu", "embedding", "fold", "gelu", "glu", "hardshrink",
    "hardsigmoid", "hardswish", "hardtanh", "l1_loss", "layer_norm", "leaky_relu", "linear",
    "log_softmax", "logsigmoid", "max_pool1d", "max_pool2d", "mish", "mse_loss", "mse_terms",
    "nll_loss", "normalize", "one_hot", "pad", "pixel_shuffle", "pixel_unshuffle", "prelu",
    "relu", "relu6", "rms_norm", "scaled_dot_product_attention", "selu", "sigmoid", "silu",
    "softmax", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold",
    "unfold",
]

Function = Callable[..., Any]
Shard = Mapping[int, tuple[int, int]]


linear = taking_input(linalg.linear)
conv1d = taking_input(convolution.conv1d)
conv2d = taking_input(convolution.conv2d)
conv3d = taking_input(convolution.conv3d)
max_pool1d = taking_input(pooling.max_pool1d)
max_pool2d = taking_input(pooling.max_pool2d)
avg_pool1d = taking_input(pooling.avg_pool1d)
avg_pool2d = taking_input(pooling.avg_pool2d)
adaptive_avg_pool2d = taking_input(pooling.adaptive_avg_pool2d)
pad = taking_input(padding.pad)
pixel_shuffle = taking_input(padding.pixel_shuffle)
pixel_unshuffle = taking_input(padding.pixel_unshuffle)
unfold = taking_input(patches.unfold)
fold = taking_input(patches.fold)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Any:
    """``input`` divided by its p-norm along ``dim``, or by ``eps`` where that is larger."""
    norm = OPS["vector_norm"](input, ord=p, dim=dim, keepdim=True)
    return input / OPS["clamp"](norm, min=eps)


# ---------------------------------------------------------------- tables of vectors
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Any:
    """Rows of ``weight`` by their number.

    Args:
        input: integers of any shape.
        weight: (V, D).
        padding_idx: a row that gets no gradient; its values are looked up as any other's.

    Returns:
        (*input.shape, D).

    Raises:
        IndexError: a number outside 0 .. V - 1.
        TypeError: numbers that are no integers.
        ValueError: padding_idx out of range.
    """
    return OPS["embedding_rows"](weight, input, padding_idx=padding_idx)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Any:
    """Classes as rows of zeros with a one: (*shape, num_classes), int64.

    Args:
        tensor: integers from 0.
        num_classes: -1 takes the largest class and one.

    Raises:
        IndexError: a class out of range.
    """
    return OPS["one_hot"](tensor, num_classes=num_classes)


# ---------------------------------------------------------------- dropout
def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _keep_mask(
    shape: tuple[int, ...], p: float, like: Tensor, shard: Shard | None
) -> tuple[Tensor, float]:
    """What is kept, and the factor that makes up for the rest: 0 where all is dropped."""
    mask = random.bernoulli(shape, 1.0 - p, where=like.device, shard=shard)
    return Tensor(mask), 0.0 if p == 1.0 else 1.0 / (1.0 - p)


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, *, shard: Shard | None = None
) -> Any:
    """Elements zeroed with probability p, the others divided by 1 - p (Srivastava et al. 2014).

    Args:
        input: any shape.
        p: in [0, 1]; 1 gives zeros, and zero gradients.
        training: if false the input is returned as it is.
        shard: for dims that were cut, (start, total) of this part: ``{dim: (start, total)}``.

    Raises:
        ValueError: p outside [0, 1].
    """
    _check_probability(p)
    if not training or p == 0.0:
        return input
    mask, scale = _keep_mask(input.shape, p, input, shard)
    return OPS["mask_scale"](input, mask, scale=scale)


# ---------------------------------------------------------------- normalisation
def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Any:
    """Mean 0 and biased variance 1 over the trailing dims, then an affine map.

    Args:
        input: (..., *normalized_shape).
        normalized_shape: an int or several.
        weight: normalized_shape, or None.
        bias: normalized_shape, or None.
        eps: added to the variance.

    Raises:
        ValueError: shapes that do not fit.
    """
    return OPS["layer_norm"](input, weight, bias, normalized_shape=normalized_shape, eps=eps)


def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None,
    eps: float | None = None,
) -> Any:
    """Root mean square 1 over the trailing dims, then a factor.

    Args:
        input: (..., *normalized_shape).
        normalized_shape: an int or several.
        weight: normalized_shape, or None.
        eps: added to the mean square; by default the dtype's machine epsilon.

    Raises:
        ValueError: shapes that do not fit.
    """
    return OPS["rms_norm"](input, weight, normalized_shape=normalized_shape, eps=eps)


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:
    """Each channel to mean 0 and biased variance 1, then an affine map.

    Args:
        input: (N, C, ...).
        running_mean: (C); in training moved towards the batch's mean by ``momentum``.
        running_var: (C); in training moved towards the batch's unbiased variance.
        weight: (C), or None.
        bias: (C), or None.
        training: normalise by the batch's statistics, else by the running ones.
        momentum: the share of the batch in the running statistics.
        eps: added to the variance.

    Raises:
        ValueError: shapes that do not fit, one value per channel in training, no running
            statistics in evaluation. Nothing is changed then.
    """
    running = (running_mean, running_var)
    _check_running(input, running, training)
    if not training:
        return OPS["batch_norm_evaluation"](input, *running, weight, bias, eps=eps)
    y, mean, variance = OPS["batch_norm_training"](input, weight, bias, eps=eps)
    count = prod(input.shape) // max(input.shape[1], 1)
    with no_grad():
        for statistic, value in zip(running, (mean, variance * (count / max(count - 1, 1)))):
            if statistic is not None and count:
                statistic.copy_(statistic * (1.0 - momentum) + value * momentum)
    return y


def _check_running(input: Tensor, running: tuple[Any, Any], training: bool) -> None:
    for name, value in zip(("running_mean", "running_var"), running):
        if value is None and not training:
            raise ValueError(f"batch_norm: {name} must be given in evaluation")
        if value is not None and value.shape != tuple(input.shape[1:2]):
            raise ValueError(f"batch_norm: {name} has shape {value.shape}; the input of shape "
                             f"{input.shape} needs {tuple(input.shape[1:2])}")
    if training and prod(input.shape[:1] + input.shape[2:]) == 1:
        raise ValueError("expected more than 1 value per channel when training, got input size "
                         f"{input.shape}")


# ---------------------------------------------------------------- attention
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, *,
    shard: Shard | None = None,
) -> Any:
    """``softmax(query @ key.mT * scale + mask) @ value`` (Vaswani et al. 2017, eq. 1).

    Rows that see no key are 0.

    Args:
        query: (..., L, E).
        key: (..., S, E).
        value: (..., S, V).
        attn_mask: broadcasts to (..., L, S). Boolean: True takes part; floating: added.
        dropout_p: probability of dropping a weight, also outside of training: pass 0 there.
        is_causal: query i sees keys 0 to i.
        scale: ``1 / sqrt(E)`` by default.
        shard: for dims of (..., L, S) that were cut, (start, total) of this part.

    Returns:
        (..., L, V).

    Raises:
        ValueError: shapes that do not fit, or dropout_p outside [0, 1].
        TypeError: a mask of integers.
    """
    _check_probability(dropout_p)
    keep, keep_scale = None, 1.0
    if dropout_p:
        lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2])
        shape = (*lead, query.shape[-2], key.shape[-2])
        keep, keep_scale = _keep_mask(shape, dropout_p, query, shard)
    return OPS["attention"](query, key, value, attn_mask, keep, is_causal=is_causal,
                            scale=scale, keep_scale=keep_scale)


# ---------------------------------------------------------------- losses over classes
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:
    """Cross entropy between the softmax of logits and classes or probabilities.

    Args:
        input: logits (N, C), (C) or (N, C, d1, ...).
        target: integer classes (N), () or (N, d1, ...); or probabilities of the input's shape.
        weight: a factor per class (C), without gradient; or None.
        ignore_index: rows of this class count nowhere.
        reduction: "mean" (integer classes: weighted by the weights of the rows' classes),
            "sum" or "none". The mean of no rows is NaN, with gradients of 0.
        label_smoothing: the share of the uniform distribution in the target.

    Raises:
        IndexError: a class out of range.
        ValueError: shapes that do not fit, options out of range, or ignore_index together
            with probabilities.
        TypeError: classes that are no integers, probabilities that are.
    """
    options: dict[str, Any] = dict(reduction=reduction, label_smoothing=label_smoothing)
    if target.shape != input.shape:
        return OPS["hard_cross_entropy"](input, target, weight, ignore_index=ignore_index,
                                         **options)
    if ignore_index >= 0:
        raise ValueError(f"cross_entropy: ignore_index {ignore_index} has no meaning for a "
                         "target of probabilities")
    return OPS["soft_cross_entropy"](input, target, weight, **options)


def cross_entropy_terms(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> tuple[Any, Any]:
    """(sum, count) with ``cross_entropy(..., reduction="mean") == sum / count``.

    The sum is differentiable. The count is the number of rows, for integer classes the number
    or the summed weights (a scalar Tensor) of those that are not ignored. Sums of terms over
    parts of a batch give the mean of the whole, however uneven the parts.
    """
    total = cross_entropy(input, target, weight, ignore_index=ignore_index, reduction="sum",
                          label_smoothing=label_smoothing)
    if target.shape == input.shape:
        place = class_dim(input)
        return total, prod(input.shape[:place]) * prod(input.shape[place + 1:])
    return total, class_count(target, weight, ignore_index)


def mse_terms(input: Tensor, target: Tensor) -> tuple[Any, int]:
    """(sum, count) with ``mse_loss(input, target) == sum / count``; the sum has a gradient."""
    count = prod(np.broadcast_shapes(input.shape, target.shape))
    return mse_loss(input, target, reduction="sum"), count
