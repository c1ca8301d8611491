"""The communicator interface: argument checks, issue order and counters, over a transport.

A call passes three levels, and a transport (solo, threads, MPI) writes only the last:

    all_reduce(x, ...)         checks arguments, describes the call        this file
      _collective(call, run)   numbers it, keeps issue order, compares     this file
        _all_reduce(x, ...)    moves bytes                                 the transport
"""

from __future__ import annotations

import os
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minitorch_gpu.comm import debug
from minitorch_gpu.comm.checks import (
    check_array,
    check_dim,
    check_op,
    check_out,
    check_rank,
    check_sizes,
    deliver,
)
from minitorch_gpu.comm.work import Work, Worker
from minitorch_gpu.device import Array, array_module
from minitorch_gpu.partition import split_sizes


class Traffic(NamedTuple):
    """How often a verb was called on this rank, and the bytes of its arrays passed in."""

    calls: int
    bytes: int


class Communicator(ABC):
    """A group of ranks that move raw arrays (NumPy or CuPy, never Tensors).

    - Arguments are never modified; ``out`` may be ``x``. Results alias nothing else. Any
      strides, any dtype of ours, 0-d and zero-size arrays. A 16-bit float is summed in
      float32 and rounded once.
    - Collectives of one communicator run in the order in which they were issued, sync and
      async alike, and every rank must issue the same ones in the same order. Two owners
      (threads, overlapping phases) each take their own ``dup()``.
    - Messages match by (source, tag), in the order they were sent.
    - ``async_op=True`` returns a ``Work``; leave the call's arrays alone until its ``wait``.
    - A reduction gives the same bits on all ranks.

    Attributes:
        rank: this process's (or thread's) number, 0 to size - 1.
        size: how many ranks there are.
        name: the mesh axis, or "world".
        closed: whether ``close`` was called.
    """

    _always_compare = False  # threads compare calls even without MINITORCH_DEBUG=1

    def __init__(self, rank: int, size: int, name: str) -> None:
        self.rank, self.size, self.name = rank, size, name
        self._number = 0
        self._traffic: dict[str, list[int]] = {}
        self._worker = Worker(f"{name} communicator, rank {rank}")
        self.closed = False
        self._compare = self._always_compare or os.environ.get("MINITORCH_DEBUG") == "1"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank={self.rank}, size={self.size}, name={self.name!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Communicator:
        return self  # a copied layer talks to the same ranks

    # ---- collectives

    def all_reduce(
        self, x: Array, op: str = "sum", *, out: Array | None = None, async_op: bool = False
    ) -> Any:
        """``op`` over the ranks' ``x`` (same shape and dtype everywhere), on every rank.

        Args:
            op: "sum", "prod", "max", "min" (nan wins) or "bor" (integers and bool).
        """
        check_array(x, "all_reduce")
        check_op(op, x.dtype, "all_reduce")
        check_out(out, x.shape, x.dtype, "all_reduce")
        return self._collective(
            "all_reduce", x, lambda: self._all_reduce(x, op, out), (x.shape, op), async_op
        )

    def reduce_scatter(
        self,
        x: Array,
        dim: int = 0,
        sizes: Sequence[int] | None = None,
        *,
        op: str = "sum",
        out: Array | None = None,
        async_op: bool = False,
    ) -> Any:
        """Reduce ``x`` over the ranks and keep slice ``rank`` of ``dim``.

        Args:
            sizes: the ranks' lengths of ``dim``; None means ``split_sizes`` of it.
        """
        check_array(x, "reduce_scatter")
        check_op(op, x.dtype, "reduce_scatter")
        dim = check_dim(x, dim, "reduce_scatter")
        if sizes is None:
            sizes = split_sizes(x.shape[dim], self.size)
        lengths = check_sizes(sizes, self.size, x.shape[dim], "reduce_scatter")
        shape = (*x.shape[:dim], lengths[self.rank], *x.shape[dim + 1 :])
        check_out(out, shape, x.dtype, "reduce_scatter")
        return self._collective(
            "reduce_scatter",
            x,
            lambda: self._reduce_scatter(x, dim, lengths, op, out),
            (x.shape, dim, tuple(lengths), op),
            async_op,
        )

    def all_gather(
        self,
        x: Array,
        dim: int = 0,
        sizes: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        async_op: bool = False,
    ) -> Any:
        """The ranks' ``x`` joined along ``dim``, on every rank.

        Args:
            sizes: the ranks' lengths of ``dim``, which may differ; exchanged when None (one
                small message more).
        """
        check_array(x, "all_gather")
        dim = check_dim(x, dim, "all_gather")
        lengths = sizes
        if sizes is not None:
            lengths = check_sizes(sizes, self.size, None, "all_gather")
            if lengths[self.rank] != x.shape[dim]:
                raise ValueError(
                    f"all_gather: sizes[{self.rank}] is {lengths[self.rank]}, but dim {dim} "
                    f"of x has length {x.shape[dim]}"
                )
        rest = x.shape[:dim] + x.shape[dim + 1 :]
        agreed = (rest, dim, None if lengths is None else tuple(lengths))

        def run() -> Array:
            known = self._gather_lengths(x.shape[dim]) if lengths is None else list(lengths)
            shape = (*x.shape[:dim], sum(known), *x.shape[dim + 1 :])
            check_out(out, shape, x.dtype, "all_gather")
            return self._all_gather(x, dim, known, out)

        return self._collective("all_gather", x, run, agreed, async_op)

    def broadcast(
        self, x: Array, root: int = 0, *, out: Array | None = None, async_op: bool = False
    ) -> Any:
        """Rank ``root``'s ``x`` on every rank; elsewhere ``x`` gives shape and dtype only."""
        check_array(x, "broadcast")
        check_rank(root, self.size, "broadcast: root")
        check_out(out, x.shape, x.dtype, "broadcast")
        return self._collective(
            "broadcast", x, lambda: self._broadcast(x, root, out), (x.shape, root), async_op
        )

    def all_to_all(self, blocks: Sequence[Array], *, async_op: bool = False) -> Any:
        """Send ``blocks[r]`` to rank r; returns a list whose item r came from rank r.

        Blocks may differ in shape (receivers learn it) but share one dtype.
        """
        if len(blocks) != self.size:
            raise ValueError(f"all_to_all: {len(blocks)} blocks for {self.size} ranks")
        for block in blocks:
            check_array(block, "all_to_all")
            if block.dtype != blocks[0].dtype:
                raise ValueError(
                    f"all_to_all: blocks have dtypes {blocks[0].dtype} and {block.dtype}"
                )
        mine = list(blocks)
        return self._collective(
            "all_to_all", mine, lambda: self._all_to_all(mine), (), async_op
        )

    def barrier(self, *, async_op: bool = False) -> Any:
        """Return when every rank has called it."""
        return self._collective("barrier", [], self._barrier, (), async_op)

    def all_gather_object(self, obj: object) -> list[Any]:
        """Every rank's small Python object, in rank order, pickled (any length)."""
        data = pickle.dumps(obj)
        parts = self._collective("all_gather_object", [], lambda: self._gather_bytes(data), ())
        return [pickle.loads(part) for part in parts]

    def broadcast_object(self, obj: object, root: int = 0) -> Any:
        """Rank ``root``'s Python object on every rank (``obj`` of the others is not used)."""
        check_rank(root, self.size, "broadcast_object: root")
        data = pickle.dumps(obj) if self.rank == root else b""
        run = lambda: self._gather_bytes(data)
        return pickle.loads(self._collective("broadcast_object", [], run, (root,))[root])

    # ---- messages

    def send(self, x: Array, to: int, tag: int = 0, *, async_op: bool = False) -> Any:
        """Send ``x`` to rank ``to``. Returns None (or a Work) once ``x`` may be reused.

        Like MPI's, it may wait for the receiver when ``x`` is large: neighbours that send to
        each other use ``sendrecv``.
        """
        check_array(x, "send")
        check_rank(to, self.size, "send: rank")
        call = self._message_call("send", x.shape, x.dtype, ("to", to), tag)
        self._count("send", x.nbytes)
        work = self._send(call, x, to, tag)
        return self._carry(work) if async_op else work.wait()

    def recv(
        self, source: int, tag: int = 0, *, out: Array | None = None, async_op: bool = False
    ) -> Any:
        """The next array that rank ``source`` sent with ``tag``; its header brings the shape.

        Raises:
            ValueError: ``out`` has another shape or dtype than the message.
        """
        check_rank(source, self.size, "recv: rank")
        shape, dtype = ((), "") if out is None else (out.shape, out.dtype)
        call = self._message_call("recv", shape, dtype, ("from", source), tag)
        self._count("recv", 0)
        work = self._recv(call, source, tag, out)
        return self._carry(work) if async_op else work.wait()

    def sendrecv(
        self, x: Array, to: int, source: int, tag: int = 0, *, out: Array | None = None
    ) -> Array:
        """Send ``x`` to one rank while receiving from another; never deadlocks in a ring.

        ``out`` may be ``x``: it is written after ``x`` has been sent.
        """
        sending = self.send(x, to, tag, async_op=True)
        apart = out is None or not array_module(x).may_share_memory(x, out)
        result = self.recv(source, tag, out=out if apart else None)
        sending.wait()
        check_out(out, result.shape, result.dtype, "sendrecv")
        return deliver(result, out)

    # ---- groups, memory, counters

    def split(
        self, color: int | None, key: int | None = None, *, name: str | None = None
    ) -> Communicator | None:
        """A communicator for each ``color``, ranks ordered by (key, old rank); collective.

        Returns:
            This rank's new communicator, or None where ``color`` is None.
        """
        if color is not None and color < 0:
            raise ValueError(f"split: color must be >= 0 or None, got {color}")
        order = self.rank if key is None else key
        run = lambda: self._split(color, order, name or self.name)
        return self._collective("split", [], run, ())

    def dup(self, *, name: str | None = None) -> Communicator:
        """A communicator of the same ranks with an order of calls of its own; collective."""
        result = self.split(0, self.rank, name=name)
        assert result is not None
        return result

    def empty(self, shape: int | Sequence[int], dtype: Any = np.float32) -> Array:
        """An uninitialised array in the memory that this communicator reduces fastest.

        Collective: every rank asks for the same shape and dtype. The array lives until
        ``close()``, whatever still refers to it; touching it later is an error of the caller.
        """
        dims = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
        kind = np.dtype(dtype)
        agreed = (dims, kind.name)
        return self._collective("empty", [], lambda: self._empty(dims, kind), agreed)

    def stats(self) -> dict[str, Traffic]:
        """Calls and bytes passed in by this rank so far, by verb."""
        return {verb: Traffic(*counts) for verb, counts in self._traffic.items()}

    def close(self) -> None:
        """Finish pending calls and free memory and threads; collective, later calls raise."""
        if not self.closed:
            self._worker.close()
            self.closed = True
            self._close()

    # ---- the way of a call

    def _collective(
        self,
        verb: str,
        x: Any,
        run: Callable[[], Any],
        agreed: tuple[object, ...],
        async_op: bool = False,
    ) -> Any:
        """Number the call and run it after those issued before: here, or on the worker."""
        self._check_open(verb)
        arrays = x if isinstance(x, list) else [x]
        self._count(verb, sum(array.nbytes for array in arrays))
        number = self._next_number()
        shape, dtype = (arrays[0].shape, arrays[0].dtype) if arrays else ((), "")
        site = debug.call_site() if self._compare else ""
        call = debug.Call(verb, number, shape, str(dtype), agreed, site)
        task = lambda: self._execute(call, run)
        if async_op:
            return self._submit(task)
        return self._submit(task).wait() if self._worker.busy else task()

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _execute(self, call: debug.Call, run: Callable[[], Any]) -> Any:
        if self._compare:
            debug.compare(self, call)
        return run()

    def _submit(self, task: Callable[[], Any]) -> Work:
        return self._worker.submit(task)

    def _message_call(
        self, verb: str, shape: tuple[int, ...], dtype: Any, peer: tuple[str, int], tag: int
    ) -> debug.Call:
        self._check_open(verb)
        if tag < 0:
            raise ValueError(f"{verb}: tag must be >= 0, got {tag}")
        agreed = (f"{peer[0]} rank {peer[1]}", f"tag {tag}")
        return debug.Call(verb, 0, shape, str(dtype) or "any dtype", agreed)

    def _check_open(self, verb: str) -> None:
        if self.closed:
            raise RuntimeError(f"{verb} on communicator {self.name!r}, which is closed")

    def _count(self, verb: str, nbytes: int) -> None:
        counts = self._traffic.setdefault(verb, [0, 0])
        counts[0] += 1
        counts[1] += nbytes

    # ---- what a transport does; arguments are checked, dims counted from the front

    @abstractmethod
    def _all_reduce(self, x: Array, op: str, out: Array | None) -> Array: ...

    @abstractmethod
    def _reduce_scatter(
        self, x: Array, dim: int, sizes: list[int], op: str, out: Array | None
    ) -> Array: ...

    @abstractmethod
    def _all_gather(
        self, x: Array, dim: int, sizes: list[int], out: Array | None
    ) -> Array: ...

    @abstractmethod
    def _broadcast(self, x: Array, root: int, out: Array | None) -> Array: ...

    @abstractmethod
    def _all_to_all(self, blocks: list[Array]) -> list[Array]: ...

    @abstractmethod
    def _barrier(self) -> None: ...

    @abstractmethod
    def _gather_bytes(self, data: bytes) -> list[bytes]: ...

    @abstractmethod
    def _gather_lengths(self, length: int) -> list[int]: ...

    @abstractmethod
    def _send(self, call: debug.Call, x: Array, to: int, tag: int) -> Work: ...

    @abstractmethod
    def _recv(self, call: debug.Call, source: int, tag: int, out: Array | None) -> Work: ...

    @abstractmethod
    def _split(self, color: int | None, key: int, name: str) -> Communicator | None: ...

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def _carry(self, work: Work) -> Work:
        """Let an async message move on while the program computes."""
        return work

    def _close(self) -> None:  # noqa: B027, most transports hold nothing
        """Release what the transport holds; the worker has ended."""
