"""Training checkpoints: one file from which a run goes on bit for bit.

    save_checkpoint("run", step=30, model=model, optimizer=optimizer, ...)
                                                      run/step_30.safetensors
    load_checkpoint(latest_checkpoint("run"), model=model, optimizer=optimizer, ...).step

A checkpoint holds the tree {"step", "extra", "model", "optimizer", "scheduler", "sampler",
"generator"} of what the components' ``state_dict()`` give (``get_state()`` of a generator):
tensors as "model/<name>" and "optimizer/state/<name>/<key>", all the rest as JSON.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from minitorch_gpu.device import CPU
from minitorch_gpu.io.files import MalformedFileError, remove_temporaries
from minitorch_gpu.io.tensors import AnyPath, read_metadata, read_tree, share, write_tree
from minitorch_gpu.random import default_generator
from minitorch_gpu.tensor import Tensor

SUFFIX = ".safetensors"
KIND = {"kind": "minitorch_gpu training checkpoint"}
Result = TypeVar("Result")


class Ranks(Protocol):
    """What a checkpoint needs of a Communicator."""

    rank: int
    size: int

    def all_gather_object(self, obj: object) -> list[Any]:
        """Every rank's object, in rank order."""


class CheckpointInfo(NamedTuple):
    """What a checkpoint says besides the components' states."""

    path: Path
    step: int
    extra: Any


# ---------------------------------------------------------------- saving
def save_checkpoint(
    path: AnyPath,
    *,
    step: int,
    model: Any,
    optimizer: Any = None,
    scheduler: Any = None,
    sampler: Any = None,
    generator: Any = None,
    extra: Any = None,
    keep_last: int | None = None,
    comm: Ranks | None = None,
) -> Path:
    """Write all that a training run needs to go on after ``step`` steps.

    The file takes its name when it is complete and on the disk; until then, and when anything
    fails, what was there before stays.

    Args:
        path: a file ending in ".safetensors", or a folder that belongs to this run; it is
            made if need be, and gets "step_<step>.safetensors".
        model, optimizer, scheduler: have ``state_dict()``.
        sampler: the sampler or data loader: ``state_dict()`` gives its position.
        generator: has ``get_state()``; the default generator if None.
        extra: tensors, numbers, text, and dicts, lists and tuples of them, to store beside.
        keep_last: in a folder, remove older checkpoints so that this many are left.
        comm: all its ranks call this; rank 0 writes, and all return when it has.

    Returns:
        The file's path.

    Raises:
        TypeError, ValueError, OSError: as ``save``. With ``comm`` the other ranks get a
            RuntimeError that names the rank and its reason.
    """
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler,
             "sampler": sampler, "generator": generator or default_generator()}
    file = _file_of(Path(path), step)

    def write() -> None:
        _check_count("step", step, 0)
        _check_count("keep_last", 1 if keep_last is None else keep_last, 1)
        tree = {"step": step, "extra": extra}
        tree |= {name: _state(name, part) for name, part in parts.items() if part is not None}
        if comm is None or comm.rank == 0:
            _write(tree, Path(path), keep_last)

    _agreed(comm, f"save the checkpoint {file}", write)
    return file


def _check_count(name: str, count: int, least: int) -> None:
    if type(count) is not int or count < least:
        raise ValueError(f"{name} is an int from {least} up, got {count!r}")


_METHODS = {"generator": ("get_state", "set_state")}
_USUAL = ("state_dict", "load_state_dict")


def _state(name: str, part: Any) -> Any:
    return getattr(part, _METHODS.get(name, _USUAL)[0])()


def _set_state(name: str, part: Any, state: Any) -> None:
    getattr(part, _METHODS.get(name, _USUAL)[1])(state)


def _file_of(path: Path, step: int) -> Path:
    return path if path.suffix == SUFFIX else path / f"step_{step}{SUFFIX}"


def _write(tree: dict[str, Any], path: Path, keep_last: int | None) -> None:
    """Write; in a folder, remove what killed writers left and checkpoints beyond the last."""
    file = _file_of(path, tree["step"])
    if file == path:
        write_tree(tree, file, KIND)
        return
    path.mkdir(parents=True, exist_ok=True)
    write_tree(tree, file, KIND)
    remove_temporaries(path, "step_")
    if keep_last is not None:
        older = [file for step, file in _checkpoints(path) if step < tree["step"]]
        for file in older[: max(0, len(older) + 1 - keep_last)]:
            file.unlink()


# ---------------------------------------------------------------- finding
def latest_checkpoint(folder: AnyPath, *, comm: Ranks | None = None) -> Path | None:
    """The complete checkpoint of the highest step in a folder, or None.

    Temporary, truncated and foreign files are passed over.

    Args:
        comm: all its ranks call this and get what rank 0 found.
    """
    found = None
    if comm is None or comm.rank == 0:
        found = next((file for _, file in reversed(_checkpoints(Path(folder)))), None)
    return found if comm is None else comm.all_gather_object(found)[0]


def _checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """(step, file) of the complete checkpoints in ``folder``, in order."""
    matches = [(re.fullmatch(r"step_(\d+)\.safetensors", file.name), file)
               for file in folder.glob(f"step_*{SUFFIX}")]
    return sorted((int(match[1]), file) for match, file in matches
                  if match and _is_checkpoint(file))


def _is_checkpoint(file: Path) -> bool:
    try:
        return read_metadata(file) == KIND
    except MalformedFileError:
        return False


