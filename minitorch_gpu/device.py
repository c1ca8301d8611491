"""Devices, array modules, transfers, streams and events: all that knows where an array lives.

The package runs on NumPy ("cpu") and on CuPy ("cuda:N"). CuPy is imported here and nowhere
else below the kernels, and only when a CUDA device is first named.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

Array = Any  # numpy.ndarray or cupy.ndarray

INSTALL = (
    'install CuPy for your CUDA version: pip install "minitorch_gpu[cuda12]" or '
    'pip install "minitorch_gpu[cuda13]"'
)


class Device(NamedTuple):
    """Where an array lives: ``type`` is "cpu" or "cuda", ``index`` counts CUDA devices."""

    type: str
    index: int = 0  # type: ignore[assignment]

    def __str__(self) -> str:
        return "cpu" if self.type == "cpu" else f"cuda:{self.index}"

    def __repr__(self) -> str:
        return f"device({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        """Equal to another device, or to its name: ``x.device == "cpu"``."""
        if isinstance(other, str):
            other = device(other)
        return tuple.__eq__(self, other) if isinstance(other, Device) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)


CPU = Device("cpu")
_current_cuda: contextvars.ContextVar[int] = contextvars.ContextVar("cuda_device", default=0)


def device(name: str | Device) -> Device:
    """The device called ``name``: "cpu", "cuda" (the current one) or "cuda:N".

    Raises:
        ValueError: the name is none of these.
    """
    if isinstance(name, Device):
        return name
    kind, _, index = str(name).partition(":")
    if kind == "cpu" and index in ("", "0"):
        return CPU
    if kind == "cuda" and (index == "" or index.isdigit()):
        return Device("cuda", int(index) if index else _current_cuda.get())
    raise ValueError(f'unknown device {name!r}: use "cpu", "cuda" or "cuda:N"')


@lru_cache(maxsize=1)
def _load_cupy() -> tuple[ModuleType | None, str]:
    """CuPy when it is installed and sees a GPU, else None and the reason."""
    try:
        import cupy
    except ImportError as error:
        return None, f"CuPy cannot be imported ({error}); {INSTALL}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return None, f"CuPy is installed but the CUDA driver does not answer ({error})"
    if count == 0:
        return None, "CuPy is installed but no CUDA device is visible"
    return cupy, ""


def cupy_module() -> ModuleType:
    """CuPy itself.

    Raises:
        RuntimeError: CuPy or a GPU is missing; the message says what to install.
    """
    module, reason = _load_cupy()
    if module is None:
        raise RuntimeError(f"device cuda is not available: {reason}")
    return module


def cuda_available() -> bool:
    """Whether CuPy is installed and sees at least one CUDA device."""
    return _load_cupy()[0] is not None


def cuda_device_count() -> int:
    """How many CUDA devices are visible; 0 without CuPy or a driver."""
    module = _load_cupy()[0]
    return int(module.cuda.runtime.getDeviceCount()) if module else 0


def is_array(x: object) -> bool:
    """Whether ``x`` is a raw array of one of our array modules."""
    if isinstance(x, np.ndarray):
        return True
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(x, cupy.ndarray)


def array_module(*arrays: Array) -> ModuleType:
    """NumPy or CuPy, whichever made the arrays (NumPy for Python scalars)."""
    cupy = sys.modules.get("cupy")
    if cupy is not None and any(isinstance(a, cupy.ndarray) for a in arrays):
        return cupy
    return np


def module_of(where: Device) -> ModuleType:
    """The array module of a device: NumPy for "cpu", CuPy for "cuda:N"."""
    return np if where.type == "cpu" else cupy_module()


def device_of(array: Array) -> Device:
    """The device an array lives on."""
    if isinstance(array, (np.ndarray, np.generic)):
        return CPU
    return Device("cuda", int(array.device.id))


def special_module(xp: ModuleType) -> ModuleType:
    """Special functions (erf, digamma, ...): scipy.special or cupyx.scipy.special."""
    if xp is np:
        import scipy.special

        return scipy.special
    import cupyx.scipy.special

    return cupyx.scipy.special


def transfer(array: Array, where: Device) -> Array:
    """``array`` on device ``where``; the array itself when it is there already.

    Raises:
        RuntimeError: ``where`` is a CUDA device and CuPy or the device is missing.
    """
    here = device_of(array)
    if here == where:
        return array
    if where.type == "cpu":
        return np.asarray(array.get())
    cupy = cupy_module()
    if where.index >= cuda_device_count():
        raise RuntimeError(f"device {where} does not exist: {cuda_device_count()} visible")
    with cupy.cuda.Device(where.index):
        return cupy.array(array) if here.type == "cuda" else cupy.asarray(array)


def to_numpy(array: Array) -> np.ndarray:
    """``array`` as a NumPy array, copied from its device if need be."""
    return transfer(array, CPU)


@contextmanager
def use_device(where: str | Device) -> Iterator[Device]:
    """Make a device the current one: ``"cuda"`` means it, new arrays are made on it."""
    target = device(where)
    if target.type == "cpu":
        yield target
        return
    token = _current_cuda.set(target.index)
    try:
        with cupy_module().cuda.Device(target.index):
            yield target
    finally:
        _current_cuda.reset(token)


class Event:
    """A point in a stream's work. On the CPU work is done when a call returns: a no-op."""

    def __init__(self, where: str | Device = CPU) -> None:
        self.device = device(where)
        self._event = (
            None if self.device.type == "cpu" else cupy_module().cuda.Event(disable_timing=True)
        )

    def record(self, stream: Stream | None = None) -> None:
        """Mark the work issued so far on ``stream`` (default: the current one)."""
        if self._event is not None:
            self._event.record(stream.handle if stream is not None else None)

    def synchronize(self) -> None:
        """Block until the marked work is done."""
        if self._event is not None:
            self._event.synchronize()

    def query(self) -> bool:
        """Whether the marked work is done."""
        return True if self._event is None else bool(self._event.done)


class Stream:
    """A queue of device work, used as a context manager. On the CPU every method is a no-op."""

    def __init__(self, where: str | Device = CPU) -> None:
        self.device = device(where)
        self.handle: Any = None
        if self.device.type == "cuda":
            with use_device(self.device):
                self.handle = cupy_module().cuda.Stream(non_blocking=True)

    def __enter__(self) -> Stream:
        if self.handle is not None:
            self.handle.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.handle is not None:
            self.handle.__exit__(*exc)

    def wait_event(self, event: Event) -> None:
        """Later work on this stream starts after ``event``."""
        if self.handle is not None and event._event is not None:
            self.handle.wait_event(event._event)

    def synchronize(self) -> None:
        """Block until all work issued on this stream is done."""
        if self.handle is not None:
            self.handle.synchronize()


def synchronize(where: str | Device = "cpu") -> None:
    """Block until a device has finished all its work; returns at once on the CPU."""
    target = device(where)
    if target.type == "cuda":
        with use_device(target):
            cupy_module().cuda.Device(target.index).synchronize()
