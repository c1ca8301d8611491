"""Which samples each batch takes, in which order, and how far a pass over them has come."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from minitorch_gpu.partition import split_range
from minitorch_gpu.random import BatchSlice, Generator, permutation
from minitorch_gpu.random.frames import hash64


class LocalBatch(NamedTuple):
    """The part of one global batch that a rank takes."""

    indices: Any  # int64 (local,), or a list of whatever a user's own sampler yields
    position: int  # samples of the epoch before this global batch
    slice: BatchSlice  # (start, local, total): where the part lies in its global batch


def seed_of(seed: int, epoch: int, purpose: str) -> int:
    """A seed of its own for each (seed, epoch, purpose)."""
    return hash64(epoch, purpose, seed)


def count(name: str, value: Any, least: int) -> int:
    """``value`` as an int from ``least`` up.

    Raises:
        TypeError, ValueError: it is none; the message names it.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is an int, got {type(value).__name__} {value!r}")
    if operator.index(value) < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return operator.index(value)


class Pass:
    """One walk over an epoch: what was handed out of it so far."""

    def __init__(self, epoch: int, consumed: int = 0) -> None:
        self.epoch, self.consumed = epoch, consumed
        self.begun = False


class ResumableBatches(ABC):
    """The batches of every epoch, and a position among them that can be saved.

    Iterating makes a pass over the current epoch and then moves to the next one. A pass that
    was left early is not taken up again: the next one begins a new epoch, as in PyTorch.
    Several passes may run at once; the position is that of the pass begun last.

    ``state_dict()`` is ``{"seed", "epoch", "consumed"}``, consumed in global samples of the
    epoch: the same on every rank, and good for any number of ranks. It counts a batch once it
    was handed out, so a state taken after the last batch of an epoch resumes with an empty
    rest of it, one taken after the loop with the next epoch.
    """

    def __init__(self, seed: int) -> None:
        self._seed = Generator(seed).initial_seed()
        self._pass = Pass(0)
        self._slice: BatchSlice | None = None

    @abstractmethod
    def batches(self, epoch: int, consumed: int = 0) -> Iterator[LocalBatch]:
        """The batches of ``epoch`` after its first ``consumed`` samples; moves no position."""

    @abstractmethod
    def __len__(self) -> int:
        """Batches in a whole epoch."""

    @property
    def seed(self) -> int:
        """What every order and every sample's randomness derive from."""
        return self._seed

    @property
    def epoch(self) -> int:
        """The epoch of the pass begun last, or of the one to come once that has ended."""
        return self._pass.epoch

    @property
    def batch_slice(self) -> BatchSlice | None:
        """(start, local, total) of the batch handed out last, for ``random.step(batch=)``."""
        return self._slice

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be over ``epoch``, from its beginning or from a loaded position."""
        epoch = count("epoch", epoch, 0)
        if self._pass.begun or epoch != self._pass.epoch:
            self._pass = Pass(epoch)

    def begin(self) -> Pass:
        """Begin a pass: at a loaded position, else at the beginning of an epoch."""
        if self._pass.begun:
            self._pass = Pass(self._pass.epoch + 1)
        self._pass.begun = True
        return self._pass

    def take(self, current: Pass, batch: LocalBatch) -> None:
        """Count a batch of the pass as handed out."""
        current.consumed = batch.position + batch.slice[2]
        self._slice = batch.slice

    def finish(self, done: Pass) -> None:
        """End a pass that handed out all it had: the next epoch is to come."""
        if done is self._pass:
            self._pass = Pass(done.epoch + 1)

    def __iter__(self) -> Iterator[Any]:
        return self._walk(self.begin())

    def _walk(self, current: Pass) -> Iterator[Any]:
        for batch in self.batches(current.epoch, current.consumed):
            self.take(current, batch)
            yield batch.indices
        self.finish(current)

    def state_dict(self) -> dict[str, int]:
        """The position: ``{"seed": ..., "epoch": ..., "consumed": global samples}``."""
        current = self._pass
        return {"seed": self._seed, "epoch": current.epoch, "consumed": current.consumed}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next pass hand out exactly what was left at ``state_dict``.

        Raises:
            ValueError, TypeError: keys are missing or unknown, a value is no count, or more
                samples were consumed than there are. Nothing is changed then.
        """
        if set(state) != {"seed", "epoch", "consumed"}:
            raise ValueError(
                f"a sampler's state has keys seed, epoch and consumed, got {sorted(state)}"
            )
        seed = Generator(state["seed"]).initial_seed()
        position = Pass(*(count(f"state {key!r}", state[key], 0) for key in _POSITION))
        self._check_position(position.consumed)
        self._seed, self._pass = seed, position

    def _check_position(self, consumed: int) -> None:  # noqa: B027, not all know their length
        """Raise where ``consumed`` is more than an epoch has."""


