"""Communicators: ranks that move arrays, as one process, threads, or MPI processes.

``comm.init()`` returns the world that this process was started with; ``run_ranks`` runs a
function on threads that act as ranks.
"""

from minitorch_gpu.comm.base import Communicator, Traffic
from minitorch_gpu.comm.solo import SoloCommunicator
from minitorch_gpu.comm.start import init
from minitorch_gpu.comm.thread import ThreadCommunicator, run_ranks
from minitorch_gpu.comm.work import AbortedError, MismatchError, Work

__all__ = [
    "AbortedError",
    "Communicator",
    "MismatchError",
    "SoloCommunicator",
    "ThreadCommunicator",
    "Traffic",
    "Work",
    "init",
    "run_ranks",
]
