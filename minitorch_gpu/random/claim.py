"""Claiming a draw: which stream and which part of the global tensor its numbers are."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from minitorch_gpu.device import Array
from minitorch_gpu.random.frames import BatchSlice, current_frame, hash64
from minitorch_gpu.random.generator import Generator, default_generator
from minitorch_gpu.random.philox import LOW, fill

Span = tuple[int, int]  # (start, total): where a slice lies in its global dim


class Draw(NamedTuple):
    """A claimed draw: all that its numbers depend on."""

    seed: int
    stream: int
    shape: tuple[int, ...]
    spans: tuple[Span, ...]  # one (start, total) per dim of ``shape or (1,)``


def claim(
    shape: int | Sequence[int],
    *,
    shard: Mapping[int, Span] | None = None,
    generator: Generator | None = None,
) -> Draw:
    """Count a draw of ``shape`` and say which numbers it is; the draws below start here.

    Inside a frame the stream comes from it. Outside any, or from a generator that the frame
    was not opened with, the draw takes one tick.

    Args:
        shape: of the local array.
        shard: for each dim that was cut, (start, total). On dim 0 it replaces the batch slice.

    Raises:
        TypeError, ValueError: a shape, shard or batch slice that does not fit, by name.
    """
    sizes = checked_shape(shape)
    frame = current_frame()
    if frame is not None and generator in (None, frame.generator):
        spans = _spans(sizes, shard or {}, frame.batch)
        return Draw(frame.take()[0], frame.stream(), sizes, spans)
    spans = _spans(sizes, shard or {}, None)
    source = generator or default_generator()
    return Draw(source.initial_seed(), hash64(source.next_tick(), "", 0), sizes, spans)


def checked_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """The shape as a tuple; an error that shows it if it is none."""
    try:
        sizes = tuple(map(operator.index, shape if isinstance(shape, Sequence) else (shape,)))
    except TypeError:
        raise TypeError(f"a shape is an int or a sequence of ints, got {shape!r}") from None
    if any(n < 0 for n in sizes):
        raise ValueError(f"a shape has no negative sizes, got {sizes}")
    return sizes


def _spans(
    sizes: tuple[int, ...], shard: Mapping[int, Span], batch: BatchSlice | None
) -> tuple[Span, ...]:
    spans = [(0, n) for n in sizes] or [(0, 1)]
    if batch is not None and sizes and 0 not in shard:
        spans[0] = _batch_span(sizes[0], batch)
    for dim, (start, total) in shard.items():
        if not 0 <= dim < len(sizes):
            raise ValueError(f"shard names dim {dim}, the shape {sizes} has {len(sizes)} dims")
        if start < 0 or start + sizes[dim] > total:
            raise ValueError(
                f"shard {{{dim}: ({start}, {total})}}: {sizes[dim]} from {start} exceed {total}"
            )
        spans[dim] = (start, total)
    if spans[-1][1] > 2**34:
        raise ValueError(f"a draw's last dim has at most 2**34 numbers, got {spans[-1][1]}")
    return tuple(spans)


def _batch_span(size: int, batch: BatchSlice) -> Span:
    start, local, total = batch
    if size % local if local else size:
        raise ValueError(
            f"a draw of {size} rows in a batch slice of {local} samples: dim 0 must be a "
            f"multiple of {local}, or pass shard={{0: (0, {size})}} if it is not the batch"
        )
    times = size // local if local else 0
    return start * times, total * times


def aligned_words(draw: Draw, xp: ModuleType, lane: int) -> Array:
    """uint32 (rows, 4 * blocks): the Philox blocks that the draw's last dim touches."""
    (*leading, (start, _)), last = draw.spans, (draw.shape or (1,))[-1]
    row = xp.zeros((), np.uint64)
    for (first, total), size in zip(leading, draw.shape):
        row = row[..., None] * total + xp.arange(first, first + size, dtype=np.uint64)
    row = row.reshape(-1, 1)
    block = xp.arange(start // 4, -(-(start + last) // 4), dtype=np.uint64)[None]
    high: Any = (draw.stream >> 32) ^ (lane << 31)
    if math.prod(total for _, total in leading) > 2**32:
        high = high ^ (row >> 32)
    out = xp.empty((row.size, block.size, 4), np.uint32)
    counter = (block, row & LOW, draw.stream & LOW, high)
    fill(out.transpose(2, 0, 1), counter, (draw.seed & LOW, draw.seed >> 32))
    return out.reshape(row.size, 4 * block.size)


def cut(draw: Draw, aligned: Array) -> Array:
    """The draw's own numbers out of whole blocks: (rows, 4 * blocks) to the draw's shape."""
    skip, last = draw.spans[-1][0] % 4, (draw.shape or (1,))[-1]
    return aligned[:, skip : skip + last].reshape(draw.shape)


def random_words(draw: Draw, xp: ModuleType = np) -> Array:
    """The 32 random bits of each element: uint32 of the draw's shape."""
    return cut(draw, aligned_words(draw, xp, 0))


def wide(draw: Draw, xp: ModuleType) -> Array:
    """64 random bits an element, in whole blocks: uint64 (rows, 4 * blocks)."""
    high = aligned_words(draw, xp, 0).astype(np.uint64)
    return (high << 32) | aligned_words(draw, xp, 1)
