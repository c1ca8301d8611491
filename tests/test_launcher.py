"""A rank that fails or leaves ends the whole job, with its reason once; minitorch-run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minitorch_gpu.comm import launcher
from minitorch_gpu.comm.output import OutputFilter, Report

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT = {"MPIEXEC_TIMEOUT": "40"}  # mpiexec ends its ranks itself, before our time-out
MPIRUN = [os.path.join(os.path.dirname(sys.executable), "mpirun")]
MINITORCH_RUN = [sys.executable, "-m", "minitorch_gpu.comm.launcher"]
STARTERS = {"mpirun": (MPIRUN, [sys.executable]), "minitorch-run": (MINITORCH_RUN, [])}
QUICK = 2.0  # seconds from the failure to the end of the job

# Rank 1 of 3 does something after a first all_reduce; the others go on to a second one.
SCRIPT = """
import os, signal, sys, threading, time
import numpy as np
from minitorch_gpu import comm

def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        np.ones((50, 50)) @ np.ones((50, 50))

def boom():
    raise ValueError("boom")

def interrupt():
    signal.raise_signal(signal.SIGINT)

world = comm.init()
action = sys.argv[1]
world.all_reduce(np.ones(4))
if world.rank == 1:
    print("failed at", time.time(), flush=True)
    if action == "raise": boom()
    if action == "thread": threading.Thread(target=boom).start(); compute(60)
    if action == "exit": sys.exit(3)
    if action == "message": sys.exit("no such file")
    if action in ("return", "recv", "send"): raise SystemExit
    if action == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if action == "interrupt": interrupt()
