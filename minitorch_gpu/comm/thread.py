"""Ranks as threads of one process: the executable specification of a communicator."""

from __future__ import annotations

import contextvars
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from minitorch_gpu.comm.debug import Call
from minitorch_gpu.comm.exchange import ExchangeCommunicator
from minitorch_gpu.comm.mail import Mail, MailWork, Slot
from minitorch_gpu.comm.work import AbortedError, DoneWork, Work
from minitorch_gpu.device import Array

TIMEOUT = 60.0  # seconds that one wait may take

# The communicator of the rank that runs in this context, for comm.init().
current_rank: contextvars.ContextVar[ThreadCommunicator | None] = contextvars.ContextVar(
    "current_rank", default=None
)


class _World:
    """What the ranks of one ``run_ranks`` share: a lock to wait on and who is where."""

    def __init__(self, size: int, timeout: float) -> None:
        self.changed = threading.Condition()
        self.timeout = timeout
        self.failed: str | None = None  # why every wait has to end
        self.finished: set[int] = set()
        self.latest = ["no communicator call"] * size  # by rank
        self.communicators: list[ThreadCommunicator] = []

    def wait_for(
        self, ready: Callable[[], bool], missing: Callable[[], list[int]], call: Call | None
    ) -> None:
        """Block until ``ready()``; the caller holds the lock.

        Raises:
            AbortedError: a rank has failed.
            RuntimeError: a rank in ``missing()`` has returned, so it can never come.
            TimeoutError: nothing happened for ``timeout`` seconds.
        """
        deadline = time.monotonic() + self.timeout
        while not ready():
            if self.failed is not None:
                raise AbortedError(f"{call} ended because {self.failed}")
            if gone := self.finished.intersection(missing()):
                raise RuntimeError(f"{call} waits for rank {min(gone)}, which has returned")
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(self._describe(missing(), call))
            self.changed.wait(left)

    def _describe(self, missing: list[int], call: Call | None) -> str:
        late = "; ".join(f"rank {r}, whose latest call is {self.latest[r]}" for r in missing)
        return f"{call} waited {self.timeout:g} s for {late}"

    def fail(self, reason: str) -> None:
        with self.changed:
            self.failed = self.failed or reason
            self.changed.notify_all()

    def finish(self, rank: int) -> None:
        with self.changed:
            self.finished.add(rank)
            self.changed.notify_all()

    def close(self) -> None:
        """End the helper threads; calls that still wait have been aborted."""
        self.fail("the run is over")
        for comm in self.communicators:
            comm.close()


