"""What stands between the brackets of ``x[...]``, as hashable parts and arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minitorch_gpu.device import is_array
from minitorch_gpu.tensor import Tensor


class Cut(NamedTuple):
    """A slice, hashable: ``x[1:3]`` is ``Cut(1, 3, None)``."""

    start: int | None
    stop: int | None
    step: int | None


def split_index(index: Any) -> tuple[tuple[Any, ...], list[Any]]:
    """An index as hashable parts, with arrays taken out and marked "array"."""
    parts: list[Any] = []
    arrays: list[Any] = []
    for part in index if isinstance(index, tuple) else (index,):
        part = part.array if isinstance(part, Tensor) else part
        part = np.asarray(part) if isinstance(part, list) else part
        if is_array(part) and part.ndim == 0 and part.dtype.kind in "iu":
            part = int(part)
        if isinstance(part, slice):
            parts.append(Cut(*(None if v is None else int(v)
                               for v in (part.start, part.stop, part.step))))
        elif is_array(part) or isinstance(part, (bool, np.bool_)):
            masks = _as_integers(part if is_array(part) else np.asarray(part))
            parts.extend(["array"] * len(masks))
            arrays.extend(masks)
        elif part is None or part is Ellipsis:
            parts.append(part)
        elif isinstance(part, (int, np.integer)):
            parts.append(int(part))
        else:
            raise TypeError(f"index {part!r} of type {type(part).__name__}: use integers, "
                            "slices, None, Ellipsis, or integer and boolean tensors")
    return tuple(parts), arrays


def _as_integers(array: Any) -> list[Any]:
    if array.dtype.kind == "b" and array.ndim == 0:
        raise IndexError(f"a single {bool(array)} is no index: use x[None] for a new dim")
    if array.dtype.kind == "b":
        return list(array.nonzero())
    if array.dtype.kind in "iu":
        return [array]
    raise TypeError(f"an index tensor holds integers or booleans, not {array.dtype}")


def check_masks(self: Tensor, index: Any) -> None:
    """A boolean mask has the shape of the dims it covers."""
    place = 0
    for part in index if isinstance(index, tuple) else (index,):
        raw: Any = getattr(part, "array", part)
        if is_array(raw) and raw.dtype.kind == "b":
            if raw.shape != self.shape[place : place + raw.ndim]:
                raise IndexError(f"a mask of shape {raw.shape} indexes dims of shape "
                                 f"{self.shape[place:place + raw.ndim]}")
            place += raw.ndim
        elif part is Ellipsis:
            return
        elif part is not None:
            place += 1


def keeping_array(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """An Ellipsis keeps a fully indexed element an array that can be written."""
    return () if Ellipsis in parts else (Ellipsis,)


def has_integers(parts: tuple[Any, ...]) -> bool:
    """Whether single positions stand beside the arrays; NumPy would join them to these."""
    return any(part.__class__ is int for part in parts)


def without_arrays(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """The first step of a mixed index: a view that leaves the dims of the arrays whole."""
    return tuple(Cut(None, None, None) if part == "array" else part for part in parts)


def only_arrays(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """The second step of a mixed index, on the dims that the first step left."""
    return tuple(part if part == "array" or part is Ellipsis else Cut(None, None, None)
                 for part in parts if part.__class__ is not int)


def as_plain(part: Any) -> Any:
    """A part as NumPy takes it."""
    return slice(*part) if isinstance(part, Cut) else part
