"""A hook's registration, which can be taken back."""

from __future__ import annotations

from typing import Any


class RemovableHandle:
    """Removes a hook again: ``handle.remove()``, or as a context manager."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook
        hooks.append(hook)

    def remove(self) -> None:
        """Take the hook off; a second call does nothing."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
