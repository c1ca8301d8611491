"""Tensor: an array, an edge into the recorded graph, and the gradient it received."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minitorch_gpu.device import (
    Device,
    array_module,
    device,
    device_of,
    is_array,
    to_numpy,
    transfer,
)
from minitorch_gpu.engine import Leaf, RemovableHandle
from minitorch_gpu.engine.writes import clock
from minitorch_gpu.registry.promotion import DEFAULT, is_bfloat16, is_floating
from minitorch_gpu.registry.scalar import OPS
from minitorch_gpu.views import retake_views


class Tensor:
    """An n-dimensional array that records what is done with it.

    ``array`` is the raw NumPy or CuPy array. ``edge`` is the node that made this Tensor, or its
    own leaf, or None where no gradient flows. The ops' methods and operators are installed by
    their declarations; ``tensor.pyi`` lists them all.
    """

    __slots__ = ("__weakref__", "_grad", "_view", "_views", "array", "edge")
    __array_ufunc__ = None  # ndarray * Tensor asks Tensor.__rmul__
    __array_priority__ = 1000

    def __init__(self, array: Any, requires_grad: bool = False) -> None:
        if array.__class__ is not np.ndarray and not is_array(array):
            raise TypeError(f"Tensor wraps a raw array, not {type(array).__name__}: use "
                            "mt.tensor(...)")
        self.array = array
        self.edge: Any = None
        if requires_grad:
            self.requires_grad_()

    # ---------------------------------------------------------------- what it is
    @property
    def shape(self) -> tuple[int, ...]:
        """The size of every dim."""
        return self.array.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements, a NumPy dtype."""
        return self.array.dtype  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return self.array.ndim  # type: ignore[no-any-return]

    @property
    def device(self) -> Device:
        """Where the array lives."""
        return device_of(self.array)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dim."""
        return self.array.shape if dim is None else self.array.shape[dim]

    def dim(self) -> int:
        """The number of dims."""
        return self.array.ndim  # type: ignore[no-any-return]

    def numel(self) -> int:
        """The number of elements."""
        return int(self.array.size)

    def element_size(self) -> int:
        """Bytes of one element."""
        return int(self.array.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.array.nbytes)

    def stride(self, dim: int | None = None) -> Any:
        """Elements to step per dim, or for one dim."""
        steps = tuple(s // self.array.itemsize for s in self.array.strides)
        return steps if dim is None else steps[dim]

    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order."""
        return bool(self.array.flags.c_contiguous)

    def is_floating_point(self) -> bool:
        """Whether the dtype is a real float."""
        return is_floating(self.array.dtype) and self.array.dtype.kind != "c"

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return bool(self.array.dtype.kind == "c")

    # ---------------------------------------------------------------- gradients
    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to this Tensor."""
        return self.edge is not None

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        self.requires_grad_(flag)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Start (or stop) collecting a gradient in this leaf.

        Raises:
            RuntimeError: the dtype is no float, or a recorded result is to stop.
        """
        if not requires_grad:
            if not self.is_leaf:
                raise RuntimeError("requires_grad of a recorded result cannot be cleared: "
                                   "use .detach()")
            self.edge = None
        elif self.edge is None:
            if not is_floating(self.array.dtype):
                raise RuntimeError(f"only floating-point tensors can require gradients, this "
                                   f"one is {self.array.dtype}: convert with .float()")
            self.edge = Leaf(self)
            if getattr(self, "_views", None):
                retake_views(self)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded op made this Tensor."""
        return self.edge is None or self.edge.__class__ is Leaf

    @property
    def grad_fn(self) -> Any:
        """The node that made this Tensor; None for leaves."""
        return None if self.is_leaf else self.edge

    @property
    def grad(self) -> Tensor | None:
        """The gradient collected so far, of this Tensor's shape and dtype; or None."""
        return getattr(self, "_grad", None)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"grad must be a Tensor or None, not {type(value).__name__}")
            if value.shape != self.shape or value.dtype != self.dtype:
                raise ValueError(f"grad of shape {value.shape} {value.dtype} assigned to a "
                                 f"tensor of shape {self.shape} {self.dtype}")
        self._grad = value

    def _receive(self, g: Any, owned: bool) -> None:
        """Take a complete gradient of one walk; copied unless the array is ours alone."""
        if self.edge is None:
            return  # requires_grad was cleared after the forward pass
        known = self.grad
        if isinstance(g, Tensor):
            self._grad = OPS["clone"](g) if known is None else known + g
        elif known is None and self.edge.slot is not None:
            self.edge.slot[...] = g
            self._grad = Tensor(self.edge.slot)
        elif known is None:
            flags = getattr(g, "flags", None)
            sole = owned and flags is not None and flags.owndata and flags.c_contiguous
            if not sole or not isinstance(g, type(self.array)):
                g = array_module(self.array).array(g, order="C", copy=True)
            self._grad = Tensor(g)
        elif known.edge is not None:
            self._grad = Tensor(known.array + g)
        else:
            known.array[...] += g
            clock.record(known.array)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call ``hook(gradient)`` when this Tensor's gradient is complete, before its use.

        What the hook returns, unless None, takes the gradient's place.
        """
        if self.edge is None:
            raise RuntimeError("register_hook on a tensor that does not require gradients")
        if self.edge.hooks is None:
            self.edge.hooks = []
        return RemovableHandle(self.edge.hooks, hook)

    def detach(self) -> Tensor:
        """The same memory without history."""
        return Tensor(self.array)

    def detach_(self) -> Tensor:
        """Cut this object off its history."""
        self.edge = None
        return self

    @property
    def data(self) -> Tensor:
        """The same memory without history; assigning rebinds this object to other memory."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        self.array = value.array
        if self.edge.__class__ is Leaf:
            self.edge.shape, self.edge.dtype = self.array.shape, self.array.dtype

    # ---------------------------------------------------------------- leaving
    def item(self) -> Any:
        """The only element as a Python number."""
        if self.array.size != 1:
            raise ValueError(f"item() needs one element, this tensor has shape {self.shape}")
        value = self.array.item()
        return float(value) if is_bfloat16(self.array.dtype) else value

    def tolist(self) -> Any:
        """Nested lists of Python numbers; a number for a 0-dim tensor."""
        array = to_numpy(self.array)
        return (array.astype(np.float32) if is_bfloat16(array.dtype) else array).tolist()

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The NumPy array, sharing memory on the CPU.

        Raises:
            RuntimeError: the tensor requires gradients (use ``.detach()``) or is on a GPU.
        """
        if not force and self.edge is not None:
            raise RuntimeError("numpy() on a tensor that requires gradients: use "
                               ".detach().numpy()")
        if not force and self.device.type != "cpu":
            raise RuntimeError(f"numpy() on a tensor on {self.device}: use .cpu().numpy()")
        return to_numpy(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        return array.astype(dtype) if dtype is not None and dtype != array.dtype else array

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.array.dtype.kind not in "iu":
            raise TypeError(f"only integer tensors can be an index, this one is {self.dtype}")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.array.size != 1:
            raise ValueError(f"the truth value of a tensor of shape {self.shape} is ambiguous: "
                             "use .any() or .all()")
        return bool(self.item())

    def __len__(self) -> int:
        if self.array.ndim == 0:
            raise TypeError("len() of a 0-dim tensor")
        return int(self.array.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        if self.array.ndim == 0:
            raise TypeError("iteration over a 0-dim tensor")
        return iter([self[i] for i in range(len(self))])

    def __contains__(self, value: Any) -> bool:
        return bool((self.array == getattr(value, "array", value)).any())

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        text = np.array2string(
            to_numpy(self.array), separator=", ", prefix="tensor(", precision=4, threshold=1000
        )
        notes = [] if self.dtype in (DEFAULT, np.dtype("int64"), np.dtype(bool)) else [
            f"dtype={self.dtype.name}"]
        if not self.array.size and self.ndim != 1:
            notes.insert(0, f"size={self.shape}")
        if self.device.type != "cpu":
            notes.append(f"device='{self.device}'")
        if not self.is_leaf:
            notes.append(f"grad_fn={self.edge!r}")
        elif self.requires_grad:
            notes.append("requires_grad=True")
        return f"tensor({', '.join([text, *notes])})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.array.size == 1 else repr(self)

    # ---------------------------------------------------------------- moving
    def to(
        self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False,
        copy: bool = False,
    ) -> Tensor:
        """This Tensor on another device or in another dtype; itself when nothing changes.

        Takes a device, a dtype, another Tensor to be like, or both by keyword. ``non_blocking``
        is PyTorch's hint; copies here are always in order with the work before them.
        """
        for arg in args:
            if isinstance(arg, Tensor):
                dtype, device = arg.dtype, arg.device
            elif isinstance(arg, (Device, str)) and _is_device_name(arg):
                device = arg
            else:
                dtype = arg
        result: Tensor = self
        if dtype is not None and np.dtype(dtype) != self.dtype:
            result = OPS["cast"](result, dtype=np.dtype(dtype))
        if device is not None and _device(device) != self.device:
            result = OPS["move"](result, device=str(_device(device)))
        return OPS["clone"](result) if copy and result is self else result

    def cpu(self) -> Tensor:
        """This Tensor in host memory."""
        return self.to("cpu")

    def cuda(self, index: int | None = None) -> Tensor:
        """This Tensor on a GPU, the current one by default."""
        return self.to("cuda" if index is None else f"cuda:{index}")

    # ---------------------------------------------------------------- copying
    def __copy__(self) -> Tensor:
        copied = type(self).__new__(type(self))
        self._restore(copied, self._state(lambda a: a))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) in memo:
            copied: Tensor = memo[id(self)]
            return copied
        copied = memo[id(self)] = type(self).__new__(type(self))
        self._restore(copied, self._state(lambda a: a.copy()))
        return copied

    def _state(self, copy: Callable[[Any], Any]) -> dict[str, Any]:
        if not self.is_leaf:
            raise RuntimeError("only leaves can be copied or pickled, this tensor is a "
                               "recorded result: use .detach()")
        grad = self.grad
        return {"array": copy(self.array), "requires_grad": self.requires_grad,
                "grad": None if grad is None else copy(grad.array),
                "extra": dict(getattr(self, "__dict__", {}))}

    @staticmethod
    def _restore(target: Tensor, state: dict[str, Any]) -> None:
        target.array, target.edge = state["array"], None
        if state["grad"] is not None:
            target._grad = Tensor(state["grad"])
        target.requires_grad_(state["requires_grad"])
        if state["extra"]:
            target.__dict__.update(state["extra"])

    def __reduce__(self) -> Any:
        return _unpickle, (type(self), self._state(to_numpy), str(self.device))


class Parameter(Tensor):
    """A Tensor that a Module trains: it requires gradients by default and keeps its identity.

    ``name`` is a hint that ``Module.parameters()`` stamps; ``placement`` says how a sharded
    parameter is laid out over ranks, None for a whole one.
    """

    placement: Any = None
    name: str | None = None

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        array = data.array if isinstance(data, Tensor) else np.asarray(data)
        super().__init__(array, requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


def _unpickle(kind: type[Tensor], state: dict[str, Any], where: str) -> Tensor:
    result = kind.__new__(kind)
    Tensor._restore(result, state)
    if where != "cpu":
        result.data = Tensor(transfer(result.array, device(where)))
    return result


def _is_device_name(value: Any) -> bool:
    return isinstance(value, Device) or value.split(":")[0] in ("cpu", "cuda")


def _device(value: Any) -> Device:
    return device(value)
