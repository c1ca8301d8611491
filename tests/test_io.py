"""Files: what is saved comes back, other readers agree, and half a file is never seen."""

from __future__ import annotations

import errno
import math
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import minitorch_gpu as mt
from minitorch_gpu import io

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
DTYPES += ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
LAYOUTS = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.T,
    "every second": lambda x: x[(..., *[slice(None, None, 2)] * x.ndim)],
    "reversed": lambda x: x[(..., *[slice(None, None, -1)] * x.ndim)],
    "Fortran order": lambda x: np.asfortranarray(x),
    "broadcast": lambda x: np.broadcast_to(x, (3, *x.shape)),
    "cut off": lambda x: x[..., 1:],
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
}


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def bits(array: np.ndarray) -> bytes:
    """The elements in row-major order, whatever the strides and the byte order."""
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C").tobytes()


def check_same(loaded: Any, saved: np.ndarray) -> None:
    assert isinstance(loaded, mt.Tensor)
    assert loaded.shape == saved.shape
    assert loaded.dtype == saved.dtype.newbyteorder("=")
    assert bits(loaded.array) == bits(saved)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.safetensors"


# ---------------------------------------------------------------- what is saved comes back
@given(data=st.data(), name=st.sampled_from(DTYPES), layout=st.sampled_from(sorted(LAYOUTS)))
def test_any_dtype_in_any_layout_comes_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str, layout: str
) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    dtype = dtype_of(name)
    raw = data.draw(st.binary(min_size=math.prod(shape) * dtype.itemsize,
                              max_size=math.prod(shape) * dtype.itemsize))
    array = np.frombuffer(bytes(b & 1 for b in raw) if name == "bool" else raw, dtype)
    array = array.reshape(shape)
    if (layout, name) == ("big-endian", "bfloat16") or (layout, shape) == ("cut off", ()):
        layout = "as it is"  # there is no such thing
    view = LAYOUTS[layout](array)
    file = tmp_path_factory.mktemp("layout") / "x.safetensors"
    mt.save({"x": view, "y": np.ones(3, np.int8)}, file)
    check_same(mt.load(file)["x"], view)


@pytest.mark.parametrize("dtype", [">f4", ">i8", ">c8", ">c16"])
def test_big_endian_values_are_saved_as_values(path: Path, dtype: str) -> None:
    mt.save({"x": np.array([1, 258], dtype)}, path)
    assert mt.load(path)["x"].tolist() == [1, 258]


@pytest.mark.parametrize(("name", "want"), [
    ("transposed", [[0, 3], [1, 4], [2, 5]]), ("every second", [[0, 2]]),
    ("reversed", [[5, 4, 3], [2, 1, 0]]), ("Fortran order", [[0, 1, 2], [3, 4, 5]]),
    ("broadcast", [[[0, 1, 2], [3, 4, 5]]] * 3), ("cut off", [[1, 2], [4, 5]]),
])
def test_a_view_is_saved_as_its_values_and_other_readers_see_them(
    path: Path, name: str, want: list[Any]
) -> None:
    x = np.array([[0, 1, 2], [3, 4, 5]], np.float32)
    mt.save({"x": mt.from_numpy(LAYOUTS[name](x).copy()), "view": LAYOUTS[name](x)}, path)
    assert mt.load(path)["view"].tolist() == want
    other = safetensors.numpy.load_file(path)
    assert other["view"].tolist() == other["x"].tolist() == want


def test_files_of_the_safetensors_library_are_loaded(path: Path) -> None:
    arrays = {name: (np.arange(6).reshape(2, 3) % 2).astype(dtype_of(name)) for name in DTYPES
              if name != "complex128"}
    arrays["none"], arrays["0-d"] = np.zeros((2, 0)), np.array(1.5)
    safetensors.numpy.save_file(arrays, path, metadata={"format": "np"})
    loaded = mt.load(path)
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        check_same(loaded[name], array)
    assert io.read_metadata(path) == {"format": "np"}


