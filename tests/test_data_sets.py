"""Datasets, the joining of samples, and the sets that need no download."""

from __future__ import annotations

import builtins
from collections import Counter, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu.data import (
    CharacterDataset,
    DataLoader,
    TensorDataset,
    Vocabulary,
    default_collate,
    digits,
    text_corpus,
)
from tests.data_support import rows

# ---- datasets and collation


def test_a_tensor_dataset_gives_rows_by_number_slice_or_array() -> None:
    x, y = np.arange(12.0).reshape(4, 3), np.arange(4)
    dataset = TensorDataset(mt.tensor(x), y)
    assert len(dataset) == 4 and dataset[-1][1].item() == 3 and dataset[1][0].shape == (3,)
    for index in (slice(1, 3), np.array([2, 0]), [3, 3]):
        assert [t.tolist() for t in dataset[index]] == [x[index].tolist(), y[index].tolist()]
    with pytest.raises(IndexError):
        dataset[4]


def test_the_default_way_is_one_gather_a_batch_unless_a_subclass_changes_samples() -> None:
    calls: list[int] = []

    class Counting(TensorDataset):
        def fetch_many(self, indices: np.ndarray) -> tuple[mt.Tensor, ...]:
            calls.append(len(indices))
            return super().fetch_many(indices)

    class Doubled(Counting):
        def __getitem__(self, index: Any) -> tuple[mt.Tensor, ...]:
            return tuple(2 * t for t in super().__getitem__(index))

    assert rows(DataLoader(Counting(mt.arange(5)), 3)) == [[0, 1, 2], [3, 4]]
    assert calls == [3, 2]
    assert rows(DataLoader(Doubled(mt.arange(3)), 2)) == [[0, 2], [4]] and calls == [3, 2]
    joined = DataLoader(Counting(mt.arange(3)), 2, collate_fn=len)
    assert list(joined) == [2, 1] and calls == [3, 2]


