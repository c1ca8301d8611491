"""The geometry that convolution and pooling share: where a sliding window's taps fall."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

Sizes = tuple[int, ...]
Slices = tuple[slice, ...]


class Window(NamedTuple):
    """A kernel sliding over the spatial dims: one entry per dim.

    Tap k of the window at output place r reads ``r * stride + k * dilation - before``:

        dilation 2, stride 3, before 1     . 0 1 2 3 4 5 6 .
        place 0 reads                      ^   ^   ^
        place 1 reads                            ^   ^   ^
    """

    kernel: Sizes
    stride: Sizes
    padding: tuple[tuple[int, int], ...]  # (before, after)
    dilation: Sizes

    @property
    def span(self) -> Sizes:
        """How many elements the kernel stretches over, gaps included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation))


def per_dim(name: str, value: Any, dims: int, least: int) -> Sizes:
    """An int, or one per spatial dim, as a tuple.

    Raises:
        ValueError: a wrong number of values, or one below ``least``.
    """
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    values = values * dims if len(values) == 1 else values
    if len(values) != dims or any(int(v) != v for v in values):
        raise ValueError(f"{name} must be an int or {dims} ints, it is {value!r}")
    if any(v < least for v in values):
        raise ValueError(f"{name} must be at least {least}, it is {value!r}")
    return tuple(int(v) for v in values)


def output_sizes(name: str, window: Window, size: Sizes, ceil_mode: bool = False) -> Sizes:
    """How many windows fit in each spatial dim.

    With ``ceil_mode`` a last window may hang over the end, if it starts before the end of the
    input or its left padding.

    Raises:
        ValueError: the window is larger than the padded input.
    """
    places = []
    for length, span, step, (before, after) in zip(size, window.span, window.stride,
                                                   window.padding):
        room = length + before + after - span
        count = (room + (step - 1 if ceil_mode else 0)) // step + 1
        if ceil_mode and (count - 1) * step >= length + before:
            count -= 1
        if count < 1:
            raise ValueError(f"{name}: a kernel of {window.kernel} with dilation "
                             f"{window.dilation} spans {window.span}, more than the input of "
                             f"{size} with padding {window.padding}")
        places.append(count)
    return tuple(places)


def taps(window: Window) -> Iterator[Sizes]:
    """The kernel's positions in row-major order."""
    return product(*map(range, window.kernel))


def covered(window: Window, tap: Sizes, size: Sizes, out: Sizes) -> tuple[Slices, Slices]:
    """What one tap reads and for which windows: slices of the input, slices of the output.

    Windows for which the tap falls into padding are left out.
    """
    read, write = [], []
    for k, step, (before, _), gap, length, count in zip(tap, *window[1:], size, out):
        offset = k * gap - before
        first = max(0, -(offset // step))
        last = max(first, min(count, (length - 1 - offset) // step + 1))
        read.append(slice(first * step + offset, last * step + offset, step)
                    if last > first else slice(0, 0))
        write.append(slice(first, last))
    return tuple(read), tuple(write)
