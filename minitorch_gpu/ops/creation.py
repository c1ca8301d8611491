"""Making tensors: from data, filled, counting, random."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from minitorch_gpu import random
from minitorch_gpu.device import Device, device_of, is_array, module_of, transfer
from minitorch_gpu.device import device as as_device
from minitorch_gpu.ops.dims import sizes
from minitorch_gpu.registry.promotion import DEFAULT, result_type
from minitorch_gpu.tensor import Tensor

Dtype = Any
Where = str | Device


def _finish(array: Any, where: Where | None, requires_grad: bool) -> Tensor:
    if where is not None:
        array = transfer(array, as_device(where))
    return Tensor(array, requires_grad)


def tensor(
    data: Any,
    *,
    dtype: Dtype = None,
    device: Where | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A new Tensor with a copy of ``data``: numbers, nested lists, arrays or a Tensor.

    Python floats become float32, integers int64; arrays keep their dtype.

    Raises:
        ValueError: nested lists of unequal lengths.
        TypeError: the elements are no numbers.
    """
    if isinstance(data, Tensor):
        data = data.array
    if is_array(data):
        array = data.astype(dtype, copy=True) if dtype is not None else data.copy()
    else:
        array = np.array(_plain(data))
        if array.dtype.kind not in "biufc":
            raise TypeError(f"cannot make a tensor from {type(data).__name__} of "
                            f"{array.dtype}: give numbers")
        array = _converted(array, dtype if dtype is not None else _default_dtype(array, data))
    return _finish(array, device, requires_grad)


def _plain(data: Any) -> Any:
    """Lists of Tensors as lists of numbers."""
    if isinstance(data, Tensor):
        return data.tolist()
    return [_plain(d) for d in data] if isinstance(data, (list, tuple)) else data


def _elements(data: Any) -> Iterator[Any]:
    if not isinstance(data, (list, tuple)):
        yield data
        return
    for part in data:
        yield from _elements(part)


def _converted(array: np.ndarray, dtype: Dtype) -> np.ndarray:
    """``array`` in ``dtype``; an integer that does not fit is an error, not another number."""
    result = array.astype(dtype)
    if array.dtype.kind in "iu" and result.dtype.kind in "iu" and (result != array).any():
        raise ValueError(f"tensor: {array[result != array][0]} does not fit {result.dtype}")
    return result


def _default_dtype(array: np.ndarray, data: Any) -> Dtype:
    """PyTorch's defaults for Python numbers; numbers that have a dtype of their own keep it."""
    if hasattr(next(_elements(data), None), "dtype"):
        return result_type([getattr(element, "array", element) for element in _elements(data)])
    if array.dtype.kind == "b":
        return array.dtype
    if not array.size:
        return DEFAULT
    return {"i": np.int64, "u": np.int64, "f": DEFAULT, "c": np.complex64}[array.dtype.kind]


def as_tensor(data: Any, *, dtype: Dtype = None, device: Where | None = None) -> Tensor:
    """``data`` as a Tensor, sharing memory where dtype and device allow."""
    result = data if isinstance(data, Tensor) else (
        Tensor(data) if is_array(data) else tensor(data, dtype=dtype))
    return result.to(dtype=dtype, device=device)


