"""save and load: dicts of tensors in one safetensors file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minitorch_gpu.device import Device, device_of, is_array, to_numpy, transfer
from minitorch_gpu.device import device as find_device
from minitorch_gpu.io.files import replacing
from minitorch_gpu.io.header import (
    CODES,
    METADATA,
    Entry,
    Header,
    MalformedFileError,
    dtype_of,
    encode,
    read_header,
)
from minitorch_gpu.io.tree import pack, unpack
from minitorch_gpu.tensor import Tensor

AnyPath = str | os.PathLike[str]
NOTES = "minitorch"  # the metadata key under which our own notes stand


class Notes(NamedTuple):
    """What the format cannot say, as JSON in the metadata.

    aliases: name -> the stored tensor whose memory it shares.
    complex128: names of tensors stored as float64 with a last dim (real, imaginary).
    tree: how the tensors were nested, by ``tree.pack``; None for a flat dict.
    """

    aliases: dict[str, str]
    complex128: list[str]
    tree: Any


def save(
    obj: Mapping[str, Any], path: AnyPath, *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a dict of tensors as a safetensors file, which any reader of the format loads.

    The file takes its name when it is complete: a crash or a full disk leaves what was there.
    Tensors that are the same memory (tied weights) are stored once; other views are stored
    as tensors of their own. Any strides and device; gradients and history are not saved.

    Args:
        obj: name -> Tensor or raw array, or nested dicts of such, as from ``state_dict()``.
        metadata: text to store beside; ``read_metadata`` gives it back.

    Raises:
        TypeError: something is no tensor, dict or text, or its dtype cannot be stored.
        ValueError: a name or metadata key is one that the format or this package uses.
        OSError: the folder is missing, the disk is full, ...
    """
    if not isinstance(obj, Mapping):
        raise TypeError(f"save takes a dict of tensors, as from model.state_dict(), got "
                        f"{type(obj).__name__}")
    write_tree(_tensors_only(obj, ""), path, metadata)


def _tensors_only(obj: Mapping[str, Any], path: str) -> dict[str, Any]:
    return {key: _checked_value(key, value, path) for key, value in obj.items()}


def _checked_value(key: Any, value: Any, path: str) -> Any:
    place = f"{path}{key}"
    if not isinstance(key, str):
        raise TypeError(f"save: the name {place!r} is of type {type(key).__name__}, not str")
    if isinstance(value, Mapping):
        return _tensors_only(value, f"{place}/")
    if is_array(value):
        return Tensor(value)
    if not isinstance(value, Tensor):
        raise TypeError(f"save: {place!r} is of type {type(value).__name__}, no tensor or dict "
                        "of tensors: store text with metadata=, a training run with "
                        "io.save_checkpoint")
    return value


def write_tree(
    tree: Mapping[Any, Any], path: AnyPath, metadata: Mapping[str, str] | None = None
) -> None:
    """``save`` for anything that ``tree.pack`` takes."""
    arrays: dict[str, Any] = {}
    packed = pack(tree, (), arrays)
    if list(tree) == list(arrays):  # a flat dict of tensors needs no note
        packed = None
    stored, aliases = share(arrays)
    wide = [name for name, array in stored.items() if array.dtype.name == "complex128"]
    text = _checked_metadata(metadata or {})
    if aliases or wide or packed is not None:
        text[NOTES] = json.dumps(Notes(aliases, wide, packed)._asdict())
    _write(Path(path), stored, text)


