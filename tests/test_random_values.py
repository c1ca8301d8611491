"""Values of the draws: distributions, masks that are real, ranges, edges and errors."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.stats

from minitorch_gpu import random
from tests.random_support import Module, each_draw, fresh, same

# ---------------------------------------------------------------- values and statistics
N = 400_000


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.999])
def test_a_mask_is_true_with_probability_p(p):
    mask = random.bernoulli((N // 10, 10), p, generator=random.Generator(1))
    assert mask.dtype == bool
    sigma = (p * (1 - p)) ** 0.5
    assert abs(mask.mean() - p) < 4 * sigma / N**0.5
    assert np.abs(mask.mean(0) - p).max() < 4 * sigma / (N / 10) ** 0.5


def test_probabilities_0_and_1_are_exact():
    assert not random.bernoulli(N, 0.0).any()
    assert random.bernoulli(N, 1.0).all()


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """In standard deviations of what independent masks would show."""
    deviation_a, deviation_b = a.std(), b.std()
    assert deviation_a > 0 and deviation_b > 0, "a constant mask"
    covariance = ((a - a.mean()) * (b - b.mean())).mean()
    return abs(covariance) / (deviation_a * deviation_b) * a.size**0.5


def test_masks_of_layers_calls_steps_samples_and_heads_are_uncorrelated():
    first, second = Module(), Module()
    model = Module(first=first, second=second)
    mask = lambda: random.bernoulli((8, 4, 32, 32), 0.7).astype(float)
    steps = fresh(
        lambda: [model(lambda: [first(mask), second(mask), first(mask)]) for _ in range(2)]
    )
    masks = list(itertools.chain(*steps))  # layer, layer, second call; then the next step
    masks.append(fresh(lambda: model(lambda: first(mask)), seed=1))
    for a, b in itertools.combinations(masks, 2):
        assert correlation(a, b) < 4
    one = masks[0]
    for dim in range(4):  # samples, heads, rows and columns of one mask
        for shift in (1, one.shape[dim] // 2):
            assert correlation(one, np.roll(one, shift, dim)) < 4, (dim, shift)


def bound(dtype: Any) -> float:
    return {np.float64: 1e-12, np.float32: 1e-6, np.float16: 2e-3}.get(dtype, 2e-2)


FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("low, high", [(0, 1), (1, 2), (-3, 5), (1000, 1001)])
def test_uniform_fills_its_half_open_range(dtype, low, high):
    x = random.uniform(N, low, high, dtype=dtype, generator=random.Generator(2))
    assert x.dtype == dtype
    x = x.astype(np.float64)
    assert x.min() >= low and x.max() < high
    if dtype in (np.float32, np.float64):
        assert scipy.stats.kstest(x, "uniform", (low, high - low)).pvalue > 1e-3


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_short_uniform_is_the_leading_bits_of_the_long_one(dtype):
    long = random.uniform(999, dtype=np.float64, generator=random.Generator(4))
    short = random.uniform(999, dtype=dtype, generator=random.Generator(4))
    digits = {np.float16: 11, np.float32: 24, np.float64: 53}.get(dtype, 8)
    step = 2.0**-digits
    assert (short.astype(np.float64) == np.floor(long / step) * step).all()


def test_the_largest_words_stay_below_1(monkeypatch):
    from minitorch_gpu.random import draws

    monkeypatch.setattr(draws, "aligned_words", lambda d, xp, lane: np.full((1, 8), 2**32 - 1,
                        np.uint32))  # fmt: skip
    monkeypatch.setattr(draws, "random_words", lambda d, xp: np.full(8, 2**32 - 1, np.uint32))
    monkeypatch.setattr(draws, "wide", lambda d, xp: np.full((1, 8), 2**64 - 1, np.uint64))
    for dtype, (low, high) in itertools.product(FLOATS, [(0, 1), (1, 2), (-0.1, 0.1)]):
        x = random.uniform(8, low, high, dtype=dtype).astype(np.float64)
        assert (x < np.array(high, dtype).astype(np.float64)).all(), (dtype, low, high)
        assert np.isfinite(random.normal(8, dtype=dtype).astype(np.float64)).all()
    assert (random.integers(0, 10, 8) == 9).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_has_the_moments_and_distribution_of_a_normal(dtype):
    z = random.normal((N // 8, 8), 3, 2, dtype=dtype, generator=random.Generator(3))
    z = (z.astype(np.float64).ravel() - 3) / 2
    assert abs(z.mean()) < 4 / N**0.5
    assert abs(z.var() - 1) < 4 * (2 / N) ** 0.5
    assert abs((z**3).mean()) < 4 * (15 / N) ** 0.5
    assert abs((z**4).mean() - 3) < 4 * (96 / N) ** 0.5
    assert scipy.stats.kstest(z, "norm").pvalue > 1e-3
    even, odd = z[0::2], z[1::2]  # the two of a pair: independent, squares too
    assert correlation(even, odd) < 4 and correlation(even**2, odd**2) < 4


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_short_normal_is_the_rounded_float32_one(dtype):
    z = random.normal(999, dtype=dtype, generator=random.Generator(4)).astype(np.float64)
    reference = random.normal(999, generator=random.Generator(4)).astype(np.float64)
    assert (np.abs(z - reference) <= bound(dtype) * np.maximum(np.abs(reference), 1e-3)).all()


def test_integers_are_evenly_spread():
    x = random.integers(-3, 7, N, generator=random.Generator(5))
    assert x.dtype == np.int64
    counts = np.bincount(x + 3, minlength=10)
    assert counts.size == 10 and scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(
    "low, high, dtype",
    [(0, 2**40 + 12345, np.int64), (-(2**63), 2**63, np.int64), (0, 2**64, np.uint64),
     (-(2**62), 2**63 - 7, np.int64), (0, 2**32, np.uint32), (-128, 128, np.int8)],
)  # fmt: skip
def test_integers_are_the_range_times_64_random_bits(low, high, dtype):
    x = random.integers(low, high, 999, dtype=dtype, generator=random.Generator(5))
    bits = random.integers(0, 2**64, 999, dtype=np.uint64, generator=random.Generator(5))
    assert x.dtype == dtype
    assert x.tolist() == [low + (int(b) * (high - low) >> 64) for b in bits]


def test_a_permutation_holds_each_number_once_and_ignores_slices():
    def permuted() -> np.ndarray:
        with random.step(batch=(1, 2, 4)):
            return random.permutation(1001)

    x = fresh(permuted)
    assert x.dtype == np.int64 and sorted(x) == list(range(1001))
    assert random.permutation(0).shape == (0,)
    first = fresh(lambda: [tuple(random.permutation(3)) for _ in range(6000)])
    counts = [first.count(p) for p in itertools.permutations(range(3))]
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


# ---------------------------------------------------------------- edges and errors
@each_draw
def test_zero_size_and_0d_shapes(draw):
    for shape in [(0,), (3, 0), (0, 3), (2, 0, 4)]:
        assert draw(shape).shape == shape
    x = draw(())
    assert isinstance(x, np.ndarray) and x.shape == ()
    assert same(fresh(lambda: draw(3)), fresh(lambda: draw([3])))
    with random.step(batch=(3, 0, 3)):
        assert draw((0, 2)).shape == (0, 2)


@pytest.mark.parametrize(
    "wrong, error, named",
    [
        (lambda: random.uniform((2, -1)), ValueError, r"\(2, -1\)"),
        (lambda: random.uniform((2, 1.5)), TypeError, r"1\.5"),
        (lambda: random.uniform(3, dtype=np.int64), TypeError, "int64"),
        (lambda: random.normal(3, dtype=bool), TypeError, "bool"),
        (lambda: random.integers(0, 3, 3, dtype=np.float32), TypeError, "float32"),
        (lambda: random.integers(0, 257, 3, dtype=np.uint8), ValueError, r"257\) do not fit"),
        (lambda: random.integers(5, 5, 3), ValueError, r"\[5, 5\)"),
        (lambda: random.uniform(3, 2, 1), ValueError, r"\[2\.0, 1\.0\)"),
        (lambda: random.uniform(3, 0, float("inf")), ValueError, "inf"),
        (lambda: random.normal(3, 0, -1), ValueError, "-1"),
        (lambda: random.bernoulli(3, 1.5), ValueError, r"1\.5"),
        (lambda: random.bernoulli(3, float("nan")), ValueError, "nan"),
        (lambda: random.uniform((3, 2), shard={2: (0, 2)}), ValueError, "dim 2"),
        (lambda: random.uniform((3, 2), shard={1: (3, 4)}), ValueError, r"1: \(3, 4\)"),
        (lambda: random.uniform(3, shard={0: (0, 2**35)}), ValueError, str(2**35)),
        (lambda: random.permutation(-1), ValueError, "-1"),
        (lambda: random.batch_slice(0, 1, 2).__enter__(), RuntimeError, "random.step"),
        (lambda: random.name_scope("a").__enter__(), RuntimeError, "random.step"),
    ],
)
def test_a_wrong_argument_is_named(wrong, error, named):
    with pytest.raises(error, match=named):
        wrong()


def test_a_draw_that_does_not_fit_the_batch_slice_says_what_to_do():
    with random.step(batch=(0, 4, 8)):
        with pytest.raises(ValueError, match=r"6 rows.*4 samples.*shard=\{0: \(0, 6\)\}"):
            random.uniform((6, 2))
        with pytest.raises(ValueError, match="8 samples inside a slice of 4"):
            random.batch_slice(0, 2, 8).__enter__()
        with pytest.raises(ValueError, match=r"4 local samples.*is of 8"):
            random.global_slice(0, 4, 16).__enter__()
        with pytest.raises(ValueError, match=r"samples 3 \.\. 5 .* batch of 4"):
            random.batch_slice(3, 2, 4).__enter__()