def test_loaded_tensors_have_memory_of_their_own_and_require_no_gradient(path: Path) -> None:
    mt.save({"a": mt.ones(3, requires_grad=True), "b": np.ones(5, np.int8)}, path)
    loaded = mt.load(path, device="cpu")
    for tensor in loaded.values():
        assert tensor.array.flags.aligned and not tensor.requires_grad
        tensor.array[...] = 7
    assert mt.load(path)["a"].tolist() == [1, 1, 1]
    path.write_bytes(bytes(path.stat().st_size))
    assert loaded["b"].tolist() == [7] * 5


@pytest.mark.parametrize("names", ["abc", "cab", "bac"])
def test_the_order_of_the_dict_is_kept_whatever_the_dtypes(path: Path, names: str) -> None:
    mt.save(dict(zip(names, (np.ones(3, np.int8), np.ones(2), np.ones(2)))), path)
    assert "".join(mt.load(path)) == names
    w = mt.ones(2)
    mt.save({name: w if name < "c" else np.ones(1) for name in names}, path)
    assert "".join(mt.load(path)) == names


def test_nested_dicts_come_back_nested(path: Path) -> None:
    x, y = np.arange(3.0), np.arange(4)
    mt.save({"model": {"a.b": x, "nothing": {}}, "model/a.b": y, "é": {"": {"/": x + 1}}}, path)
    loaded = mt.load(path)
    assert list(loaded) == ["model", "model/a.b", "é"]
    check_same(loaded["model"]["a.b"], x)
    assert loaded["model"]["nothing"] == {}
    check_same(loaded["model/a.b"], y)
    check_same(loaded["é"][""]["/"], x + 1)


def test_an_empty_dict_is_a_file(path: Path) -> None:
    mt.save({}, path)
    assert mt.load(path) == {} and io.read_metadata(path) == {}


def test_metadata_is_text_beside_the_tensors(path: Path) -> None:
    mt.save({"z": np.array(1 + 2j)}, path, metadata={"loss": "0.25", "naïve": "\n\"'"})
    assert io.read_metadata(path) == {"loss": "0.25", "naïve": "\n\"'"}
    with pytest.raises(TypeError, match=r"'loss': 0\.25"):
        mt.save({}, path, metadata={"loss": 0.25})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="'minitorch' is the package's own"):
        mt.save({}, path, metadata={"minitorch": ""})


# ---------------------------------------------------------------- shared memory
def test_tied_weights_are_stored_once_and_tied_again(path: Path) -> None:
    w = mt.ones(64, 64)
    mt.save({"embed": w, "head": w, "view": w.detach(), "deep": {"copy": w.clone()}}, path)
    assert path.stat().st_size < 2.5 * w.nbytes
    loaded = mt.load(path)
    assert loaded["embed"] is loaded["head"] is loaded["view"]
    assert not np.shares_memory(loaded["embed"].array, loaded["deep"]["copy"].array)
    assert loaded["deep"]["copy"].tolist() == w.tolist()


def test_overlapping_views_are_saved_as_tensors_of_their_own(path: Path) -> None:
    a = np.arange(6.0).reshape(2, 3)
    views = {"a": a, "b": a[:1], "flat": a.reshape(-1), "T": a.T, "bits": a.view(np.int64)}
    mt.save(views, path)
    loaded = mt.load(path)
    for name, view in views.items():
        check_same(loaded[name], view)
    loaded["b"].array[:] = 9
    assert loaded["a"].tolist() == a.tolist()


def test_empty_tensors_are_not_taken_for_tied(path: Path) -> None:
    base = np.zeros(4)
    mt.save({"a": base[:0], "b": base[:0]}, path)
    loaded = mt.load(path)
    assert loaded["a"] is not loaded["b"] and loaded["b"].shape == (0,)


