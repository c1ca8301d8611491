"""Parameters with gradients, for the tests of optim."""

from __future__ import annotations

import numpy as np

import minitorch_gpu as mt
from minitorch_gpu.tensor import Parameter


def parameter(values, name=None, grad=None, dtype="float64"):
    p = Parameter(np.array(values, dtype))
    p.name = name
    if grad is not None:
        p.grad = mt.Tensor(np.array(grad, dtype))
    return p
