"""Files not to be trusted: refused by name and reason, before memory is taken."""

from __future__ import annotations

import json
import struct
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


def noted(body: int = 24, **notes: Any) -> bytes:
    """A file whose notes are the usual ones but for these."""
    text = json.dumps({"aliases": {}, "complex128": [], "tree": None} | notes)
    return file_of({"__metadata__": {"minitorch": text}, "w": W}, body)


MALFORMED = {
    "NUL padding": (file_of(GOOD + b"\0\0\0", 24), "no JSON"),
    "trailing bytes": (file_of(GOOD, 25), "1 trailing bytes"),
    "truncated body": (file_of(GOOD, 23), "truncated: the tensors take 24 bytes, 23 are"),
    "wrong size": (file_of({"w": field("F32", [2, 3], 0, 20)}, 20), "takes 24 bytes, but"),
    "overlap": (file_of({"w": W, "v": field("F32", [2], 20, 28)}, 28), "'v' overlaps"),
    "twice the same": (file_of({"w": W, "v": W}, 24), "'v' overlaps|'w' overlaps"),
    "hole": (file_of({"w": W, "v": field("F32", [2], 28, 36)}, 36), "a hole before tensor 'v'"),
    "1 TB header": (file_of(GOOD, 24, 10**12), "header of 1000000000000 bytes in a file of"),
    "8 EB header": (file_of(GOOD, 24, 2**63), "truncated or no safetensors file"),
    "2 bytes": (b"ab", "2 bytes are no safetensors file"),
    "empty": (b"", "0 bytes are no safetensors file"),
    "truncated header": (file_of(GOOD)[:40], "truncated"),
    "no JSON": (file_of(b"{nope"), "no JSON"),
    "no text": (file_of(b"\xff\xfe{}"), "utf-8"),
    "a list": (file_of([1]), "no JSON object"),
    "deep": (file_of(b"[" * 200_000), "nested too deeply|no JSON"),
    "unknown dtype": (file_of({"w": field("F33", [1], 0, 4)}, 4), "dtype 'F33'"),
    "8-bit float": (file_of({"w": field("F8_E4M3", [4], 0, 4)}, 4), "dtype 'F8_E4M3'"),
    "dtype is a list": (file_of({"w": field([], [1], 0, 4)}, 4), r"dtype \[\]"),
    "negative length": (file_of({"w": field("F32", [-1], 0, 4)}, 4), r"shape \[-1\]"),
    "fraction": (file_of({"w": field("F32", [1.0], 0, 4)}, 4), r"shape \[1.0\]"),
    "true": (file_of({"w": field("F32", [True], 0, 4)}, 4), r"shape \[True\]"),
    "65 dims": (file_of({"w": field("F32", [1] * 65, 0, 4)}, 4), "shape"),
    "huge": (file_of({"w": field("F32", [2**40, 2**40], 0, 4)}, 4), "no memory holds"),
    "huge and empty": (file_of({"w": field("F32", [0, 2**62], 0, 0)}), "no memory holds"),
    "backwards": (file_of({"w": field("F32", [1], 4, 0)}, 4), "span -4"),
    "one offset": (file_of({"w": field("F32", [1], 4)}, 4), "no pair"),
    "no offsets": (file_of({"w": {"dtype": "F32", "shape": [1]}}, 4), "'w' has no dtype"),
    "no field": (file_of({"w": 3}, 4), "'w' has no dtype"),
    "name twice": (file_of(GOOD[:-1] + b"," + GOOD[1:], 24), "'w' twice"),
    "metadata number": (file_of({"__metadata__": {"a": 1}, "w": W}, 24), "no object of str"),
    "metadata list": (file_of({"__metadata__": [], "w": W}, 24), "no object of str"),
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


FORMAT_FAULTS = [name for name in MALFORMED if name not in (
    "8-bit float", "65 dims", "name twice", "bool 7", "huge and empty",
) and not name.startswith(("notes", "alias", "tree", "no complex", "complex"))]


@pytest.mark.parametrize("name", FORMAT_FAULTS)
def test_the_safetensors_library_refuses_what_breaks_the_format_too(
    path: Path, name: str
) -> None:
    path.write_bytes(MALFORMED[name][0])
    with pytest.raises(safetensors.SafetensorError):
        safetensors.numpy.load_file(path)


def test_space_padding_is_part_of_the_format(path: Path) -> None:
    path.write_bytes(file_of(GOOD + b"   ", 24))
    assert mt.load(path)["w"].tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_file_is_refused_before_memory_is_taken(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allocate(*args: Any) -> None:
        raise AssertionError("memory was taken")

    monkeypatch.setattr(np, "empty", allocate)
    for content in (file_of({"w": field("F32", [2**30], 0, 2**32)}, 24), noted(23)):
        path.write_bytes(content)
        with pytest.raises(io.MalformedFileError, match="truncated"):
            mt.load(path)


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
