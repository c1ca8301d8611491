"""Loading a state dict: everything is checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from minitorch_gpu.device import device_of, is_array, to_numpy, transfer
from minitorch_gpu.inplace import write_raw
from minitorch_gpu.tensor import Tensor


class IncompatibleKeys(NamedTuple):
    """Names that ``load_state_dict(strict=False)`` did not find, and did not know."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def load(
    own: Mapping[str, Tensor], given: Mapping[str, Any], strict: bool, owner: str
) -> IncompatibleKeys:
    """Copy ``given`` into the tensors of ``own``, by name.

    Raises:
        ValueError: names (if ``strict``), shapes, kinds of value or tied values do not fit;
            all of them are listed and nothing was written.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"load_state_dict expects a dict, got {type(given).__name__}")
    missing = [name for name in own if name not in given]
    unexpected = [name for name in given if name not in own]
    faults = []
    if strict and missing:
        faults.append(f"missing: {', '.join(missing)}")
    if strict and unexpected:
        faults.append(f"unknown: {', '.join(map(str, unexpected))}")
    common = [name for name in own if name in given]
    faults += [fault for name in common if (fault := _misfit(name, own[name], given[name]))]
    if not faults:
        faults += _torn_ties(common, own, given)
    if faults:
        raise ValueError(f"load_state_dict into {owner}, nothing was loaded:\n  "
                         + "\n  ".join(faults))
    for name in common:
        target = own[name].array
        value = transfer(_raw(given[name]), device_of(target))
        write_raw(target, value.astype(target.dtype, copy=False), f"load_state_dict {name}")
    return IncompatibleKeys(missing, unexpected)


def _raw(value: Any) -> Any:
    return value.array if isinstance(value, Tensor) else value


def _misfit(name: str, own: Tensor, value: Any) -> str:
    raw = _raw(value)
    if not is_array(raw):
        return f"{name}: expected a Tensor, got {type(value).__name__}"
    if raw.dtype.kind in "OSUMm":
        return f"{name}: expected numbers, got an array of {raw.dtype}"
    if raw.shape != own.shape:
        return f"{name}: shape {tuple(raw.shape)} does not fit {own.shape}"
    if raw.dtype.kind == "c" and own.dtype.kind != "c":
        return f"{name}: complex values do not fit {own.dtype}"
    if not getattr(own.array.flags, "writeable", True):
        return f"{name}: this module's tensor is an expanded or read-only view: clone it first"
    return ""


def _torn_ties(
    names: list[str], own: Mapping[str, Tensor], given: Mapping[str, Any]
) -> Iterator[str]:
    """Names of one tensor that are given different values."""
    first: dict[int, str] = {}
    for name in names:
        other = first.setdefault(id(own[name]), name)
        if other != name and not _equal(_raw(given[name]), _raw(given[other])):
            yield f"{name} and {other} are one tensor here, but are given different values"


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    a, b = to_numpy(a), to_numpy(b)
    return bool(((a == b) | ((a != a) & (b != b))).all())  # NaN equals NaN
