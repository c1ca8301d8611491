"""A hook's registration, which can be taken back."""

from __future__ import annotations

from typing import Any


class Keep:
    """A hook that only looks, at what the other hooks made: it stays the last of its list."""

    def __init__(self, look: Any) -> None:
        self._look = look

    def __call__(self, gradient: Any) -> None:
        self._look(gradient)


class RemovableHandle:
    """Removes a hook again: ``handle.remove()``, or as a context manager."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook, self._there = hooks, hook, True
        last_looks = bool(hooks) and isinstance(hooks[-1], Keep)
        hooks.insert(len(hooks) - last_looks, hook)

    def remove(self) -> None:
        """Take the hook off; a second call does nothing."""
        if self._there:
            self._hooks.remove(self._hook)
            self._there = False

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