# ---------------------------------------------------------------- what cannot be saved
@pytest.mark.parametrize(("obj", "words"), [
    ([np.ones(2)], "got list"), (mt.ones(2), "got Tensor"), ({"w": 3}, "'w' is of type int"),
    ({"m": {"w": [1.0]}}, "'m/w' is of type list"), ({3: np.ones(2)}, "'3' is of type int"),
    ({"s": np.array("text")}, "'s' has dtype <U4"), ({"s": np.float32(1)}, "'s' is of type"),
    ({"l": np.ones(2, np.longdouble)}, "'l' has dtype"), ({"o": np.array([None])}, "object"),
])
def test_what_is_no_tensor_is_named(path: Path, obj: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        mt.save(obj, path)
    assert os.listdir(path.parent) == []


def test_the_formats_own_name_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="'__metadata__' is the format's own"):
        mt.save({"__metadata__": np.ones(2)}, path)


def test_a_header_that_no_reader_would_accept_is_not_written(path: Path) -> None:
    with pytest.raises(ValueError, match="save large data as tensors"):
        mt.save({"x": np.ones(1)}, path, metadata={"long": "x" * 100_000_000})
    assert os.listdir(path.parent) == []


# ---------------------------------------------------------------- half a file is never seen
def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for parent in ("nowhere", "file"):
        with pytest.raises(FileNotFoundError, match=f"no folder .*{parent}"):
            mt.save({}, tmp_path / parent / "x.safetensors")


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file may grow beyond ``size`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 100, 50_000])
def test_a_full_disk_leaves_the_old_file_and_no_litter(path: Path, room: int) -> None:
    mt.save({"x": np.zeros(3)}, path)
    with full_disk(room), pytest.raises(OSError, match=r"cannot save .*x\.safe") as error:
        mt.save({"x": np.ones(100_000)}, path)
    assert error.value.errno == errno.EFBIG
    assert os.listdir(path.parent) == ["x.safetensors"]
    assert mt.load(path)["x"].tolist() == [0, 0, 0]


def test_an_interrupt_leaves_the_old_file_and_no_litter(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mt.save({"x": np.zeros(3)}, path)

    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        mt.save({"x": np.ones(3)}, path)
    assert os.listdir(path.parent) == ["x.safetensors"]
    assert mt.load(path)["x"].tolist() == [0, 0, 0]


def test_the_bytes_are_on_the_disk_before_the_name_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    fsync, replace = os.fsync, os.replace

    def log_fsync(handle: int) -> None:
        events.append(("fsync", os.fstat(handle).st_size))
        fsync(handle)

    def log_replace(source: Path, target: Path) -> None:
        events.append(("rename", source.parent.parent == target.parent))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", log_fsync)
    monkeypatch.setattr(os, "replace", log_replace)
    mt.save({"x": np.ones(10_000)}, path)
    assert events[:2] == [("fsync", path.stat().st_size), ("rename", True)]
    assert [name for name, _ in events] == ["fsync", "rename", "fsync"]


def test_the_file_has_the_usual_permissions(path: Path) -> None:
    mt.save({}, path)
    (path.parent / "usual").touch()
    assert path.stat().st_mode == (path.parent / "usual").stat().st_mode


# ---------------------------------------------------------------- imports
def output(code: str, *arguments: str) -> str:
    """What a fresh Python prints."""
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True,
                          text=True, timeout=60, check=True).stdout.strip()


def test_bfloat16_is_loaded_by_a_program_that_has_not_used_it_yet(path: Path) -> None:
    mt.save({"x": mt.ones(2, dtype=mt.bfloat16)}, path)
    code = "import sys, minitorch_gpu as mt; print(mt.load(sys.argv[1])['x'].tolist())"
    assert output(code, str(path)) == "[1.0, 1.0]"


def test_safetensors_and_ml_dtypes_are_not_imported_before_use() -> None:
    assert output(
        "import sys, minitorch_gpu as mt; mt.io; "
        "print([m for m in ('safetensors', 'ml_dtypes', 'scipy') if m in sys.modules])") == "[]"
