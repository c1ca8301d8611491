"""Data parallelism: every rank has the model and a part of the batch, gradients are summed.

    rank 0   forward  backward --- leaf ready ... bucket full -> reduce 0, 1, 2 ... mask
    rank 1   forward  backward --- leaf ready ... bucket full -> reduce 0, 1, 2 ... mask

Buckets are reduced in one order on all ranks, each as soon as it and those before it are full;
what is missing when the walk ends (unused parameters) counts as zeros.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minitorch_gpu import random
from minitorch_gpu.comm.base import Communicator
from minitorch_gpu.modes import is_recording
from minitorch_gpu.nn.module import Module
from minitorch_gpu.parallel.batches import batch_length, in_last_microbatch
from minitorch_gpu.parallel.bucket import Bucket, make_buckets
from minitorch_gpu.tensor import Parameter

WEIGHTS = ("samples", "equal")


class DistributedDataParallel(Module):
    """Wraps a model so that ``backward`` leaves the global batch's gradient on every rank.

    Wrapping sends rank 0's parameters and buffers to all. In training mode a forward exchanges
    the ranks' batch lengths, tells random draws where this rank's samples lie in the global
    batch, and sends rank 0's buffers (looked up by name) to all ranks. Whether to reduce is
    read when ``backward`` runs. A parameter that no rank used keeps ``grad`` None; one that
    some rank used gets the weighted sum, absent gradients counting as zeros.

    ``state_dict`` and parameter names are the wrapped model's own.

    Args:
        module: the model, the same on every rank.
        comm: the ranks to reduce over; size 1 changes nothing.
        zero: the stage of sharding (Rajbhandari et al. 2020); 0 replicates everything.
        bucket_mb: MiB of gradients reduced by one call.
        weights: "samples" weighs each rank by its number of samples since the last reduction,
            so a mean over samples equals one process; an arbitrary mean loss is weighed the
            same way. "equal" is PyTorch's mean over ranks.

    Raises:
        ValueError: on all ranks, if the ranks' parameters differ in name, shape, dtype or
            requires_grad; or an argument is none of those above.
    """

    def __init__(
        self,
        module: Module,
        comm: Communicator,
        *,
        zero: int = 0,
        bucket_mb: float = 25.0,
        weights: str = "samples",
    ) -> None:
        super().__init__()
        if zero != 0:
            raise ValueError(f"zero is {zero}; stage 0 is what DistributedDataParallel offers")
        if weights not in WEIGHTS:
            raise ValueError(f"weights is {weights!r}; use one of {WEIGHTS}")
        if bucket_mb <= 0:
            raise ValueError(f"bucket_mb must be positive, not {bucket_mb}")
        self.module, self.comm = module, comm
        self.weights, self.bucket_mb = weights, bucket_mb
        self._overlap = _cores() > comm.size > 1
        self._reducer = comm.dup() if self._overlap else comm
        _check_same_model(module, comm)
        for parameter in module.parameters():
            parameter.array[...] = comm.broadcast(parameter.array)
        self._send_buffers()
        self._walk = _Walk()
        self._samples = _Samples()
        self._buckets: list[Bucket] = []
        self._place: dict[Any, Bucket] = {}
        self._rebuild()

    def _rebuild(self) -> None:
        """Buckets over the parameters that train now."""
        for bucket in self._buckets:
            bucket.release()
        training = [p for p in self.module.parameters() if p.requires_grad]
        self._buckets = make_buckets(training, self._reducer, self.bucket_mb)
        self._place = {p.edge: bucket for bucket in self._buckets for p in bucket.parameters}
        for leaf in self._place:
            leaf.listener = self

    # ---------------------------------------------------------------- forward
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's forward, as part of the global batch while training."""
        if not self.training:
            return self.module(*args, **kwargs)
        if {p.edge for p in self.module.parameters() if p.requires_grad} != set(self._place):
            self._rebuild()
        with random.step():
            start, local, total = self._exchange(batch_length([args, kwargs]))
            with random.name_scope(""), random.global_slice(start, local, total):
                return self.module(*args, **kwargs)

    forward = __call__

    def _exchange(self, length: int | None) -> tuple[int, int, int]:
        """Where this rank's samples lie in the global batch: (start, local, total).

        Asked once for all parts of ``microbatches``, of which ranks may have unequal numbers.
        """
        batch = random.current_batch()
        local = batch[2] if batch is not None else 1 if length is None else length
        frame = random.current_frame()
        step = frame.take() if frame is not None and batch is not None else None
        if step is None or step != self._samples.step:
            sizes = self.comm.all_gather(np.array([local]), sizes=(1,) * self.comm.size)
            self._samples.add(sizes, self.comm.rank, step, counted=is_recording())
            self._send_buffers()
        return self._samples.slice

    def _send_buffers(self) -> None:
        """Rank 0's buffers, by name, one message per dtype; not a change to saved arrays."""
        if self.comm.size == 1:
            return
        groups: dict[Any, list[Any]] = {}
        for _, buffer in self.module.named_buffers():
            groups.setdefault(buffer.dtype, []).append(buffer.array)
        for arrays in groups.values():
            flat = self.comm.broadcast(np.concatenate([a.reshape(-1) for a in arrays]))
            offset = 0
            for array in arrays:
                array[...] = flat[offset : offset + array.size].reshape(array.shape)
                offset += array.size

    # ---------------------------------------------------------------- backward
    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """``backward`` inside only accumulates; the next one outside reduces the sum."""
        before, self._walk.paused = self._walk.paused, True
        try:
            yield
        finally:
            self._walk.paused = before

    def reduction_weight(self) -> float:
        """What this rank's gradient will be multiplied by before the sum over ranks."""
        return 1.0 / self.comm.size if self.weights == "equal" else self._samples.weight()

    def leaf_ready(self, leaf: Any) -> None:
        """A parameter's gradient is complete: reduce the buckets that are full by now."""
        bucket = self._place.get(leaf)
        if bucket is None:
            return
        bucket.waiting -= 1
        if not self._walk.paused and in_last_microbatch():
            self._reduce_full()

    def walk_finished(self, error: BaseException | None) -> None:
        """Reduce what is left, agree on unused parameters, hand the gradients out."""
        try:
            if error is None and not self._walk.paused and in_last_microbatch():
                for bucket in self._buckets:
                    bucket.waiting = 0
                self._reduce_full()
                self._agree_and_hand_out()
                self._samples.reduced()
        finally:
            self._walk.restart()
            for bucket in self._buckets:
                bucket.waiting = len(bucket.parameters)

    def _reduce_full(self) -> None:
        """Reduce full buckets, strictly in order, so that all ranks issue the same calls."""
        while self._walk.reduced < len(self._buckets):
            bucket = self._buckets[self._walk.reduced]
            if bucket.waiting > 0:
                return
            self._walk.used += [p.grad is not None for p in bucket.parameters]
            bucket.collect()
            bucket.scale(self.reduction_weight())
            work = self._reducer.all_reduce(bucket.memory, out=bucket.memory,
                                            async_op=self._overlap)
            if self._overlap:
                self._walk.works.append(work)
            self._walk.reduced += 1

    def _agree_and_hand_out(self) -> None:
        """Used on some rank means used; used on none means None, as in one process."""
        for work in self._walk.works:
            work.wait()
        used = np.array(self._walk.used, dtype=bool)
        used = self._reducer.all_reduce(used, "bor")
        place = 0
        for bucket in self._buckets:
            end = place + len(bucket.parameters)
            bucket.hand_out(used[place:end].tolist())
            place = end

    # ---------------------------------------------------------------- the model's names
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped model's state."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load the wrapped model's state."""
        return self.module.load_state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """The wrapped model's parameters under their own names."""
        return self.module.named_parameters(*args, **kwargs)


