"""Point-to-point messages over MPI: a header that brings shape and dtype, then the bytes."""

from __future__ import annotations

import os
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from minitorch_gpu.comm.checks import check_out, deliver
from minitorch_gpu.comm.work import Work
from minitorch_gpu.device import Array

NAME_WORDS, MAX_DIMS = 3, 64  # a header is int64: dtype name (24 bytes), ndim, the dims
PATIENT = 2e-3  # seconds of waiting before a crowded rank sleeps
HEADER_WORDS = NAME_WORDS + 1 + MAX_DIMS


def as_bytes(x: np.ndarray) -> np.ndarray:
    """The memory of a C-contiguous array as bytes; no copy."""
    return x.reshape(-1).view(np.uint8)


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype called ``name``; the ones that NumPy lacks come from ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def write_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Shape and dtype as a fixed-length int64 array."""
    header = np.zeros(HEADER_WORDS, np.int64)
    name = dtype.name.encode()
    header[:NAME_WORDS].view(np.uint8)[: len(name)] = np.frombuffer(name, np.uint8)
    header[NAME_WORDS] = len(shape)
    header[NAME_WORDS + 1 : NAME_WORDS + 1 + len(shape)] = shape
    return header


def read_header(header: np.ndarray) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and dtype that ``write_header`` wrote."""
    name = header[:NAME_WORDS].tobytes().rstrip(b"\0").decode()
    dims = header[NAME_WORDS + 1 :][: int(header[NAME_WORDS])]
    return tuple(int(n) for n in dims), dtype_named(name)


def poll(ready: Callable[[], bool], crowded: bool) -> None:
    """Block until ``ready()``: at once where each rank has a core, else with growing pauses.

    The pauses begin late: a collective has several steps, and a rank that sleeps in one holds
    up all. Before, the core is only offered to whichever rank can use it.
    """
    start = time.monotonic()
    pause = 1e-5  # seconds
    while not ready():
        if not crowded:
            time.sleep(0)  # lets other threads have the interpreter
        elif time.monotonic() - start < PATIENT:
            os.sched_yield()
        else:
            time.sleep(pause)
            pause = min(1.5 * pause, 1e-3)


class MessageWork(Work):
    """A message on its way; ``step`` may be called from any thread.

    Args:
        block: blocks until a function returns True, watched for ranks that left.
    """

    def __init__(self, block: Callable[[Callable[[], bool]], None]) -> None:
        self._block = block
        self._lock = threading.Lock()
        self._finished = False

    def step(self) -> bool:
        """Move on as far as possible without waiting; True when finished."""
        with self._lock:
            self._finished = self._finished or self._advance()
            return self._finished

    def done(self) -> bool:
        return self.step()

    def wait(self) -> Any:
        if not self.step():
            self._block(self.step)
        return self._take()

    @abstractmethod
    def _advance(self) -> bool: ...

    def _take(self) -> Any:
        return None


class Sending(MessageWork):
    """``x`` (C-contiguous, not written meanwhile) on its way to rank ``to``."""

    def __init__(self, comm: Any, x: Array, to: int, tag: int, block: Any) -> None:
        super().__init__(block)
        self._buffers = (write_header(x.shape, x.dtype), as_bytes(x))
        self._requests = [
            comm.Isend(buffer, to, 2 * tag + part) for part, buffer in enumerate(self._buffers)
        ]

    def _advance(self) -> bool:
        return all(request.Test() for request in self._requests)


class Receiving(MessageWork):
    """A message awaited from rank ``source``.

    The header is awaited from the start; the bytes once the header has told their number.
    Messages of one (source, tag) must post that second part in order, hence ``previous``.
    """

    def __init__(
        self,
        comm: Any,
        source: int,
        tag: int,
        out: Array | None,
        previous: Receiving | None,
        block: Any,
    ) -> None:
        super().__init__(block)
        self._comm, self._source, self._tag, self._out = comm, source, tag, out
        self._previous = previous
        self._header = np.empty(HEADER_WORDS, np.int64)
        self._header_request = comm.Irecv(self._header, source, 2 * tag)
        self._payload: Array | None = None
        self._payload_request: Any = None

    def _posted(self) -> bool:
        """Whether the second part is being received (or has been)."""
        self.step()
        return self._payload_request is not None

    def _advance(self) -> bool:
        if self._previous is not None:
            if not self._previous._posted():
                return False
            self._previous = None
        if self._payload_request is None:
            if not self._header_request.Test():
                return False
            self._post()
        return self._payload_request.Test()

    def _post(self) -> None:
        shape, dtype = read_header(self._header)
        out = self._out
        fits = out is not None and (out.shape, out.dtype) == (shape, dtype)
        direct = fits and out is not None and out.flags.c_contiguous
        payload: Array = out if direct else np.empty(shape, dtype)
        self._payload = payload
        self._payload_request = self._comm.Irecv(
            as_bytes(payload), self._source, 2 * self._tag + 1
        )

    def _take(self) -> Array:
        assert self._payload is not None
        check_out(self._out, self._payload.shape, self._payload.dtype, "recv")
        return deliver(self._payload, self._out)


class Postman:
    """A thread that keeps unfinished async messages moving while the program computes."""

    def __init__(self) -> None:
        self._works: list[MessageWork] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def carry(self, work: MessageWork) -> None:
        """Step ``work`` from the thread until it is finished; keeps it alive so long."""
        with self._lock:
            self._works.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="postman", daemon=True)
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """End the thread, whatever is unfinished."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        pause = 5e-5
        while not self._stopped:
            moved = self._round()
            pause = 5e-5 if moved else min(1.5 * pause, 1e-3)
            time.sleep(pause)
            if not self._works:
                self._wake.wait()
                self._wake.clear()

    def _round(self) -> bool:
        """Step everything once; True if something finished."""
        with self._lock:
            works = list(self._works)
        finished = {id(work) for work in works if work.step()}
        with self._lock:
            self._works = [work for work in self._works if id(work) not in finished]
        return bool(finished)
