"""Batch samplers: every global batch whole and in order, cut without loss over any ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minitorch_gpu as mt
from minitorch_gpu.data import DistributedBatchSampler
from minitorch_gpu.partition import split_range, split_sizes

# ---- one rule for cutting


@given(n=st.integers(0, 40), k=st.integers(1, 9))
def test_lengths_are_cut_as_numpys_array_split_cuts_them(n: int, k: int) -> None:
    parts = np.array_split(np.arange(n), k)
    assert split_sizes(n, k) == tuple(map(len, parts))
    assert [list(range(*split_range(n, k, i))) for i in range(k)] == [p.tolist() for p in parts]


@pytest.mark.parametrize("call, error", [
    (lambda: split_sizes(-1, 2), "length -1"),
    (lambda: split_range(3, 0, 0), "0 parts"),
    (lambda: split_range(3, 2, 2), "part 2 of 2"),
])
def test_impossible_cuts_are_named(call: Callable[[], Any], error: str) -> None:
    with pytest.raises((ValueError, IndexError), match=error):
        call()


# ---- the sampler


def joined(length: int, batch: int, size: int, start: dict[str, int] | None = None,
           **options: Any) -> list[list[int]]:
    """The global batches, put together from what ``size`` ranks yield in step."""
    samplers = [DistributedBatchSampler(length, batch, r, size, **options) for r in range(size)]
    for sampler in samplers:
        sampler.load_state_dict(start or sampler.state_dict())
    batches = []
    for parts in zip(*samplers, strict=True):
        slices = [sampler.batch_slice for sampler in samplers]
        batches.append(np.concatenate(parts).tolist())
        bounds = np.cumsum([0, *map(len, parts)]).tolist()
        total = len(batches[-1])
        assert slices == [(bounds[r], len(parts[r]), total) for r in range(size)]
    return batches


@settings(deadline=None, max_examples=60)
@given(length=st.integers(0, 30), batch=st.integers(6, 14), size=st.integers(1, 6),
       shuffle=st.booleans(), drop_last=st.booleans(), done=st.integers(0, 4))
def test_any_number_of_ranks_sees_the_same_global_batches(
    length: int, batch: int, size: int, shuffle: bool, drop_last: bool, done: int
) -> None:
    options = dict(shuffle=shuffle, seed=3, drop_last=drop_last)
    alone = joined(length, batch, 1, **options)
    assert joined(length, batch, size, **options) == alone
    seen = Counter(x for batch in alone for x in batch)
    assert max(seen.values(), default=1) == 1
    assert len(seen) == (length // batch * batch if drop_last else length)
    state = {"seed": 3, "epoch": 0, "consumed": sum(map(len, alone[:done]))}
    assert joined(length, batch, size, state, **options) == alone[done:]


@pytest.mark.parametrize("length, batch, size, drop_last, want", [
    (5, 5, 2, False, [[[0, 1, 2]], [[3, 4]]]),
    (1, 4, 4, False, [[[0]], [[]], [[]], [[]]]),
    (1, 4, 4, True, [[], [], [], []]),
    (10, 4, 4, True, [[[0], [4]], [[1], [5]], [[2], [6]], [[3], [7]]]),
    (3, 2, 2, False, [[[0], [2]], [[1], []]]),
])
def test_small_sets_are_neither_padded_nor_repeated(
    length: int, batch: int, size: int, drop_last: bool, want: list[Any]
) -> None:
    samplers = [DistributedBatchSampler(length, batch, r, size, shuffle=False,
                                        drop_last=drop_last) for r in range(size)]
    assert [[part.tolist() for part in sampler] for sampler in samplers] == want
    assert all(len(s) == len(w) for s, w in zip(samplers, want))


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    sampler = DistributedBatchSampler(50, 50, seed=1)
    first, second = (next(iter([*sampler])).tolist() for _ in range(2))
    assert first != second and sorted(first) == sorted(second) == list(range(50))
    np.random.seed(0)
    mt.manual_seed(9)
    again = DistributedBatchSampler(50, 50, seed=1)
    again.set_epoch(1)
    assert [part.tolist() for part in again] == [second]
    assert DistributedBatchSampler(50, 50, seed=2).order(0).tolist() != first


def test_shuffles_put_every_sample_at_every_place_equally_often() -> None:
    orders = np.stack([DistributedBatchSampler(6, 6, seed=5).order(e) for e in range(600)])
    counts = np.stack([(orders == sample).sum(0) for sample in range(6)])
    assert np.abs(counts - 100).max() < 5 * np.sqrt(600 * (1 / 6) * (5 / 6))


@pytest.mark.parametrize("arguments, error, text", [
    ((10, 0), ValueError, "global_batch must be at least 1, got 0"),
    ((10, 2.5), TypeError, "global_batch is an int, got float 2.5"),
    ((10, True), TypeError, "global_batch is an int, got bool True"),
    ((-1, 2), ValueError, "length must be at least 0, got -1"),
    ((10, 2, 2, 2), ValueError, "rank 2 of 2"),
    ((10, 2, 0, 3), ValueError, "global_batch 2 is smaller than the 3 ranks"),
    ((10, 2, 0, 0), ValueError, "size must be at least 1, got 0"),
])
def test_numbers_that_make_no_sampler_are_named(
    arguments: tuple[Any, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        DistributedBatchSampler(*arguments)
