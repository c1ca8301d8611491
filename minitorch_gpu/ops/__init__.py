"""The op set. Importing it declares every op and installs Tensor's methods."""

import minitorch_gpu.dispatch
from minitorch_gpu.ops import (
    activation,
    arithmetic,
    attention,
    batch_norm,
    blend,
    convolution,
    creation,
    cross_entropy,
    dropout,
    indexing,
    linalg,
    loss,
    normalisation,
    padding,
    patches,
    pooling,
    rearrange,
    recurrent,
    reduction,
    scan,
    selection,
    shape,
    softmax,
    sorting,
    special,
    statistics,
)
from minitorch_gpu.registry.scalar import OPS

__all__ = ["OPS", "activation", "arithmetic", "attention", "batch_norm", "blend",
           "convolution", "creation", "cross_entropy", "dropout", "indexing", "linalg", "loss",
           "normalisation", "padding", "patches", "pooling", "rearrange", "recurrent",
           "reduction", "scan", "selection", "shape", "softmax", "sorting", "special",
           "statistics"]
