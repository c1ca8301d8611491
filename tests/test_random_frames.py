"""Frames: which call takes a tick, what a path is called, and drawing again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from minitorch_gpu import random
from tests.random_support import Module, fresh, same, words


# ---------------------------------------------------------------- ticks and paths
def ticks() -> int:
    return random.default_generator().get_state()["tick"]


def test_a_tick_is_taken_by_each_outermost_training_call_and_each_outside_draw():
    random.manual_seed(0)
    leaf = Module()
    model = Module(leaf=leaf)
    model(lambda: None)
    assert ticks() == 1
    model(lambda: [leaf(words), leaf(words), words()])
    assert ticks() == 2
    words()
    assert ticks() == 3
    with random.step():
        model(lambda: leaf(words))
        model(lambda: leaf(words))
        with random.step():
            words()
    assert ticks() == 4


def test_an_evaluation_takes_a_tick_only_if_it_draws():
    random.manual_seed(0)
    model = Module(leaf=Module())
    model.training = False
    model(lambda: None)
    assert ticks() == 0
    first, second = model(lambda: [model.children["leaf"](words) for _ in range(2)])
    assert ticks() == 1 and not same(first, second)
    assert not same(model(words), model(words))


def test_a_call_that_raises_leaves_no_frame():
    model = Module(leaf=Module())
    with pytest.raises(ZeroDivisionError):
        model(lambda: model.children["leaf"](lambda: 1 / 0))
    with pytest.raises(RuntimeError, match="snapshot needs an open step"):
        random.snapshot()


def drawn_in_step(run: Callable[[], Any]) -> Any:
    def step() -> Any:
        with random.step():
            return run()

    return fresh(step)


def test_a_path_names_the_modules_from_the_outermost_call():
    drop = Module()
    model = Module(blocks=Module(a=Module(drop=drop), b=Module(drop=drop)), head=Module())
    blocks = model.children["blocks"].children
    serial = drawn_in_step(
        lambda: model(lambda: [blocks[name](lambda: drop(words)) for name in "ab"])
    )
    assert not same(*serial)  # one shared module, two paths

    def stage(name: str) -> np.ndarray:  # runs one block by the whole model's name for it
        with random.name_scope(f"blocks.{name}"):
            return blocks[name](lambda: drop(words))

    assert same(serial[1], drawn_in_step(lambda: stage("b")))
    assert same(serial[0], drawn_in_step(lambda: stage("a")))


def test_a_wrapper_that_pushes_no_name_changes_nothing():
    model = Module(drop=Module())
    run = lambda: model(lambda: model.children["drop"](words))

    def wrapped() -> np.ndarray:
        with random.name_scope(""):
            return run()

    wrapper = Module(module=model)
    assert same(drawn_in_step(run), drawn_in_step(lambda: wrapper(wrapped)))
    assert not same(drawn_in_step(run), drawn_in_step(lambda: wrapper(run)))


def test_modules_not_below_their_caller_go_by_class_and_order():
    class Noise(Module):
        pass

    model, loose = Module(), [Noise(), Noise(), Module()]
    got = drawn_in_step(lambda: model(lambda: [each(words) for each in (*loose, loose[0])]))
    names = ["Noise#0", "Noise#1", "Module#0"]
    expected = [random.claim(4, generator=random.Generator())._replace(stream=s) for s in [
        *(stream(0, name, 0) for name in names), stream(0, "Noise#0", 1)]]  # fmt: skip
    assert all(map(same, got, map(random.random_words, expected)))


def stream(tick: int, path: str, count: int) -> int:
    text = f"{tick}|{count}|{path}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def test_names_are_looked_up_only_when_something_draws():
    class Unnamed(Module):
        def named_modules(self) -> Iterator[tuple[str, Module]]:
            raise AssertionError("looked up")

    child = Module()
    model = Unnamed(child=child)
    model(lambda: child(lambda: None))
    with pytest.raises(AssertionError, match="looked up"):
        model(lambda: child(words))


def test_streams_of_ticks_paths_and_counts_are_distinct():
    def streams() -> list[int]:
        model = Module(**{f"m{i}": Module() for i in range(20)})
        found = []
        for _ in range(20):
            with random.step():
                for child in model.children.values():
                    for _ in range(10):
                        found.append(model(lambda c=child: c(lambda: random.claim(1).stream)))
        return found

    found = fresh(streams)
    assert len(set(found)) == 4000
    bits = np.array(found, np.uint64)[:, None] >> np.arange(64, dtype=np.uint64) & 1
    assert np.abs(bits.mean(0) - 0.5).max() < 4.5 * 0.5 / 4000**0.5


# ---------------------------------------------------------------- recomputation
def test_a_restored_snapshot_draws_the_same_again():
    model = Module(drop=Module())
    drop = model.children["drop"]
    record = {}

    def forward() -> None:
        drop(words)
        record["before"] = random.snapshot()
        record["first"] = [drop(words), drop(words), words()]
        record["after"] = drop(words)

    with random.step(batch=(1, 2, 4)):
        model(forward)
    random.manual_seed(123)  # neither later seeds nor other frames matter
    for _ in range(2):
        with random.step(), random.restored(record["before"]):
            assert random.current_batch() == (1, 2, 4)
            again = [drop(words), drop(words), words(), drop(words)]
        assert all(map(same, again, [*record["first"], record["after"]]))


def test_a_snapshot_in_evaluation_mode_holds_the_tick():
    model = Module()
    model.training = False
    taken, first = model(lambda: (random.snapshot(), words()))
    with random.restored(taken):
        assert same(first, words())
