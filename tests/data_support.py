"""Datasets and readings of batches that the tests of data share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import minitorch_gpu as mt
from minitorch_gpu.data import DataLoader, Dataset, TensorDataset

TEN = TensorDataset(mt.arange(10))


class Numbers(Dataset):
    """Sample i is ``value(i)``."""

    def __init__(self, length: int, value: Callable[[int], Any] = lambda index: index) -> None:
        self.length, self.value = length, value

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.value(index)


def flat(batches: Iterable[Any]) -> list[Any]:
    """All samples of the batches, in order."""
    return [sample for batch in batches for sample in np.asarray(batch).tolist()]


def rows(loader: DataLoader) -> list[list[Any]]:
    """The batches of a dataset of one tensor."""
    return [x.tolist() for (x,) in loader]
