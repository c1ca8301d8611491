"""Every communicator keeps the same promises: solo, ranks as threads, ranks on MPI."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys

import numpy as np
import pytest

from minitorch_gpu import comm as comms
from minitorch_gpu.comm import (
    AbortedError,
    Communicator,
    MismatchError,
    SoloCommunicator,
    run_ranks,
)
from tests import comm_checks
from tests.comm_checks import CHECKS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT = {"MPIEXEC_TIMEOUT": "90"}  # mpiexec ends its ranks itself, before our time-out


@pytest.mark.parametrize("name", CHECKS)
def test_solo(name: str) -> None:
    CHECKS[name](SoloCommunicator())


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CHECKS)
def test_threads(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINITORCH_DETERMINISTIC", "1")  # what threads always do
    run_ranks(size, CHECKS[name])


def mpi_run(size: int, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    mpiexec = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return subprocess.run(
        [mpiexec, "-n", str(size), sys.executable, script],
        env={**os.environ, "PYTHONPATH": ROOT, "OPENBLAS_NUM_THREADS": "1", **LIMIT, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("size", "env"),
    [
        (1, {}),
        (2, {}),
        (3, {"MINITORCH_DEBUG": "1"}),
        (4, {"MINITORCH_DETERMINISTIC": "1"}),
        (4, {}),
    ],
)
def test_mpi(size: int, env: dict[str, str]) -> None:
    done = mpi_run(size, comm_checks.__file__, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == list(CHECKS), done.stderr


# ---- threads: what goes wrong is told


def test_init_finds_the_rank_it_runs_in() -> None:
    assert run_ranks(2, lambda comm: comms.init() is comm) == [True, True]
    assert isinstance(comms.init(), SoloCommunicator)


def test_ranks_get_arguments_setup_and_a_fresh_context() -> None:
    mode = contextvars.ContextVar("mode", default="fresh")
    mode.set("changed outside")
    seen: list[str] = []
    run = lambda comm, a, b: (mode.get(), a * comm.rank + b)
    results = run_ranks(3, run, 10, 1, setup=lambda: seen.append(mode.get()))
    assert results == [("fresh", 1), ("fresh", 11), ("fresh", 21)] and seen == ["fresh"] * 3


def test_the_first_error_is_raised_and_wakes_every_wait() -> None:
    def body(comm: Communicator) -> None:
        other = comm.dup()
        if comm.rank == 1:
            raise KeyError("lost")
        work = other.all_reduce(np.zeros(3), async_op=True)
        (comm.barrier if comm.rank == 0 else work.wait)()

    with pytest.raises(KeyError, match="lost") as caught:
        run_ranks(4, body, timeout=30)
    assert caught.value.__notes__ == ["raised on rank 1"]


def test_other_ranks_errors_are_notes() -> None:
    def body(comm: Communicator) -> None:
        if comm.rank == 0:
            comm.barrier()
        try:
            if comm.rank == 2:
                raise ValueError("first")
            comm.barrier()
        except AbortedError as error:
            raise OSError("second") from error

    with pytest.raises(ValueError, match="first") as caught:
        run_ranks(3, body, timeout=30)
    assert sorted(caught.value.__notes__[1:]) == ["rank 1 raised OSError: second"]


@pytest.mark.parametrize("wait", ["barrier", "recv"])
def test_waiting_for_a_rank_that_returned_is_an_error_at_once(wait: str) -> None:
    def body(comm: Communicator) -> None:
        if comm.rank == 0:
            comm.barrier() if wait == "barrier" else comm.recv(1)

    with pytest.raises(RuntimeError, match=f"{wait}.* waits for rank 1, which has returned"):
        run_ranks(2, body, timeout=20)


def test_a_deadlock_names_the_missing_ranks_and_calls() -> None:
    def body(comm: Communicator) -> None:
        comm.recv(0) if comm.rank == 2 else comm.all_reduce(np.zeros(3))

    match = r"all_reduce #1 \(shape \(3,\).* waited 0.2 s for rank 2, whose latest call is recv"
    with pytest.raises(TimeoutError, match=match):
        run_ranks(3, body, timeout=0.2)


def test_different_calls_are_an_error_on_all_ranks_with_both_call_sites() -> None:
    errors: list[str] = []

    def body(comm: Communicator) -> None:
        try:
            comm.barrier() if comm.rank == 2 else comm.all_reduce(np.zeros(3))
        except MismatchError as error:
            errors.append(str(error))

    run_ranks(3, body)
    assert len(errors) == 3 and len(set(errors)) == 1
    assert "rank 0: all_reduce #1" in errors[0] and "rank 2: barrier #1" in errors[0]
    assert errors[0].count(f"{__file__}:") == 2


@pytest.mark.parametrize(
    "argument",
    [
        lambda comm: (np.zeros(2 + comm.rank),),
        lambda comm: (np.zeros(2, "f4" if comm.rank else "f8"),),
        lambda comm: (np.zeros(2), "max" if comm.rank else "sum"),
    ],
)
def test_ranks_with_other_shapes_dtypes_or_ops_are_told(argument: object) -> None:
    with pytest.raises(MismatchError):
        run_ranks(2, lambda comm: comm.all_reduce(*argument(comm)))


def test_solo_results_equal_the_argument_bit_for_bit() -> None:
    x = np.array([np.nan, -0.0, 1e-310, np.inf])
    for call in ("all_reduce", "reduce_scatter", "all_gather", "broadcast"):
        got = getattr(SoloCommunicator(), call)(x)
        assert got.tobytes() == x.tobytes() and got is not x


def test_the_package_imports_neither_mpi4py_nor_subprocess() -> None:
    code = (
        "import sys, numpy; before = set(sys.modules); import minitorch_gpu.comm;"
        "heavy = {'mpi4py', 'subprocess', 'argparse', 'cupy'};"
        "print(sorted(heavy & set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n", done.stdout + done.stderr
