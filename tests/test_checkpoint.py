"""Training checkpoints: a run goes on bit for bit, or nothing is changed and all is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitorch_gpu as mt
from minitorch_gpu import io, nn, optim
from minitorch_gpu.comm import Communicator, SoloCommunicator, run_ranks
from minitorch_gpu.data import DataLoader, TensorDataset
from minitorch_gpu.io.checkpoint import KIND
from minitorch_gpu.io.tensors import write_tree
from minitorch_gpu.io.tree import pack, unpack
from minitorch_gpu.random import default_generator
from minitorch_gpu.tensor import Tensor

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda params: optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
    "AdamW": lambda params: optim.AdamW(params, lr=0.01, weight_decay=0.1),
}


def network(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Dropout(0.4), nn.Linear(width, 3))


class Run:
    """A training run of its own: 20 samples in batches of 6, so that an epoch has 4 steps."""

    def __init__(self, optimizer: str = "AdamW", seed: int = 0, width: int = 8) -> None:
        self.generator = mt.manual_seed(seed)
        self.model = network(width)
        self.optimizer = OPTIMIZERS[optimizer](self.model.named_parameters())
        warmup = optim.lr_scheduler.LinearLR(self.optimizer, 0.1, total_iters=3)
        cosine = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 9)
        self.scheduler = optim.lr_scheduler.SequentialLR(self.optimizer, [warmup, cosine], [3])
        numbers = np.random.default_rng(7)
        samples = TensorDataset(
            mt.tensor(numbers.standard_normal((20, 5)), dtype=mt.float32),
            mt.tensor(numbers.integers(0, 3, 20)),
        )
        self.loader = DataLoader(samples, 6, shuffle=True, seed=seed)

    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler,
                "sampler": self.loader, "generator": self.generator}

    def train(self, steps: int, save: Callable[[], object] = lambda: None) -> list[float]:
        """The losses; ``save`` is called after the last step, before the loop is left."""
        losses: list[float] = []
        while len(losses) < steps:
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                losses.append(loss.item())
                if len(losses) == steps:
                    save()
                    break
        return losses

    def bytes(self) -> dict[str, Any]:
        """Everything that a checkpoint holds, comparable bit for bit."""
        state = self.optimizer.state_dict()
        return {
            "model": {k: v.array.tobytes() for k, v in self.model.state_dict().items()},
            "optimizer": {name: {k: v.array.tobytes() if isinstance(v, Tensor) else v
                                 for k, v in values.items()}
                          for name, values in state["state"].items()},
            "groups": state["param_groups"],
            "scheduler": self.scheduler.state_dict(),
            "sampler": self.loader.state_dict(),
            "generator": self.generator.get_state(),
        }


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("before", [1, 3, 4, 6])  # 4 is the end of an epoch
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(
    tmp_path: Path, optimizer: str, before: int
) -> None:
    straight = Run(optimizer)
    losses = straight.train(before + 5)

    first = Run(optimizer)
    save = lambda: io.save_checkpoint(tmp_path, step=before, extra=[1.5], **first.parts())
    start = first.train(before, save)

    second = Run(optimizer, seed=99)
    path = io.latest_checkpoint(tmp_path)
    assert path == tmp_path / f"step_{before}.safetensors"
    info = io.load_checkpoint(path, **second.parts())
    assert info == io.CheckpointInfo(path, before, [1.5])
    assert second.bytes() == first.bytes()
    assert start + second.train(5) == losses
    assert second.bytes() == straight.bytes()
    assert len(set(losses)) == len(losses)


@pytest.mark.parametrize("forgotten", ["optimizer", "scheduler", "sampler", "generator"])
def test_each_part_matters_to_the_losses(tmp_path: Path, forgotten: str) -> None:
    first = Run()
    losses = Run().train(9)
    first.train(3, lambda: io.save_checkpoint(tmp_path, step=3, **first.parts()))
    second = Run(seed=99)
    parts = {name: part for name, part in second.parts().items() if name != forgotten}
    if forgotten == "optimizer":  # else the scheduler would bring its rates
        del parts["scheduler"]
    io.load_checkpoint(tmp_path / "step_3.safetensors", **parts)
    assert second.train(6) != losses[3:]


def test_the_file_is_plain_safetensors_with_names_to_find(tmp_path: Path) -> None:
    run = Run()
    run.train(2)
    path = io.save_checkpoint(tmp_path / "x.safetensors", step=2, **run.parts())
    from safetensors.numpy import load_file

    names = load_file(path).keys()
    assert {"model/0.weight", "optimizer/state/3.bias/exp_avg_sq"} <= names
    tree = mt.load(path)
    assert tree["step"] == 2
    assert tree["optimizer"]["param_groups"] == run.optimizer.state_dict()["param_groups"]
    assert tree["model"]["0.weight"].tolist() == run.model.state_dict()["0.weight"].tolist()


def test_a_model_alone_can_be_taken_from_a_checkpoint(tmp_path: Path) -> None:
    run, other = Run(), network()
    run.train(2)
    path = io.save_checkpoint(tmp_path, step=2, **run.parts())
    io.load_checkpoint(path, model=other)
    assert [p.tolist() for p in other.parameters()] == [
        p.tolist() for p in run.model.parameters()]


def test_the_default_generator_is_saved_if_none_is_given(tmp_path: Path) -> None:
    mt.manual_seed(5)
    mt.rand(3)
    path = io.save_checkpoint(tmp_path, step=0, model=network())
    following = mt.rand(3).tolist()
    mt.manual_seed(6)
    io.load_checkpoint(path, generator=default_generator())
    assert mt.rand(3).tolist() == following


def test_extra_is_any_tree_of_plain_values_and_tensors(tmp_path: Path) -> None:
    extra = {"best": (0.1, float("inf")), 3: [None, True, "é"], "ema": {"w": mt.ones(2)},
             "rate": np.float32(0.1), "rows": np.arange(3)}
    path = io.save_checkpoint(tmp_path, step=0, model=network(), extra=extra)
    loaded = io.load_checkpoint(path).extra
    assert list(loaded) == list(extra)
    assert loaded["best"] == (0.1, float("inf")) and loaded[3] == [None, True, "é"]
    assert isinstance(loaded["ema"]["w"], Tensor)
    assert type(loaded["rate"]) is np.float32 and loaded["rate"] == extra["rate"]
    assert isinstance(loaded["rows"], np.ndarray) and loaded["rows"].tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="extra/f/0 is of type function"):
        io.save_checkpoint(tmp_path, step=1, model=network(), extra={"f": [lambda: 0]})
    assert os.listdir(tmp_path) == ["step_0.safetensors"]


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.tuples(inner, inner) | (
    st.dictionaries(st.text() | st.integers(), inner)))


@given(TREES)
def test_plain_trees_come_back_equal_and_of_the_same_types(tree: Any) -> None:
    again = unpack(pack(tree, (), {}), {})
    assert repr(again) == repr(tree)


# ---------------------------------------------------------------- what does not fit
def test_all_differences_are_reported_at_once_and_nothing_is_changed(tmp_path: Path) -> None:
    run, wide = Run(), Run("SGD", seed=1, width=9)
    run.train(2)
    parts = {name: part for name, part in run.parts().items() if name != "sampler"}
    path = io.save_checkpoint(tmp_path, step=2, **parts)
    wide.model[3] = nn.Sequential(nn.Linear(9, 3))
    wide.optimizer.add_param_group({"params": [("more", mt.nn.Parameter(mt.ones(2)))]})
    wide.scheduler = optim.lr_scheduler.StepLR(wide.optimizer, 3)
    before = wide.bytes()
    with pytest.raises(ValueError, match="nothing was changed") as error:
        io.load_checkpoint(path, **wide.parts())
    assert [line.strip() for line in str(error.value).splitlines()[1:]] == [
        "model/0.bias: (8,) float32 in the file, (9,) float32 here",
        "model/0.weight: (8, 5) float32 in the file, (9, 5) float32 here",
        "model/3.0.bias: not in the file",
        "model/3.0.weight: not in the file",
        "model/3.bias: only in the file",
        "model/3.weight: only in the file",
        "optimizer/group 1: not in the file",
        "sampler: not in the file",
        "scheduler/_milestones: only in the file",
        "scheduler/gamma: not in the file",
        "scheduler/step_size: not in the file",
    ]
    assert wide.bytes() == before


def test_another_dtype_does_not_fit(tmp_path: Path) -> None:
    path = io.save_checkpoint(tmp_path, step=0, model=network().double())
    with pytest.raises(ValueError, match=r"\(8,\) float64 in the file, \(8,\) float32 here"):
        io.load_checkpoint(path, model=network())


def tied(model: nn.Module) -> nn.Module:
    model[0].weight, model[0].bias = model[3].weight, model[3].bias
    return model


def square() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.4), nn.Linear(4, 4))


def test_tied_weights_resume_tied(tmp_path: Path) -> None:
    first, second = tied(square()), tied(square())
    path = io.save_checkpoint(tmp_path, step=0, model=first)
    io.load_checkpoint(path, model=second)
    assert second[0].weight is second[3].weight
    assert second[0].weight.tolist() == first[3].weight.tolist()


def test_other_ties_do_not_fit(tmp_path: Path) -> None:
    plain, one = square(), tied(square())
    for saved, loading, words in (
        (plain, one, "model/3.weight: tied to None in the file, to 0.weight here"),
        (one, plain, "model/3.weight: tied to 0.weight in the file, to None here"),
    ):
        path = io.save_checkpoint(tmp_path, step=0, model=saved)
        before = [p.tolist() for p in loading.parameters()]
        with pytest.raises(ValueError, match=words):
            io.load_checkpoint(path, model=loading)
        assert [p.tolist() for p in loading.parameters()] == before


def test_when_a_part_refuses_its_state_the_others_are_put_back(tmp_path: Path) -> None:
    first, second = Run("SGD"), Run("AdamW", seed=1)
    first.train(2)
    path = io.save_checkpoint(tmp_path, step=2, **first.parts())
    before = second.bytes()
    with pytest.raises(ValueError, match="betas"):
        io.load_checkpoint(path, **second.parts())
    assert second.bytes() == before


def test_a_dict_of_tensors_is_no_checkpoint(tmp_path: Path) -> None:
    mt.save(network().state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(io.MalformedFileError, match="no training checkpoint"):
        io.load_checkpoint(tmp_path / "w.safetensors", model=network())


@pytest.mark.parametrize("tree", [{"step": 1}, {"step": None, "extra": 0},
                                  {"step": 1, "extra": None, "model": [1]}])
def test_a_file_of_another_nesting_is_no_checkpoint(tmp_path: Path, tree: Any) -> None:
    write_tree(tree, tmp_path / "x.safetensors", KIND)
    with pytest.raises(io.MalformedFileError, match="is no training checkpoint's"):
        io.load_checkpoint(tmp_path / "x.safetensors", model=network())


@pytest.mark.parametrize(("argument", "value"), [
    ("step", -1), ("step", 1.0), ("step", None), ("keep_last", 0), ("keep_last", True)])
def test_counts_are_counts(tmp_path: Path, argument: str, value: Any) -> None:
    arguments = {"step": 0, "keep_last": 1} | {argument: value}
    with pytest.raises(ValueError, match=f"{argument} is an int from"):
        io.save_checkpoint(tmp_path, model=network(), **arguments)
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------- a folder of checkpoints
def test_the_latest_is_the_highest_complete_step(tmp_path: Path) -> None:
    assert io.latest_checkpoint(tmp_path) is None
    assert io.latest_checkpoint(tmp_path / "not yet") is None
    for step in (9, 100, 20):
        path = io.save_checkpoint(tmp_path / "run", step=step, model=network())
    whole = path.read_bytes()
    folder = path.parent
    (folder / "step_101.safetensors").write_bytes(whole[:-1])
    (folder / "step_102.safetensors").write_bytes(b"")
    (folder / ".step_103.safetensors.0.tmp").write_bytes(whole)
    (folder / "step_104.safetensors.bak").write_bytes(whole)
    (folder / "step_x.safetensors").write_bytes(whole)
    mt.save({}, folder / "step_105.safetensors")
    assert io.latest_checkpoint(folder) == folder / "step_100.safetensors"


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    def steps() -> list[int]:
        return sorted(int(p.name[5:-12]) for p in tmp_path.glob("step_*"))

    for step in (8, 9, 10, 11):
        io.save_checkpoint(tmp_path, step=step, model=network(), keep_last=3)
    assert steps() == [9, 10, 11]
    io.save_checkpoint(tmp_path, step=12, model=network())
    assert steps() == [9, 10, 11, 12]
    io.save_checkpoint(tmp_path, step=10, model=network(), keep_last=1)  # resumed from there
    assert steps() == [10, 11, 12]
    (tmp_path / "step_13.safetensors").write_bytes(b"cut off")
    io.save_checkpoint(tmp_path, step=14, model=network(), keep_last=1)
    assert steps() == [13, 14]


KILLED = """
import os, signal, sys
from pathlib import Path
from minitorch_gpu.io.files import replacing
with replacing(Path(sys.argv[1]) / "step_2.safetensors") as file:
    file.write_bytes(bytes(1000))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_that_is_killed_leaves_the_older_checkpoint_the_latest(tmp_path: Path) -> None:
    path = io.save_checkpoint(tmp_path, step=1, model=network())
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 2
    assert io.latest_checkpoint(tmp_path) == path
    io.save_checkpoint(tmp_path, step=2, model=network())
    assert sorted(os.listdir(tmp_path)) == ["step_1.safetensors", "step_2.safetensors"]


