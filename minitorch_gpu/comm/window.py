"""Memory that the ranks of one node share, and a reduction in place inside it.

    rank 0's part [ a0 | b0 | c0 ]     each rank sums one slice of all parts, from rank 0 up,
    rank 1's part [ a1 | b1 | c1 ]     into its own part, then copies the other slices from
    rank 2's part [ a2 | b2 | c2 ]     the ranks that summed them: three barriers, no message.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minitorch_gpu.comm.checks import reduce_in_order
from minitorch_gpu.partition import split_sizes

SHARED_MEMORY = "/dev/shm"
RESERVE = 64 << 20  # bytes of /dev/shm left to others
ALIGNMENT = 64


def has_room(nbytes: int) -> bool:
    """Whether /dev/shm takes this much more: writing beyond its end would kill the process."""
    try:
        room = os.statvfs(SHARED_MEMORY)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize >= nbytes + RESERVE


@contextmanager
def room_lock(mine: bool) -> Iterator[None]:
    """Between checking for room and filling it, no other group of this user does so."""
    if not mine:
        yield
        return
    path = os.path.join(tempfile.gettempdir(), f"minitorch_gpu.{os.getuid()}.lock")
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class SharedWindow:
    """One array a rank in a shared MPI window.

    Args:
        window: an mpi4py window made by ``Allocate_shared``, open for access.
        rank, size: of the communicator that made it.
        nbytes: of each rank's part.
    """

    def __init__(self, window: Any, rank: int, size: int, nbytes: int) -> None:
        self._window, self._rank, self._size = window, rank, size
        buffers = [window.Shared_query(other)[0] for other in range(size)]
        self._parts = [np.frombuffer(buffer, np.uint8, nbytes) for buffer in buffers]
        self._start = self._parts[rank].__array_interface__["data"][0]
        self._parts[rank][:] = 0  # takes the pages now, while the room is known to be there

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """This rank's part as an array."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return self._parts[self._rank][:nbytes].view(dtype).reshape(shape)

    def offset(self, x: np.ndarray) -> int:
        """Where the C-contiguous ``x`` begins in this rank's part, in bytes; -1 if outside."""
        start = x.__array_interface__["data"][0] - self._start
        inside = start >= 0 and start + x.nbytes <= self._parts[self._rank].nbytes
        return start if inside else -1

    def all_reduce(
        self, x: np.ndarray, offset: int, op: str, barrier: Callable[[], None]
    ) -> None:
        """Reduce ``x``, which lies at ``offset`` of every rank's part, in place."""
        here = slice(offset, offset + x.nbytes)
        parts = [part[here].view(x.dtype) for part in self._parts]
        bounds = np.cumsum([0, *split_sizes(x.size, self._size)])
        slices = [slice(int(a), int(b)) for a, b in itertools.pairwise(bounds)]
        mine = slices[self._rank]
        self._meet(barrier)
        reduce_in_order([part[mine] for part in parts], op, out=parts[self._rank][mine])
        self._meet(barrier)
        for rank, theirs in enumerate(slices):
            if rank != self._rank:
                parts[self._rank][theirs] = parts[rank][theirs]
        self._meet(barrier)

    def _meet(self, barrier: Callable[[], None]) -> None:
        self._window.Sync()
        barrier()
        self._window.Sync()

    def free(self) -> None:
        """Give the memory back; collective, and no array in it may be touched again."""
        self._parts = []
        self._window.Unlock_all()
        self._window.Free()
