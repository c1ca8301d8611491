"""Collectives from one primitive: show a value to all ranks, compute from all of theirs.

This is the executable specification: each result is written as the formula that defines it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from minitorch_gpu.comm.base import Communicator
from minitorch_gpu.comm.checks import deliver, reduce_in_order
from minitorch_gpu.device import Array, array_module


def cut(x: Array, dim: int, sizes: list[int], rank: int) -> Array:
    """Slice ``rank`` of ``x``, whose ``dim`` is cut into ``sizes``; a view."""
    start = sum(sizes[:rank])
    return x[(slice(None),) * dim + (slice(start, start + sizes[rank]),)]


class ExchangeCommunicator(Communicator):
    """A communicator whose ranks see each other's arrays."""

    @abstractmethod
    def _exchange(self, value: Any, use: Callable[[list[Any]], Any]) -> Any:
        """``use(values of all ranks)``; returns once every rank's ``use`` has returned.

        ``use`` returns something new, so that no rank's argument is read, and no result
        aliases one, after the call.
        """

    def _all_reduce(self, x: Array, op: str, out: Array | None) -> Array:
        return deliver(self._exchange(x, lambda xs: reduce_in_order(xs, op)), out)

    def _reduce_scatter(
        self, x: Array, dim: int, sizes: list[int], op: str, out: Array | None
    ) -> Array:
        def use(xs: list[Array]) -> Array:
            return reduce_in_order([cut(part, dim, sizes, self.rank) for part in xs], op)

        return deliver(self._exchange(x, use), out)

    def _all_gather(
        self, x: Array, dim: int, sizes: list[int], out: Array | None
    ) -> Array:
        use = lambda xs: array_module(x).concatenate(xs, axis=dim)
        return deliver(self._exchange(x, use), out)

    def _broadcast(self, x: Array, root: int, out: Array | None) -> Array:
        return deliver(self._exchange(x, lambda xs: xs[root].copy()), out)

    def _all_to_all(self, blocks: list[Array]) -> list[Array]:
        return self._exchange(blocks, lambda rows: [row[self.rank].copy() for row in rows])

    def _barrier(self) -> None:
        self._exchange(None, len)

    def _gather_bytes(self, data: bytes) -> list[bytes]:
        return self._exchange(data, list)

    def _gather_lengths(self, length: int) -> list[int]:
        return self._exchange(length, list)
