"""Frames: which tick, which samples of the batch and which module a draw belongs to."""

from __future__ import annotations

import contextvars
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minitorch_gpu.random.generator import Generator, ambient, default_generator

BatchSlice = tuple[int, int, int]  # (start, local, total) samples


def hash64(tick: int, path: str, count: int) -> int:
    """The stream of the ``count``-th draw at ``path`` in a tick: 64 bits of BLAKE2b."""
    text = f"{tick}|{count}|{path}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


class Frame:
    """What the draws of one tick share: (seed, tick), batch slice, call path and counts."""

    __slots__ = ("batch", "counts", "generator", "names", "opened_by_call", "path", "ticket")

    def __init__(self, generator: Generator, opened_by_call: bool = False) -> None:
        self.generator = generator
        self.opened_by_call = opened_by_call
        self.ticket: tuple[int, int] | None = None  # (seed, tick), once taken
        self.batch: BatchSlice | None = None
        self.path: list[Any] = []  # modules being called, and explicit names
        self.counts: dict[Any, int] = {}
        self.names: dict[Any, dict[Any, str]] = {}  # parent -> {module below it: its name}

    def take(self) -> tuple[int, int]:
        """The frame's (seed, tick), taken from its generator the first time."""
        if self.ticket is None:
            self.ticket = (self.generator.initial_seed(), self.generator.next_tick())
        return self.ticket

    def copy(self) -> Frame:
        """The same tick, batch, path and counts so far; going on apart from this frame."""
        twin = Frame(self.generator)
        twin.ticket, twin.batch, twin.names = self.take(), self.batch, self.names
        twin.path, twin.counts = self.path.copy(), self.counts.copy()
        return twin

    def stream(self) -> int:
        """The stream of the next draw here, counting it."""
        path = self._path_name()
        return hash64(self.take()[1], path, self._next(path))

    def _next(self, key: Any) -> int:
        count = self.counts.get(key, 0)
        self.counts[key] = count + 1
        return count

    def _path_name(self) -> str:
        """The call path: names from parent to child, from the outermost call or name down."""
        parts: list[str] = []
        parent = None
        for item in self.path:
            if isinstance(item, str):
                parts.append(item)
                parent = None
                continue
            if parent is not None:  # else item is the root, or bears the name before it
                parts.append(self._name(parent, item, parts))
            parent = item
        return ".".join(filter(None, parts))

    def _name(self, parent: Any, child: Any, parts: list[str]) -> str:
        if parent not in self.names:
            self.names[parent] = {module: name for name, module in parent.named_modules()}
        name = self.names[parent].get(child)
        return self._stranger(child, ".".join(parts)) if name is None else name

    def _stranger(self, child: Any, above: str) -> str:
        """Class name and order of first draw, for a module that is not below its caller."""
        kind = type(child).__name__
        if (above, child) not in self.counts:
            self.counts[above, child] = self._next((above, kind))
        return f"{kind}#{self.counts[above, child]}"


_frame: contextvars.ContextVar[Frame | None] = contextvars.ContextVar("frame", default=None)


def current_frame() -> Frame | None:
    """The open frame, or None."""
    return _frame.get()


@contextmanager
def _inside(frame: Frame | None) -> Iterator[None]:
    token = _frame.set(frame)
    try:
        yield
    finally:
        _frame.reset(token)


@contextmanager
def use_generator(generator: Generator) -> Iterator[Generator]:
    """Make ``generator`` the default one; draws inside leave a frame of another generator."""
    frame = _frame.get()
    token = ambient.set(generator)
    try:
        same = frame is not None and frame.generator is generator
        with _inside(frame if same else None):
            yield generator
    finally:
        ambient.reset(token)


def enter_module(module: Any) -> Frame:
    """Put ``module`` on the call path; pair it with ``leave_module`` in a ``finally``.

    The outermost call opens a frame. In training mode it takes a tick, whether or not
    anything draws (ranks with other layers stay in step); in evaluation mode only when
    something draws, so an evaluation without draws does not move the generator.

    Args:
        module: has ``training: bool`` and ``named_modules()``; hashed by identity.
    """
    frame = _frame.get()
    if frame is None:
        frame = Frame(default_generator(), True)
        _frame.set(frame)
        if module.training:
            frame.take()
    frame.path.append(module)
    return frame


