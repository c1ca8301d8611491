"""The one function that everything a node saves passes through: array -> handle -> array.

A storage whose memory comes and goes (a ZeRO-3 bucket) answers for the arrays it owns with a
handle, so that no graph keeps its full memory alive; all other arrays are their own handle.
"""

from __future__ import annotations

from typing import Any, Protocol

from minitorch_gpu.device import is_array
from minitorch_gpu.engine.writes import owner_of


class Handle(Protocol):
    """What a storage hands out in place of an array it owns."""

    def load(self) -> Any:
        """The array again, gathered if its storage was released."""


class Storage(Protocol):
    """Owner of memory that may be released between forward and backward."""

    def save(self, array: Any) -> Handle:
        """A handle for ``array``, which views this storage's memory."""


class Saved:
    """Storages by the identity of the array that owns their memory.

    ``in_use`` stays set once there was a storage: graphs may hold its handles after the memory
    they stand for is gone.
    """

    def __init__(self) -> None:
        self.storages: dict[int, Storage] = {}
        self.in_use = False

    def manage(self, owner: Any, storage: Storage) -> None:
        """Let ``storage`` answer for ``owner`` and every view of it."""
        self.storages[id(owner)] = storage
        self.in_use = True

    def forget(self, owner: Any) -> None:
        """``owner`` is about to be freed: its identity means nothing any more."""
        self.storages.pop(id(owner), None)

    def save(self, value: Any) -> Any:
        """The handle of an array of a managed storage; anything else itself."""
        if not is_array(value):
            return value
        storage = self.storages.get(id(owner_of(value)))
        return value if storage is None else storage.save(value)

    def load(self, value: Any) -> Any:
        """The array behind a handle; anything else itself."""
        return value.load() if hasattr(value, "load") else value


saved = Saved()
