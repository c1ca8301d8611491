"""scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels, no download."""

from __future__ import annotations

import numpy as np

from minitorch_gpu.data.dataset import TensorDataset
from minitorch_gpu.random import Generator, permutation


def digits(split: str = "train", *, held_out: float = 0.2, seed: int = 0) -> TensorDataset:
    """The images, float32 (N, 1, 8, 8) in [0, 1], and their labels, int64 (N,).

    The 1,797 samples are put in one fixed random order, which depends on ``seed`` alone; the
    last ``round(held_out * 1797)`` of it are the test set, the others the training set. So
    the two are disjoint, and classes are as frequent in them as chance has it.

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI (1998).

    Args:
        split: "train" or "test".
        held_out: the fraction of samples in the test set.

    Raises:
        ValueError: another split, or a fraction not between 0 and 1.
        ImportError: scikit-learn is missing; the message says how to install it.
    """
    if split not in ("train", "test"):
        raise ValueError(f'digits: split must be "train" or "test", got {split!r}')
    if not 0 < held_out < 1:
        raise ValueError(f"digits: held_out must lie between 0 and 1, got {held_out}")
    pixels, labels = _load()
    order = permutation(len(labels), generator=Generator(seed))
    cut = len(labels) - round(held_out * len(labels))
    chosen = order[:cut] if split == "train" else order[cut:]
    images = (pixels[chosen] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return TensorDataset(images, labels[chosen].astype(np.int64))


def _load() -> tuple[np.ndarray, np.ndarray]:
    """Pixels (1797, 64) from 0 to 16, and labels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(
            'the digits come with scikit-learn: pip install "minitorch_gpu[examples]"'
        ) from error
    pixels, labels = load_digits(return_X_y=True)
    return pixels, labels
