"""Pooling over one, two or three spatial dims: largest values, means, adaptive means.

A tap of the window reads a strided slice of the input, so pooling is a loop over the taps;
slices end where the padding begins, and no padded copy is made.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from minitorch_gpu.device import array_module
from minitorch_gpu.ops.linalg import matmul
from minitorch_gpu.ops.windows import Sizes, Window, covered, output_sizes, per_dim, taps
from minitorch_gpu.registry import Ints, primitive
from minitorch_gpu.registry.scalar import OPS, keep

Array = Any
_ALL = (slice(None), slice(None))

_WINDOW = Window((3, 2), (2, 1), ((1, 1), (0, 0)), (1, 2))
_PLAIN = Window((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))


# ---------------------------------------------------------------- maxima
def _put_slope(g: Any, ys: Any, x_like: Any, window: Window) -> Any:
    return OPS["put_in_windows"](g[0], ys[1], window=window, size=x_like.shape[2:])


@primitive(
    "(...)->(...),(...)", vjp=dict(x=_put_slope), methods=(),
    examples=(dict(x=(2, 2, 5, 5), window=_WINDOW, out=(3, 3)),
              dict(x=(2, 1, 4, 6), window=_PLAIN, out=(2, 3))),
)
def window_max(xp: Any, x: Array, *, window: Window, out: Sizes) -> tuple[Array, Array]:
    """The largest value of each window of x (N, C, *size), and the tap that read it first.

    A NaN counts as largest, the last one if there are several.
    """
    shape = (*x.shape[:2], *out)
    best = xp.full_like(x, _lowest(x.dtype), shape=shape)
    places = xp.empty_like(x, dtype=_position_dtype(window), shape=shape)
    places[...] = _first_taps(xp, window, out)
    for number, tap in enumerate(taps(window)):
        read, write = covered(window, tap, x.shape[2:], out)
        value = x[_ALL + read].copy(order="K")  # once out of its stride: five passes follow
        top, place = best[_ALL + write], places[_ALL + write]
        better = value > top
        better |= value != value
        xp.maximum(top, value, out=top)
        xp.maximum(place, better * place.dtype.type(number), out=place)
    return best, places


def _lowest(dtype: Any) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _position_dtype(window: Window) -> Any:
    return np.dtype(np.uint8 if prod(window.kernel) <= 256 else np.int32)


def _first_taps(xp: Any, window: Window, out: Sizes) -> Array:
    """Per window the number of its first tap outside the padding: shape ``out``."""
    numbers = xp.zeros((), np.int64)
    for length, step, (before, _), gap, count in zip(*window, out):
        skipped = xp.maximum(before - xp.arange(count) * step, 0)
        numbers = numbers[..., None] * length + (skipped + gap - 1) // gap
    return numbers


def _where(xp: Any, mask: Array, values: Array) -> Array:
    """``values`` where ``mask`` holds, else 0."""
    return keep(mask, values) if xp is np else xp.where(mask, values, 0)


@primitive(
    "(...),(...)->(...)",
    vjp=dict(x=lambda g, places, window, x_like: OPS["take_from_windows"](
        g, places, window=window, out=x_like.shape[2:])),
    promote=None, methods=(),
    examples=(dict(x=(2, 1, 2, 3), places=Ints((2, 1, 2, 3), 4), window=_PLAIN, size=(4, 6)),),
)
def put_in_windows(xp: Any, x: Array, places: Array, *, window: Window, size: Sizes) -> Array:
    """Zeros (N, C, *size) with each element of x added where its window's tap ``places`` is."""
    y = xp.zeros_like(places, dtype=x.dtype, shape=(*x.shape[:2], *size))
    for number, tap in enumerate(taps(window)):
        read, write = covered(window, tap, size, x.shape[2:])
        part = (_ALL + write)
        y[_ALL + read] += _where(xp, places[part] == number, x[part])
    return y