class _Walk:
    """What one backward walk has reduced so far."""

    def __init__(self) -> None:
        self.paused = False
        self.restart()

    def restart(self) -> None:
        self.reduced = 0
        self.works: list[Any] = []
        self.used: list[bool] = []


class _Samples:
    """Samples seen since the last reduction, here and on all ranks."""

    def __init__(self) -> None:
        self.local = self.total = 0
        self.last = 1.0
        self.slice = (0, 0, 0)
        self.step: Any = None

    def add(self, sizes: Any, rank: int, step: Any, *, counted: bool) -> None:
        start, local, total = int(sizes[:rank].sum()), int(sizes[rank]), int(sizes.sum())
        self.slice, self.step = (start, local, total), step
        if counted:
            self.local += local
            self.total += total

    def weight(self) -> float:
        """This rank's share; the last one again if nothing was seen since."""
        return self.local / self.total if self.total else self.last

    def reduced(self) -> None:
        self.last, self.local, self.total = self.weight(), 0, 0


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _check_same_model(module: Module, comm: Communicator) -> None:
    """Raise the same error on all ranks unless all have the same parameters in one order."""
    mine = [(name, p.shape, str(p.dtype), p.requires_grad)
            for name, p in module.named_parameters()]
    everyone = comm.all_gather_object(mine)
    for rank, theirs in enumerate(everyone):
        if theirs == everyone[0]:
            continue
        pairs = zip(everyone[0], theirs)
        differing = next(((a, b) for a, b in pairs if a != b), None)
        detail = (f"rank 0 has {_describe(differing[0])}, rank {rank} has "
                  f"{_describe(differing[1])}" if differing else
                  f"rank 0 has {len(everyone[0])} parameters, rank {rank} has {len(theirs)}")
        raise ValueError("DistributedDataParallel needs the same model on every rank: "
                         + detail)


def _describe(spec: tuple[str, tuple[int, ...], str, bool]) -> str:
    name, shape, dtype, trains = spec
    return f"{name} {tuple(shape)} {dtype}{'' if trains else ' (frozen)'}"
