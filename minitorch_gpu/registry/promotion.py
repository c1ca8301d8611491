"""PyTorch's dtype promotion: dimensioned tensors, then 0-dim tensors, then Python scalars.

Within a kind (bool < integer < float < complex) the lower group never widens the higher:
``float32 tensor + 0-dim float64`` stays float32, ``int64 tensor + 1.5`` becomes the default
float. https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

Dtype = np.dtype[Any]

float32, float64 = np.dtype("float32"), np.dtype("float64")
DEFAULT = float32
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def is_bfloat16(dtype: Dtype) -> bool:
    """Whether ``dtype`` is ml_dtypes' bfloat16 (NumPy sees a void-like custom dtype)."""
    return dtype.name == "bfloat16"


def kind_rank(dtype: Dtype) -> int:
    """0 bool, 1 integer, 2 float, 3 complex."""
    return 2 if is_bfloat16(dtype) else _KINDS[dtype.kind]


def is_floating(dtype: Dtype) -> bool:
    """Float or complex: a dtype that can carry a gradient."""
    return kind_rank(dtype) >= 2


def is_half(dtype: Dtype) -> bool:
    """float16 or bfloat16: computed in float32 and rounded once."""
    return dtype.itemsize == 2 and kind_rank(dtype) == 2


@lru_cache(maxsize=1024)
def join(a: Dtype, b: Dtype) -> Dtype:
    """The dtype both dtypes fit in, by PyTorch's lattice (int64 + float16 is float16)."""
    if a == b:
        return a
    rank_a, rank_b = kind_rank(a), kind_rank(b)
    if rank_a == rank_b == 2 and (is_half(a) or is_half(b)):
        return float32 if is_half(a) and is_half(b) else max(a, b, key=lambda d: d.itemsize)
    if rank_a == rank_b or {rank_a, rank_b} == {2, 3}:
        if is_half(a) or is_half(b):
            return a if rank_a == 3 else b
        return np.result_type(a, b)
    return a if rank_a > rank_b else b


_SCALARS = {bool: np.dtype(bool), int: np.dtype("int64"), float: DEFAULT,
            complex: np.dtype("complex64")}


def result_type(operands: list[Any]) -> Dtype:
    """The dtype an op computes in for these raw arrays and Python scalars."""
    groups: list[Dtype | None] = [None, None, None]  # with dims, 0-dim, Python scalars
    for operand in operands:
        dtype = getattr(operand, "dtype", None)
        place = 2 if dtype is None else 0 if operand.ndim else 1
        dtype = _SCALARS[type(operand)] if dtype is None else dtype
        known = groups[place]
        groups[place] = dtype if known is None else join(known, dtype)
    result: Dtype | None = None
    for dtype in groups:
        if dtype is None:
            continue
        if result is None:
            result = dtype
        elif kind_rank(dtype) > kind_rank(result):
            result = _raise_kind(result, dtype)
    assert result is not None
    return result


def _raise_kind(result: Dtype, weaker: Dtype) -> Dtype:
    """A weaker group of a higher kind decides the kind; float64 meeting complex stays wide."""
    if kind_rank(weaker) == 3 and kind_rank(result) == 2:
        return np.dtype("complex128") if result == float64 else np.dtype("complex64")
    return weaker


def to_floating(dtype: Dtype) -> Dtype:
    """``dtype`` if it is a float or complex one, else the default float."""
    return dtype if is_floating(dtype) else DEFAULT
