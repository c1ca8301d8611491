"""Parameter updates as ops: pure functions of arrays, or in place through ``out``.

    adam_update(p, g, m, v, lr, step)                    new p, m, v; nothing is changed
    adam_update(p, g, m, v, lr, step, out=(p, m, v))     written where they lie

On the CPU a body makes all its passes over one chunk after another, so that they read the cache
and not the memory; what it allocates is one chunk of scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitorch_gpu.ops import OPS  # noqa: F401  (declarations need their dispatcher)
from minitorch_gpu.registry import primitive
from minitorch_gpu.registry.promotion import float32, is_half

Array = Any
# kernel(g, olds, news, scratch): olds and news may be the same arrays
Kernel = Callable[[Array, list[Array], list[Array], Array], None]

CHUNK = 32768  # elements: p, g, m, v and scratch in float32 fill 640 KiB of a core's cache


def _sweep(xp: Any, kernel: Kernel, g: Array, olds: list[Array], out: Any) -> tuple[Array, ...]:
    """Run ``kernel`` over all arrays, a chunk at a time on the CPU; returns the new arrays."""
    news = [xp.empty_like(a) for a in olds] if out is None else list(out)
    step = _in_float32(kernel) if is_half(g.dtype) else kernel
    if g.size <= CHUNK or xp is not np:
        step(g, olds, news, xp.empty_like(g))
        return tuple(news)
    arrays = [g, *olds, *news]
    if all(a.flags.c_contiguous for a in arrays):
        arrays = [a.reshape(-1) for a in arrays]
    rows = max(1, CHUNK * len(arrays[0]) // g.size)
    scratch = np.empty_like(arrays[0][:rows])
    middle = 1 + len(olds)
    for start in range(0, len(arrays[0]), rows):
        parts = [a[start : start + rows] for a in arrays]
        step(parts[0], parts[1:middle], parts[middle:], scratch[: len(parts[0])])
    return tuple(news)


def _in_float32(kernel: Kernel) -> Kernel:
    """``kernel`` for half precision: computed in float32, rounded once."""

    def step(g: Array, olds: list[Array], news: list[Array], scratch: Array) -> None:
        wide = [a.astype(float32) for a in olds]
        kernel(g.astype(float32), wide, wide, scratch.astype(float32))
        for new, value in zip(news, wide):
            new[...] = value.astype(new.dtype)

    return step


@primitive(
    "(...),(...),(),(...)?->(...),(...)?", promote=None, methods=(), domain=(0.1, 2.0),
    examples=(
        dict(p=(2, 3), g=(2, 3), lr=0.1),
        dict(p=(5,), g=(5,), lr=0.1, momentum_buffer=(5,), momentum=0.9, dampening=0.3),
        dict(p=(3, 2), g=(3, 2), lr=0.1, momentum_buffer=(3, 2), momentum=0.9, nesterov=True,
             weight_decay=0.1, maximize=True),
    ),
)
def sgd_update(
    xp: Any, p: Array, g: Array, lr: float, momentum_buffer: Array | None = None, *,
    momentum: float = 0.0, dampening: float = 0.0, nesterov: bool = False,
    weight_decay: float = 0.0, maximize: bool = False, out: Any = None,
) -> tuple[Array, ...]:
    """One step of stochastic gradient descent: the new ``p``, and momentum if there is one.

    ``d = g + weight_decay p``, ``buffer = momentum buffer + (1 - dampening) d``, then
    ``p - lr buffer``, or with Nesterov's momentum ``p - lr (d + momentum buffer)``
    (Sutskever et al. 2013, https://proceedings.mlr.press/v28/sutskever13.html).
    """
    def kernel(g: Array, olds: list[Array], news: list[Array], scratch: Array) -> None:
        d = _direction(xp, g, olds[0], weight_decay, maximize)
        if momentum_buffer is not None:
            _blend(xp, olds[1], momentum, d, 1.0 - dampening, news[1], scratch)
            if nesterov:
                d = xp.add(xp.multiply(news[1], momentum, out=scratch), d, out=scratch)
            else:
                d = news[1]
        xp.subtract(olds[0], xp.multiply(d, lr, out=scratch), out=news[0])

    olds = [p] if momentum_buffer is None else [p, momentum_buffer]
    return _sweep(xp, kernel, g, olds, out)


@primitive(
    "(...),(...),(...),(...),(),(),(...)?->(...),(...),(...),(...)?",
    promote=None, methods=(), domain=(0.1, 2.0),
    examples=(
        dict(p=(2, 3), g=(2, 3), exp_avg=(2, 3), exp_avg_sq=(2, 3), lr=0.1, step=1),
        dict(p=(5,), g=(5,), exp_avg=(5,), exp_avg_sq=(5,), lr=0.1, step=3,
             max_exp_avg_sq=(5,), betas=(0.5, 0.7), l2=0.1, maximize=True),
        dict(p=(), g=(), exp_avg=(), exp_avg_sq=(), lr=0.1, step=2, decay=0.3),
    ),
)
def adam_update(
    xp: Any, p: Array, g: Array, exp_avg: Array, exp_avg_sq: Array, lr: float, step: int,
    max_exp_avg_sq: Array | None = None, *, betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8, l2: float = 0.0, decay: float = 0.0, maximize: bool = False,
    out: Any = None,
) -> tuple[Array, ...]:
    """One step of Adam: the new ``p``, ``exp_avg``, ``exp_avg_sq`` (and their maximum).

    ``l2`` adds ``l2 p`` to the gradient (Adam, Kingma & Ba 2015, arXiv:1412.6980); ``decay``
    shrinks p by ``1 - lr decay`` before the step (AdamW, Loshchilov & Hutter 2019,
    arXiv:1711.05101). With c the square root of ``1 - beta2^step``, the step is

        lr / (1 - beta1^step)  m / (sqrt(v) / c + eps)  =  scale  m / (sqrt(v) + eps c)

    on the right with one pass less. ``max_exp_avg_sq`` takes the place of v (AMSGrad).
    """
    beta1, beta2 = betas
    correction = (1.0 - beta2**step) ** 0.5
    scale = lr * correction / (1.0 - beta1**step)

    def kernel(g: Array, olds: list[Array], news: list[Array], scratch: Array) -> None:
        d = _direction(xp, g, olds[0], l2, maximize)
        _blend(xp, olds[1], beta1, d, 1.0 - beta1, news[1], scratch)
        square = xp.multiply(d, d, out=scratch)
        _blend(xp, olds[2], beta2, square, 1.0 - beta2, news[2], scratch)
        if max_exp_avg_sq is not None:
            xp.maximum(olds[3], news[2], out=news[3])
        xp.sqrt(news[-1], out=scratch)
        xp.add(scratch, eps * correction, out=scratch)
        xp.divide(news[1], scratch, out=scratch)
        xp.multiply(scratch, scale, out=scratch)
        shrunk = xp.multiply(olds[0], 1.0 - lr * decay, out=news[0]) if decay else olds[0]
        xp.subtract(shrunk, scratch, out=news[0])

    olds = [p, exp_avg, exp_avg_sq]
    olds += [] if max_exp_avg_sq is None else [max_exp_avg_sq]
    return _sweep(xp, kernel, g, olds, out)


def _direction(xp: Any, g: Array, p: Array, l2: float, maximize: bool) -> Array:
    """The gradient to descend along; ``g`` itself where neither option is used."""
    if not l2:
        return -g if maximize else g
    d = xp.multiply(p, l2, out=xp.empty_like(p))
    return xp.subtract(d, g, out=d) if maximize else xp.add(d, g, out=d)


def _blend(
    xp: Any, old: Array, keep: float, d: Array, share: float, new: Array, scratch: Array
) -> None:
    """``new = keep old + share d``."""
    xp.multiply(old, keep, out=new)
    xp.add(new, xp.multiply(d, share, out=scratch), out=new)