@primitive(
    "(...),(...)->(...)",
    vjp=dict(x=lambda g, places, window, x_like: OPS["put_in_windows"](
        g, places, window=window, size=x_like.shape[2:])),
    promote=None, methods=(),
    examples=(dict(x=(2, 1, 4, 6), places=Ints((2, 1, 2, 3), 4), window=_PLAIN, out=(2, 3)),),
)
def take_from_windows(xp: Any, x: Array, places: Array, *, window: Window, out: Sizes) -> Array:
    """The element of each window of x (N, C, *size) that the tap ``places`` reads."""
    y = xp.zeros_like(places, dtype=x.dtype)
    for number, tap in enumerate(taps(window)):
        read, write = covered(window, tap, x.shape[2:], out)
        y[_ALL + write] += _where(xp, places[_ALL + write] == number, x[_ALL + read])
    return y


# ---------------------------------------------------------------- means
Counts = tuple[Sizes, ...]
_COUNTS = dict(window=_WINDOW._replace(dilation=(1, 1)), counts=((2, 3, 2), (2, 2, 2, 2)))


def _divisors(xp: Any, counts: Counts, dtype: Any) -> Array:
    """Elements per window: the product of the counts of its dims."""
    product = np.ones(())
    for numbers in counts:
        product = product[..., None] * np.asarray(numbers, np.float64)
    return xp.asarray(product.astype(dtype))


@primitive(
    "(...)->(...)",
    vjp=dict(x=lambda g, x_like, window, counts: OPS["spread_over_windows"](
        g, window=window, counts=counts, size=x_like.shape[2:])),
    promote="float", methods=(), examples=(dict(x=(2, 2, 5, 5), **_COUNTS),),
)
def window_mean(xp: Any, x: Array, *, window: Window, counts: Counts) -> Array:
    """The sum of each window of x (N, C, *size) over its number of elements.

    The number is a product over the dims: ``counts`` lists it per dim and place.
    """
    out = tuple(map(len, counts))
    y = xp.zeros_like(x, shape=(*x.shape[:2], *out))
    for tap in taps(window):
        read, write = covered(window, tap, x.shape[2:], out)
        y[_ALL + write] += x[_ALL + read]
    y /= _divisors(xp, counts, x.dtype)
    return y


@primitive(
    "(...)->(...)",
    vjp=dict(x=lambda g, window, counts: OPS["window_mean"](g, window=window, counts=counts)),
    methods=(), examples=(dict(x=(2, 2, 3, 4), size=(5, 5), **_COUNTS),),
)
def spread_over_windows(
    xp: Any, x: Array, *, window: Window, counts: Counts, size: Sizes
) -> Array:
    """The gradient of ``window_mean``: each element of x shared out over its window."""
    shares = x / _divisors(xp, counts, x.dtype)
    y = xp.zeros_like(x, shape=(*x.shape[:2], *size))
    for tap in taps(window):
        read, write = covered(window, tap, size, x.shape[2:])
        y[_ALL + read] += shares[_ALL + write]
    return y


def _window_counts(window: Window, size: Sizes, out: Sizes, include_pad: bool) -> Counts:
    """Elements per place and dim: padding counts or not, what hangs over the end never does."""
    counts = []
    for length, k, step, (before, after), places in zip(
            size, *window[:3], out):
        low, high = (-before, length + after) if include_pad else (0, length)
        starts = [place * step - before for place in range(places)]
        counts.append(tuple(min(s + k, high) - max(s, low) for s in starts))
    return tuple(counts)


