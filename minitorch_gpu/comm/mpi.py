"""Ranks as MPI processes, through mpi4py's buffer interface (imported here only)."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from minitorch_gpu.comm.base import Communicator
from minitorch_gpu.comm.checks import (
    accumulator,
    deliver,
    from_front,
    reduce_in_order,
    to_front,
)
from minitorch_gpu.comm.debug import Call
from minitorch_gpu.comm.hooks import Job, Wait
from minitorch_gpu.comm.message import (
    HEADER_WORDS,
    MessageWork,
    Postman,
    Receiving,
    Sending,
    as_bytes,
    poll,
    read_header,
    write_header,
)
from minitorch_gpu.comm.window import (
    ALIGNMENT,
    SHARED_MEMORY,
    SharedWindow,
    has_room,
    room_lock,
)
from minitorch_gpu.comm.work import DoneWork, Work
from minitorch_gpu.device import Array
from minitorch_gpu.partition import split_sizes

OPS = {"sum": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN, "bor": MPI.BOR}
BOOL_OPS = {"sum": "max", "prod": "min", "max": "max", "min": "min", "bor": "max"}
# By kind of dtype, MPI's reductions that mean what NumPy's do. Its max and min of floats depend
# on the order of the ranks where there is a nan: those run in rank order, by our own slices.
NATIVE = {"i": tuple(OPS), "u": tuple(OPS), "f": ("sum", "prod"), "c": ("sum", "prod")}
WINDOW_BYTES = 256 << 10  # smaller arrays are reduced faster by messages
CHUNK_BYTES = 1 << 30  # pickled objects travel in pieces of at most this length


class _Process(NamedTuple):
    """What the communicators of one process share."""

    job: Job
    postman: Postman
    crowded: bool  # more ranks than cores on this node: waiting must give the core away
    threaded: bool
    worlds: list[MpiCommunicator]


@lru_cache(maxsize=1)
def _process() -> _Process:
    """Start this process's part of the job: hooks, watcher, and the control communicator."""
    threaded = MPI.Query_thread() == MPI.THREAD_MULTIPLE
    postman = Postman()
    job = Job(MPI.COMM_WORLD.Dup(), threaded, postman.close)
    job.install()
    node = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    cores = set().union(*node.allgather(os.sched_getaffinity(0)))
    crowded = node.size > len(cores)
    if node.rank == 0:
        _unlink_segments()
    node.Free()
    return _Process(job, postman, crowded, threaded, [])


def world() -> MpiCommunicator:
    """The communicator of all ranks; the same object each time, until it is closed."""
    process = _process()
    if not process.worlds or process.worlds[-1].closed:
        path = f"world{len(process.worlds)}"
        comm = MpiCommunicator(MPI.COMM_WORLD.Dup(), "world", path, process)
        process.worlds.append(comm)
    return process.worlds[-1]


def _unlink_segments() -> None:
    """Remove the names of mpich's shared memory, mapped by all by now: a killed job keeps none.

    Left to mpich, each job that ends by an abort would leave its segment in /dev/shm for ever.
    """
    with suppress(OSError), open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if f"{SHARED_MEMORY}/mpich_shm_" in line}
        for path in paths:
            os.unlink(path)


