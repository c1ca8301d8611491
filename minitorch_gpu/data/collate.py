"""Joining samples into a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minitorch_gpu.device import array_module, is_array
from minitorch_gpu.tensor import Tensor


def default_collate(samples: Sequence[Any]) -> Any:
    """Join samples of one structure: a new first dim counts them.

    Tensors, arrays and numbers become one tensor (Python floats float64, ints int64, as in
    PyTorch); strings and bytes stay a list; tuples, lists and dicts keep their kind and are
    joined item by item.

    Raises:
        ValueError: no samples, or their shapes, lengths or keys differ.
        TypeError: a sample is of another type.
    """
    if not samples:
        raise ValueError("default_collate of no samples: a batch of none has no structure")
    first = samples[0]
    for kind, join in _JOINS:
        if isinstance(first, kind):
            return join(samples)
    if is_array(first):
        return _stack(samples)
    raise TypeError(
        f"default_collate cannot join samples of type {type(first).__name__}: return tensors, "
        "arrays, numbers, strings, or tuples, lists and dicts of them, or pass collate_fn"
    )


def _stack(samples: Sequence[Any]) -> Tensor:
    arrays = [getattr(sample, "array", sample) for sample in samples]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ValueError(
            f"default_collate: the samples have different shapes {sorted(shapes)}: pad them "
            "to one, or pass collate_fn"
        )
    return Tensor(array_module(*arrays).stack(arrays))


def _numbers(samples: Sequence[Any]) -> Tensor:
    return Tensor(np.array(samples))


def _mapping(samples: Sequence[Any]) -> dict[Any, Any]:
    if any(sample.keys() != samples[0].keys() for sample in samples):
        keys = [sorted(map(str, sample)) for sample in samples]
        raise ValueError(f"default_collate: the samples have different keys {keys}")
    return {key: default_collate([sample[key] for sample in samples]) for key in samples[0]}


def _sequence(samples: Sequence[Any]) -> Any:
    lengths = sorted({len(sample) for sample in samples})
    if len(lengths) > 1:
        raise ValueError(f"default_collate: the samples have different lengths {lengths}")
    return _like(samples[0], [default_collate(items) for items in zip(*samples)])


def _like(example: Any, items: list[Any]) -> Any:
    """``items`` in the kind of container that ``example`` is."""
    if hasattr(example, "_fields"):  # a NamedTuple takes its items one by one
        return type(example)(*items)
    return tuple(items) if isinstance(example, tuple) else items


_JOINS: tuple[tuple[Any, Callable[[Sequence[Any]], Any]], ...] = (
    (Tensor, _stack),
    ((bool, int, float, complex, np.generic), _numbers),
    ((str, bytes), list),
    (Mapping, _mapping),
    ((tuple, list), _sequence),
)


def emptied(batch: Any) -> Any:
    """``batch`` with no samples: the same structure, dims and dtypes."""
    if isinstance(batch, Mapping):
        return {key: emptied(value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        names = all(isinstance(item, (str, bytes)) for item in batch)
        return [] if names else _like(batch, [emptied(item) for item in batch])
    return batch[:0]
