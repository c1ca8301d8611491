"""The op set. Importing it declares every op and installs Tensor's methods."""

import minitorch_gpu.dispatch
from minitorch_gpu.ops import (
    arithmetic,
    creation,
    indexing,
    linalg,
    reduction,
    selection,
    shape,
)
from minitorch_gpu.registry.scalar import OPS

__all__ = ["OPS", "arithmetic", "creation", "indexing", "linalg", "reduction", "selection",
           "shape"]
