"""Handles of unfinished calls, and the helper thread that runs collectives in issue order."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class AbortedError(RuntimeError):
    """Another rank failed, so this rank's communicator call cannot finish."""


class MismatchError(RuntimeError):
    """Ranks issued different calls at the same point of one communicator."""


class Work(ABC):
    """An unfinished call, made by ``async_op=True``; its arrays are busy until ``wait``."""

    @abstractmethod
    def wait(self) -> Any:
        """Block until the call is done; returns its result or raises its error."""

    @abstractmethod
    def done(self) -> bool:
        """Whether ``wait`` would return (or raise) at once."""


class DoneWork(Work):
    """A call that was finished when it was issued."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def wait(self) -> Any:
        return self._result

    def done(self) -> bool:
        return True


class TaskWork(Work):
    """A call that a helper thread runs."""

    def __init__(self, task: Callable[[], Any]) -> None:
        self._task: Callable[[], Any] | None = task
        self._finished = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run the task on the calling thread; waiters wake when it returns or raises."""
        assert self._task is not None
        try:
            self._result = self._task()
        except BaseException as error:
            self._error = error
        self._task = None  # lets go of the arrays it held
        self._finished.set()

    def wait(self) -> Any:
        self._finished.wait()
        if self._error is not None:
            raise self._error
        return self._result

    def done(self) -> bool:
        return self._finished.is_set()


class Worker:
    """One thread that runs tasks first in, first out; started by the first task."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[TaskWork | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: TaskWork | None = None

    @property
    def busy(self) -> bool:
        """Whether a submitted task is still unfinished."""
        return self._last is not None and not self._last.done()

    def submit(self, task: Callable[[], Any]) -> TaskWork:
        """Queue a task; returns its handle."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            self._thread.start()
        self._last = TaskWork(task)
        self._tasks.put(self._last)
        return self._last

    def close(self) -> None:
        """Finish what is queued and end the thread."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None

    def _loop(self) -> None:
        while (work := self._tasks.get()) is not None:
            work.run()
