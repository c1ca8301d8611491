"""DataLoader: batches in order, resumed exactly, the same on any number of ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from minitorch_gpu import random
from minitorch_gpu.data import CharacterDataset, DataLoader, DistributedBatchSampler
from tests.data_support import TEN, Numbers, flat, rows


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_loader_walks_the_whole_set_in_batches(workers: int) -> None:
    loader = DataLoader(TEN, batch_size=4, num_workers=workers)
    assert rows(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] and len(loader) == 3
    loader = DataLoader(TEN, batch_size=4, drop_last=True, num_workers=workers)
    assert rows(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]] and len(loader) == 2
    assert rows(DataLoader(TEN)) == [[i] for i in range(10)]


@pytest.mark.parametrize("workers", [0, 3])
def test_shuffled_epochs_differ_and_are_the_same_for_the_same_seed(workers: int) -> None:
    loader = DataLoader(TEN, batch_size=3, shuffle=True, seed=4, num_workers=workers)
    epochs = [rows(loader) for _ in range(3)]
    assert len({str(e) for e in epochs}) == 3
    assert all(sorted(flat(e)) == list(range(10)) for e in epochs)
    again = DataLoader(TEN, batch_size=3, shuffle=True, seed=4)
    assert [rows(again) for _ in range(3)] == epochs
    again.set_epoch(1)
    assert rows(again) == epochs[1] and again.epoch == 2


def test_the_default_seed_is_the_default_generators_and_draws_nothing_from_it() -> None:
    with random.use_generator(random.Generator(11)) as generator:
        default = rows(DataLoader(TEN, batch_size=10, shuffle=True))
        assert generator.get_state() == {"seed": 11, "tick": 0}
    assert default == rows(DataLoader(TEN, batch_size=10, shuffle=True, seed=11))
    assert default != rows(DataLoader(TEN, batch_size=10, shuffle=True, seed=12))


@pytest.mark.parametrize("workers", [0, 2])
def test_two_passes_at_once_are_two_epochs(workers: int) -> None:
    loader = DataLoader(TEN, batch_size=4, shuffle=True, seed=2, num_workers=workers)
    pairs = [(a.tolist(), b.tolist()) for (a,), (b,) in zip(loader, loader, strict=True)]
    alone = DataLoader(TEN, batch_size=4, shuffle=True, seed=2)
    assert [a for a, _ in pairs] == rows(alone) and [b for _, b in pairs] == rows(alone)
    assert loader.state_dict() == {"seed": 2, "epoch": 2, "consumed": 0}


def test_the_position_is_that_of_the_pass_begun_last() -> None:
    loader = DataLoader(TEN, batch_size=4, seed=2)
    older, newer = iter(loader), iter(loader)
    next(newer)
    assert len(list(older)) == 3
    assert loader.state_dict() == {"seed": 2, "epoch": 1, "consumed": 4}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_users_own_batch_sampler(workers: int) -> None:
    loader = DataLoader(TEN, batch_sampler=[[1, 1], [], [7, -1, 2]], num_workers=workers)
    assert rows(loader) == [[1, 1], [], [7, 9, 2]] == rows(loader) and len(loader) == 3
    named = DataLoader({"a": 1, "b": 2}, batch_sampler=[["b"], ["a", "b"]])
    assert [batch.tolist() for batch in named] == [[2], [1, 2]]


def test_a_users_own_batch_sampler_hears_the_epoch_and_resumes() -> None:
    class Rotating:
        start = 0

        def set_epoch(self, epoch: int) -> None:
            self.start = epoch

        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Iterator[list[int]]:
            return iter([[(self.start + i) % 10, 0] for i in range(3)])

    loader = DataLoader(TEN, batch_sampler=Rotating())
    loader.load_state_dict({"seed": 0, "epoch": 5, "consumed": 2})
    assert rows(loader) == [[6, 0], [7, 0]] and rows(loader) == [[6, 0], [7, 0], [8, 0]]
    for consumed in (3, 8):
        loader.load_state_dict({"seed": 0, "epoch": 0, "consumed": consumed})
        with pytest.raises(ValueError, match=f"ends after {consumed} samples"):
            rows(loader)


def test_a_rank_without_samples_gets_empty_batches_of_the_right_form() -> None:
    samples = Numbers(2, lambda i: {"x": np.ones((3, 2), np.float32), "y": (i, "name")})
    last = DataLoader(samples, batch_sampler=DistributedBatchSampler(2, 3, 2, 3))
    (batch,) = last
    assert batch["x"].shape == (0, 3, 2) and batch["x"].dtype == np.float32
    assert batch["y"][0].shape == (0,) and batch["y"][0].dtype == np.int64
    assert batch["y"][1] == [] and last.batch_slice == (2, 0, 2)
    windows = CharacterDataset("hello", 3)
    (x, y), = DataLoader(windows, batch_sampler=DistributedBatchSampler(2, 3, 2, 3))
    assert x.shape == y.shape == (0, 3) and x.dtype == y.dtype == np.int64


def test_the_batch_slice_is_that_of_the_batch_received_last() -> None:
    sampler = DistributedBatchSampler(10, 4, 1, 3, shuffle=False)
    loader = DataLoader(TEN, batch_sampler=sampler, num_workers=2)
    assert loader.batch_slice is None
    got = [(x.tolist(), loader.batch_slice) for (x,) in loader]
    assert got == [([2], (2, 1, 4)), ([6], (2, 1, 4)), ([9], (1, 1, 2))]


@pytest.mark.parametrize("options, error, text", [
    (dict(batch_size=0), ValueError, "batch_size must be at least 1, got 0"),
    (dict(batch_size=-2), ValueError, "batch_size must be at least 1, got -2"),
    (dict(batch_size=1.5), TypeError, "batch_size is an int, got float 1.5"),
    (dict(num_workers=-1), ValueError, "num_workers must be at least 0, got -1"),
    (dict(prefetch_factor=0), ValueError, "prefetch_factor must be at least 1, got 0"),
    (dict(seed=0.5), TypeError, "a seed is an int"),
    (dict(batch_sampler=[[0]], shuffle=True), ValueError, "leave them out .*shuffle=True"),
    (dict(batch_sampler=[[0]], batch_size=2), ValueError, "leave them out .*batch_size=2"),
    (dict(batch_sampler=iter([[0]])), TypeError, "only once"),
    (dict(batch_sampler=DistributedBatchSampler(1, 1), seed=1), ValueError, "seed=1 belongs"),
])
def test_options_that_make_no_loader_are_named(
    options: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        DataLoader(TEN, **options)


def test_a_dataset_needs_a_length() -> None:
    with pytest.raises(TypeError, match="generator: it needs __getitem__ and __len__"):
        DataLoader(i for i in range(3))


# ---- resuming


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("done", range(9))
def test_a_resumed_loader_gives_what_the_uninterrupted_one_gave(
    workers: int, done: int
) -> None:
    def loader() -> DataLoader:
        return DataLoader(TEN, batch_size=3, shuffle=True, seed=6, num_workers=workers)

    whole = loader()
    want = [batch for _ in range(3) for batch in rows(whole)]  # 4 batches an epoch
    first, got = loader(), []
    while len(got) < done:
        for (x,) in first:
            got.append(x.tolist())
            if len(got) == done:
                state = json.loads(json.dumps(first.state_dict()))
                break
    resumed = DataLoader(TEN, batch_size=3, shuffle=True, num_workers=workers)
    resumed.load_state_dict(state if done else first.state_dict())
    while resumed.epoch < 3:
        got += rows(resumed)
    assert got == want


def test_the_state_counts_what_was_received() -> None:
    loader = DataLoader(TEN, batch_size=3, seed=1, num_workers=2, prefetch_factor=4)
    states = [loader.state_dict()["consumed"] for _ in loader]
    assert states == [3, 6, 9, 10]
    assert loader.state_dict() == {"seed": 1, "epoch": 1, "consumed": 0}


def test_a_state_at_the_end_of_an_epoch_resumes_with_an_empty_rest() -> None:
    loader = DataLoader(TEN, batch_size=5, shuffle=True, seed=1)
    passing = iter(loader)
    next(passing), next(passing)
    resumed = DataLoader(TEN, batch_size=5, shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    assert resumed.state_dict() == {"seed": 1, "epoch": 0, "consumed": 10}
    assert rows(resumed) == []
    assert list(passing) == [] and rows(resumed) == rows(loader)


def test_a_loop_over_epochs_takes_a_loaded_position_up() -> None:
    loader = DataLoader(TEN, batch_size=5, shuffle=True, seed=1)
    loader.set_epoch(2)
    whole = rows(loader)
    loader.load_state_dict({"seed": 1, "epoch": 2, "consumed": 5})
    loader.set_epoch(2)
    assert rows(loader) == whole[1:]
    loader.set_epoch(2)
    assert rows(loader) == whole


def test_a_pass_left_early_is_followed_by_a_new_epoch() -> None:
    loader = DataLoader(TEN, batch_size=5, shuffle=True, seed=1)
    next(iter(loader))
    assert loader.state_dict() == {"seed": 1, "epoch": 0, "consumed": 5}
    loader.set_epoch(0)
    next(iter(loader))
    assert sorted(flat(rows(loader))) == list(range(10)) and loader.epoch == 2


def test_a_state_saved_by_one_rank_of_three_goes_on_alone() -> None:
    def part(rank: int, size: int) -> DataLoader:
        sampler = DistributedBatchSampler(10, 4, rank, size, seed=1)
        return DataLoader(TEN, batch_sampler=sampler, num_workers=2)

    saved = []
    for rank in range(3):
        loader = part(rank, 3)
        next(iter(loader))
        saved.append(loader.state_dict())
    assert saved == [{"seed": 1, "epoch": 0, "consumed": 4}] * 3
    alone, whole = part(0, 1), rows(part(0, 1))
    alone.load_state_dict(saved[0])
    assert rows(alone) == whole[1:]


@pytest.mark.parametrize("change, error, text", [
    (dict(consumed=11), ValueError, "consumed 11 samples .* only 10"),
    (dict(consumed=-1), ValueError, "state 'consumed' must be at least 0"),
    (dict(epoch="1"), TypeError, "state 'epoch' is an int, got str"),
    (dict(seed=None), TypeError, "a seed is an int"),
    (dict(rank=1), ValueError, "keys seed, epoch and consumed, got .*'rank'"),
])
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(
    change: dict[str, Any], error: type[Exception], text: str
) -> None:
    loader = DataLoader(TEN, batch_size=5, seed=3)
    before = loader.state_dict()
    with pytest.raises(error, match=text):
        loader.load_state_dict({"seed": 1, "epoch": 1, "consumed": 0} | change)
    assert loader.state_dict() == before