def leave_module(frame: Frame) -> None:
    """Take the module off the path again; the outermost call closes its frame."""
    frame.path.pop()
    if frame.opened_by_call and not frame.path:
        _frame.set(None)


def _open_frame(asker: str) -> Frame:
    frame = _frame.get()
    if frame is None:
        raise RuntimeError(f"{asker} needs an open step: use it inside `with random.step():`")
    return frame


@contextmanager
def name_scope(name: str) -> Iterator[None]:
    """Call what is inside ``name``, as in "decoder.3": the module called next bears this name.

    An executor that runs part of a model pushes the whole model's names, and a wrapper around
    a model pushes "", so that their draws are those of the model called by itself.
    """
    path = _open_frame("name_scope").path
    path.append(name)
    try:
        yield
    finally:
        path.pop()


@contextmanager
def step(
    generator: Generator | None = None, *, batch: BatchSlice | None = None
) -> Iterator[None]:
    """One tick for everything inside; a step within a step of its generator is part of it.

    Args:
        generator: gives the tick; the default one if None.
        batch: as in ``batch_slice``.
    """
    frame = _frame.get()
    if frame is None or generator not in (None, frame.generator):
        frame = Frame(generator or default_generator())
        frame.take()
    with _inside(frame):
        if batch is None:
            yield
        else:
            with batch_slice(*batch):
                yield


@contextmanager
def batch_slice(start: int, local: int, total: int) -> Iterator[None]:
    """A micro-batch: samples ``start .. start + local`` of ``total``, with fresh counts.

    Inside another slice of ``total`` samples it is a slice of that slice. A draw of
    k * local rows then stands at rows ``start * k ...`` of a global tensor of ``total * k``.

    Raises:
        RuntimeError: no step is open.
        ValueError: the slice does not lie in ``total``, or the outer slice has another size.
    """
    frame = _open_frame("batch_slice").copy()
    _check_slice(start, local, total)
    if frame.batch is not None:
        first, outer_local, outer_total = frame.batch
        if total != outer_local:
            raise ValueError(
                f"batch_slice of {total} samples inside a slice of {outer_local}: "
                f"an inner slice counts the samples of the outer one"
            )
        start, total = first + start, outer_total
    frame.batch, frame.counts = (start, local, total), {}
    with _inside(frame):
        yield


@contextmanager
def global_slice(start: int, local: int, total: int) -> Iterator[None]:
    """This rank's whole batch of ``local`` samples is part of a global one; counts go on.

    Where ``batch_slice`` cuts from within, this widens from outside: the slice in force, if
    any, has ``local`` as its total. A second call of a model inside one step goes on counting.

    Raises:
        RuntimeError, ValueError: as ``batch_slice``.
    """
    outer = _open_frame("global_slice")
    _check_slice(start, local, total)
    first, inner_local, inner_total = outer.batch or (0, local, local)
    if inner_total != local:
        raise ValueError(
            f"global_slice of {local} local samples, but the slice in force is of {inner_total}"
        )
    frame = outer.copy()
    frame.counts, frame.batch = outer.counts, (start + first, inner_local, total)
    with _inside(frame):
        yield


def _check_slice(start: int, local: int, total: int) -> None:
    if start < 0 or local < 0 or start + local > total:
        raise ValueError(f"samples {start} .. {start + local} do not lie in a batch of {total}")


def current_batch() -> BatchSlice | None:
    """The batch slice in force, (start, local, total) in global samples, or None."""
    frame = _frame.get()
    return frame.batch if frame is not None else None


def snapshot() -> Frame:
    """The open frame as it stands, for ``restored``.

    Raises:
        RuntimeError: no step is open.
    """
    return _open_frame("snapshot").copy()


@contextmanager
def restored(frame: Frame) -> Iterator[None]:
    """Draw again what was drawn after ``snapshot()``; can be repeated."""
    with _inside(frame.copy()):
        yield