# ---------------------------------------------------------------- what users call
def _pool_window(
    name: str, dims: int, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> Window:
    if x.ndim not in (dims + 1, dims + 2):
        raise ValueError(f"{name}: x needs {dims + 2} dims (or {dims + 1} for one sample), its "
                         f"shape is {x.shape}")
    kernel = per_dim(f"{name}: kernel_size", kernel_size, dims, 1)
    steps = kernel if stride is None else per_dim(f"{name}: stride", stride, dims, 1)
    pads = per_dim(f"{name}: padding", padding, dims, 0)
    window = Window(kernel, steps, tuple((p, p) for p in pads),
                    per_dim(f"{name}: dilation", dilation, dims, 1))
    if any(2 * p > span for p, span in zip(pads, window.span)):
        raise ValueError(f"{name}: padding must be at most half of the kernel's span "
                         f"{window.span}, it is {padding!r}")
    return window


def _batched(dims: int, x: Any, pool: Any) -> Any:
    """``pool(x)`` for a batch, or for one sample as a batch of one."""
    if x.ndim == dims + 2:
        return pool(x)
    y = pool(OPS["reshape"](x, (1, *x.shape)))
    return OPS["reshape"](y, y.shape[1:])


def _max_pool(dims: int, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
              ceil_mode: bool) -> Any:
    name = f"max_pool{dims}d"
    window = _pool_window(name, dims, x, kernel_size, stride, padding, dilation)
    out = output_sizes(name, window, x.shape[-dims:], ceil_mode)
    return _batched(dims, x, lambda batch: OPS["window_max"](batch, window=window, out=out)[0])


def _avg_pool(dims: int, x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
              count_include_pad: bool, divisor_override: int | None) -> Any:
    name, size = f"avg_pool{dims}d", x.shape[-dims:]
    window = _pool_window(name, dims, x, kernel_size, stride, padding, 1)
    out = output_sizes(name, window, size, ceil_mode)
    counts = _window_counts(window, size, out, count_include_pad)
    if divisor_override is not None:
        if divisor_override == 0:
            raise ValueError(f"{name}: divisor_override must not be 0")
        counts = ((divisor_override,) * out[0], *((1,) * count for count in out[1:]))
    return _batched(dims, x, lambda batch: OPS["window_mean"](
        batch, window=window, counts=counts))


def max_pool1d(x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Any:
    """The largest value of each window of x (N, C, L) or (C, L); see ``max_pool2d``."""
    return _max_pool(1, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Any:
    """The largest value of each window of x (N, C, H, W) or (C, H, W).

    The gradient goes to the first of equal values. A window with a NaN gives NaN.

    Args:
        x: the images.
        kernel_size: an int or one per dim.
        stride: step of the window; by default the kernel's size.
        padding: places on both sides that never win; at most half of the kernel.
        dilation: step between the window's elements.
        ceil_mode: whether a last window may hang over the end.

    Raises:
        ValueError: a size, stride or dilation below 1, negative or too large padding, or a
            kernel larger than the padded input.
    """
    return _max_pool(2, x, kernel_size, stride, padding, dilation, ceil_mode)


def avg_pool1d(x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> Any:
    """The mean of each window of x (N, C, L) or (C, L); see ``avg_pool2d``."""
    return _avg_pool(1, x, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int | None = None) -> Any:
    """The mean of each window of x (N, C, H, W) or (C, H, W).

    Args:
        x: the images.
        kernel_size: an int or one per dim.
        stride: step of the window; by default the kernel's size.
        padding: zeros on both sides; at most half of the kernel.
        ceil_mode: whether a last window may hang over the end; what hangs over never counts.
        count_include_pad: whether the padding counts in the divisor.
        divisor_override: the divisor, in place of the number of elements.

    Raises:
        ValueError: as ``max_pool2d``, or a divisor of 0.
    """
    return _avg_pool(2, x, kernel_size, stride, padding, ceil_mode, count_include_pad,
                     divisor_override)


def adaptive_avg_pool2d(x: Any, output_size: Any) -> Any:
    """Means of x (..., H, W) over ``output_size`` windows, as even as can be.

    Window i of n covers floor(i * H / n) up to ceil((i + 1) * H / n); None keeps a size.
    """
    pair = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * 2
    size = x.shape[-2:]
    out = per_dim("adaptive_avg_pool2d: output_size",
                  tuple(s if n is None else n for s, n in zip(size, pair)), 2, 1)
    if all(s % n == 0 for s, n in zip(size, out)):
        return avg_pool2d(x, tuple(s // n for s, n in zip(size, out)))
    xp = array_module(getattr(x, "array", x))
    tall, wide = (_membership(xp, s, n, x.dtype) for s, n in zip(size, out))
    counts = xp.outer(tall.sum(1), wide.sum(1))
    return matmul(tall, matmul(x, wide.T)) / counts


def _membership(xp: Any, size: int, count: int, dtype: Any) -> Array:
    """(count, size) ones where an element belongs to a window of an adaptive pool."""
    place, window = xp.arange(size)[None], xp.arange(count)[:, None]
    starts, ends = window * size // count, -(-(window + 1) * size // count)
    return ((place >= starts) & (place < ends)).astype(dtype)
