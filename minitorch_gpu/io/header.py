"""The header of a safetensors file: written, and read without believing a word of it.

    8 bytes    length of the header, little-endian
    header     JSON: {"__metadata__": {str: str}, name: {dtype, shape, data_offsets}, ...}
    body       the tensors' bytes, row-major and little-endian, without holes

https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

MAX_HEADER = 100_000_000  # bytes, as other readers of the format have it
METADATA = "__metadata__"
DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
CODES = {name: code for code, name in DTYPES.items()}
_TORCH_STARTS = (b"PK\x03\x04", b"\x80\x02")  # a zip archive; a pickle


class MalformedFileError(ValueError):
    """A file that cannot be loaded: the message names the file and what is wrong with it."""


class Entry(NamedTuple):
    """A tensor in the file: the format's name of its dtype, and its bytes in the body."""

    code: str
    shape: tuple[int, ...]
    start: int
    stop: int


class Header(NamedTuple):
    """The tensors by name, the text metadata, and where the body starts in the file."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    body: int


def dtype_of(code: str) -> np.dtype[Any]:
    """The NumPy dtype that the format calls ``code``."""
    if code == "BF16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(DTYPES[code])


def encode(header: Header) -> bytes:
    """The bytes before the body, a multiple of 8 of them, so that the body is aligned.

    Raises:
        ValueError: no reader would accept a header of this length.
    """
    fields: dict[str, Any] = {METADATA: header.metadata} if header.metadata else {}
    for name, entry in header.entries.items():
        offsets = [entry.start, entry.stop]
        fields[name] = {"dtype": entry.code, "shape": entry.shape, "data_offsets": offsets}
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise ValueError(
            f"names and metadata take {len(text)} bytes, a safetensors header holds at most "
            f"{MAX_HEADER}: save large data as tensors"
        )
    return len(text).to_bytes(8, "little") + text


def read_header(file: BinaryIO, path: Path) -> Header:
    """The checked header: every tensor lies in the body, in bytes of its own, all used.

    Raises:
        MalformedFileError: the file is truncated, or no safetensors file that we can load.
    """
    size = os.fstat(file.fileno()).st_size
    try:
        text = _read_text(file, size)
        fields = json.loads(text, object_pairs_hook=_unique)
        if not isinstance(fields, dict):
            raise ValueError("the header is no JSON object")
        metadata = _metadata(fields.pop(METADATA, {}))
        entries = {name: _entry(name, field) for name, field in fields.items()}
        body = file.tell()
        _check_cover(entries, size - body)
    except json.JSONDecodeError as error:
        raise MalformedFileError(f"{path}: the header is no JSON: {error}") from error
    except RecursionError as error:
        raise MalformedFileError(f"{path}: the header is nested too deeply") from error
    except ValueError as error:
        raise MalformedFileError(f"{path}: {error}") from error
    return Header(entries, metadata, body)


def _read_text(file: BinaryIO, size: int) -> str:
    start = file.read(8)
    if size < 8:
        raise ValueError(f"{size} bytes are no safetensors file, which starts with 8 bytes")
    length = int.from_bytes(start, "little")
    if length > min(size - 8, MAX_HEADER):
        if start.startswith(_TORCH_STARTS):
            raise ValueError(
                "this looks like a file of torch.save (a zip archive or a pickle), which can "
                "run code when loaded: convert it once where PyTorch is installed, with "
                "safetensors.torch.save_file(torch.load(path, weights_only=True), new_path)"
            )
        raise ValueError(
            f"a header of {length} bytes in a file of {size} bytes: the file is truncated or "
            "no safetensors file"
        )
    return file.read(length).decode("utf-8")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the header has {twice!r} twice")
    return result


def _metadata(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or any(not isinstance(v, str) for v in value.values()):
        raise ValueError(f"{METADATA} is no object of strings")
    return value


def _entry(name: str, field: Any) -> Entry:
    """One tensor's field, checked by itself."""
    if not isinstance(field, dict) or set(field) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {name!r} has no dtype, shape and data_offsets, or more")
    code, shape, offsets = field["dtype"], field["shape"], field["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise ValueError(f"tensor {name!r} has dtype {code!r}, which is none of "
                         f"{', '.join(DTYPES)}")
    if not _counts(shape) or len(shape) > 64:
        raise ValueError(f"tensor {name!r} has shape {shape!r}, no list of up to 64 lengths")
    if not _counts(offsets) or len(offsets) != 2:
        raise ValueError(f"tensor {name!r} has data_offsets {offsets!r}, no pair")
    itemsize = dtype_of(code).itemsize
    if math.prod(length or 1 for length in shape) * itemsize >= 2**63:
        raise ValueError(f"tensor {name!r} has shape {shape}, which no memory holds")
    start, stop = offsets
    needed = math.prod(shape) * itemsize
    if stop - start != needed:
        raise ValueError(f"tensor {name!r} of shape {shape} and dtype {code} takes {needed} "
                         f"bytes, but its data_offsets {offsets} span {stop - start}")
    return Entry(code, tuple(shape), start, stop)


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _check_cover(entries: dict[str, Entry], size: int) -> None:
    """The tensors follow one another from byte 0 of the body to its end."""
    reached = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.start < reached:
            raise ValueError(f"tensor {name!r} overlaps the one before it: it starts at byte "
                             f"{entry.start} of the body, the other ends at {reached}")
        if entry.start > reached:
            raise ValueError(f"a hole before tensor {name!r}: bytes {reached} to {entry.start} "
                             "of the body belong to no tensor")
        reached = entry.stop
    if reached > size:
        raise ValueError(f"truncated: the tensors take {reached} bytes, {size} are there")
    if reached < size:
        raise ValueError(f"{size - reached} trailing bytes belong to no tensor")
