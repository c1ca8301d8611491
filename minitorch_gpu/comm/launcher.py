"""``minitorch-run -n 4 train.py``: start ranks with mpiexec and pass on what they print.

Each rank runs ``comm/rank.py``, which starts the communicator before the script, so that a
failure in the script's first line already ends the whole job. One rank needs no mpiexec.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from minitorch_gpu.comm.lifeline import VARIABLE, Lifelines
from minitorch_gpu.comm.output import OutputFilter, Report

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
LOOK = 0.02  # seconds between looks at whether mpiexec has ended
KILL_AFTER = 1.0  # seconds from a forwarded signal to a SIGTERM


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line (``sys.argv`` when None)."""
    purpose = "start a script as several ranks, with mpiexec"
    parser = argparse.ArgumentParser("minitorch-run", description=purpose)
    parser.add_argument("-n", "--ranks", type=int, required=True, help="how many ranks")
    parser.add_argument("--threads", type=int, help="threads a rank (default: cores / ranks)")
    parser.add_argument("--timeout", type=int, help="end the job after so many seconds")
    parser.add_argument("-m", "--module", action="store_true", help="the target is a module")
    parser.add_argument("target", help="the script, or the module with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to the target")
    options = parser.parse_args(arguments)
    for name in ("ranks", "threads", "timeout"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"--{name} must be at least 1, got {value}")
    if not options.module and not os.path.isfile(options.target):
        parser.error(f"there is no script {options.target!r}")
    return options


def find_mpiexec() -> str:
    """The mpiexec beside this Python (the mpich wheel's), else the one on PATH.

    Raises:
        SystemExit: there is none; the message says what to install.
    """
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    found = beside if os.access(beside, os.X_OK) else shutil.which("mpiexec")
    if found is None:
        raise SystemExit(
            "minitorch-run: no mpiexec beside this Python or on PATH: "
            'pip install "minitorch_gpu[mpi]"'
        )
    return found


def environment(options: argparse.Namespace, base: Mapping[str, str]) -> dict[str, str]:
    """The ranks' environment: the cores shared out, the time limit."""
    cores = len(os.sched_getaffinity(0))
    threads = options.threads or max(1, cores // options.ranks)
    result = dict(base)
    for variable in THREAD_VARIABLES:
        if options.threads:
            result[variable] = str(threads)
        else:
            result.setdefault(variable, str(threads))
    if options.timeout:
        result["MPIEXEC_TIMEOUT"] = str(options.timeout)
    return result


def command(options: argparse.Namespace) -> list[str]:
    """The command that starts the ranks."""
    module = ["-m"] if options.module else []
    target = [*module, options.target, *options.arguments]
    if options.ranks == 1:
        return [sys.executable, *target]
    rank = [sys.executable, "-m", "minitorch_gpu.comm.rank"]
    return [find_mpiexec(), "-n", str(options.ranks), *rank, *target]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code (128 + n after signal n, 124 after --timeout)."""
    options = parse(arguments)
    env = environment(options, os.environ)
    if options.ranks == 1 and options.timeout is None:
        os.execve(sys.executable, command(options), env)
    if options.ranks == 1:
        return _run_alone(command(options), env, options.timeout)
    with Lifelines(options.ranks) as lifelines:
        env[VARIABLE] = lifelines.directory
        code, signals, report = _run(command(options), env, lifelines)
        if signals:
            return 128 + signals[0]
        if report.timed_out:
            return _timed_out(options.timeout)
        return _exit_code(code, report, lifelines)


def _run(
    line: list[str], env: dict[str, str], lifelines: Lifelines
) -> tuple[int, list[int], Report]:
    """Run mpiexec; returns its exit code, the signals sent on, and what it said."""
    process = subprocess.Popen(
        line,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # the terminal's Ctrl-C comes here only, and is sent on once
    )
    signals = _forward_signals(process)
    report = Report()
    pumps = [
        _pump(process.stdout, sys.stdout, OutputFilter(report)),
        _pump(process.stderr, sys.stderr, OutputFilter(report)),
    ]
    while (code := process.poll()) is None:
        lifelines.watch(LOOK)
    for pump in pumps:
        pump.join()
    return code, signals, report


def _run_alone(line: list[str], env: dict[str, str], timeout: int) -> int:
    process = subprocess.Popen(line, env=env, start_new_session=True)
    signals = _forward_signals(process)
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return _timed_out(timeout)
    return 128 + signals[0] if signals else code if code >= 0 else 128 - code


def _forward_signals(process: subprocess.Popen[bytes]) -> list[int]:
    """Send SIGINT, SIGTERM and SIGHUP on, and a SIGTERM later; returns those received."""
    received: list[int] = []

    def forward(number: int, frame: object) -> None:
        received.append(number)
        process.send_signal(number)
        timer = threading.Timer(KILL_AFTER, process.terminate)
        timer.daemon = True
        timer.start()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    return received


def _pump(source: IO[bytes] | None, sink: IO[str], output: OutputFilter) -> threading.Thread:
    """Copy ``source`` to ``sink`` as it comes, through the filter."""
    assert source is not None
    descriptor = source.fileno()

    def copy() -> None:
        while data := os.read(descriptor, 1 << 16):
            _write(sink, output.feed(data))
        _write(sink, output.finish())

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def _write(sink: IO[str], data: bytes) -> None:
    sink.buffer.write(data)  # type: ignore[attr-defined]
    sink.flush()


def _timed_out(timeout: int) -> int:
    print(f"minitorch-run: ended after {timeout} s (--timeout)", file=sys.stderr)
    return 124


def _exit_code(code: int, report: Report, lifelines: Lifelines) -> int:
    """The job's exit code, after one line about an end that no rank could explain itself."""
    if lifelines.aborted:  # that rank said why
        return lifelines.aborted[0]
    if report.killed is not None:
        who = f"[rank {lifelines.ended[0]}]" if lifelines.ended else "a rank on another node"
        print(f"{who} was ended by {report.killed}", file=sys.stderr)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
