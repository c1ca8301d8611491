"""Whether operations are recorded: ``no_grad``, ``enable_grad``, ``inference_mode``."""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import ContextDecorator
from typing import Any

RECORDING: contextvars.ContextVar[bool] = contextvars.ContextVar("recording", default=True)
is_recording = RECORDING.get


class _Mode(ContextDecorator):
    """Sets the recording mode in a ``with`` block or in a decorated function."""

    recording: bool

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """``@no_grad`` decorates as ``@no_grad()`` does."""
        mode = super().__new__(cls)
        if callable(function):
            mode.__init__()  # type: ignore[misc]
            return mode(function)
        return mode

    def __init__(self) -> None:
        self._tokens: list[contextvars.Token[bool]] = []

    def __call__(self, function: Any) -> Any:
        """Decorate a function; of a generator function every step runs in the mode."""
        if not inspect.isgeneratorfunction(function):
            return super().__call__(function)

        @functools.wraps(function)
        def steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            inner = function(*args, **kwargs)
            resume = functools.partial(next, inner)
            while True:
                try:
                    with self._recreate_cm():
                        value = resume()
                except StopIteration as end:
                    return end.value
                try:
                    resume = functools.partial(inner.send, (yield value))
                except BaseException as error:  # thrown in from outside, or the end
                    resume = functools.partial(inner.throw, error)

        return steps

    def _recreate_cm(self) -> _Mode:
        """A decorated function gets a fresh block each call: calls may overlap in threads."""
        return type(self)()

    def __enter__(self) -> _Mode:
        self._tokens.append(RECORDING.set(self.recording))
        return self

    def __exit__(self, *exc: object) -> None:
        RECORDING.reset(self._tokens.pop())


class no_grad(_Mode):
    """Operations inside are not recorded; in-place writes go straight to memory."""

    recording = False


class enable_grad(_Mode):
    """Operations inside are recorded again, as they are by default."""

    recording = True


class inference_mode(_Mode):
    """PyTorch's name for a block that never needs gradients; here the same as no_grad."""

    recording = False


class set_grad_enabled(_Mode):
    """Record or not, by a flag: as a block, or at once until the next call."""

    def __new__(cls, mode: bool) -> Any:
        """Always an object: the flag is no function to decorate."""
        return super().__new__(cls)

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.recording = bool(mode)
        self._tokens.append(RECORDING.set(self.recording))

    def _recreate_cm(self) -> set_grad_enabled:
        return set_grad_enabled(self.recording)

    def __enter__(self) -> _Mode:
        return self


def is_grad_enabled() -> bool:
    """Whether operations are recorded now."""
    return RECORDING.get()
