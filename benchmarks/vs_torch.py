"""minitorch_gpu against PyTorch on the same work, alternating in one run: a table of ratios.

    pip install ".[cpu,bench]" && python benchmarks/vs_torch.py
    python benchmarks/vs_torch.py --only mlp64 gptS --threads 1

Each training step is forward, backward and AdamW (PyTorch's fused one), from the same weights
on the same batch; the losses of the first step must agree. Times are medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from workloads import NAMES, build

Step = Callable[[], float]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[*NAMES, "dispatch", "walk"])
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each library")
    parser.add_argument("--seconds", type=float, default=4.0, help="to spend on each workload")
    return parser.parse_args()


def limit_threads(count: int) -> None:
    """Before NumPy is imported: its OpenBLAS reads this once."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(count)


def train_steps(name: str) -> tuple[Step, Step]:
    """One training step of ours and of PyTorch's, from the same weights."""
    import torch

    import minitorch_gpu as mt
    from minitorch_gpu import optim

    ours = build(name, mt, mt.nn, mt.nn.functional)
    theirs = build(name, torch, torch.nn, torch.nn.functional)
    ours.model.load_state_dict(
        {k: mt.tensor(v.numpy()) for k, v in theirs.model.state_dict().items()})
    optimizers = (optim.AdamW(ours.model.parameters(), lr=1e-3),
                  torch.optim.AdamW(theirs.model.parameters(), lr=1e-3, fused=True))
    batches = ((mt.from_numpy(ours.x), mt.from_numpy(ours.y)),
               (torch.from_numpy(theirs.x), torch.from_numpy(theirs.y)))

    def step(model: Any, optimizer: Any, batch: Any) -> float:
        loss = model(*batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return (lambda: step(ours.model, optimizers[0], batches[0]),
            lambda: step(theirs.model, optimizers[1], batches[1]))


def check_same_loss(name: str, steps: tuple[Step, Step]) -> None:
    """Both libraries compute the same model: three steps' losses agree."""
    for _ in range(3):
        a, b = steps[0](), steps[1]()
        assert abs(a - b) <= 2e-4 * abs(b), f"{name}: loss {a} against PyTorch's {b}"


def dispatch() -> tuple[Step, Step]:
    """``a + b`` on recording 4x4 tensors, 2,000 times."""
    import torch

    import minitorch_gpu as mt

    def adder(lib: Any) -> Step:
        a, b = (lib.ones(4, 4, requires_grad=True) for _ in range(2))

        def run() -> float:
            for _ in range(2000):
                _ = a + b
            return 0.0

        return run

    return adder(mt), adder(torch)


def walk() -> tuple[Step, Step]:
    """Backward through a chain of 10,000 small nodes; only the walk is timed."""
    import torch

    import minitorch_gpu as mt

    def walker(lib: Any) -> Step:
        a, b = (lib.ones(4, 4, requires_grad=True) for _ in range(2))

        def run() -> float:
            x = a
            for _ in range(5000):
                x = x + b
                x = x * b
            loss = x.sum()
            start = time.perf_counter()
            loss.backward()
            return time.perf_counter() - start

        return run

    return walker(mt), walker(torch)


def measure(
    steps: tuple[Step, Step], seconds: float, returns_time: bool
) -> tuple[float, float]:
    """Median seconds of both, alternating, after two rounds to warm up."""
    times: tuple[list[float], list[float]] = ([], [])
    deadline = time.perf_counter() + seconds
    rounds = 0
    while rounds < 7 or (time.perf_counter() < deadline and rounds < 500):
        for record, step in zip(times, steps):
            start = time.perf_counter()
            answer = step()
            elapsed = answer if returns_time else time.perf_counter() - start
            if rounds >= 2:
                record.append(elapsed)
        rounds += 1
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    """Print one row per workload: ours, PyTorch's, the ratio."""
    args = parse_arguments()
    limit_threads(args.threads)
    import torch

    torch.set_num_threads(args.threads)
    rows = args.only or ["dispatch", "walk", *NAMES]
    print(f"PyTorch {torch.__version__}, {args.threads} threads, medians")
    print(f"{'':10s} {'minitorch_gpu':>14s} {'PyTorch':>12s} {'ratio':>7s}")
    ratios = []
    for name in rows:
        if name in NAMES:
            steps, unit, scale = train_steps(name), "ms", 1e3
            check_same_loss(name, steps)
        else:
            steps = {"dispatch": dispatch, "walk": walk}[name]()
            unit, scale = "us", 1e6 / (2000 if name == "dispatch" else 10_000)
        ours, theirs = measure(steps, args.seconds, name == "walk")
        if name in NAMES:
            ratios.append(ours / theirs)
        print(f"{name:10s} {ours * scale:11.2f} {unit} {theirs * scale:9.2f} {unit} "
              f"{ours / theirs:7.2f}", flush=True)
    if ratios:
        print(f"geometric mean of the training steps: {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
