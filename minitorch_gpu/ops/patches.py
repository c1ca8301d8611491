"""Sliding patches of images as columns, and columns added back: ``unfold`` and ``fold``."""

from __future__ import annotations

import math
from typing import Any

from minitorch_gpu.ops.windows import Window, covered, output_sizes, per_dim, taps
from minitorch_gpu.registry import primitive
from minitorch_gpu.registry.scalar import OPS

Array = Any
SMALL = Window((2, 3), (1, 2), ((1, 1), (0, 0)), (2, 1))


@primitive("(c,h,w)->(k,l)", vjp=dict(x=lambda g, x_like, window: OPS["columns_to_image"](
               g, size=tuple(x_like.shape[-2:]), window=window)),
           promote=None, methods=(), examples=(dict(x=(2, 3, 4, 5), window=SMALL),))
def image_to_columns(xp: Any, x: Array, window: Window) -> Array:
    """Patches of (..., C, H, W) as columns: (..., C kh kw, number of places)."""
    size, lead = x.shape[-2:], x.shape[:-2]
    places = output_sizes("unfold", window, size)
    columns = xp.zeros((*lead, math.prod(window.kernel), *places), x.dtype)
    for number, tap in enumerate(taps(window)):
        read, write = covered(window, tap, size, places)
        source, target = (Ellipsis, *read), (Ellipsis, number, *write)
        columns[target] = x[source]
    return columns.reshape(*lead[:-1], lead[-1] * math.prod(window.kernel), math.prod(places))


@primitive("(k,l)->(c,h,w)", vjp=dict(x=lambda g, window: OPS["image_to_columns"](
               g, window=window)),
           promote=None, methods=(), examples=(dict(x=(2, 12, 8), size=(4, 5), window=SMALL),))
def columns_to_image(xp: Any, x: Array, size: tuple[int, ...], window: Window) -> Array:
    """Columns (..., C kh kw, places) added up where they came from: (..., C, H, W)."""
    lead, kernel = x.shape[:-2], math.prod(window.kernel)
    places = output_sizes("fold", window, size)
    columns = x.reshape(*lead, x.shape[-2] // kernel, kernel, *places)
    image = xp.zeros((*lead, x.shape[-2] // kernel, *size), x.dtype)
    for number, tap in enumerate(taps(window)):
        read, write = covered(window, tap, size, places)
        target, source = (Ellipsis, *read), (Ellipsis, number, *write)
        image[target] += columns[source]
    return image


def _window(name: str, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Window:
    pads = per_dim(f"{name}: padding", padding, 2, 0)
    return Window(per_dim(f"{name}: kernel_size", kernel_size, 2, 1),
                  per_dim(f"{name}: stride", stride, 2, 1), tuple((p, p) for p in pads),
                  per_dim(f"{name}: dilation", dilation, 2, 1))


def unfold(x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
           stride: Any = 1) -> Any:
    """Patches as columns: (N, C, H, W) gives (N, C kh kw, L), L the number of places.

    Args:
        x: (N, C, H, W) or (C, H, W).
        kernel_size: the patch, an int or (kh, kw); the others likewise.
        dilation: the gap between its taps.
        padding: zeros on each side.
        stride: the step between patches.
    """
    if x.ndim not in (3, 4):
        raise ValueError(f"unfold: needs (N, C, H, W) or (C, H, W), x has shape {x.shape}")
    window = _window("unfold", kernel_size, dilation, padding, stride)
    return OPS["image_to_columns"](x, window=window)


def fold(x: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
         stride: Any = 1) -> Any:
    """Columns of patches added up to an image: the transpose of ``unfold``.

    Args:
        x: (N, C kh kw, L) or (C kh kw, L).
        output_size: (H, W) of the image.
        kernel_size: as in ``unfold``, with the rest.
        dilation: the gap between taps.
        padding: zeros on each side, not part of the output.
        stride: the step between patches.
    """
    size = per_dim("fold: output_size", output_size, 2, 1)
    window = _window("fold", kernel_size, dilation, padding, stride)
    places = math.prod(output_sizes("fold", window, size))
    kernel = math.prod(window.kernel)
    if x.ndim not in (2, 3) or x.shape[-2] % kernel or x.shape[-1] != places:
        raise ValueError(f"fold: output_size {size} and kernel_size {window.kernel} need "
                         f"(N, multiple of {kernel}, {places}), x has shape {x.shape}")
    return OPS["columns_to_image"](x, size=size, window=window)
