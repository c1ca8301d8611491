"""Nested Python values as JSON, with the tensors in them set apart by name.

    {"a": (1, Tensor)}   ->   {"dict": [["a", {"tuple": [1, {"tensor": "a/1"}]}]]}
                              and {"a/1": Tensor}

None, bool, int, float and str stand for themselves; floats, nan and inf too, come back bit
for bit. Everything else is an object with one key that says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minitorch_gpu.device import is_array, to_numpy
from minitorch_gpu.tensor import Tensor

_PLAIN = (type(None), bool, int, float, str)


def pack(value: Any, path: tuple[str, ...], arrays: dict[str, Any]) -> Any:
    """``value`` as JSON; its tensors' arrays are put into ``arrays`` under their paths.

    Raises:
        TypeError: something in it is neither plain data nor a tensor; the message says where.
    """
    if type(value) in _PLAIN:
        return value
    for kind, tag, array_of in _LEAVES:
        if isinstance(value, kind) or (kind is np.ndarray and is_array(value)):
            return {tag: _store(array_of(value), "/".join(path), arrays)}
    if isinstance(value, Mapping):
        return {"dict": [[_key(key, path), pack(item, (*path, str(key)), arrays)]
                         for key, item in value.items()]}
    if type(value) in (list, tuple):
        parts = [pack(item, (*path, str(i)), arrays) for i, item in enumerate(value)]
        return {type(value).__name__: parts}
    raise TypeError(f"{'/'.join(path)} is of type {type(value).__name__}: tensors, arrays, "
                    "numbers, strings, None, and dicts, lists and tuples of these can be saved")


_LEAVES: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (Tensor, "tensor", lambda tensor: tensor.array),
    (np.ndarray, "array", lambda array: array),
    (np.generic, "scalar", np.asarray),
)


def _store(array: Any, name: str, arrays: dict[str, Any]) -> str:
    while name in arrays:  # {"a": {"b": x}, "a/b": y}
        name += "~"
    arrays[name] = array
    return name


def _key(key: Any, path: tuple[str, ...]) -> Any:
    if type(key) not in (str, int):
        raise TypeError(f"the key {key!r} in {'/'.join(path) or 'the dict'} is of type "
                        f"{type(key).__name__}: keys are strings or ints")
    return key


def unpack(packed: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What ``pack`` was given; one object for a tensor that stood in several places.

    Raises:
        ValueError: ``packed`` did not come from ``pack``, or names a tensor that is not there.
    """
    if type(packed) in _PLAIN:
        return packed
    if not isinstance(packed, dict) or len(packed) != 1:
        raise ValueError(f"{packed!r:.80} is no packed value")
    (tag, content), = packed.items()
    if tag in _FROM_TENSOR:
        if not isinstance(content, str) or content not in tensors:
            raise ValueError(f"there is no tensor {content!r:.80}")
        return _FROM_TENSOR[tag](tensors[content])
    if tag not in ("dict", "list", "tuple") or not isinstance(content, list):
        raise ValueError(f"{packed!r:.80} is no packed value")
    if tag == "dict":
        return {_checked_pair(pair)[0]: unpack(pair[1], tensors) for pair in content}
    items = [unpack(item, tensors) for item in content]
    return items if tag == "list" else tuple(items)


_FROM_TENSOR: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda tensor: tensor,
    "array": lambda tensor: tensor.array,
    "scalar": lambda tensor: to_numpy(tensor.array)[()],
}


def _checked_pair(pair: Any) -> list[Any]:
    if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) not in (str, int):
        raise ValueError(f"{pair!r:.80} is no key and value")
    return pair
