"""``init``: the communicator of the world that this process was started in."""

from __future__ import annotations

import os
import sys

from minitorch_gpu.comm.base import Communicator
from minitorch_gpu.comm.solo import SoloCommunicator
from minitorch_gpu.comm.thread import current_rank

# What launchers set for every process they start: hydra and Slurm's PMI, PMIx, Open MPI, srun.
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


def launched_size() -> int | None:
    """How many ranks an MPI launcher started; None without a launcher, 0 if it does not say."""
    sizes = {name: os.environ[name] for name in SIZE_VARIABLES if name in os.environ}
    if sizes.get("SLURM_STEP_NUM_TASKS") == "1":
        del sizes["SLURM_STEP_NUM_TASKS"]  # a batch job's only process need not know MPI
    for size in sizes.values():
        return int(size)
    return 0 if any(variable in os.environ for variable in RANK_VARIABLES) else None


def init() -> Communicator:
    """The world communicator: MPI under a launcher, this rank inside ``run_ranks``, else solo.

    May be called again; it returns the same world. Under MPI it installs the hooks that end
    the whole job, with this rank's traceback, when a rank fails or leaves while others need it
    (``comm/hooks.py``).

    Raises:
        RuntimeError: a launcher started this process and mpi4py is missing, or belongs to
            another MPI than the launcher.
    """
    rank = current_rank.get()
    if rank is not None:
        return rank
    size = launched_size()
    if size is None:
        return SoloCommunicator()
    try:
        from minitorch_gpu.comm import mpi
    except ImportError as error:
        raise RuntimeError(
            f"this process was started by an MPI launcher, but mpi4py cannot be imported "
            f'({error}): pip install "minitorch_gpu[mpi]"'
        ) from error
    world = mpi.world()
    if size > world.size:
        raise RuntimeError(
            f"the launcher started {size} processes but mpi4py's MPI sees {world.size}: use "
            f"the mpiexec of that MPI (with the mpich wheel: {os.path.dirname(sys.executable)})"
        )
    return world