@pytest.mark.parametrize("tensors, error, text", [
    ((), ValueError, "at least one"),
    ((mt.zeros(3), mt.zeros(2, 3)), ValueError, r"\[3, 2\] rows"),
    ((mt.zeros(3), [1, 2, 3]), TypeError, "argument 1 is a list"),
    ((mt.tensor(1.0),), ValueError, "argument 0 has no dims"),
])
def test_tensors_that_make_no_dataset_are_named(
    tensors: tuple[Any, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        TensorDataset(*tensors)


def test_samples_are_joined_as_pytorch_joins_them() -> None:
    Point = namedtuple("Point", "x y")
    batch = default_collate([{"a": (1, 2.0), "b": Point(np.float32(1), True), "c": "text",
                              "d": [mt.ones(2), np.zeros((1, 2), np.int8)]}] * 3)
    (integer, real), point, (tensor, array) = batch["a"], batch["b"], batch["d"]
    assert (integer.dtype, real.dtype) == (np.int64, np.float64) and integer.shape == (3,)
    assert (point.x.dtype, point.y.dtype) == (np.float32, np.bool_)
    assert (tensor.shape, array.shape, array.dtype) == ((3, 2), (3, 1, 2), np.int8)
    assert batch["c"] == ["text"] * 3 and isinstance(point, Point)


@pytest.mark.parametrize("samples, error, text", [
    ([object()], TypeError, "type object: .* pass collate_fn"),
    ([mt.ones(2), mt.ones(3)], ValueError, r"different shapes \[\(2,\), \(3,\)\]"),
    ([(1,), (1, 2)], ValueError, r"different lengths \[1, 2\]"),
    ([{"a": 1}, {"b": 1}], ValueError, r"different keys \[\['a'\], \['b'\]\]"),
    ([], ValueError, "no samples"),
])
def test_samples_that_do_not_fit_together_are_named(
    samples: list[Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        default_collate(samples)


# ---- sets that need no download


def test_digits_are_scikit_learns_cut_once() -> None:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    (train_x, train_y), (test_x, test_y) = digits("train").tensors, digits("test").tensors
    assert (len(train_y.array), len(test_y.array)) == (1438, 359)
    assert test_x.shape == (359, 1, 8, 8) and test_x.dtype == np.float32
    assert test_y.dtype == np.int64 and 0 == train_x.array.min() < train_x.array.max() == 1
    ours = np.concatenate([train_x.array, test_x.array]).reshape(-1, 64) * 16
    names = np.concatenate([train_y.array, test_y.array])
    assert Counter((*x, y) for x, y in zip(ours.tolist(), names.tolist())) == Counter(
        (*x, y) for x, y in zip(pixels.tolist(), labels.tolist()))
    assert (digits("test").tensors[0].array == test_x.array).all()
    assert len(digits("test", held_out=0.5)) == 898
    assert (digits("train", seed=1).tensors[1].array != train_y.array).any()


def test_digits_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"split must be .*'valid'"):
        digits("valid")
    with pytest.raises(ValueError, match=r"held_out must lie between 0 and 1, got 1\.5"):
        digits(held_out=1.5)
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'pip install "minitorch_gpu\[examples\]"'):
        digits()


def test_the_corpus_is_what_python_carries() -> None:
    from pydoc_data.topics import topics

    text = text_corpus()
    assert 400_000 < len(text) == sum(map(len, topics.values())) + 2 * (len(topics) - 1)
    assert text.startswith(topics[min(topics)]) and text.endswith(topics[max(topics)])


def test_a_text_file_by_its_path(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text("naïve", "utf-8")
    bad.write_bytes(b"ab\xff")
    assert text_corpus(good) == text_corpus(str(good)) == "naïve"
    with pytest.raises(FileNotFoundError, match=r"no text file '.*none\.txt'"):
        text_corpus(tmp_path / "none.txt")
    with pytest.raises(ValueError, match=r"bad\.txt' is not utf-8 text: byte 0xff at offset 2"):
        text_corpus(bad)
    assert text_corpus(bad, encoding="latin-1") == "abÿ"


def test_characters_become_ids_by_their_sorted_place() -> None:
    vocabulary = Vocabulary.of("hello wörld 😀")
    assert vocabulary.characters == " dehlorwö😀" and len(vocabulary) == 10
    ids = vocabulary.encode("old 😀")
    assert ids.tolist() == [5, 4, 1, 0, 9] and ids.dtype == np.int64
    assert vocabulary.decode(ids) == vocabulary.decode(mt.tensor(ids)) == "old 😀"
    for stranger in ("x", "\U0010ffff", "\x00"):
        with pytest.raises(ValueError, match="at 1 is not among the 10"):
            vocabulary.encode("o" + stranger)
    for wrong in (10, -1):
        with pytest.raises(IndexError, match=f"id {wrong} "):
            vocabulary.decode([0, wrong])
    with pytest.raises(ValueError, match=r"sorted.*Vocabulary\.of"):
        Vocabulary("ba")


@pytest.mark.parametrize("stride, starts", [(1, range(8)), (3, [0, 3, 6]), (20, [0])])
def test_windows_predict_the_next_character(stride: int, starts: Any) -> None:
    text = "hello world"
    dataset = CharacterDataset(text, 3, stride=stride)
    want = [(text[i : i + 3], text[i + 1 : i + 4]) for i in starts]
    decode = dataset.vocabulary.decode
    assert [tuple(map(decode, dataset[i])) for i in range(len(dataset))] == want
    (x, y), = DataLoader(dataset, batch_size=100)
    assert list(zip(map(decode, x), map(decode, y))) == want and x.dtype == np.int64
    for index in (len(dataset), -len(dataset) - 1):
        with pytest.raises(IndexError, match=f"window {index} of {len(dataset)}"):
            dataset[index]


def test_the_last_tenth_is_held_out() -> None:
    text = "".join(chr(97 + i % 26) for i in range(1000)) + "\n"
    train, validation = CharacterDataset.train_and_validation(text, 8)
    assert train.vocabulary is validation.vocabulary and len(train.vocabulary) == 27
    assert train.vocabulary.decode(train.ids) == text[:901] and len(train) == 901 - 8
    assert train.vocabulary.decode(validation.ids) == text[901:] and len(validation) == 12
    predicted = "".join(train.vocabulary.decode(y) for _, y in map(validation.__getitem__,
                                                                   range(12)))
    assert predicted == text[902 : 902 + 96]


def test_texts_that_are_too_short_are_named() -> None:
    assert len(CharacterDataset("abcd", 3)) == 1
    with pytest.raises(ValueError, match=r"3 characters has no window of block_size \+ 1 = 4"):
        CharacterDataset("abc", 3)
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        CharacterDataset("abc", 0)
    with pytest.raises(ValueError, match="character 'c' at 2"):
        CharacterDataset("abc", 2, vocabulary=Vocabulary.of("ab"))
    with pytest.raises(ValueError, match="held_out must lie between 0 and 1, got 0"):
        CharacterDataset.train_and_validation("abc", 1, held_out=0)
