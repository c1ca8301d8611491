"""Batches cut over ranks and in time, and means that stay right when the parts are uneven."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from minitorch_gpu import random
from minitorch_gpu.comm.base import Communicator
from minitorch_gpu.partition import split_sizes
from minitorch_gpu.tensor import Tensor


class Weighted(Protocol):
    """A data-parallel wrapper: a communicator and this rank's weight in the next reduction."""

    comm: Communicator

    def reduction_weight(self) -> float:
        """The factor this rank's gradient is summed with."""


def batch_length(value: Any) -> int | None:
    """Length of dim 0 of the first Tensor found in a nest of tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return value.shape[0] if value.ndim else 1
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, (tuple, list, dict)):
        return next((n for n in map(batch_length, parts) if n is not None), None)
    return None


def microbatches(batch: Any, count: int) -> Iterator[Any]:
    """The batch in ``count`` parts along dim 0, for a loop that accumulates gradients.

    All parts share one random tick, and each draws as its samples would in the whole batch, so
    dropout does not depend on ``count``. Weigh each part's mean loss by ``current_weight()``::

        for x, y in microbatches((x, y), 3):
            (criterion(model(x), y) * current_weight()).backward()

    Under DistributedDataParallel only the last part's backward reduces.

    Args:
        batch: a Tensor or a nest of tuples, lists and dicts; Tensors are cut, the rest kept.
        count: how many parts, cut by ``split_sizes``; parts without samples are left out.

    Raises:
        ValueError: ``count`` is not positive, or the Tensors differ in their length.
    """
    total = batch_length(batch)
    if total is None:
        raise ValueError("microbatches: the batch holds no Tensor")
    if count < 1:
        raise ValueError(f"microbatches: count must be positive, not {count}")
    start = 0
    with random.step():
        for size in [n for n in split_sizes(total, count) if n] or [0]:
            with random.batch_slice(start, size, total):
                yield _cut(batch, start, size, total)
            start += size


def _cut(value: Any, start: int, size: int, total: int) -> Any:
    if isinstance(value, Tensor):
        if value.shape[:1] != (total,):
            raise ValueError(f"microbatches: a Tensor of shape {value.shape} in a batch of "
                             f"{total} samples")
        return value[start : start + size]
    if isinstance(value, dict):
        return {k: _cut(v, start, size, total) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_cut(v, start, size, total) for v in value)
    return value


def current_weight() -> float:
    """The share of the batch that the current part of ``microbatches`` holds; 1 outside."""
    batch = random.current_batch()
    if batch is None:
        return 1.0
    return batch[1] / batch[2] if batch[2] else 0.0


def in_last_microbatch() -> bool:
    """Whether the part in force ends its batch; true outside ``microbatches``."""
    batch = random.current_batch()
    return batch is None or batch[0] + batch[1] == batch[2]


def global_mean(
    total: Tensor, count: Any, over: Communicator | Weighted, *, dtype: Any = np.float64
) -> Tensor:
    """The sum of all ranks' ``total`` over the sum of their ``count``, on every rank.

    A mean of the ranks' means is another number when counts differ (ignored labels, a last
    batch that does not divide). The gradient is scaled for the reduction that follows: after
    the data-parallel sum of weighted gradients it is the gradient of this global mean.

    Args:
        total: this rank's summed loss, one element.
        count: this rank's number of terms, 0 allowed.
        over: the DistributedDataParallel model, whose weights are then undone; or a
            communicator, for gradients that will be averaged with equal weights.
        dtype: what the sums travel in.

    Returns:
        A scalar Tensor, the same bits on every rank; NaN when no rank has any term.
    """
    comm = over if isinstance(over, Communicator) else over.comm
    weight = 1.0 / comm.size if isinstance(over, Communicator) else over.reduction_weight()
    number = count.item() if isinstance(count, Tensor) else count
    both = comm.all_reduce(np.array([total.item(), number], dtype))
    scale = 1.0 / (both[1] * weight) if both[1] and weight else 0.0
    mean = total * float(scale)
    mean.array[...] = both[0] / both[1] if both[1] else np.nan  # mul saves no output
    return mean
