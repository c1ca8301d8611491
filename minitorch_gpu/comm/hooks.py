"""One rank fails or leaves: the whole job ends within two seconds, saying why, once.

    this rank             what happens                                        exit code
    raises                excepthook prints "[rank r] Traceback ...", aborts  1 (130: Ctrl-C)
    sys.exit(3)           prints one line, aborts                             3
    is killed             mpiexec sees it and ends the others                 mpiexec's
    returns               waits at an exit barrier until all ranks return     0
    returns, is needed    a waiting rank tells it so; it prints and aborts    1
    waits too long        the lowest waiting rank names the missing, aborts   1

How a rank that waits finds out that another has returned: a returning rank sends every rank
the numbers of the calls it made on each communicator. A thread in every rank (the watcher)
looks at the call this rank is waiting in. If a member left before making that call, it can
never come: the watcher writes to that member, which is still at its exit barrier and is the
one to speak, so the reason appears once and under the right rank. Ranks that only compute
disturb nobody: the others wait at the barrier for as long as it takes.

The watcher needs an MPI that allows calls from several threads (all the usual ones do).
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, NoReturn

from minitorch_gpu.comm.debug import Call
from minitorch_gpu.comm.lifeline import Lifeline

PERIOD = 0.1  # seconds between two looks of the watcher
PATIENCE = 0.2  # a wait shorter than this is not looked at
GRACE = 0.8  # how long a message of a rank that has left may be on its way
ANSWER_TIME = 1.0  # how long a time-out waits for the other ranks' answers


@dataclass
class Wait:
    """A communicator call that this rank is in, and whom it may be waiting for."""

    path: str  # names the communicator, the same on all ranks
    name: str
    members: list[int]  # world ranks
    call: Call
    started: float = field(default_factory=time.monotonic)
    asked: float = 0.0  # when the others were asked where they are; 0 before

    def __str__(self) -> str:
        return f"{self.call} on communicator {self.name!r}"


class Job:
    """What this rank knows about the others, and the hooks that end the job.

    Args:
        control: an mpi4py communicator over all ranks, used for nothing else.
        threaded: whether MPI may be called from several threads.
        stop: called once all ranks have left, to end threads that still call MPI.
    """

    def __init__(self, control: Any, threaded: bool, stop: Callable[[], None]) -> None:
        self.control = control
        self.rank, self.size = control.rank, control.size
        self.numbers: dict[str, int] = {}  # communicator path -> calls made
        self.waiting: dict[int, Wait] = {}  # by thread
        self.exit_status: object = None
        self.timeout = float(os.environ.get("MINITORCH_TIMEOUT", "300"))
        self._left: dict[int, tuple[float, dict[str, int]]] = {}
        self._answers: dict[tuple[int, str], tuple[int, str]] = {}
        self._told: set[tuple[str, int]] = set()
        self._leaving = False
        self._lifeline = Lifeline(self.rank)
        self._stop_others = stop
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._threaded = threaded

    def install(self) -> None:
        """Put the hooks in place and start the watcher."""
        sys.excepthook = self._on_exception
        threading.excepthook = lambda args: self._on_exception(
            args.exc_type, args.exc_value, args.exc_traceback
        )
        sys.exit = self._on_exit
        atexit.register(self._leave)
        if self._threaded:
            self._watcher.start()

    # ---- this rank ends

    def abort(self, reason: str, code: int = 1) -> NoReturn:
        """Print ``[rank r] reason`` and end all ranks."""
        with suppress(OSError, ValueError):  # nobody reads: the job ends all the same
            sys.stdout.flush()
            sys.stderr.write(f"[rank {self.rank}] {reason.rstrip()}\n")
            sys.stderr.flush()
        self._lifeline.report(code)
        self.control.Abort(code)
        raise AssertionError("Abort returned")

    def _on_exception(
        self,
        kind: type[BaseException],
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if issubclass(kind, SystemExit):
            return
        lines = traceback.format_exception(kind, error, _users(trace))
        if issubclass(kind, KeyboardInterrupt):
            self.abort(f"interrupted\n{lines[-2]}" if len(lines) > 1 else "interrupted", 130)
        self.abort("".join(lines))

    def _on_exit(self, status: object = None, /) -> NoReturn:
        """sys.exit that remembers its status: nothing else tells an atexit hook about it."""
        if threading.current_thread() is threading.main_thread():
            self.exit_status = status
        raise SystemExit(status)

    def _leave(self) -> None:
        """The exit barrier: tell the others, wait for all, abort if one still needs us."""
        if self.exit_status not in (None, 0):
            status = self.exit_status
            code = status & 0xFF if isinstance(status, int) else 1
            self.abort(f"called sys.exit({status!r}), which ends all ranks", code or 1)
        self._stop.set()
        if self._threaded:
            self._watcher.join()
        self._leaving = True
        news = ("left", self.rank, dict(self.numbers))
        sent = [self._tell(rank, news) for rank in range(self.size) if rank != self.rank]
        barrier = self.control.Ibarrier()
        pause = 1e-4
        while not barrier.Test():
            self._look()
            time.sleep(pause)
            pause = min(1.5 * pause, 1e-2)
        self._look()
        if self.waiting:
            wait = next(iter(self.waiting.values()))
            self.abort(f"left the program with an unfinished {wait}")
        self._stop_others()
        del sent

    # ---- the watcher

    def _watch(self) -> None:
        while not self._stop.wait(PERIOD):
            self._look()

    def _look(self) -> None:
        """Read the other ranks' news and judge the calls this rank waits in."""
        while (message := self.control.improbe()) is not None:
            kind, rank, *content = message.recv()
            getattr(self, f"_hear_{kind}")(rank, *content)
        now = time.monotonic()
        for wait in list(self.waiting.values()):
            if now - wait.started > PATIENCE:
                self._look_for_leavers(wait, now)
            if now - wait.started > self.timeout:
                self._time_out(wait, now)

    def _tell(self, rank: int, message: tuple[object, ...]) -> Any:
        return self.control.isend(message, rank)

    def _hear_left(self, rank: int, numbers: dict[str, int]) -> None:
        self._left[rank] = (time.monotonic(), numbers)

    def _hear_needed(self, rank: int, what: str) -> None:
        if self._leaving:
            self.abort(f"left the program early: rank {rank} still waits for it in {what}")

    def _hear_ask(self, rank: int, path: str) -> None:
        texts = [str(wait) for wait in self.waiting.values()]
        text = "it has left the program" if self._leaving else "it is in no call"
        answer = f"it waits in {texts[0]}" if texts else text
        self._tell(rank, ("answer", self.rank, path, self.numbers.get(path, 0), answer))

    def _hear_answer(self, rank: int, path: str, number: int, text: str) -> None:
        self._answers[rank, path] = (number, text)

    def _look_for_leavers(self, wait: Wait, now: float) -> None:
        for rank in wait.members:
            when, numbers = self._left.get(rank, (now, {}))
            message = wait.call.number == 0
            cannot_come = message or numbers.get(wait.path, 0) < wait.call.number
            late = now - max(when, wait.started) > (GRACE if message else 0)
            fresh = (wait.path, rank) not in self._told
            if rank in self._left and cannot_come and late and fresh:
                self._told.add((wait.path, rank))
                self._tell(rank, ("needed", self.rank, str(wait)))
                return

    def _time_out(self, wait: Wait, now: float) -> None:
        """Ask where the others are; then the lowest rank in the same call speaks."""
        others = [rank for rank in wait.members if rank != self.rank]
        if not wait.asked:
            wait.asked = now
            for rank in others:
                self._tell(rank, ("ask", self.rank, wait.path))
        known = self._answers
        answers = {r: known[r, wait.path] for r in others if (r, wait.path) in known}
        if len(answers) < len(others) and now - wait.asked < ANSWER_TIME:
            return
        here = [r for r, (number, _) in answers.items() if 0 < wait.call.number <= number]
        if any(r < self.rank for r in here) and now - wait.asked < 2 * ANSWER_TIME:
            return
        missing = [r for r in others if r not in here] or others
        silent = (0, "it does not answer")
        late = "; ".join(f"rank {r}: {answers.get(r, silent)[1]}" for r in missing)
        self.abort(f"{wait} waited {self.timeout:g} s (MINITORCH_TIMEOUT) for {late}")


def _users(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the script on: without the frames of runpy and ``comm/rank.py``."""
    start = trace
    while start is not None and _only_starts(start.tb_frame):
        start = start.tb_next
    return start or trace


def _only_starts(frame: FrameType) -> bool:
    ours = os.path.join(os.path.dirname(__file__), "rank.py")
    return frame.f_globals.get("__name__") == "runpy" or frame.f_code.co_filename == ours