def share(arrays: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The arrays to store, and alias -> stored name for those that are the same memory."""
    names: dict[Any, str] = {}
    aliases: dict[str, str] = {}
    for name, array in arrays.items():
        first = names.setdefault(_memory(array) if array.size else (name,), name)
        if first != name:
            aliases[name] = first
    return {name: arrays[name] for name in names.values()}, aliases


def _memory(array: Any) -> tuple[Any, ...]:
    pointer = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return device_of(array), pointer, array.shape, array.strides, array.dtype


def _checked_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata maps text to text, got {key!r}: {value!r:.80}; use "
                            "json.dumps for other values")
        if key == NOTES:
            raise ValueError(f"the metadata key {NOTES!r} is the package's own: use another")
    return dict(metadata)


# ---------------------------------------------------------------- writing
def _write(path: Path, arrays: Mapping[str, Any], metadata: dict[str, str]) -> None:
    header = Header(_lay_out(arrays), metadata, 0)
    start = encode(header)
    with replacing(path) as file:
        file.write(start)
        for name in sorted(header.entries, key=lambda name: header.entries[name][2:]):
            file.write(_bytes(to_numpy(arrays[name])).data)


def _lay_out(arrays: Mapping[str, Any]) -> dict[str, Entry]:
    """A place for each array; wide dtypes first, so that every one is aligned."""
    if METADATA in arrays:
        raise ValueError(f"the name {METADATA!r} is the format's own: call the tensor another")
    places: dict[str, Entry] = {}
    reached = 0
    for name in sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize):
        code, shape = _stored_form(name, arrays[name])
        places[name] = Entry(code, shape, reached, reached + arrays[name].nbytes)
        reached += arrays[name].nbytes
    return {name: places[name] for name in arrays}


def _stored_form(name: str, array: Any) -> tuple[str, tuple[int, ...]]:
    if array.dtype.name == "complex128":
        return "F64", (*array.shape, 2)
    if array.dtype.name not in CODES:
        raise TypeError(f"{name!r} has dtype {array.dtype}, which cannot be saved: convert it "
                        f"to one of {', '.join(CODES)} or complex128")
    return CODES[array.dtype.name], array.shape


def _bytes(array: np.ndarray) -> np.ndarray:
    """The elements in row-major order, little-endian; copied only where they are not yet."""
    rows = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return rows.reshape(-1).view(np.uint8)


# ---------------------------------------------------------------- reading
def load(path: AnyPath, device: str | Device = "cpu") -> dict[str, Any]:
    """The dict that ``save`` wrote, or the tensors of any safetensors file.

    The header is checked before memory is taken. Tied tensors come back as one Tensor; all
    own their memory, and none requires gradients.

    Args:
        device: where the tensors go.

    Raises:
        FileNotFoundError: there is no such file.
        MalformedFileError: it is truncated, hostile, or no safetensors file.
    """
    result: dict[str, Any] = read_tree(Path(path), find_device(device))
    return result


def read_metadata(path: AnyPath) -> dict[str, str]:
    """The metadata given to ``save``; reads the header alone.

    Raises:
        FileNotFoundError, MalformedFileError: as ``load``.
    """
    with open(path, "rb") as file:
        metadata = read_header(file, Path(path)).metadata
    return {key: text for key, text in metadata.items() if key != NOTES}


def read_tree(path: Path, where: Device) -> Any:
    """What ``write_tree`` was given, its tensors on device ``where``."""
    with open(path, "rb") as file:
        header = read_header(file, path)
        notes = _read_notes(header, path)
        tensors = {}
        for name, entry in sorted(header.entries.items(), key=lambda item: item[1].start):
            array = _read_array(file, header.body, name, entry, path)
            if name in notes.complex128:
                array = array.view(np.complex128).reshape(array.shape[:-1])
            tensors[name] = Tensor(transfer(array, where))
    tensors = {name: tensors[name] for name in header.entries}
    tensors |= {alias: tensors[name] for alias, name in notes.aliases.items()}
    if notes.tree is None:
        return tensors
    try:
        return unpack(notes.tree, tensors)
    except ValueError as error:
        raise MalformedFileError(f"{path}: its nesting is no valid one: {error}") from error


def _read_array(
    file: BufferedReader, body: int, name: str, entry: Entry, path: Path
) -> np.ndarray:
    array = np.empty(entry.shape, dtype_of(entry.code).newbyteorder("<"))
    raw = array.reshape(-1).view(np.uint8)
    file.seek(body + entry.start)
    if file.readinto(raw.data) < raw.size:
        raise MalformedFileError(f"{path}: truncated while it was read, at tensor {name!r}")
    if entry.code == "BOOL" and (raw > 1).any():
        raise MalformedFileError(f"{path}: tensor {name!r} of booleans holds a {raw.max()}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _read_notes(header: Header, path: Path) -> Notes:
    """Our notes in the metadata, checked against the tensors that are there."""
    text = header.metadata.get(NOTES)
    if text is None:
        return Notes({}, [], None)
    try:
        notes = Notes(**json.loads(text))
        _check_notes(notes, header.entries)
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedFileError(
            f"{path}: its metadata {NOTES!r} is no valid one: {error}"
        ) from error
    return notes


def _check_notes(notes: Notes, entries: Mapping[str, Entry]) -> None:
    if not isinstance(notes.aliases, dict) or not isinstance(notes.complex128, list):
        raise ValueError("aliases is no dict, or complex128 is no list")
    for alias, name in notes.aliases.items():
        if not isinstance(name, str) or name not in entries or alias in entries:
            raise ValueError(f"{alias!r} cannot be an alias of {name!r}")
    for name in notes.complex128:
        entry = entries.get(name) if isinstance(name, str) else None
        if entry is None or entry.code != "F64" or entry.shape[-1:] != (2,):
            raise ValueError(f"{name!r} is no complex128 tensor")
