"""Fetching samples: randomness that any number of workers reproduces, and worker threads."""

from __future__ import annotations

import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import random
from minitorch_gpu.data import DataLoader, DistributedBatchSampler
from tests.data_support import Numbers, flat


def draws(length: int = 20) -> Numbers:
    """Samples that are random numbers."""
    return Numbers(length, lambda index: int(random.integers(0, 2**62, ())))


# ---- randomness inside a dataset


def test_every_sample_of_every_epoch_draws_other_numbers() -> None:
    loader = DataLoader(draws(), batch_size=4, shuffle=True, seed=1, num_workers=4)
    values = flat(loader) + flat(loader)
    assert len(set(values)) == 40
    assert len(set(values) & set(flat(DataLoader(draws(), batch_size=4, seed=2)))) == 0


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_a_samples_numbers_are_the_same_for_any_workers_batches_and_ranks(
    workers: int,
) -> None:
    want = flat(DataLoader(draws(), batch_size=20, seed=1))
    assert flat(DataLoader(draws(), batch_size=3, seed=1, num_workers=workers)) == want
    parts = [DataLoader(draws(), batch_sampler=DistributedBatchSampler(
        20, 6, rank, 2, shuffle=False, seed=1), num_workers=workers) for rank in range(2)]
    assert [x for pair in zip(*parts) for part in pair for x in part.tolist()] == want


@pytest.mark.parametrize("workers", [0, 2])
def test_a_datasets_draws_do_not_move_the_programs_generator(workers: int) -> None:
    loader = DataLoader(draws(), batch_size=5, seed=1, num_workers=workers)
    with random.use_generator(random.Generator(3)) as generator, random.step():
        inside = flat(loader)
        assert generator.get_state()["tick"] == 1
    assert inside == flat(DataLoader(draws(), batch_size=5, seed=1))


def test_numpys_numbers_are_distinct_over_workers_and_epochs() -> None:
    samples = Numbers(16, lambda index: int(np.random.randint(2**62)))
    loader = DataLoader(samples, batch_size=2, num_workers=4)
    assert len(set(flat(loader) + flat(loader))) == 32


def test_what_a_whole_batch_draws_stands_at_its_rows_of_the_global_batch() -> None:
    class Noise(Numbers):
        def fetch_many(self, indices: np.ndarray) -> Any:
            return mt.Tensor(random.uniform((len(indices), 2)))

    (whole, rest), (again, _) = (list(DataLoader(Noise(10), 7, seed=1)) for _ in range(2))
    assert (whole.array == again.array).all() and not (rest.array == whole.array[:3]).any()
    parts = [next(iter(DataLoader(Noise(10), batch_sampler=DistributedBatchSampler(
        10, 7, rank, 3, seed=1)))).array for rank in range(3)]
    assert (np.concatenate(parts) == whole.array).all()


# ---- worker threads


def failing(at: int) -> Numbers:
    def value(index: int) -> int:
        if index == at:
            raise KeyError(f"no sample {index}")
        return index

    return Numbers(12, value)


def loader_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("DataLoader")]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_what_a_worker_raises_comes_at_its_batch_with_its_traceback(workers: int) -> None:
    got = []
    with pytest.raises(KeyError, match="no sample 7") as caught:
        for batch in DataLoader(failing(7), batch_size=2, num_workers=workers):
            got += batch.tolist()
    assert got == [0, 1, 2, 3, 4, 5]
    assert "value" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert not loader_threads()


def test_workers_fetch_ahead_but_not_further_than_asked() -> None:
    fetched: list[int] = []
    all_are_there = threading.Event()

    def value(index: int) -> int:
        fetched.append(index)
        if len(fetched) == 4:
            all_are_there.set()
        return index

    batches = iter(DataLoader(Numbers(12, value), num_workers=2, prefetch_factor=2))
    next(batches)
    assert all_are_there.wait(10) and sorted(fetched) == [0, 1, 2, 3]
    batches.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("leave", ["close", "break", "drop"])
def test_leaving_early_ends_the_workers(leave: str) -> None:
    fetched: list[int] = []
    samples = Numbers(10_000, lambda index: fetched.append(index) or index)
    batches: Any = iter(DataLoader(samples, num_workers=3))
    for _ in batches:
        assert loader_threads()
        break
    if leave == "close":
        batches.close()
    del batches, _
    assert not loader_threads() and len(fetched) <= 6


def test_batches_not_begun_are_never_fetched_after_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetched: list[int] = []
    fetching, closed = threading.Event(), threading.Event()
    shut_down = ThreadPoolExecutor.shutdown

    def value(index: int) -> int:
        fetched.append(index)
        if index == 1:
            fetching.set()
            assert closed.wait(10)
        return index

    def shutdown(pool: ThreadPoolExecutor, wait: bool, *, cancel_futures: bool) -> None:
        shut_down(pool, wait=False, cancel_futures=cancel_futures)
        closed.set()
        shut_down(pool, wait=wait)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shutdown)
    batches: Any = iter(DataLoader(Numbers(9, value), num_workers=1, prefetch_factor=4))
    next(batches)
    assert fetching.wait(10)
    batches.close()
    assert fetched == [0, 1] and not loader_threads()


def test_workers_run_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=10)
    samples = Numbers(6, lambda index: meeting.wait() * 0 + index)
    assert flat(DataLoader(samples, num_workers=3)) == list(range(6))


def test_workers_run_in_the_context_of_the_pass() -> None:
    samples = Numbers(4, lambda index: mt.is_grad_enabled())
    with mt.no_grad():
        assert flat(DataLoader(samples, num_workers=2)) == [False] * 4
    assert flat(DataLoader(samples, num_workers=2)) == [True] * 4
