"""Messages inside one process: a receive takes the next message of its key, in issue order."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable

from minitorch_gpu.comm.checks import check_out, deliver
from minitorch_gpu.comm.work import Work
from minitorch_gpu.device import Array


class Slot:
    """A receive that was issued; ``message`` is None until its message is there."""

    def __init__(self) -> None:
        self.message: Array | None = None


class Mail:
    """Messages nobody has asked for yet and receives nobody has served yet, by key."""

    def __init__(self) -> None:
        self._messages: defaultdict[Hashable, deque[Array]] = defaultdict(deque)
        self._slots: defaultdict[Hashable, deque[Slot]] = defaultdict(deque)

    def post(self, key: Hashable, message: Array) -> None:
        """Serve the oldest waiting receive, or keep the message."""
        if self._slots[key]:
            self._slots[key].popleft().message = message
        else:
            self._messages[key].append(message)

    def take(self, key: Hashable) -> Slot:
        """A slot with the oldest message, or one that a later ``post`` fills."""
        slot = Slot()
        if self._messages[key]:
            slot.message = self._messages[key].popleft()
        else:
            self._slots[key].append(slot)
        return slot


class MailWork(Work):
    """A receive in progress; ``block`` returns when the slot is filled, or raises."""

    def __init__(self, slot: Slot, out: Array | None, block: Callable[[Slot], None]) -> None:
        self._slot, self._out, self._block = slot, out, block

    def wait(self) -> Array:
        self._block(self._slot)
        message = self._slot.message
        assert message is not None
        check_out(self._out, message.shape, message.dtype, "recv")
        return deliver(message, self._out)

    def done(self) -> bool:
        return self._slot.message is not None