if action == "recv" and world.rank == 0: world.recv(1)
if action == "send" and world.rank == 0: world.send(np.ones(1000000), 1)
if action in ("recv", "send"): raise SystemExit
world.all_reduce(np.ones(4))
world.barrier()
"""


def run(
    starter: str, ranks: int, script: Path, *arguments: str, **env: str
) -> tuple[subprocess.CompletedProcess[str], float]:
    """The finished job, and the time of day when it ended."""
    command, python = STARTERS[starter]
    done = subprocess.run(
        [*command, "-n", str(ranks), *python, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": ROOT, "OPENBLAS_NUM_THREADS": "1", **LIMIT, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done, time.time()


def failure_time(output: str) -> float:
    found = re.search(r"failed at ([\d.]+)", output)
    assert found is not None, output
    return float(found[1])


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "written.py"
    path.write_text(text)
    return path


FAILURES = {  # action -> exit code, the reason
    "raise": (1, r"\[rank 1\] Traceback[\s\S]*ValueError: boom"),
    "thread": (1, r"\[rank 1\] Traceback[\s\S]*ValueError: boom"),
    "exit": (3, r"\[rank 1\] called sys.exit\(3\)"),
    "message": (1, r"\[rank 1\] called sys.exit\('no such file'\)"),
    "return": (1, r"\[rank 1\] left the program early: rank [02] still waits .* all_reduce #2"),
    "recv": (1, r"\[rank 1\] left the program early: rank 0 still waits for it in recv"),
    "send": (1, r"\[rank 1\] left the program early: rank 0 still waits for it in send"),
    "interrupt": (130, r"\[rank 1\] interrupted\n.*in interrupt"),
}


@pytest.mark.mpi
@pytest.mark.parametrize("starter", STARTERS)
@pytest.mark.parametrize("action", FAILURES)
def test_a_failing_rank_ends_the_job(action: str, starter: str, script: Path) -> None:
    code, reason = FAILURES[action]
    done, ended = run(starter, 3, script, action)
    assert len(re.findall(reason, done.stderr)) == 1, done.stderr
    assert done.stderr.count("[rank ") == 1, done.stderr
    assert ended - failure_time(done.stdout) < QUICK
    if starter == "minitorch-run":
        assert done.returncode == code
        assert "runpy" not in done.stderr and "MPI_Abort" not in done.stderr
    else:  # mpiexec may report a rank that it killed itself
        assert done.returncode in (code, 9)


@pytest.mark.mpi
@pytest.mark.parametrize("starter", STARTERS)
def test_a_killed_rank_ends_the_job(starter: str, script: Path) -> None:
    done, ended = run(starter, 3, script, "kill")
    assert done.returncode == 9
    assert ended - failure_time(done.stdout) < QUICK
    if starter == "minitorch-run":
        assert done.stderr == "[rank 1] was ended by Killed (signal 9)\n"
        assert "BAD TERMINATION" not in done.stdout


@pytest.mark.mpi
@pytest.mark.parametrize("starter", STARTERS)
def test_ranks_may_finish_at_quite_different_times(starter: str, tmp_path: Path) -> None:
    text = SCRIPT.split("world = ")[0] + (
        "world = comm.init()\n"
        "pending = world.all_reduce(np.ones(300), async_op=True)\n"  # not waited for by rank 0
        "if world.rank: compute(0.8 * world.rank); pending.wait()\n"
        "print('rank', world.rank, 'done')\n"
        "sys.exit(0 if world.rank == 2 else None)\n"
    )
    done, _ = run(starter, 3, write(tmp_path, text))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {r} done" for r in range(3)]


@pytest.mark.mpi
def test_a_survived_exit_is_no_failure(tmp_path: Path) -> None:
    text = (
        "import sys\nfrom minitorch_gpu import comm\nworld = comm.init()\n"
        "try:\n    sys.exit(3)\nexcept SystemExit:\n    world.barrier()\n"
    )
    done, _ = run("mpirun", 2, write(tmp_path, text))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.mpi
def test_under_minitorch_run_a_rank_may_fail_before_init(tmp_path: Path) -> None:
    text = (
        "import os\nif os.environ['PMI_RANK'] == '1': import no_such_module\n"
        "from minitorch_gpu import comm\ncomm.init().barrier()\n"
    )
    done, _ = run("minitorch-run", 3, write(tmp_path, text))
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1 and done.stderr.startswith("[rank 1] Traceback")


@pytest.mark.mpi
def test_a_time_out_names_the_missing_rank(tmp_path: Path) -> None:
    text = SCRIPT.split("world = ")[0] + (
        "world = comm.init()\nworld.barrier()\n"
        "if world.rank == 2: compute(60)\n"
        "world.all_reduce(np.ones((2, 3)))\n"
    )
    done, _ = run("minitorch-run", 3, write(tmp_path, text), MINITORCH_TIMEOUT="1")
    assert done.returncode == 1
    assert re.fullmatch(
        r"\[rank 0\] all_reduce #2 \(shape \(2, 3\), float64, sum\) on communicator 'world' "
        r"waited 1 s \(MINITORCH_TIMEOUT\) for rank 2: it is in no call\n",
        done.stderr,
    ), done.stderr


@pytest.mark.mpi
def test_debug_raises_on_all_ranks_with_both_call_sites(tmp_path: Path) -> None:
    text = (
        "import numpy as np\nfrom minitorch_gpu import comm\nworld = comm.init()\n"
        "try:\n"
        "    world.barrier() if world.rank == 1 else world.all_reduce(np.ones(3))\n"
        "except comm.MismatchError as error:\n"
        "    texts = world.all_gather_object(str(error))\n"
        "    assert len(set(texts)) == 1\n"
        "    if world.rank == 0: print(texts[0])\n"
    )
    done, _ = run("mpirun", 3, write(tmp_path, text), MINITORCH_DEBUG="1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"rank 0: all_reduce #1 .* at .*written.py:5 in <module>", done.stdout)
    assert re.search(r"rank 1: barrier #1 at .*written.py:5 in <module>", done.stdout)


@pytest.mark.mpi
def test_aborted_jobs_leave_no_shared_memory(tmp_path: Path) -> None:
    text = (
        "from minitorch_gpu import comm\nworld = comm.init()\nx = world.empty(1 << 20)\n"
        "x[:] = 1\nworld.barrier()\nraise ValueError\n"
    )
    before = set(os.listdir("/dev/shm"))
    done, _ = run("minitorch-run", 2, write(tmp_path, text))
    assert done.returncode == 1
    assert {f for f in set(os.listdir("/dev/shm")) - before if f.startswith("mpich")} == set()


# ---- minitorch-run itself


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2])
def test_runs_scripts_and_modules_with_arguments(ranks: int, tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("name = 'neighbour'\n")
    text = (
        "import sys, os, neighbour\nfrom minitorch_gpu import comm\nworld = comm.init()\n"
        "print(__name__, neighbour.name, os.path.basename(sys.argv[0]), *sys.argv[1:],"
        " world.size, os.environ['NUMBA_NUM_THREADS'])\n"
    )
    path = write(tmp_path, text)
    want = f"__main__ neighbour written.py --flag -n 7 {ranks} 5\n" * ranks
    done, _ = run("minitorch-run", ranks, Path("--threads=5"), str(path), "--flag", "-n", "7")
    assert (done.returncode, done.stdout, done.stderr) == (0, want, "")
    done, _ = run(
        "minitorch-run",
        ranks,
        Path("--threads=5"),
        "-m",
        "written",
        "--flag",
        "-n",
        "7",
        PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, want, "")


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2])
def test_timeout_ends_the_job(ranks: int, tmp_path: Path) -> None:
    path = write(tmp_path, "while True: pass\n")
    done, _ = run("minitorch-run", ranks, Path("--timeout=1"), str(path))
    assert done.returncode == 124
    assert done.stderr == "minitorch-run: ended after 1 s (--timeout)\n"
    assert done.stdout == ""


@pytest.mark.mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_job(number: signal.Signals, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "from minitorch_gpu import comm\nworld = comm.init()\nworld.barrier()\n"
        "if world.rank == 0: print('ready', flush=True); world.recv(1)\n"
        "world.barrier()\n",
    )
    job = subprocess.Popen(
        [*MINITORCH_RUN, "-n", "2", str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert job.stdout is not None and job.stdout.readline() == b"ready\n"
    start = time.monotonic()
    job.send_signal(number)
    job.communicate(timeout=30)
    assert job.returncode == 128 + number and time.monotonic() - start < 3


def test_threads_are_shared_out_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)))
    options = launcher.parse(["-n", "4", __file__])
    env = launcher.environment(options, {"OMP_NUM_THREADS": "9"})
    assert (env["OMP_NUM_THREADS"], env["OPENBLAS_NUM_THREADS"]) == ("9", "3")
    assert env["MKL_NUM_THREADS"] == env["NUMBA_NUM_THREADS"] == "3"


def test_a_missing_mpiexec_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r'pip install "minitorch_gpu\[mpi\]"'):
        launcher.main(["-n", "2", __file__])


def test_a_missing_mpi4py_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('not here')\n")
    path = write(tmp_path, "from minitorch_gpu import comm\ncomm.init()\n")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PMI_SIZE": "2"}
    done = subprocess.run(
        [sys.executable, str(path)], env=env, capture_output=True, text=True, timeout=60
    )
    assert 'pip install "minitorch_gpu[mpi]"' in done.stderr and done.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0", __file__], "--ranks must be at least 1, got 0"),
        (["-n", "2", "--timeout", "-1", __file__], "--timeout must be at least 1, got -1"),
        (["-n", "2", "no_such_script.py"], "there is no script 'no_such_script.py'"),
    ],
)
def test_bad_arguments_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        launcher.main(arguments)
    assert message in capsys.readouterr().err


BANNER = (
    b"\n" + b"=" * 83 + b"\n"
    b"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
    b"=   PID 3728 RUNNING AT host\n=   EXIT CODE: 9\n"
    b"=   CLEANING UP REMAINING PROCESSES\n"
    b"=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n" + b"=" * 83 + b"\n"
    b"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"
    b"This typically refers to a problem with your application.\n"
    b"Please see the FAQ page for debugging suggestions\n"
)


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_only_mpiexecs_own_lines_are_taken_out(piece: int) -> None:
    rule = b"=" * 83 + b"\n"
    ours = b"step 1\n\n" + rule + b"= a title\n" + rule + b"\nAbort the mission\n\n\n50%\r60%"
    report = Report()
    output = OutputFilter(report)
    data = ours[:-7] + BANNER + ours[-7:]
    shown = b"".join(output.feed(data[i : i + piece]) for i in range(0, len(data), piece))
    assert shown + output.finish() == ours
    assert report.killed == "Killed (signal 9)"


def test_a_progress_bar_passes_at_once() -> None:
    output = OutputFilter(Report())
    assert [output.feed(part) for part in (b"10%", b"\r20%", b"\r=", b"=")] == [
        b"10%",
        b"\r20%",
        b"\r=",
        b"=",
    ]
