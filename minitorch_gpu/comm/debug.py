"""MINITORCH_DEBUG=1: compare what the ranks are about to do, and say where they differ."""

from __future__ import annotations

import os
import pickle
import sys
from typing import TYPE_CHECKING, NamedTuple

from minitorch_gpu.comm.work import MismatchError

if TYPE_CHECKING:
    from minitorch_gpu.comm.base import Communicator

PACKAGE = os.path.dirname(os.path.abspath(__file__))


class Call(NamedTuple):
    """One communicator call: what the ranks must agree on, and what helps to find it."""

    verb: str
    number: int  # counts this communicator's collectives from 1; 0 for point-to-point
    shape: tuple[int, ...]
    dtype: str
    agreed: tuple[object, ...] = ()  # op, root, dim, lengths that must be equal on all ranks
    site: str = ""  # file:line of the user's call, found only when calls are compared

    def __str__(self) -> str:
        number = f" #{self.number}" if self.number else ""
        agreed = "".join(f", {value}" for value in self.agreed if value != self.shape)
        array = f" (shape {self.shape}, {self.dtype}{agreed})" if self.dtype else ""
        return f"{self.verb}{number}{array}"


def call_site() -> str:
    """``file:line in function`` of the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"


def compare(comm: Communicator, call: Call) -> None:
    """Raise the same error on every rank unless all ranks are about to make the same call.

    Raises:
        MismatchError: verb, number, dtype or an agreed value differs; names both call sites.
    """
    key = (call.verb, call.number, call.dtype, call.agreed)
    answers = comm._gather_bytes(pickle.dumps((key, str(call), call.site)))
    calls = [pickle.loads(answer) for answer in answers]
    for rank, (other, text, site) in enumerate(calls):
        if other != calls[0][0]:
            _, first, first_site = calls[0]
            raise MismatchError(
                f"ranks of communicator {comm.name!r} made different calls:\n"
                f"  rank 0: {first} at {first_site}\n  rank {rank}: {text} at {site}\n"
                "every rank must issue the same collectives in the same order"
            )
