"""How ``minitorch-run`` learns which rank ended first, and with what exit code.

mpiexec kills all ranks when one dies, then names any of them. So each rank holds a named pipe
of the launcher open: the kernel reports the pipes in the order in which the ranks let go. A
rank that aborts first writes its exit code into its pipe.
"""

from __future__ import annotations

import os
import selectors
import shutil
import tempfile
from contextlib import suppress
from types import TracebackType

VARIABLE = "MINITORCH_RUN_DIRECTORY"


class Lifelines:
    """The launcher's ends of the pipes, one a rank; a context manager.

    Attributes:
        ended: the ranks of this node that have ended, the first one first.
        aborted: the exit codes that ranks said they abort with.
    """

    def __init__(self, ranks: int) -> None:
        self.directory = tempfile.mkdtemp(prefix="minitorch_run_")
        self.ended: list[int] = []
        self.aborted: list[int] = []
        self._selector = selectors.DefaultSelector()
        for rank in range(ranks):
            path = os.path.join(self.directory, str(rank))
            os.mkfifo(path, 0o600)
            pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            self._selector.register(pipe, selectors.EVENT_READ, rank)

    def __enter__(self) -> Lifelines:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def watch(self, seconds: float) -> None:
        """Note the ranks that end within so many seconds, in the order in which they do."""
        for key, _ in self._selector.select(seconds):
            code = os.read(key.fd, 16)
            if code:
                self.aborted.append(int(code))
            else:  # end of file: the rank is gone
                self.ended.append(key.data)
                self._selector.unregister(key.fd)
                os.close(key.fd)


class Lifeline:
    """A rank's end of its pipe; does nothing without ``minitorch-run``."""

    def __init__(self, rank: int) -> None:
        self._pipe: int | None = None
        path = os.path.join(os.environ.get(VARIABLE, ""), str(rank))
        if VARIABLE in os.environ:
            with suppress(OSError):  # the launcher runs on another node
                self._pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)

    def report(self, code: int) -> None:
        """Tell the launcher the exit code that this rank aborts with."""
        if self._pipe is not None:
            os.write(self._pipe, str(code).encode())
