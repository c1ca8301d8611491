"""Philox's known answers, slices that equal the whole, generators, and contexts."""

from __future__ import annotations

import contextvars
import hashlib
import itertools
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitorch_gpu import random
from minitorch_gpu.device import cuda_available, device, to_numpy
from tests.random_support import DRAWS, each_draw, fresh, same, words

# ---------------------------------------------------------------- Philox
KNOWN_ANSWERS = [  # Random123's kat_vectors, philox4x32 10
    ([0] * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ([0xFFFFFFFF] * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize("counter, key, answer", KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, answer):
    assert " ".join(f"{int(word):08x}" for word in random.philox(counter, key)) == answer


def test_philox_of_arrays_is_philox_of_each_counter():
    generator = np.random.default_rng(1)
    counter = [generator.integers(0, 2**32, n, dtype=np.uint32) for n in (40_000, 1, 40_000, 1)]
    out = random.philox(counter, (7, 8))
    assert out.dtype == np.uint32 and out.shape == (4, 40_000)
    for i in (0, 1, 16_383, 16_384, 39_999):
        one = random.philox([int(word[i % word.size]) for word in counter], (7, 8))
        assert (out[:, i] == one).all(), i
    assert random.philox((np.zeros((2, 3), int), 0, 0, 0), (1, 2)).shape == (4, 2, 3)


def philox_of_one(counter: list[int], seed: int) -> list[int]:
    """Philox in Python integers, from the paper's figure: two multiplications, two swaps."""
    key = [seed % 2**32, seed >> 32]
    for _ in range(10):
        high0, low0 = divmod(counter[0] * 0xD2511F53, 2**32)
        high1, low1 = divmod(counter[2] * 0xCD9E8D57, 2**32)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return counter


def test_a_word_is_the_documented_function_of_seed_stream_and_global_index():
    seed, shape, total = 0x0123456789ABCDEF, (2, 3, 6), (7, 9, 11)
    start = (5, 4, 3)
    draw = fresh(
        lambda: random.claim(shape, shard={d: (start[d], total[d]) for d in range(3)}), seed
    )
    assert draw.stream == int.from_bytes(
        hashlib.blake2b(b"0|0|", digest_size=8).digest(), "little"
    )
    got = random.random_words(draw)
    for index in itertools.product(*map(range, shape)):
        i, j, k = (a + b for a, b in zip(index, start))
        counter = [k // 4, i * 9 + j, draw.stream % 2**32, draw.stream >> 32]
        assert got[index] == philox_of_one(counter, seed)[k % 4], index


def test_64_bits_are_the_words_of_the_stream_and_of_the_stream_with_bit_63_flipped():
    draw = fresh(lambda: random.claim((5, 6)))
    low = random.random_words(draw._replace(stream=draw.stream ^ 2**63))
    bits = fresh(lambda: random.integers(0, 2**64, (5, 6), dtype=np.uint64))
    assert (bits == random.random_words(draw).astype(np.uint64) * 2**32 + low).all()


def test_rows_beyond_32_bits_differ_and_slice_like_others():
    def rows(start: int, count: int) -> np.ndarray:
        return fresh(lambda: random.random_words(random.claim((count, 4), shard={
            0: (start, 2**34)})))  # fmt: skip

    ends = [rows(n, 1) for n in (1, 2**32 + 1, 2**33 + 1)]
    assert len({row.tobytes() for row in ends}) == 3
    across = rows(2**32 - 2, 4)
    assert same(across, np.concatenate([rows(2**32 - 2, 3), rows(2**32 + 1, 1)]))


# ---------------------------------------------------------------- slices equal the whole
@each_draw
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_uneven_shards_of_any_dims_join_to_the_whole(draw, data):
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple))
    cuts = [sorted({0, n, *data.draw(st.lists(st.integers(0, n), max_size=2))}) for n in shape]
    seed = data.draw(st.integers(0, 2**64 - 1))
    whole = fresh(lambda: draw(shape), seed)
    for box in itertools.product(*(itertools.pairwise(c) for c in cuts)):
        local = tuple(stop - start for start, stop in box)
        shard = {dim: (start, shape[dim]) for dim, (start, _) in enumerate(box)}
        part = fresh(lambda local=local, shard=shard: draw(local, shard=shard), seed)
        assert same(part, whole[tuple(slice(*b) for b in box)]), (shape, box)


@each_draw
def test_large_draws_are_cut_like_small_ones(draw):
    shape = (37, 5_001)
    whole = fresh(lambda: draw(shape))
    rows = fresh(lambda: draw((20, 5_001), shard={0: (17, 37)}))
    columns = fresh(lambda: draw((37, 4_001), shard={1: (999, 5_001)}))
    assert same(rows, whole[17:]) and same(columns, whole[:, 999:5_000])


@each_draw
@settings(max_examples=20, deadline=None)
@given(
    parts=st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any),
    times=st.integers(1, 3),
    order=st.randoms(use_true_random=False),
)
def test_micro_batches_in_any_order_join_to_the_whole_batch(draw, parts, times, order):
    total, starts = sum(parts), [sum(parts[:i]) for i in range(len(parts))]

    def sample(local: int) -> list[np.ndarray]:  # two draws, of 2-d and 1-d tensors
        return [draw((local * times, 3)), draw((local * times,))]

    def micro_batches() -> list[list[np.ndarray]]:
        got: dict[int, list[np.ndarray]] = {}
        turn = list(range(len(parts)))
        order.shuffle(turn)
        with random.step():
            for i in turn:
                with random.batch_slice(starts[i], parts[i], total):
                    got[i] = sample(parts[i])
        return [got[i] for i in range(len(parts))]

    def whole_batch() -> list[np.ndarray]:
        with random.step(batch=(0, total, total)):
            return sample(total)

    joined = [np.concatenate(pieces) for pieces in zip(*fresh(micro_batches))]
    assert all(map(same, joined, fresh(whole_batch)))


def test_slices_compose_from_within_and_from_outside():
    seen = []
    with random.step(batch=(4, 8, 20)):
        with random.batch_slice(2, 3, 8):
            seen.append(random.current_batch())
        seen.append(random.current_batch())
        with random.global_slice(100, 20, 500):
            seen.append(random.current_batch())
    with random.step(), random.global_slice(6, 2, 8):
        seen.append(random.current_batch())
    assert seen == [(6, 3, 20), (4, 8, 20), (104, 8, 500), (6, 2, 8)]
    assert random.current_batch() is None


def test_counts_start_empty_in_a_batch_slice_and_go_on_in_a_global_slice():
    def twice(scope: Callable[..., Any]) -> list[np.ndarray]:
        got = []
        with random.step():
            for _ in range(2):
                with scope(0, 4, 4):
                    got.append(words())
        return got

    def after_a_draw() -> np.ndarray:
        with random.step():
            words()
            with random.batch_slice(0, 4, 4):
                return words()

    assert same(*fresh(lambda: twice(random.batch_slice)))
    assert same(fresh(after_a_draw), fresh(lambda: twice(random.batch_slice))[0])
    assert not same(*fresh(lambda: twice(random.global_slice)))


def test_a_shard_of_dim_0_replaces_the_batch_slice():
    def sliced() -> np.ndarray:
        with random.step(batch=(2, 2, 8)):
            return random.uniform((3, 5), shard={0: (1, 4)})

    def whole() -> np.ndarray:
        with random.step():
            return random.uniform((4, 5))

    assert same(fresh(sliced), fresh(whole)[1:])


# ---------------------------------------------------------------- generators and contexts
@pytest.mark.parametrize("seed, kept", [(-1, 2**64 - 1), (-(2**63), 2**63), (2**64 - 1,) * 2])
def test_seeds_wrap_as_in_pytorch(seed, kept):
    assert random.Generator(seed).initial_seed() == kept
    assert random.Generator(np.int64(7)).initial_seed() == 7


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_a_seed_out_of_range_is_named(seed):
    with pytest.raises(ValueError, match=str(seed)):
        random.Generator(seed)


@pytest.mark.parametrize("seed", [1.5, True, "7", None])
def test_a_seed_is_an_int(seed):
    with pytest.raises(TypeError, match="a seed is an int"):
        random.manual_seed(seed)


@each_draw
def test_the_state_gives_the_next_draws_bit_for_bit(draw):
    generator = random.Generator(5)
    draw((3,), generator=generator)
    state = generator.get_state()
    assert state == {"seed": 5, "tick": 1}
    expected = [draw((3, 5), generator=generator) for _ in range(3)]
    other = random.Generator(99)
    other.set_state(pickle.loads(pickle.dumps(state)))
    assert all(map(same, expected, (draw((3, 5), generator=other) for _ in range(3))))


@pytest.mark.parametrize(
    "state, named",
    [({"seed": 1}, "seed"), ({"seed": 1, "tick": 0, "pos": 2}, "pos"), ({"seed": 1, "tick": -1},
     "-1"), ({"seed": 1, "tick": 1.0}, "1.0"), ({"seed": 2**65, "tick": 1}, str(2**65))],
)  # fmt: skip
def test_a_wrong_state_is_named_and_changes_nothing(state, named):
    generator = random.Generator(3)
    with pytest.raises(ValueError, match=named):
        generator.set_state(state)
    assert generator.get_state() == {"seed": 3, "tick": 0}


def test_seeds_streams_and_ticks_give_other_numbers():
    seeds = [0, 1, 2**32, 2**63, 2**64 - 1]
    drawn = [fresh(lambda: [words() for _ in range(5)], seed) for seed in seeds]
    assert len({x.tobytes() for x in itertools.chain(*drawn)}) == 25


def test_a_fresh_context_or_thread_has_its_own_default_generator():
    def two() -> list[np.ndarray]:
        return [words(), words()]

    random.manual_seed(0)
    words()
    results = []
    thread = threading.Thread(target=lambda: results.append(two()))
    thread.start()
    thread.join()
    assert all(map(same, results[0], contextvars.Context().run(two)))
    assert random.default_generator().get_state() == {"seed": 0, "tick": 1}


def test_use_generator_is_the_default_inside_and_leaves_a_foreign_frame():
    mine = random.Generator(8)
    random.manual_seed(0)
    with random.step(), random.use_generator(mine) as given:
        assert random.default_generator() is mine is given
        inside = words()
    assert mine.get_state()["tick"] == 1 and same(inside, fresh(words, 8))
    assert random.default_generator().get_state() == {"seed": 0, "tick": 1}


def test_another_generator_draws_outside_the_frame():
    def in_step() -> np.ndarray:
        with random.step(batch=(1, 2, 4)):
            return random.uniform((3, 2), generator=random.Generator(6))

    assert same(fresh(in_step), random.uniform((3, 2), generator=random.Generator(6)))


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="needs a CUDA device and CuPy")
@pytest.mark.parametrize("shape", [(7,), (33, 70), (5, 3, 20_001)])
def test_a_gpu_draws_the_same_bits(shape):
    cuda = device("cuda")
    for draw in (random.bernoulli, random.uniform, DRAWS["uniform64"], DRAWS["integers"]):
        there = draw(shape, where=cuda, generator=random.Generator(9))
        assert same(to_numpy(there), draw(shape, generator=random.Generator(9)))
    there = to_numpy(random.normal(shape, where=cuda, generator=random.Generator(9)))
    here = random.normal(shape, generator=random.Generator(9))
    assert np.abs(there - here).max() < 1e-6