# ---------------------------------------------------------------- loading
def load_checkpoint(
    path: AnyPath,
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    sampler: Any = None,
    generator: Any = None,
    comm: Ranks | None = None,
) -> CheckpointInfo:
    """Put the components that are given into the state that a checkpoint holds.

    Everything is compared first: names, shapes, dtypes and ties of the model's tensors, the
    names in the optimizer's groups, the kinds of state. If anything does not fit, nothing is
    changed, on any rank. A scheduler is made before loading, as before training.

    Args:
        path: the file, as from ``latest_checkpoint``.
        comm: all its ranks call this, and every one reads the file.

    Raises:
        FileNotFoundError, MalformedFileError: the file is missing or not to be trusted.
        ValueError: it does not fit; the message lists every difference. With ``comm`` ranks
            where it does fit get a RuntimeError that names the rank and its reason.
    """
    parts = {"generator": generator, "sampler": sampler, "scheduler": scheduler,
             "optimizer": optimizer, "model": model}
    given = {name: part for name, part in parts.items() if part is not None}
    file = Path(path)
    tree = _agreed(comm, f"load the checkpoint {file}", lambda: _read(file, given))
    _agreed(comm, f"load the checkpoint {file}", lambda: _apply(tree, given))
    return CheckpointInfo(file, tree["step"], tree["extra"])


def _read(file: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    if read_metadata(file) != KIND:
        raise MalformedFileError(f"{file} is no training checkpoint: mt.load gives its tensors")
    tree = read_tree(file, CPU)
    if not _is_training_state(tree):
        raise MalformedFileError(f"{file}: its nesting is no training checkpoint's")
    differences = [f"{name}: not in the file" for name in given if name not in tree]
    for name in given.keys() & tree.keys():
        view = _VIEWS.get(name, dict.fromkeys)
        differences += compare(view(_state(name, given[name])), view(tree[name]), name)
        if name == "model":
            differences += _other_ties(given[name].state_dict(), tree[name])
    if differences:
        lines = "\n  ".join(sorted(differences))
        raise ValueError(f"{file} does not fit; nothing was changed:\n  {lines}")
    return tree


def _is_training_state(tree: Any) -> bool:
    """Whether a tree is what ``save_checkpoint`` writes, as far as we look into it."""
    if not isinstance(tree, dict) or not {"step", "extra"} <= set(tree):
        return False
    parts = [part for name, part in tree.items() if name not in ("step", "extra")]
    return type(tree["step"]) is int and all(isinstance(part, dict) for part in parts)


def _groups(state: Mapping[str, Any]) -> dict[str, Any]:
    """The names in each parameter group; positions are left to the optimizer to match."""
    return {f"group {place}": {name: None for name in group["params"] if isinstance(name, str)}
            for place, group in enumerate(state.get("param_groups", []))}


# What of a state is there before the first step, so that it can be compared before loading:
# all of a model's, the keys of a scheduler's, sampler's or generator's.
_VIEWS: dict[str, Callable[[Any], Any]] = {"model": lambda state: state, "optimizer": _groups}
_SMALL = ("generator", "sampler", "scheduler")


def _other_ties(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """Names of one tensor here that are two in the file, or the other way round."""
    names = [name for name in here if isinstance(there.get(name), Tensor)]
    ours, theirs = (share({name: state[name].array for name in names})[1]
                    for state in (here, there))
    return [f"model/{name}: tied to {theirs.get(name)} in the file, to {ours.get(name)} here"
            for name in names if ours.get(name) != theirs.get(name)]


def compare(here: Any, there: Any, place: str) -> list[str]:
    """The differences in structure, shapes and dtypes between our state and the file's."""
    if hasattr(here, "shape") and hasattr(there, "shape"):
        ours, theirs = (f"{tuple(x.shape)} {x.dtype}" for x in (here, there))
        return [] if ours == theirs else [f"{place}: {theirs} in the file, {ours} here"]
    if isinstance(here, Mapping) and isinstance(there, Mapping):
        missing = [f"{place}/{key}: not in the file" for key in here if key not in there]
        unknown = [f"{place}/{key}: only in the file" for key in there if key not in here]
        inside = [line for key in here if key in there
                  for line in compare(here[key], there[key], f"{place}/{key}")]
        return [*missing, *unknown, *inside]
    if type(here) is type(there) and here == there:
        return []
    return [f"{place}: {there!r} in the file, {here!r} here"]


def _apply(tree: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Set the states, small ones first; the model was compared and comes last.

    An optimizer that refuses its state leaves itself as it was; the others are put back.
    """
    done: list[tuple[str, Any]] = []
    try:
        for name, part in given.items():
            if name in _SMALL:
                done.append((name, copy.deepcopy(_state(name, part))))
            _set_state(name, part, tree[name])
    except Exception:
        for name, before in done:
            _set_state(name, given[name], before)
        raise


# ---------------------------------------------------------------- several ranks
def _agreed(comm: Ranks | None, task: str, action: Callable[[], Result]) -> Result:
    """``action()``; an exception on one rank is an exception on all of them."""
    failure: Exception | None = None
    try:
        result = action()
    except Exception as error:
        failure = error
    if comm is not None:
        reasons = comm.all_gather_object(failure and f"{type(failure).__name__}: {failure}")
        failed = [rank for rank, reason in enumerate(reasons) if reason is not None]
        if failed and failure is None:
            first = failed[0]
            raise RuntimeError(f"rank {first} could not {task}: {reasons[first]}")
    if failure is not None:
        raise failure
    return result
