"""Text as data: a corpus that every CPython carries, characters as ids, windows of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from minitorch_gpu.data.dataset import Dataset
from minitorch_gpu.data.sampler import count
from minitorch_gpu.tensor import Tensor


def text_corpus(path: str | PathLike[str] | None = None, *, encoding: str = "utf-8") -> str:
    """A text to learn from: the file at ``path``, or Python's own reference texts.

    Without a path it is every topic of ``help()`` (``pydoc_data.topics``: English with code,
    about 465,000 characters, a little different in each Python release), in sorted order of
    their keys, with an empty line between two.

    Raises:
        OSError: the file cannot be read; FileNotFoundError names where it was looked for.
        ValueError: its bytes are not text in this encoding.
        ImportError: this Python comes without the topics.
    """
    if path is None:
        return "\n\n".join(text for _, text in sorted(_topics().items()))
    place = Path(path)
    try:
        return place.read_text(encoding)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"no text file {str(place)!r} (in {Path.cwd()}): check the path, or leave it out "
            "for the built-in corpus"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{str(place)!r} is not {encoding} text: byte {error.object[error.start]:#04x} at "
            f"offset {error.start} ({error.reason}); give its encoding"
        ) from error


def _topics() -> dict[str, str]:
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise ImportError(
            "this Python comes without pydoc_data: give text_corpus the path of a text file"
        ) from error
    return topics


@dataclass(frozen=True)
class Vocabulary:
    """The characters that a model knows; a character's id is its place among them."""

    characters: str

    @classmethod
    def of(cls, text: str) -> Vocabulary:
        """Every character of ``text``, sorted by code point."""
        return cls("".join(sorted(set(text))))

    def __post_init__(self) -> None:
        if list(self.characters) != sorted(set(self.characters)):
            raise ValueError(
                f"a vocabulary is sorted, each character once, got {self.characters!r}: use "
                "Vocabulary.of(text)"
            )

    def __len__(self) -> int:
        return len(self.characters)

    @cached_property
    def _codes(self) -> np.ndarray:
        return _code_points(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """The ids of the characters of ``text``: int64 (len(text),).

        Raises:
            ValueError: a character is not in the vocabulary.
        """
        codes = _code_points(text)
        ids = np.searchsorted(self._codes, codes)
        known = np.append(self._codes, _NO_CODE)[ids] == codes
        if not known.all():
            place = int(np.argmin(known))
            raise ValueError(
                f"character {text[place]!r} at {place} is not among the {len(self)} of the "
                f"vocabulary {self.characters!r}: build it from a text that has it"
            )
        return ids.astype(np.int64, copy=False)

    def decode(self, ids: Iterable[Any]) -> str:
        """The text of ``ids``, integers in 0 .. len - 1 (an array, a tensor or a list).

        Raises:
            IndexError: an id is out of range.
        """
        numbers = [int(value) for value in getattr(ids, "tolist", lambda: ids)()]
        for value in numbers:
            if not 0 <= value < len(self):
                raise IndexError(f"id {value} is not in a vocabulary of {len(self)} characters")
        return "".join(self.characters[value] for value in numbers)


_NO_CODE = np.uint32(0xFFFFFFFF)  # beyond every code point


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


class CharacterDataset(Dataset):
    """Windows of a text for language modelling: x, and y which is x one character later.

        text        h e l l o _ w o r l d
        sample 0    x = h e l l,  y = e l l o            block_size = 4
        sample 1    x = e l l o,  y = l l o _            stride = 1

    Args:
        text: at least block_size + 1 characters.
        block_size: the length T of x and of y, both int64 (T,).
        vocabulary: of a larger text that this one is a part of; the text's own if None.
        stride: characters from one window's beginning to the next one's.

    Raises:
        ValueError: the text is too short, or has a character that the vocabulary lacks.
    """

    def __init__(
        self,
        text: str,
        block_size: int,
        *,
        vocabulary: Vocabulary | None = None,
        stride: int = 1,
    ) -> None:
        self.block_size = count("block_size", block_size, 1)
        self.stride = count("stride", stride, 1)
        if len(text) <= self.block_size:
            raise ValueError(
                f"a text of {len(text)} characters has no window of block_size + 1 = "
                f"{self.block_size + 1}: give a longer text or a smaller block_size"
            )
        self.vocabulary = vocabulary or Vocabulary.of(text)
        self.ids = self.vocabulary.encode(text)

    @classmethod
    def train_and_validation(
        cls, text: str, block_size: int, *, held_out: float = 0.1
    ) -> tuple[CharacterDataset, CharacterDataset]:
        """Windows of the text but its last ``held_out``, and of that; one vocabulary.

        Training windows begin at every character, validation windows follow one another: each
        held-out character but the first (and an incomplete last window) is predicted once.
        """
        if not 0 < held_out < 1:
            raise ValueError(f"held_out must lie between 0 and 1, got {held_out}")
        cut = len(text) - round(len(text) * held_out)
        vocabulary = Vocabulary.of(text)
        return (
            cls(text[:cut], block_size, vocabulary=vocabulary),
            cls(text[cut:], block_size, vocabulary=vocabulary, stride=block_size),
        )

    def __len__(self) -> int:
        return (len(self.ids) - self.block_size - 1) // self.stride + 1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.fetch_many(np.array([index]))
        return Tensor(x.array[0]), Tensor(y.array[0])

    def fetch_many(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        """The windows ``indices``, int64 (B,), as x and y, int64 (B, T).

        Raises:
            IndexError: there is no such window.
        """
        wrong = (indices < -len(self)) | (indices >= len(self))
        if wrong.any():
            raise IndexError(f"window {indices[wrong][0]} of {len(self)}")
        places = (indices % len(self))[:, None] * self.stride + np.arange(self.block_size)
        return Tensor(self.ids.take(places)), Tensor(self.ids.take(places + 1))
