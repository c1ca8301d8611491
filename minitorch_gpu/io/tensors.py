"""save and load: dicts of tensors in one safetensors file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minitorch_gpu.device import Device, device_of, is_array, to_numpy, transfer
from minitorch_gpu.device import device as find_device
from minitorch_gpu.io.files import MalformedFileError, replacing
from minitorch_gpu.io.tree import pack, unpack
from minitorch_gpu.tensor import Tensor

AnyPath = str | os.PathLike[str]
NOTES = "minitorch"  # the metadata key under which our own notes stand
DTYPES = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
          "float16", "bfloat16", "float32", "float64", "complex64")
_TORCH_STARTS = (b"PK\x03\x04", b"\x80\x02")  # a zip archive; a pickle
_TORCH_HINT = (
    "; it looks like a file of torch.save (a zip archive or a pickle), which can run code when "
    "loaded: convert it once where PyTorch is installed, with "
    "safetensors.torch.save_file(torch.load(path, weights_only=True), new_path)"
)


class Notes(NamedTuple):
    """What the format cannot say, as JSON in the metadata.

    aliases: name -> the stored tensor whose memory it shares.
    complex128: names of tensors stored as float64 with a last dim (real, imaginary).
    tree: how the tensors were nested, by ``tree.pack``; None for a flat dict in the order of
        its names.
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
    stored, aliases = share(arrays)
    if list(tree) == sorted(stored):  # as a file without notes is read
        packed = None
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
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    rows = {name: _stored_form(name, array) for name, array in arrays.items()}
    with replacing(path) as temporary:
        try:
            save_file(rows, temporary, metadata or None)  # it writes {} as no JSON
        except SafetensorError as error:
            number = re.search(r"\(os error (\d+)\)", str(error))
            if number is None:
                raise ValueError(f"cannot save {path}: {error}: too many names or too much "
                                 "metadata, save large data as tensors") from error
            raise OSError(int(number[1]), str(error)) from error


def _stored_form(name: str, array: Any) -> np.ndarray:
    """The array in row-major order, without a copy where it is; pairs for complex128."""
    if name == "__metadata__":
        raise ValueError(f"the name {name!r} is the format's own: call the tensor another")
    if array.dtype.name not in (*DTYPES, "complex128"):
        raise TypeError(f"{name!r} has dtype {array.dtype}, which cannot be saved: convert it "
                        f"to one of {', '.join(DTYPES)} or complex128")
    rows = np.asarray(to_numpy(array), array.dtype.newbyteorder("="), order="C")
    if array.dtype.name == "complex128":
        return rows.reshape(*rows.shape, 1).view(np.float64)
    return rows


# ---------------------------------------------------------------- reading
def load(path: AnyPath, device: str | Device = "cpu") -> dict[str, Any]:
    """The dict that ``save`` wrote, or the tensors of any safetensors file.

    The file is checked before memory is taken. Tied tensors come back as one Tensor; all have
    memory of their own, and none requires gradients. Names that ``save`` did not order come
    sorted.

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
    with _opened(Path(path)) as file:
        metadata = file.metadata() or {}
    return {key: text for key, text in metadata.items() if key != NOTES}


def read_tree(path: Path, where: Device) -> Any:
    """What ``write_tree`` was given, its tensors on device ``where``."""
    with _opened(path) as file:
        notes = _read_notes(file, path)
        tensors = {}
        for name in sorted(file.keys()):
            array = _read_array(file, name, path)
            if name in notes.complex128:
                array = array.view(np.complex128).reshape(array.shape[:-1])
            tensors[name] = Tensor(transfer(array, where))
    tensors |= {alias: tensors[name] for alias, name in notes.aliases.items()}
    if notes.tree is None:
        return tensors
    try:
        return unpack(notes.tree, tensors)
    except ValueError as error:
        raise MalformedFileError(f"{path}: its nesting is no valid one: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file, its header checked by the safetensors library."""
    from safetensors import SafetensorError, safe_open

    with open(path, "rb") as file:
        start = file.read(4)
    try:
        with safe_open(path, framework="numpy") as opened:
            yield opened
    except SafetensorError as error:
        hint = _TORCH_HINT if start.startswith(_TORCH_STARTS) else ""
        raise MalformedFileError(f"{path}: {error}{hint}") from error


def _read_array(file: Any, name: str, path: Path) -> np.ndarray:
    import ml_dtypes  # noqa: F401 - makes bfloat16 known to NumPy, by which it is found

    try:
        array: np.ndarray = file.get_tensor(name)
    except (AttributeError, TypeError, ValueError) as error:  # the library lets them through
        kind, shape = file.get_slice(name).get_dtype(), file.get_slice(name).get_shape()
        raise MalformedFileError(f"{path}: no array can be the tensor {name!r} of dtype {kind} "
                                 f"and shape {shape}: {error}") from error
    if array.dtype == bool and (array.view(np.uint8) > 1).any():
        raise MalformedFileError(f"{path}: tensor {name!r} of booleans holds a "
                                 f"{array.view(np.uint8).max()}")
    return array


def _read_notes(file: Any, path: Path) -> Notes:
    """Our notes in the metadata, checked against the tensors that are there."""
    text = (file.metadata() or {}).get(NOTES)
    if text is None:
        return Notes({}, [], None)
    try:
        notes = Notes(**json.loads(text))
        _check_notes(notes, file)
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedFileError(
            f"{path}: its metadata {NOTES!r} is no valid one: {error}"
        ) from error
    return notes


def _check_notes(notes: Notes, file: Any) -> None:
    if not isinstance(notes.aliases, dict) or not isinstance(notes.complex128, list):
        raise ValueError("aliases is no dict, or complex128 is no list")
    stored = set(file.keys())
    for alias, name in notes.aliases.items():
        if not isinstance(name, str) or name not in stored or alias in stored:
            raise ValueError(f"{alias!r} cannot be an alias of {name!r}")
    for name in notes.complex128:
        if not isinstance(name, str) or name not in stored or not _holds_pairs(file, name):
            raise ValueError(f"{name!r} is no complex128 tensor")


def _holds_pairs(file: Any, name: str) -> bool:
    tensor = file.get_slice(name)
    return tensor.get_dtype() == "F64" and tensor.get_shape()[-1:] == [2]
