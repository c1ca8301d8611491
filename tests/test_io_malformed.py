"""Files not to be trusted: refused by name and reason, before memory is taken."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

import minitorch_gpu as mt
from minitorch_gpu import io


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.safetensors"


def field(dtype: Any, shape: Any, *offsets: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


def file_of(header: Any, body: int = 0, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + bytes(body)


W = field("F32", [2, 3], 0, 24)
GOOD = json.dumps({"w": W}).encode()


def noted(body: int = 24, w: Any = W, **notes: Any) -> bytes:
    """A file whose notes are the usual ones but for these."""
    text = json.dumps({"aliases": {}, "complex128": [], "tree": None} | notes)
    return file_of({"__metadata__": {"minitorch": text}, "w": w}, body)


# What the safetensors library refuses, which our error passes on.
BROKEN_FORMAT = {
    "NUL padding": file_of(GOOD + b"\0\0\0", 24),
    "trailing bytes": file_of(GOOD, 25),
    "truncated body": file_of(GOOD, 23),
    "wrong size": file_of({"w": field("F32", [2, 3], 0, 20)}, 20),
    "overlap": file_of({"w": W, "v": field("F32", [2], 20, 28)}, 28),
    "hole": file_of({"w": W, "v": field("F32", [2], 28, 36)}, 36),
    "1 TB header": file_of(GOOD, 24, 10**12),
    "2 bytes": b"ab",
    "empty": b"",
    "truncated header": file_of(GOOD)[:40],
    "no text": file_of(b"\xff\xfe{}"),
    "deep": file_of(b"[" * 200_000),
    "unknown dtype": file_of({"w": field("F33", [1], 0, 4)}, 4),
    "huge": file_of({"w": field("F32", [2**40, 2**40], 0, 4)}, 4),
    "metadata number": file_of({"__metadata__": {"a": 1}, "w": W}, 24),
}


@pytest.mark.parametrize("name", BROKEN_FORMAT)
def test_what_the_library_refuses_is_refused_by_name_with_its_reason(
    path: Path, name: str
) -> None:
    path.write_bytes(BROKEN_FORMAT[name])
    with pytest.raises(safetensors.SafetensorError) as reason:
        safetensors.numpy.load_file(path)
    for read in (mt.load, io.read_metadata):
        with pytest.raises(io.MalformedFileError) as error:
            read(path)
        assert str(error.value) == f"{path}: {reason.value}"


MALFORMED = {
    "8-bit float": (file_of({"w": field("F8_E4M3", [4], 0, 4)}, 4), "'w' of dtype F8_E4M3"),
    "65 dims": (file_of({"w": field("F32", [1] * 65, 0, 4)}, 4), "'w' of dtype F32 and shape"),
    "huge and empty": (file_of({"w": field("F32", [0, 2**62], 0, 0)}), r"shape \[0, 46116860"),
    "bool 7": (file_of({"w": field("BOOL", [8], 0, 8)}) + b"\1\0" * 3 + b"\0\7", "holds a 7"),
    "torch.save": (b"PK\x03\x04\x14\0\0\0" + bytes(99), r"torch.save .*convert it"),
    "old torch.save": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j", r"torch.save .*convert it"),
    "notes no JSON": (file_of({"__metadata__": {"minitorch": "{"}, "w": W}, 24), "minitorch"),
    "notes unknown": (noted(more=1), "minitorch.*more"),
    "alias of nothing": (noted(aliases={"v": "x"}), "'v' cannot be an alias of 'x'"),
    "alias of an alias": (noted(aliases={"v": "u", "u": "w"}), "'v' cannot be an alias"),
    "alias of itself": (noted(aliases={"w": "w"}), "'w' cannot be an alias of 'w'"),
    "alias is a list": (noted(aliases={"v": ["w"]}), "cannot be an alias"),
    "aliases a list": (noted(aliases=["w"]), "aliases is no dict"),
    "no complex pair": (noted(complex128=["w"]), "'w' is no complex128 tensor"),
    "complex of 3": (noted(w=field("F64", [3], 0, 24), complex128=["w"]), "is no complex128"),
    "complex nothing": (noted(complex128=[["w"]]), "is no complex128 tensor"),
    "tree of nothing": (noted(tree={"tensor": "v"}), "there is no tensor 'v'"),
    "tree unknown": (noted(tree={"dict": [["a", {"code": "w"}]]}), "no packed value"),
    "tree no pair": (noted(tree={"dict": [["a"]]}), "no key and value"),
    "tree no list": (noted(tree={"dict": {"a": 1}}), "no packed value"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_refused_by_name_and_reason(path: Path, name: str) -> None:
    content, reason = MALFORMED[name]
    path.write_bytes(content)
    with pytest.raises(io.MalformedFileError, match=rf"x\.safetensors: .*({reason})"):
        mt.load(path)


def test_a_missing_file_and_a_folder_are_named(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"x\.safetensors"):
        mt.load(path)
    with pytest.raises(IsADirectoryError, match=str(path.parent)):
        mt.load(path.parent)


def test_space_padding_is_part_of_the_format(path: Path) -> None:
    path.write_bytes(file_of(GOOD + b"   ", 24))
    assert mt.load(path)["w"].tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_file_is_refused_before_memory_is_taken(path: Path) -> None:
    path.write_bytes(file_of({"w": field("F32", [2**20], 0, 2**22)}, 2**22 - 1))
    with peak_below(2**20), pytest.raises(io.MalformedFileError, match="not fully covered"):
        mt.load(path)


def test_the_metadata_is_read_without_the_tensors(path: Path) -> None:
    mt.save({"w": np.zeros(2**20, np.float32)}, path, metadata={"a": "b"})
    with peak_below(2**20):
        assert io.read_metadata(path) == {"a": "b"}
    with pytest.raises(AssertionError, match="bytes at once"), peak_below(2**20):
        mt.load(path)


@contextmanager
def peak_below(size: int) -> Iterator[None]:
    """Python and NumPy never hold ``size`` bytes more than before."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
        assert peak < size, f"{peak} bytes at once"
    finally:
        tracemalloc.stop()


@given(cut=st.integers(0, 400), at=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_damaged_file_loads_or_is_refused_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, cut: int, at: int, byte: int
) -> None:
    file = tmp_path_factory.mktemp("damage") / "x.safetensors"
    mt.save({"a": {"w": np.arange(6.0)}, "z": np.array(1j)}, file)
    content = bytearray(file.read_bytes())
    content[at % len(content)] = byte
    file.write_bytes(content[: len(content) - cut % 3])
    try:
        mt.load(file)
    except io.MalformedFileError as error:
        assert str(file) in str(error)