class _Round:
    """One exchange: the values shown so far, and how many ranks have used them all."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        self.used: set[int] = set()


class _Group:
    """What the ranks of one communicator share."""

    def __init__(self, world: _World) -> None:
        self.world = world
        self.members: list[int] = []  # ranks of the world, in this group's order
        self.rounds: dict[int, _Round] = defaultdict(_Round)
        self.mail = Mail()


class ThreadCommunicator(ExchangeCommunicator):
    """A rank among threads; made by ``run_ranks`` and ``split``. Calls are always compared."""

    _always_compare = True

    def __init__(self, group: _Group, rank: int, name: str) -> None:
        super().__init__(rank, len(group.members), name)
        self._group = group
        self._rounds = 0
        self._current: Call | None = None
        with group.world.changed:
            group.world.communicators.append(self)

    def _execute(self, call: Call, run: Callable[[], Any]) -> Any:
        self._current = call
        self._group.world.latest[self._group.members[self.rank]] = f"{call} on {self.name!r}"
        return super()._execute(call, run)

    def _exchange(self, value: Any, use: Callable[[list[Any]], Any]) -> Any:
        number, self._rounds = self._rounds, self._rounds + 1
        round_ = self._show(number, value)
        result = use([round_.values[rank] for rank in range(self.size)])
        self._leave(number, round_)
        return result

    def _show(self, number: int, value: Any) -> _Round:
        """Put up this rank's value and wait for the others'."""
        with self._group.world.changed:
            round_ = self._group.rounds[number]
            round_.values[self.rank] = value
            self._wait_until_full(round_.values)
            return round_

    def _leave(self, number: int, round_: _Round) -> None:
        """Wait until nobody reads the values any more."""
        with self._group.world.changed:
            round_.used.add(self.rank)
            self._wait_until_full(round_.used)
            self._group.rounds.pop(number, None)

    def _wait_until_full(self, arrived: Any) -> None:
        members, world = self._group.members, self._group.world
        if len(arrived) == self.size:
            world.changed.notify_all()
        world.wait_for(
            lambda: len(arrived) == self.size,
            lambda: [members[rank] for rank in range(self.size) if rank not in arrived],
            self._current,
        )

    def _send(self, call: Call, x: Array, to: int, tag: int) -> Work:
        with self._group.world.changed:
            self._group.mail.post((self.rank, to, tag), x.copy())
            self._group.world.changed.notify_all()
        return DoneWork(None)

    def _recv(self, call: Call, source: int, tag: int, out: Array | None) -> Work:
        world = self._group.world

        def block(slot: Slot) -> None:
            world.latest[self._group.members[self.rank]] = f"{call} on {self.name!r}"
            missing = [self._group.members[source]]
            with world.changed:
                world.wait_for(lambda: slot.message is not None, lambda: missing, call)

        with world.changed:
            slot = self._group.mail.take((source, self.rank, tag))
        return MailWork(slot, out, block)

    def _split(self, color: int | None, key: int, name: str) -> ThreadCommunicator | None:
        mine = (color, key, self.rank, _Group(self._group.world))
        rows = self._exchange(mine, list)
        if color is None:
            return None
        members = sorted(row[1:3] for row in rows if row[0] == color)
        order = [rank for _, rank in members]
        group = rows[order[0]][3]  # the first member's; its members are the same for all
        group.members = [self._group.members[rank] for rank in order]
        return ThreadCommunicator(group, order.index(self.rank), name)


def run_ranks(
    size: int,
    function: Callable[..., Any],
    *arguments: Any,
    timeout: float = TIMEOUT,
    setup: Callable[[], object] | None = None,
) -> list[Any]:
    """Run ``function(comm, *arguments)`` on ``size`` threads; returns their results by rank.

    Each rank runs in a fresh context (modes, default generator, current device), as a process
    of its own would; ``comm.init()`` inside it returns ``comm``.

    Args:
        timeout: seconds that a communicator call may wait.
        setup: called first in each rank's context, for example to seed a generator.

    Raises:
        Exception: the first rank's error; errors of other ranks are its notes.
        TimeoutError: a call waited too long; the message names the missing ranks.
    """
    world = _World(size, timeout)
    group = _Group(world)
    group.members = list(range(size))
    results: list[Any] = [None] * size
    errors: list[tuple[int, BaseException]] = []

    def body(rank: int) -> None:
        try:
            comm = ThreadCommunicator(group, rank, "world")
            current_rank.set(comm)
            if setup is not None:
                setup()
            results[rank] = function(comm, *arguments)
        except BaseException as error:
            errors.append((rank, error))
            world.fail(f"rank {rank} raised {type(error).__name__}: {error}")
        finally:
            world.finish(rank)

    threads = [_start(body, rank) for rank in range(size)]
    try:
        _join(threads, world)
    finally:
        world.close()
    if errors:
        raise _first(errors)
    return results


def _start(body: Callable[[int], None], rank: int) -> threading.Thread:
    run = contextvars.Context().run
    thread = threading.Thread(target=run, args=(body, rank), name=f"rank {rank}", daemon=True)
    thread.start()
    return thread


def _join(threads: Sequence[threading.Thread], world: _World) -> None:
    """Wait for all ranks; after a failure, only as long as one call may take."""
    for thread in threads:
        while thread.is_alive():
            thread.join(world.timeout)
            if world.failed is not None:
                break


def _first(errors: list[tuple[int, BaseException]]) -> BaseException:
    """The first error, with the others' in its notes; waits it ended are not worth one."""
    rank, first = errors[0]
    notes = [f"raised on rank {rank}"]
    for other, error in errors[1:]:
        if not isinstance(error, AbortedError) and str(error) != str(first):
            notes.append(f"rank {other} raised {type(error).__name__}: {error}")
    # What BaseException.add_note does; Python 3.10 keeps the attribute without printing it.
    first.__notes__ = [*getattr(first, "__notes__", []), *notes]  # type: ignore[attr-defined]
    return first
