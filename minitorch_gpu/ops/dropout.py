"""Dropout's arithmetic: a mask drawn elsewhere, and a scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from minitorch_gpu.registry import primitive
from minitorch_gpu.registry.scalar import OPS

Array = Any


@primitive("(),()->()",
           vjp=dict(x=lambda g, mask, scale: OPS["mask_scale"](g, mask, scale=scale)),
           promote=("x",), methods=(),
           examples=(dict(x=(2, 3), mask=np.array([True, False, True]), scale=1.5),
                     dict(x=(3,), mask=np.array([[True, False, True], [False] * 3]), scale=2.0),
                     dict(x=(3,), mask=np.array([False] * 3), scale=0.0)))
def mask_scale(xp: Any, x: Array, mask: Array, scale: float) -> Array:
    """``x * scale`` where the boolean ``mask`` holds, else 0; dropout (Srivastava et al. 2014).

    The gradient is the same product, so it is 0 wherever the mask is, also where x is 0. As in
    PyTorch a dropped infinity is NaN, for it is multiplied by 0.

    Args:
        x: any shape, floating.
        mask: boolean, broadcast with x.
        scale: ``1 / (1 - p)`` for dropout with probability p, 0 for p = 1.

    Raises:
        TypeError: the mask is not boolean.
    """
    if mask.dtype != bool:
        raise TypeError(f"mask_scale: mask must be boolean, it is {mask.dtype}")
    y = x * mask
    y *= scale
    return y