_POSITION = ("epoch", "consumed")


class DistributedBatchSampler(ResumableBatches):
    """The rank's contiguous part of every global batch.

        order of the epoch   7 2 9 4 | 1 0 8 3 | 6 5         global_batch = 4
        rank 0 of 3          7 2     | 1 0     | 6           split_sizes(4, 3) = (2, 1, 1)
        rank 1                   9   |     8   |   5
        rank 2                     4 |       3 |             an empty batch keeps it in step

    The global batches, and their order, are the same for any number of ranks. No sample is
    lost (but the last incomplete batch with ``drop_last``), and none is repeated: there is no
    padding to equal parts, so metrics summed over the ranks are exact.

    Iterating yields the rank's indices, int64 (local,); ``batch_slice`` tells where they lie
    in their global batch.

    Args:
        length: samples in the dataset.
        global_batch: samples in a batch over all ranks, at least ``size``.
        rank, size: of the data-parallel communicator.
        shuffle: a new order every epoch, which depends on (seed, epoch) alone.
        seed: the same on every rank.
        drop_last: leave out the last batch of an epoch where it is incomplete.

    Raises:
        TypeError, ValueError: a number that is no count, or no such rank, by name.
    """

    def __init__(
        self,
        length: int,
        global_batch: int,
        rank: int = 0,
        size: int = 1,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(seed)
        self.length = count("length", length, 0)
        self.global_batch = count("global_batch", global_batch, 1)
        self.size = count("size", size, 1)
        self.rank = count("rank", rank, 0)
        if self.rank >= self.size:
            raise ValueError(f"rank {rank} of {size}: ranks count from 0 to {size - 1}")
        if self.global_batch < self.size:
            raise ValueError(
                f"global_batch {global_batch} is smaller than the {size} ranks, some of which "
                f"would never see a sample: give at least {size}, or start fewer ranks"
            )
        self.shuffle, self.drop_last = bool(shuffle), bool(drop_last)

    def order(self, epoch: int) -> np.ndarray:
        """int64 (length,): the samples in the order in which ``epoch`` takes them."""
        if not self.shuffle:
            return np.arange(self.length)
        generator = Generator(seed_of(self.seed, epoch, "shuffle"))
        return np.asarray(permutation(self.length, generator=generator))

    def batches(self, epoch: int, consumed: int = 0) -> Iterator[LocalBatch]:
        """The rank's parts of the global batches after the first ``consumed`` samples."""
        order = self.order(epoch)
        stop = self.length - self.global_batch + 1 if self.drop_last else self.length
        for position in range(consumed, stop, self.global_batch):
            total = min(self.global_batch, self.length - position)
            start, end = split_range(total, self.size, self.rank)
            indices = order[position + start : position + end]
            yield LocalBatch(indices, position, (start, end - start, total))

    def __len__(self) -> int:
        whole, rest = divmod(self.length, self.global_batch)
        return whole + (rest > 0 and not self.drop_last)

    def _check_position(self, consumed: int) -> None:
        if consumed > self.length:
            raise ValueError(
                f"the state has consumed {consumed} samples of an epoch, but there are only "
                f"{self.length}: was it saved with another dataset?"
            )


class ListedBatches(ResumableBatches):
    """The batches of a user's own sampler: any iterable, of known length, of lists of indices.

    Its ``set_epoch``, where it has one, is called before every pass. It resumes by passing
    over its first batches, so it must yield the same ones in the same epoch. It counts the
    samples that it yields itself: the state of a rank's own list fits that rank alone.

    Raises:
        TypeError: it can be iterated only once, or tells no length.
    """

    def __init__(self, source: Iterable[Any], *, seed: int = 0) -> None:
        super().__init__(seed)
        if not (hasattr(source, "__iter__") and hasattr(source, "__len__")):
            raise TypeError(
                f"batch_sampler is a {type(source).__name__}, which can be iterated only once "
                "or has no length: give a list of lists of indices, or an object with "
                "__iter__ and __len__"
            )
        self.source: Any = source

    def batches(self, epoch: int, consumed: int = 0) -> Iterator[LocalBatch]:
        """The listed batches after the first ``consumed`` samples.

        Raises:
            ValueError: no batch ends there.
        """
        if hasattr(self.source, "set_epoch"):
            self.source.set_epoch(epoch)
        position = 0
        for batch in self.source:
            indices = list(batch)
            if position >= consumed:
                yield LocalBatch(indices, position, (0, len(indices), len(indices)))
            elif position + len(indices) > consumed:
                break
            position += len(indices)
        if position < consumed:
            raise ValueError(
                f"no batch of the batch_sampler ends after {consumed} samples, as one did when "
                "the state was saved: it must yield the same batches again"
            )

    def __len__(self) -> int:
        return len(self.source)
