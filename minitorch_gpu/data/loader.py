"""DataLoader: batches of a dataset, fetched ahead by worker threads."""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from minitorch_gpu import random
from minitorch_gpu.data.collate import default_collate, emptied
from minitorch_gpu.data.sampler import (
    BatchSlice,
    DistributedBatchSampler,
    ListedBatches,
    LocalBatch,
    Pass,
    ResumableBatches,
    count,
    seed_of,
)

Fetch = Callable[[LocalBatch], Any]
Fetched = Generator[tuple[LocalBatch, Any], None, None]


class DataLoader:
    """Batches of a dataset, in an order that depends on (seed, epoch) alone.

        loader = DataLoader(dataset, batch_size=64, shuffle=True, seed=1, num_workers=2)
        sampler = DistributedBatchSampler(len(dataset), 64, comm.rank, comm.size)
        loader = DataLoader(dataset, batch_sampler=sampler)      # this rank's part

    **Epochs and resuming** are those of the batch sampler (see ``ResumableBatches``): the
    state counts the batches that the loop received, whatever the workers have fetched ahead.

    **Randomness.** Each sample is fetched with a default generator of its own, seeded by
    (seed, epoch, index): what ``__getitem__`` draws by ``minitorch_gpu.random`` differs
    between samples and epochs, and is the same for any number of workers and ranks. NumPy's
    global generator is the user's: the workers are threads and share it, so its numbers are
    distinct, but which sample gets which depends on timing.

    **Workers** are threads: NumPy releases the interpreter lock in its long operations. They
    run in a copy of the context in which the pass began. What a worker raises is raised in
    the loop in place of its batch, with its traceback; leaving the loop, or closing the
    iterator, ends them.

    Args:
        dataset: has ``__getitem__`` and ``__len__``. Where it has ``fetch_many``, and no
            subclass overrides ``__getitem__`` alone, that makes whole batches.
        batch_size: samples in a batch.
        shuffle: a new order every epoch.
        batch_sampler: instead of batch_size, shuffle and drop_last: a
            ``DistributedBatchSampler``, or an iterable of lists of indices.
        num_workers: threads; 0 fetches in the loop itself.
        collate_fn: makes a batch of a list of samples; ``default_collate`` if None. For a
            rank without samples, what it makes of sample 0 is cut to length 0.
        drop_last: leave out the last batch where it is incomplete.
        seed: None takes the default generator's seed, without drawing from it.
        prefetch_factor: batches that each worker fetches ahead.

    Raises:
        TypeError, ValueError: an argument that is none of these, by name.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        *,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        seed: int | None = None,
        prefetch_factor: int = 2,
    ) -> None:
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise TypeError(
                f"dataset is a {type(dataset).__name__}: it needs __getitem__ and __len__"
            )
        self.dataset = dataset
        self.num_workers = count("num_workers", num_workers, 0)
        self.prefetch_factor = count("prefetch_factor", prefetch_factor, 1)
        self.collate_fn = collate_fn
        if batch_sampler is None:
            size = count("batch_size", 1 if batch_size is None else batch_size, 1)
            self.batch_sampler: ResumableBatches = DistributedBatchSampler(
                len(dataset), size, shuffle=shuffle, seed=_seed(seed), drop_last=drop_last
            )
        elif batch_size is not None or shuffle or drop_last:
            raise ValueError(
                "a batch_sampler decides batch_size, shuffle and drop_last: leave them out "
                f"(got batch_size={batch_size}, shuffle={shuffle}, drop_last={drop_last})"
            )
        else:
            self.batch_sampler = _resumable(batch_sampler, seed)

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        return len(self.batch_sampler)

    @property
    def epoch(self) -> int:
        """The epoch under way, or the one to come; see ``ResumableBatches.epoch``."""
        return self.batch_sampler.epoch

    @property
    def batch_slice(self) -> BatchSlice | None:
        """(start, local, total) of the batch received last within its global batch."""
        return self.batch_sampler.batch_slice

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be over ``epoch``; a position loaded for it is kept."""
        self.batch_sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """What was received: ``{"seed", "epoch", "consumed"}``, the same on all ranks."""
        return self.batch_sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on exactly after what was received at ``state_dict``, on any number of ranks.

        Raises:
            ValueError, TypeError: the state does not fit; nothing is changed.
        """
        self.batch_sampler.load_state_dict(state)

    def __iter__(self) -> Iterator[Any]:
        return self._run(self.batch_sampler.begin())

    def _run(self, current: Pass) -> Iterator[Any]:
        batches = self.batch_sampler.batches(current.epoch, current.consumed)
        fetch = partial(self._fetch, self.batch_sampler.seed, current.epoch)
        if self.num_workers:
            results = _ahead(batches, fetch, self.num_workers, self.prefetch_factor)
        else:
            results = ((batch, fetch(batch)) for batch in batches)
        with closing(results):
            for batch, value in results:
                self.batch_sampler.take(current, batch)
                yield value
        self.batch_sampler.finish(current)

    def _fetch(self, seed: int, epoch: int, batch: LocalBatch) -> Any:
        if self.collate_fn is None and _makes_batches(self.dataset):
            indices = np.asarray(batch.indices, np.int64)
            generator = random.Generator(seed_of(seed, epoch, f"batch {batch.position}"))
            with random.step(generator, batch=batch.slice):
                return self.dataset.fetch_many(indices)
        join = self.collate_fn or default_collate
        keys = batch.indices
        keys = keys.tolist() if isinstance(keys, np.ndarray) else keys
        samples = [self._sample(seed, epoch, key) for key in keys or [0]]
        return join(samples) if keys else emptied(join(samples))

    def _sample(self, seed: int, epoch: int, key: Any) -> Any:
        generator = random.Generator(seed_of(seed, epoch, f"sample {key}"))
        with random.use_generator(generator):
            return self.dataset[key]


def _ahead(batches: Iterator[LocalBatch], fetch: Fetch, workers: int, factor: int) -> Fetched:
    """Each batch with what ``fetch`` makes of it, in order, while threads fetch later ones."""
    context = contextvars.copy_context()
    pending: deque[tuple[LocalBatch, Future[Any]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="DataLoader")
    try:
        for batch in batches:
            pending.append((batch, pool.submit(context.copy().run, fetch, batch)))
            if len(pending) == workers * factor:
                first, future = pending.popleft()
                yield first, future.result()
        while pending:
            first, future = pending.popleft()
            yield first, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _makes_batches(dataset: Any) -> bool:
    """Whether ``fetch_many`` is at least as derived as ``__getitem__``.

    Else a subclass that changes single samples would be passed over.
    """
    for kind in type(dataset).__mro__:
        if "fetch_many" in vars(kind):
            return True
        if "__getitem__" in vars(kind):
            return False
    return False


def _seed(seed: int | None) -> int:
    return random.default_generator().initial_seed() if seed is None else seed


def _resumable(batch_sampler: Any, seed: int | None) -> ResumableBatches:
    if not isinstance(batch_sampler, ResumableBatches):
        return ListedBatches(batch_sampler, seed=_seed(seed))
    if seed is not None:
        raise ValueError(f"seed={seed} belongs to the {type(batch_sampler).__name__}: give it "
                         "there")
    return batch_sampler
