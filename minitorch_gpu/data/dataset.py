"""Datasets: samples by their number, one at a time or a whole batch at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from minitorch_gpu.device import array_module, is_array
from minitorch_gpu.tensor import Tensor


class Dataset(ABC):
    """Samples 0 .. len - 1. Any object with these two methods serves a ``DataLoader``.

    A dataset may also have ``fetch_many(indices)``: a finished batch for an int64 array of
    indices (possibly none), which the loader then prefers to joining single samples. What it
    draws by ``minitorch_gpu.random`` stands at its samples' rows of the global batch.
    """

    @abstractmethod
    def __len__(self) -> int:
        """How many samples there are."""

    @abstractmethod
    def __getitem__(self, index: int) -> Any:
        """Sample ``index``: tensors, arrays, numbers, or tuples, lists and dicts of them."""


class TensorDataset(Dataset):
    """Samples that lie in the first dim of tensors (or arrays, whose memory is shared).

    ``dataset[i]`` is the tuple of every tensor's row i; a slice or an array of indices takes
    many at once. No gradient flows back to the tensors.

    Raises:
        TypeError: an argument is neither a tensor nor an array.
        ValueError: none is given, one has no dims, or their lengths differ.
    """

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise ValueError("TensorDataset needs at least one tensor")
        self.tensors = tuple(_rows(place, value) for place, value in enumerate(tensors))
        lengths = [len(tensor) for tensor in self.tensors]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"TensorDataset: the tensors have {lengths} rows, but each sample takes one "
                "row of each: give tensors of the same length"
            )

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def fetch_many(self, indices: np.ndarray) -> tuple[Tensor, ...]:
        """The batch of samples ``indices``: one gather for each tensor."""
        xp = array_module(*(tensor.array for tensor in self.tensors))
        rows = indices if xp is np else xp.asarray(indices)
        return tuple(Tensor(tensor.array.take(rows, axis=0)) for tensor in self.tensors)


def _rows(place: int, value: Any) -> Tensor:
    array = getattr(value, "array", value)
    if not is_array(array):
        raise TypeError(
            f"TensorDataset: argument {place} is a {type(value).__name__}: give a tensor, "
            "as in mt.tensor(values)"
        )
    if array.ndim == 0:
        raise ValueError(f"TensorDataset: argument {place} has no dims, so it has no rows")
    return Tensor(array)
