"""The draws: uniform, normal, integers, Bernoulli masks and permutations."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from minitorch_gpu.device import CPU, Array, Device, module_of, use_device
from minitorch_gpu.random.claim import (
    Draw,
    Span,
    aligned_words,
    checked_shape,
    claim,
    cut,
    random_words,
    wide,
)
from minitorch_gpu.random.generator import Generator
from minitorch_gpu.random.philox import LOW

_DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}


def keep_mask(draw: Draw, p: float, xp: ModuleType = np) -> Array:
    """bool of the draw's shape, True with probability p (to 2**-32; exactly at 0 and 1).

    Raises:
        ValueError: p is not in [0, 1].
    """
    if not 0 <= p <= 1:
        raise ValueError(f"a probability lies in [0, 1], got {p}")
    if p == 0:
        return xp.zeros(draw.shape, bool)
    last_kept = np.uint32(max(round(p * 2**32), 1) - 1)
    return xp.asarray(random_words(draw, xp) <= last_kept)


def bernoulli(
    shape: int | Sequence[int],
    p: float = 0.5,
    *,
    where: Device = CPU,
    shard: Mapping[int, Span] | None = None,
    generator: Generator | None = None,
) -> Array:
    """bool array, True with probability p; see ``keep_mask`` and ``claim``."""
    draw = claim(shape, shard=shard, generator=generator)
    with use_device(where) as target:
        return keep_mask(draw, p, module_of(target))


def _floating(dtype: npt.DTypeLike) -> np.dtype[Any]:
    kind = np.dtype(dtype)
    if kind.name not in _DIGITS:
        raise TypeError(f"random numbers of dtype {kind}: use one of {', '.join(_DIGITS)}")
    return kind


def uniform(
    shape: int | Sequence[int],
    low: float = 0.0,
    high: float = 1.0,
    *,
    dtype: npt.DTypeLike = np.float32,
    where: Device = CPU,
    shard: Mapping[int, Span] | None = None,
    generator: Generator | None = None,
) -> Array:
    """Uniform in [low, high), never ``high`` (unless they are equal); see ``claim``.

    In [0, 1) it is a multiple of 2**-24 in float32, 2**-53 in float64, 2**-11 in float16,
    2**-8 in bfloat16; each is the float64 number's leading bits.

    Raises:
        TypeError: dtype is not floating.
        ValueError: low > high, or not finite.
    """
    kind, low, high = _floating(dtype), float(low), float(high)
    if not (low <= high and math.isfinite(high - low)):
        raise ValueError(f"uniform draws from [low, high), got [{low}, {high})")
    digits = _DIGITS[kind.name]
    draw = claim(shape, shard=shard, generator=generator)
    with use_device(where) as target:
        xp = module_of(target)
        if digits > 32:
            unit = (cut(draw, wide(draw, xp)) >> (64 - digits)).astype(np.float64)
        else:
            unit = (random_words(draw, xp) >> (32 - digits)).astype(np.float32)
        unit = unit * unit.dtype.type(2.0**-digits)
        if (low, high) != (0.0, 1.0):
            below = float(np.nextafter(np.array(high, kind), np.array(low, kind)))
            unit = xp.minimum(unit * (high - low) + low, below)  # the sum may round to high
        return xp.asarray(unit.astype(kind, copy=False))


def normal(
    shape: int | Sequence[int],
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: npt.DTypeLike = np.float32,
    where: Device = CPU,
    shard: Mapping[int, Span] | None = None,
    generator: Generator | None = None,
) -> Array:
    """Normal numbers; see ``claim``.

    Box and Muller (1958) on the words (2j, 2j+1) of a Philox block, in float64, rounded once:
    32 bits a number (|z| < 6.7), in float64 53 bits (|z| < 8.6).

    Raises:
        TypeError: dtype is not floating.
        ValueError: std < 0.
    """
    kind = _floating(dtype)
    if not std >= 0:
        raise ValueError(f"normal needs std >= 0, got {std}")
    draw = claim(shape, shard=shard, generator=generator)
    with use_device(where) as target:
        xp = module_of(target)
        if kind == np.float64:
            unit = (wide(draw, xp) >> 11) * 2.0**-53
        else:
            unit = aligned_words(draw, xp, 0) * 2.0**-32
        even, odd = unit[:, 0::2], unit[:, 1::2]
        radius = xp.sqrt(-2 * xp.log(1 - even)) * std
        angle = odd * (2 * math.pi)
        unit[:, 0::2] = radius * xp.cos(angle) + mean
        unit[:, 1::2] = radius * xp.sin(angle) + mean
        return cut(draw, unit).astype(kind, copy=False)


def integers(
    low: int,
    high: int,
    shape: int | Sequence[int],
    *,
    dtype: npt.DTypeLike = np.int64,
    where: Device = CPU,
    shard: Mapping[int, Span] | None = None,
    generator: Generator | None = None,
) -> Array:
    """Integers in [low, high): the high half of 64 random bits times the range.

    Their probabilities differ by less than 2**-64; see ``claim``.

    Raises:
        TypeError: dtype or a bound is no integer.
        ValueError: the range is empty, or does not fit dtype.
    """
    kind, low, high = np.dtype(dtype), operator.index(low), operator.index(high)
    if kind.kind not in "iu":
        raise TypeError(f"integers of dtype {kind}: use an integer dtype")
    if not low < high:
        raise ValueError(f"integers draws from [low, high), got [{low}, {high})")
    limits = np.iinfo(kind)
    if low < limits.min or high - 1 > limits.max:
        raise ValueError(f"integers in [{low}, {high}) do not fit {kind}")
    draw = claim(shape, shard=shard, generator=generator)
    with use_device(where) as target:
        xp = module_of(target)
        bits = wide(draw, xp)
        scaled = bits if high - low == 2**64 else _high_product(bits, high - low)
        return cut(draw, (scaled + np.uint64(low % 2**64)).astype(kind))


def _high_product(bits: Array, factor: int) -> Array:
    """bits * factor // 2**64, with factor < 2**64, by 32-bit halves."""
    high, low = bits >> 32, bits & LOW
    factor_high, factor_low = factor >> 32, factor & LOW
    middle = high * factor_low + ((low * factor_low) >> 32)
    if factor_high == 0:
        return middle >> 32
    return high * factor_high + (middle >> 32) + ((low * factor_high + (middle & LOW)) >> 32)


def permutation(n: int, *, where: Device = CPU, generator: Generator | None = None) -> Array:
    """int64 (n,): 0 .. n-1 in random order, the order of n random 64-bit keys; never sliced.

    Raises:
        TypeError, ValueError: n is not a count.
    """
    (size,) = checked_shape(n)
    draw = claim(size, shard={0: (0, size)}, generator=generator)
    with use_device(where) as target:
        xp = module_of(target)
        return xp.argsort(cut(draw, wide(draw, xp)), kind="stable").astype(np.int64)