# ---------------------------------------------------------------- several ranks
def test_rank_0_writes_and_all_ranks_load_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed: list[Any] = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (renamed.append(names), replace(*names)))

    def body(comm: Communicator) -> list[Any]:
        run = Run(seed=comm.rank)
        run.train(comm.rank)
        path = io.save_checkpoint(tmp_path, step=4, comm=comm, **run.parts())
        exists = path.exists()
        latest = io.latest_checkpoint(tmp_path, comm=comm)
        info = io.load_checkpoint(latest, comm=comm, **run.parts())
        return [info, exists, run.bytes()]

    results = run_ranks(3, body)
    assert len(renamed) == 1
    assert results[0][0].step == 4 and results[0][1]
    assert results[0][2]["generator"]["seed"] == 0
    assert results[0] == results[1] == results[2]


def test_a_failure_of_rank_0_is_raised_on_all_ranks(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def body(comm: Communicator) -> str:
        with pytest.raises((OSError, RuntimeError)) as error:
            io.save_checkpoint(tmp_path / "file", step=1, model=network(), comm=comm)
        comm.barrier()
        return f"{error.type.__name__}: {error.value}"

    first, *others = run_ranks(3, body)
    assert first.startswith("FileExistsError: ")
    for text in others:
        assert text == ("RuntimeError: rank 0 could not save the checkpoint "
                        f"{tmp_path / 'file' / 'step_1.safetensors'}: {first}")


def test_where_one_rank_does_not_fit_no_rank_is_changed(tmp_path: Path) -> None:
    path = io.save_checkpoint(tmp_path, step=4, model=network())

    def body(comm: Communicator) -> str:
        model = network(9 if comm.rank == 1 else 8)
        before = [p.tolist() for p in model.parameters()]
        with pytest.raises((ValueError, RuntimeError)) as error:
            io.load_checkpoint(path, model=model, comm=comm)
        assert [p.tolist() for p in model.parameters()] == before
        return f"{error.type.__name__}: {error.value}"

    for rank, text in enumerate(run_ranks(3, body)):
        assert text.startswith("ValueError: " if rank == 1 else "RuntimeError: rank 1 could")
        assert "model/0.bias: (8,) float32 in the file, (9,) float32 here" in text


def test_one_process_needs_no_communicator_and_may_have_one(tmp_path: Path) -> None:
    comm = SoloCommunicator()
    path = io.save_checkpoint(tmp_path, step=1, model=network(), comm=comm)
    assert io.latest_checkpoint(tmp_path, comm=comm) == path
    assert io.load_checkpoint(path, model=network(), comm=comm).step == 1
