"""Data: datasets, the order of their samples, loading in batches, and sets to start with.

    loader = DataLoader(digits("train"), batch_size=64, shuffle=True, seed=1)
    for images, labels in loader: ...
    loader.state_dict()                      # {"seed": 1, "epoch": 1, "consumed": 0}
"""

from minitorch_gpu.data.collate import default_collate
from minitorch_gpu.data.dataset import Dataset, TensorDataset
from minitorch_gpu.data.digits import digits
from minitorch_gpu.data.loader import DataLoader
from minitorch_gpu.data.sampler import (
    BatchSlice,
    DistributedBatchSampler,
    ListedBatches,
    LocalBatch,
    ResumableBatches,
)
from minitorch_gpu.data.text import CharacterDataset, Vocabulary, text_corpus

__all__ = [
    "BatchSlice",
    "CharacterDataset",
    "DataLoader",
    "Dataset",
    "DistributedBatchSampler",
    "ListedBatches",
    "LocalBatch",
    "ResumableBatches",
    "TensorDataset",
    "Vocabulary",
    "default_collate",
    "digits",
    "text_corpus",
]