class MpiCommunicator(Communicator):
    """A rank among MPI processes; made by ``comm.init`` and ``split``.

    Sync collectives are plain blocking MPI calls, or, with more ranks than cores, non-blocking
    ones that are tested with growing pauses. Async ones run on a helper thread, which starts
    with the first of them. Async messages are carried by one more thread a process.
    """

    def __init__(self, comm: MPI.Intracomm, name: str, path: str, process: _Process) -> None:
        super().__init__(comm.rank, comm.size, name)
        self._comm, self._path, self._process = comm, path, process
        self._members: list[int] = comm.allgather(MPI.COMM_WORLD.rank)
        self._children = 0
        self._windows: list[SharedWindow] = []
        self._receiving: weakref.WeakValueDictionary[tuple[int, int], Receiving] = (
            weakref.WeakValueDictionary()
        )
        self._in_order = os.environ.get("MINITORCH_DETERMINISTIC") == "1"

    # ---- waiting

    def _next_number(self) -> int:
        number = super()._next_number()
        self._process.job.numbers[self._path] = number
        self._process.job.exit_status = None  # a rank that goes on has survived sys.exit
        return number

    def _execute(self, call: Call, run: Callable[[], Any]) -> Any:
        return self._watched(call, self._members, partial(super()._execute, call, run))

    def _watched(self, call: Call, members: list[int], run: Callable[[], Any]) -> Any:
        """Run something that may wait for other ranks, where the watcher can see it."""
        waiting, thread = self._process.job.waiting, threading.get_ident()
        waiting[thread] = Wait(self._path, self.name, members, call)
        try:
            return run()
        finally:
            del waiting[thread]

    def _submit(self, task: Callable[[], Any]) -> Work:
        return super()._submit(task) if self._process.threaded else DoneWork(task())

    def _call(self, name: str, *arguments: Any) -> None:
        """One MPI collective, waited for in the way that suits this machine."""
        if self._process.crowded:
            poll(getattr(self._comm, f"I{name.lower()}")(*arguments).Test, True)
        else:
            getattr(self._comm, name)(*arguments)

    # ---- reductions

    def _all_reduce(self, x: Array, op: str, out: Array | None) -> Array:
        if self._windows and x.nbytes >= WINDOW_BYTES and self._reduce_in_window(x, op, out):
            return out
        wide, op = _widen(x, op)
        direct = out is not None and out.flags.c_contiguous and out.dtype == wide.dtype
        target = out if direct and out is not None else np.empty_like(wide)
        if self._native(op, wide.dtype):
            self._call("Allreduce", _source(wide, target), target, OPS[op])
        else:
            counts = list(split_sizes(wide.size, self.size))  # mpi4py reads a pair
            mine = self._reduce_slices(wide.reshape(-1), counts, op)
            self._call("Allgatherv", mine, [target.reshape(-1), counts])
        return deliver(_narrow(target, x.dtype), out)

    def _reduce_scatter(
        self, x: Array, dim: int, sizes: list[int], op: str, out: Array | None
    ) -> Array:
        wide, op = _widen(to_front(x, dim), op)
        each = int(np.prod(wide.shape[1:], dtype=np.int64))
        counts = [n * each for n in sizes]
        if self._native(op, wide.dtype):
            mine = np.empty(counts[self.rank], wide.dtype)
            self._call("Reduce_scatter", wide.reshape(-1), mine, counts, OPS[op])
        else:
            mine = self._reduce_slices(wide.reshape(-1), counts, op)
        result = _narrow(mine, x.dtype).reshape(sizes[self.rank], *wide.shape[1:])
        return deliver(from_front(result, dim), out)

    def _native(self, op: str, dtype: np.dtype[Any]) -> bool:
        return op in NATIVE[dtype.kind] and not (self._in_order and dtype.kind in "fc")

    def _reduce_slices(self, flat: Array, counts: list[int], op: str) -> Array:
        """This rank's slice of ``flat``, reduced from rank 0 upwards."""
        mine = counts[self.rank]
        parts = np.empty((self.size, mine), flat.dtype)
        self._call("Alltoallv", [flat, counts], [parts.reshape(-1), [mine] * self.size])
        return reduce_in_order(list(parts), op)

    def _reduce_in_window(self, x: Array, op: str, out: Array | None) -> bool:
        """Reduce in shared memory if all ranks pass the same part of one window as x and out.

        Whether they do is agreed on first: the windows are the same on all ranks, their
        users may differ.
        """
        place = (-1, -1)
        if out is x and out.flags.c_contiguous:
            found = ((n, window.offset(out)) for n, window in enumerate(self._windows))
            place = next((pair for pair in found if pair[1] >= 0), place)
        agreed = np.array([*place, -place[0], -place[1]], np.int64)
        self._call("Allreduce", MPI.IN_PLACE, agreed, MPI.MIN)
        index, offset = int(agreed[0]), int(agreed[1])
        if index < 0 or (index, offset) != (-int(agreed[2]), -int(agreed[3])):
            return False
        self._windows[index].all_reduce(x, offset, op, lambda: self._call("Barrier"))
        return True

    # ---- movement

    def _all_gather(self, x: Array, dim: int, sizes: list[int], out: Array | None) -> Array:
        front = to_front(x, dim)
        shape = (sum(sizes), *front.shape[1:])
        direct = out is not None and dim == 0 and out.flags.c_contiguous
        target = out if direct and out is not None else np.empty(shape, x.dtype)
        each = int(np.prod(shape[1:], dtype=np.int64)) * x.itemsize
        if np.may_share_memory(front, target):
            front = front.copy()
        counts = [n * each for n in sizes]
        self._call("Allgatherv", as_bytes(front), [as_bytes(target), counts])
        return target if direct else deliver(from_front(target, dim), out)

    def _broadcast(self, x: Array, root: int, out: Array | None) -> Array:
        direct = out is not None and out.flags.c_contiguous
        target = out if direct and out is not None else np.empty(x.shape, x.dtype)
        if self.rank == root and target is not x:
            target[...] = x
        self._call("Bcast", as_bytes(target), root)
        return deliver(target, out)

    def _all_to_all(self, blocks: list[Array]) -> list[Array]:
        sent = np.stack([write_header(block.shape, block.dtype) for block in blocks])
        headers = np.empty((self.size, HEADER_WORDS), np.int64)
        self._call("Alltoall", sent, headers)
        results = [np.empty(*read_header(header)) for header in headers]
        data = np.concatenate([as_bytes(np.asarray(block, order="C")) for block in blocks])
        received = np.empty(sum(result.nbytes for result in results), np.uint8)
        lengths = [block.nbytes for block in blocks], [result.nbytes for result in results]
        self._call("Alltoallv", [data, lengths[0]], [received, lengths[1]])
        pieces = np.split(received, np.cumsum(lengths[1])[:-1])
        for result, piece in zip(results, pieces):
            as_bytes(result)[:] = piece
        return results

    def _barrier(self) -> None:
        self._call("Barrier")

    def _gather_lengths(self, length: int) -> list[int]:
        lengths = np.empty(self.size, np.int64)
        self._call("Allgather", np.array([length], np.int64), lengths)
        return lengths.tolist()

    def _gather_bytes(self, data: bytes) -> list[bytes]:
        lengths = self._gather_lengths(len(data))
        mine = np.frombuffer(data, np.uint8)
        pieces: list[list[bytes]] = [[] for _ in lengths]
        for start in range(0, max(lengths), CHUNK_BYTES):
            counts = [min(max(n - start, 0), CHUNK_BYTES) for n in lengths]
            received = np.empty(sum(counts), np.uint8)
            self._call("Allgatherv", mine[start : start + CHUNK_BYTES], [received, counts])
            for piece, part in zip(pieces, np.split(received, np.cumsum(counts)[:-1])):
                piece.append(part.tobytes())
        return [b"".join(piece) for piece in pieces]

    # ---- messages

    def _send(self, call: Call, x: Array, to: int, tag: int) -> Work:
        # A message to oneself must be able to wait for its receive: it gets a copy to live in.
        own = to == self.rank
        data = np.array(x, order="C") if own else np.asarray(x, order="C")
        work = Sending(self._comm, data, to, tag, self._blocker(call, to))
        if not own:
            return work
        self._carry(work)
        return DoneWork(None)

    def _recv(self, call: Call, source: int, tag: int, out: Array | None) -> Work:
        previous = self._receiving.get((source, tag))
        block = self._blocker(call, source)
        work = Receiving(self._comm, source, tag, out, previous, block)
        self._receiving[source, tag] = work
        return work

    def _carry(self, work: Work) -> Work:
        if isinstance(work, MessageWork):
            self._process.postman.carry(work)
        return work

    def _blocker(self, call: Call, peer: int) -> Callable[[Callable[[], bool]], None]:
        members = [self._members[peer]]
        crowded = self._process.crowded
        return lambda ready: self._watched(call, members, lambda: poll(ready, crowded))

    # ---- groups and memory

    def _split(self, color: int | None, key: int, name: str) -> MpiCommunicator | None:
        self._children += 1
        comm: Any = self._comm.Split(MPI.UNDEFINED if color is None else color, key)
        if comm == MPI.COMM_NULL:
            return None
        path = f"{self._path}/{self._children}.{color}"
        return MpiCommunicator(comm, name, path, self._process)

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if nbytes < WINDOW_BYTES or self.size == 1 or not self._on_one_node():
            return np.empty(shape, dtype)
        self._call("Barrier")  # all are here: nobody holds the lock and waits for another group
        with room_lock(self.rank == 0):
            window = self._allocate(-(-nbytes // ALIGNMENT) * ALIGNMENT)
        if window is None:
            return np.empty(shape, dtype)
        self._windows.append(window)
        return window.array(shape, dtype)

    def _allocate(self, nbytes: int) -> SharedWindow | None:
        """A window of ``nbytes`` a rank with its pages taken; None where there is no room."""
        room = np.array([self.rank == 0 and has_room(nbytes * self.size)], np.uint8)
        self._call("Bcast", room, 0)
        if not room[0]:
            return None
        window = MPI.Win.Allocate_shared(nbytes, 1, comm=self._comm)
        window.Lock_all()
        shared = SharedWindow(window, self.rank, self.size, nbytes)
        self._call("Barrier")
        return shared

    def _on_one_node(self) -> bool:
        node = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        alone = node.size == self.size
        node.Free()
        return alone

    def _close(self) -> None:
        for window in self._windows:
            window.free()
        self._windows = []
        self._comm.Free()


def _widen(x: Array, op: str) -> tuple[Array, str]:
    """``x`` contiguous in a dtype that MPI reduces, and the op that means the same there."""
    if x.dtype == np.bool_:
        return np.asarray(x, order="C").view(np.uint8), BOOL_OPS[op]
    return np.asarray(x, accumulator(x.dtype), order="C"), op


def _narrow(x: Array, dtype: np.dtype[Any]) -> Array:
    """Undo ``_widen``: a 16-bit float is rounded here, once."""
    return x.view(np.bool_) if dtype == np.bool_ else x.astype(dtype, copy=False)


def _source(x: Array, target: Array) -> Any:
    """What to send so that MPI reduces ``x`` into ``target``, which may share its memory."""
    if not np.may_share_memory(x, target):
        return x
    if target is not x:
        target[...] = x
    return MPI.IN_PLACE