def from_numpy(array: np.ndarray) -> Tensor:
    """A CPU Tensor over the memory of a NumPy array."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy expects a numpy.ndarray, got {type(array).__name__}")
    return Tensor(array)


def _shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    loose = len(shape) != 1 or isinstance(shape[0], (int, np.integer))
    result = sizes(tuple(shape)) if loose else sizes(shape[0])
    if any(size < 0 for size in result):
        raise ValueError(f"a shape has no negative sizes: {result}")
    return result


def full(
    size: Sequence[int] | int, fill_value: Any, *, dtype: Dtype = None,
    device: Where = "cpu", requires_grad: bool = False,
) -> Tensor:
    """A tensor of ``size`` holding ``fill_value`` everywhere, its dtype from the value."""
    if dtype is None:
        dtype = tensor(fill_value).dtype
    xp = module_of(as_device(device))
    return _finish(xp.full(sizes(size), fill_value, dtype), device, requires_grad)


def zeros(*shape: Any, dtype: Dtype = DEFAULT, device: Where = "cpu",
          requires_grad: bool = False) -> Tensor:
    """Zeros of a shape."""
    return full(_shape(shape), 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones(*shape: Any, dtype: Dtype = DEFAULT, device: Where = "cpu",
         requires_grad: bool = False) -> Tensor:
    """Ones of a shape."""
    return full(_shape(shape), 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty(*shape: Any, dtype: Dtype = DEFAULT, device: Where = "cpu",
          requires_grad: bool = False) -> Tensor:
    """Memory of a shape, not initialised."""
    xp = module_of(as_device(device))
    return _finish(xp.empty(_shape(shape), dtype), device, requires_grad)


def _like(make: Any) -> Callable[..., Tensor]:
    def like(x: Tensor, *args: Any, dtype: Dtype = None, device: Where | None = None,
             requires_grad: bool = False) -> Tensor:
        where = device_of(x.array) if device is None else device
        return make(x.shape, *args, dtype=x.dtype if dtype is None else dtype, device=where,
                    requires_grad=requires_grad)

    like.__name__ = f"{make.__name__}_like"
    like.__doc__ = f"``{make.__name__}`` with the shape, dtype and device of ``x``."
    return like


zeros_like, ones_like, empty_like = map(_like, (zeros, ones, empty))


def full_like(x: Tensor, fill_value: Any, *, dtype: Dtype = None, device: Where | None = None,
              requires_grad: bool = False) -> Tensor:
    """``fill_value`` everywhere, with the shape, dtype and device of ``x``."""
    return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype,
                device=device_of(x.array) if device is None else device,
                requires_grad=requires_grad)


def eye(n: int, m: int | None = None, *, dtype: Dtype = DEFAULT, device: Where = "cpu",
        requires_grad: bool = False) -> Tensor:
    """Ones on the diagonal of an (n, m) matrix."""
    return _finish(np.eye(n, m, dtype=dtype), device, requires_grad)


def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: Dtype = None,
           device: Where = "cpu", requires_grad: bool = False) -> Tensor:
    """``start``, ``start + step``, ... below ``end``; ``arange(n)`` counts from 0."""
    start, end = (0, start) if end is None else (start, end)
    if step == 0:
        raise ValueError("arange: step must not be 0")
    if dtype is None:
        integers = all(isinstance(v, (int, np.integer)) for v in (start, end, step))
        dtype = np.int64 if integers else DEFAULT
    return _finish(np.arange(start, end, step).astype(dtype), device, requires_grad)


def linspace(start: float, end: float, steps: int, *, dtype: Dtype = DEFAULT,
             device: Where = "cpu", requires_grad: bool = False) -> Tensor:
    """``steps`` values evenly from ``start`` to ``end``, both included."""
    return _finish(np.linspace(start, end, steps, dtype=dtype), device, requires_grad)


def rand(*shape: Any, dtype: Dtype = DEFAULT, device: Where = "cpu", generator: Any = None,
         requires_grad: bool = False) -> Tensor:
    """Uniform in [0, 1)."""
    array = random.uniform(_shape(shape), dtype=dtype, where=as_device(device),
                           generator=generator)
    return Tensor(array, requires_grad)


def randn(*shape: Any, dtype: Dtype = DEFAULT, device: Where = "cpu", generator: Any = None,
          requires_grad: bool = False) -> Tensor:
    """Standard normal."""
    array = random.normal(_shape(shape), dtype=dtype, where=as_device(device),
                          generator=generator)
    return Tensor(array, requires_grad)


def randint(low: int, high: int | None = None, size: Sequence[int] = (), *,
            dtype: Dtype = np.int64, device: Where = "cpu", generator: Any = None) -> Tensor:
    """Integers uniform in [low, high); ``randint(high, size=...)`` starts at 0."""
    low, high = (0, low) if high is None else (low, high)
    return Tensor(random.integers(low, high, sizes(size), dtype=dtype,
                                  where=as_device(device), generator=generator))


def randperm(n: int, *, device: Where = "cpu", generator: Any = None) -> Tensor:
    """A random order of 0..n-1."""
    return _finish(random.permutation(n, generator=generator), device, False)


def bernoulli(p: Tensor, *, generator: Any = None) -> Tensor:
    """1 with probability ``p`` per element, else 0, in p's dtype."""
    draw = random.uniform(p.shape, where=p.device, generator=generator)
    return Tensor((draw < p.array).astype(p.dtype))


def multinomial(
    p: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    """Indices drawn with probabilities like ``p`` (..., n): int64 (..., num_samples).

    By Gumbel's trick: the largest of ``log p + G`` is a draw, the k largest are k draws without
    replacement (Kool et al. 2019, section 2.2).

    Raises:
        ValueError: a negative or infinite weight, or fewer positive ones than samples.
    """
    weights = p.array.astype(np.float64) if p.device.type == "cpu" else p.array
    if not bool(((weights >= 0) & (weights < np.inf)).all()):
        raise ValueError("multinomial: weights must be non-negative and finite")
    positive = int((weights > 0).sum(-1).min())
    if positive < (1 if replacement else num_samples):
        raise ValueError(f"multinomial: {num_samples} samples from {positive} positive weights")
    shape = (*p.shape[:-1], num_samples, p.shape[-1]) if replacement else p.shape
    uniform = random.uniform(shape, dtype=np.float64, where=p.device, generator=generator)
    xp = module_of(p.device)
    gumbel = -xp.log(-xp.log(xp.maximum(uniform, np.finfo(np.float64).tiny)))
    if replacement:
        return Tensor((xp.log(weights)[..., None, :] + gumbel).argmax(-1))
    keys = xp.log(weights) + gumbel
    return Tensor(xp.argsort(-keys, -1)[..., :num_samples].copy())


rand_like, randn_like = _like(rand), _like(randn)
