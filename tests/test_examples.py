"""The examples as users run them: the same losses on any number of ranks, exact resuming."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GPT = [str(ROOT / "examples" / "train_gpt.py"), "--steps", "50", "--global-batch", "12",
       "--dropout", "0.1", "--sample", "8"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def command(ranks, arguments):
    return [sys.executable, "-m", "minitorch_gpu.comm.launcher", "-n", str(ranks), *arguments]


def run(ranks, *arguments, seconds=150):
    done = subprocess.run(command(ranks, arguments), env=ENVIRONMENT, cwd=ROOT, timeout=seconds,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(output):
    """Step -> loss, as printed."""
    return {int(s): float(v) for s, v in re.findall(r"^step (\d+)  loss (\S+)$", output, re.M)}


@pytest.fixture(scope="module")
def one_process():
    return run(1, *GPT)


@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_losses_do_not_depend_on_the_number_of_ranks(one_process, ranks):
    output = run(ranks, *GPT)
    reference, found = losses(one_process), losses(output)
    assert list(found) == list(range(1, 51))
    for step, loss in found.items():
        assert loss == pytest.approx(reference[step], rel=2e-6), f"step {step}"
    embedded = [int(n) for n in re.search(r"per rank: \[(.*)\]", output)[1].split(",")]
    assert sum(embedded) == 50 * 12 * 64, "no token twice, none lost"
    assert max(embedded) == 50 * 64 * -(-12 // ranks), "no rank computes the whole batch"


def test_training_learns_and_reports(one_process):
    found = losses(one_process)
    assert found[50] < 0.75 * found[1]
    assert re.search(r"^validation loss \d+\.\d{6}$", one_process, re.M)


def kill_at(step, folder):
    """Start a run that saves checkpoints, and SIGKILL it when it prints ``step``."""
    process = subprocess.Popen(
        [sys.executable, *GPT, "--checkpoint", folder, "--checkpoint-every", "10"],
        env=ENVIRONMENT, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in process.stdout:
        if line.startswith(f"step {step} "):
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait(timeout=30) == -signal.SIGKILL
    process.stdout.close()


def test_a_killed_run_resumes_bit_for_bit_and_on_other_numbers_of_ranks(one_process, tmp_path):
    kill_at(30, str(tmp_path))
    reference = losses(one_process)
    saved = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for ranks in (1, 2):
        for p in tmp_path.iterdir():
            p.unlink()
        for name, content in saved.items():
            (tmp_path / name).write_bytes(content)
        resumed = losses(run(ranks, *GPT, "--checkpoint", str(tmp_path), "--resume"))
        assert 20 < min(resumed) <= 31 and max(resumed) == 50
        for step, loss in resumed.items():
            wanted = reference[step]
            assert loss == (wanted if ranks == 1 else pytest.approx(wanted, rel=2e-6)), step


@pytest.mark.parametrize(("model", "least"), [("mlp", 96.0), ("cnn", 98.0)])
def test_the_digits_are_learnt_within_a_minute(model, least):
    start = time.perf_counter()
    output = run(1, str(ROOT / "examples" / "train_digits.py"), "--model", model)
    assert float(re.search(r"accuracy (\S+)% after", output)[1]) >= least
    assert time.perf_counter() - start < 60


def test_bad_input_is_named_on_every_rank():
    for arguments, message in [
        (["--text", "missing.txt"], "missing.txt"),
        (["--global-batch", "0"], "global_batch"),
        (["--global-batch", "1"], "global_batch 1 is smaller than the 2 ranks"),
    ]:
        done = subprocess.run(command(2, [*GPT, *arguments]), env=ENVIRONMENT, cwd=ROOT,
                              timeout=60, capture_output=True, text=True)
        assert done.returncode != 0 and message in done.stderr
