"""What every communicator promises: each ``check_*`` is a statement about one rank's.

``test_comm.py`` runs them on one process, on threads, and by ``mpiexec`` on this file.
"""

from __future__ import annotations

import hashlib
import os
from functools import reduce

import ml_dtypes
import numpy as np
import pytest

from minitorch_gpu import comm as comms
from minitorch_gpu.comm import Communicator
from minitorch_gpu.partition import split_sizes

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool"]
DTYPES += ["complex64", "complex128"]
JOIN = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "bor": np.bitwise_or,
}


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def values(rank: int, shape: tuple[int, ...], dtype: str = "float64") -> np.ndarray:
    """Small whole numbers that differ by rank: every sum and product of them is exact."""
    n = int(np.prod(shape))
    return ((np.arange(n) * (rank + 2)) % 3 - (rank % 2)).reshape(shape).astype(dtype_of(dtype))


def ops_for(dtype: str) -> list[str]:
    kind = dtype_of(dtype).kind
    order = ["max", "min"] if kind != "c" else []
    return ["sum", "prod", *order, *(["bor"] if kind in "biu" else [])]


def same(got: np.ndarray, want: np.ndarray, what: str = "") -> None:
    assert isinstance(got, np.ndarray), f"{what}: {type(got)}"
    assert got.dtype == want.dtype, f"{what}: {got.dtype}"
    assert got.shape == want.shape, f"{what}: {got.shape}"
    assert got.tobytes() == want.tobytes(), f"{what}: {got} is not {want}"


# ---- collectives


def check_all_reduce_equals_numpy_for_every_dtype_and_op(comm: Communicator) -> None:
    for dtype in DTYPES:
        for op in ops_for(dtype):
            for shape in ((), (0, 3), (2, 3), (7,)):
                x = values(comm.rank, shape, dtype)
                before = x.copy()
                want = reduce(JOIN[op], [values(r, shape, dtype) for r in range(comm.size)])
                want = np.asarray(want, x.dtype)
                got = comm.all_reduce(x, op)
                assert not np.may_share_memory(got, x)
                same(got, want, f"{op} {dtype} {shape}")
                same(x, before, "argument")
                assert comm.all_reduce(x, op, out=x) is x
                same(x, want, f"in place {op} {dtype} {shape}")


def check_any_strides_in_and_out(comm: Communicator) -> None:
    views = [
        lambda a: a.T,
        lambda a: a[::-1],
        lambda a: a[:, 1::2],
        lambda a: np.broadcast_to(a[0], (4, 6)),
    ]
    for view in views:
        want = sum(view(values(r, (4, 6))).copy() for r in range(comm.size))
        same(comm.all_reduce(view(values(comm.rank, (4, 6)))), want)
        if view is not views[3]:
            out = view(np.empty((4, 6)))
            assert comm.all_reduce(view(values(comm.rank, (4, 6))), out=out) is out
            same(np.array(out, order="C"), want)


def check_16_bit_floats_are_rounded_once(comm: Communicator) -> None:
    # 2048 + 1 is 2048 in float16, but 2048 + 1 + 1 is 2050; 256 and 258 in bfloat16.
    for dtype, large in (("float16", 2048), ("bfloat16", 256)):
        x = np.array([large if comm.rank == 0 else 1], dtype_of(dtype))
        want = np.array([large + comm.size - 1]).astype(dtype_of(dtype))
        same(comm.all_reduce(x), want)
        same(comm.reduce_scatter(np.repeat(x, comm.size)), want)


def check_nan_wins_max_and_min_on_every_rank(comm: Communicator) -> None:
    for bad in range(comm.size):
        x = np.array([np.nan if comm.rank == bad else comm.rank, comm.rank], float)
        for op, last in (("max", comm.size - 1), ("min", 0)):
            got = comm.all_reduce(x, op)
            assert np.isnan(got[0]) and got[1] == last, f"{op} with nan on rank {bad}: {got}"


def check_a_reduction_has_the_same_bits_on_all_ranks(comm: Communicator) -> None:
    for n in (1, 10, 1001, 100_003):
        x = np.random.default_rng(comm.rank).standard_normal(n).astype(np.float32)
        result = comm.all_reduce(x).tobytes()
        digests = comm.all_gather_object(hashlib.sha256(result).hexdigest())
        assert len(set(digests)) == 1, f"{n} elements differ between ranks"
        if os.environ.get("MINITORCH_DETERMINISTIC") == "1":
            parts = [np.random.default_rng(r).standard_normal(n) for r in range(comm.size)]
            want = reduce(np.add, [part.astype(np.float32) for part in parts])
            assert result == want.tobytes(), "not summed in rank order"


def check_reduce_scatter_gives_slices_of_the_reduction(comm: Communicator) -> None:
    uneven = [0] * (comm.size - 1) + [7]
    for shape, dim, sizes in (((7, 2), 0, None), ((2, 7), -1, None), ((2, 7, 3), 1, uneven)):
        for dtype in ("float32", "bfloat16", "bool", "int8"):
            for op in ("sum", "max"):
                parts = [values(r, shape, dtype) for r in range(comm.size)]
                lengths = sizes or split_sizes(7, comm.size)
                cuts = np.cumsum(lengths)[:-1]
                whole = np.asarray(reduce(JOIN[op], parts), parts[0].dtype)
                want = np.split(whole, cuts, axis=dim)[comm.rank]
                got = comm.reduce_scatter(parts[comm.rank], dim, sizes, op=op)
                same(got, np.array(want, order="C"), f"{shape} {dim} {sizes} {dtype} {op}")


def check_all_gather_joins_uneven_shards_along_any_dim(comm: Communicator) -> None:
    for dim in (0, 1, -1):
        for dtype in DTYPES:
            shapes = [[2, 3, 2] for _ in range(comm.size)]
            for r, shape in enumerate(shapes):
                shape[dim] = (r * 2) % 3  # some ranks have none
            parts = [values(r, tuple(shape), dtype) for r, shape in enumerate(shapes)]
            want = np.concatenate(parts, axis=dim)
            sizes = [shape[dim] for shape in shapes]
            same(comm.all_gather(parts[comm.rank], dim), want, f"{dim} {dtype}")
            same(comm.all_gather(parts[comm.rank], dim, sizes), want, f"{dim} {dtype} sizes")
            out = np.empty_like(want)
            assert comm.all_gather(parts[comm.rank], dim, out=out) is out
            same(out, want)


def check_all_gather_into_the_array_that_holds_the_shard(comm: Communicator) -> None:
    whole = np.full(10, -1.0)
    sizes = split_sizes(10, comm.size)
    start = sum(sizes[: comm.rank])
    whole[start : start + sizes[comm.rank]] = comm.rank
    comm.all_gather(whole[start : start + sizes[comm.rank]], 0, sizes, out=whole)
    same(whole, np.repeat(np.arange(comm.size, dtype=float), sizes))


def check_broadcast_from_each_root(comm: Communicator) -> None:
    for root in range(comm.size):
        for dtype in DTYPES:
            for shape in ((), (3, 0), (3, 4)):
                x = values(comm.rank, shape, dtype).T
                before = x.copy()
                want = values(root, shape, dtype).T.copy()
                got = comm.broadcast(x, root)
                same(got, want, f"root {root} {dtype}")
                assert not np.may_share_memory(got, x)
                same(x.copy(), before, "argument")
                assert comm.broadcast(x, root, out=x) is x
                same(x.copy(), want)


def check_all_to_all_moves_blocks_of_any_shape(comm: Communicator) -> None:
    def block(source: int, to: int, dtype: str) -> np.ndarray:
        return values(source + 3 * to, (source, to + 1), dtype)

    for dtype in DTYPES:
        got = comm.all_to_all([block(comm.rank, to, dtype) for to in range(comm.size)])
        for source in range(comm.size):
            same(got[source], block(source, comm.rank, dtype), f"from {source} {dtype}")


def check_objects_of_any_length_travel(comm: Communicator) -> None:
    objects = [{"rank": r, "text": "x" * (40 * r)} for r in range(comm.size)]
    assert comm.all_gather_object(objects[comm.rank]) == objects
    for root in range(comm.size):
        assert comm.broadcast_object(objects[comm.rank], root) == objects[root]


# ---- order and overlap


def check_async_calls_run_in_issue_order_with_sync_ones(comm: Communicator) -> None:
    total = sum(range(1, comm.size + 1))
    works = []
    for step in range(20):
        works.append(comm.all_reduce(np.full(1000, (comm.rank + 1.0) * step), async_op=True))
        if step % 5 == 0:
            same(comm.all_reduce(np.array([step * 1.0])), np.array([step * 1.0 * comm.size]))
    for step, work in reversed(list(enumerate(works))):
        same(work.wait(), np.full(1000, total * 1.0 * step))
        assert work.done()
        same(work.wait(), np.full(1000, total * 1.0 * step))
    comm.barrier(async_op=True).wait()


def check_async_forms_equal_the_sync_ones(comm: Communicator) -> None:
    x = values(comm.rank, (4, 5))
    same(comm.all_gather(x, 1, async_op=True).wait(), comm.all_gather(x, 1))
    same(comm.reduce_scatter(x, async_op=True).wait(), comm.reduce_scatter(x))
    same(comm.broadcast(x, async_op=True).wait(), comm.broadcast(x))
    blocks = [x + to for to in range(comm.size)]
    for a, b in zip(comm.all_to_all(blocks, async_op=True).wait(), comm.all_to_all(blocks)):
        same(a, b)
    out = np.empty_like(x)
    assert comm.all_reduce(x, out=out, async_op=True).wait() is out


def check_a_duplicate_has_an_order_of_its_own(comm: Communicator) -> None:
    other = comm.dup(name="other")
    assert (other.rank, other.size, other.name) == (comm.rank, comm.size, "other")
    first, second = (comm, other) if comm.rank % 2 else (other, comm)
    a = first.all_reduce(np.array([1.0 if first is comm else 2.0]), async_op=True)
    b = second.all_reduce(np.array([1.0 if second is comm else 2.0]), async_op=True)
    results = {id(first): a.wait(), id(second): b.wait()}
    same(results[id(comm)], np.array([1.0 * comm.size]))
    same(results[id(other)], np.array([2.0 * comm.size]))
    other.close()


# ---- messages


def check_sendrecv_around_a_ring_at_any_length(comm: Communicator) -> None:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for n in (0, 1, 1000, 2_000_000):
        x = np.full(n, comm.rank, np.float32)
        same(comm.sendrecv(x, right, left), np.full(n, left, np.float32))
        assert comm.sendrecv(x, right, left, out=x) is x
        same(x, np.full(n, left, np.float32))


def check_messages_bring_their_shape_and_dtype(comm: Communicator) -> None:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for dtype in DTYPES:
        for shape in ((), (0, 2), (2, 1, 3)):
            x = values(comm.rank, shape, dtype).T
            work = comm.send(x, right, 7, async_op=True)
            same(comm.recv(left, 7), values(left, shape, dtype).T.copy())
            work.wait()


def check_messages_match_by_source_and_tag_in_order(comm: Communicator) -> None:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    wanted = [comm.recv(left, tag, async_op=True) for tag in (2, 1, 2, 1)]
    sent = [comm.send(np.arange(n), right, n % 2 + 1, async_op=True) for n in range(4)]
    lengths = [work.wait().size for work in reversed(wanted)]
    assert lengths == [2, 3, 0, 1], f"received {lengths}"
    assert [work.wait() for work in sent] == [None] * 4
    assert all(work.done() for work in sent + wanted)


def check_a_pending_receive_holds_up_nothing(comm: Communicator) -> None:
    # The neighbour's large send cannot end before our receive takes its bytes, while this
    # rank is already in the next collective.
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    work = comm.recv(left, async_op=True)
    comm.send(np.full(1_000_000, comm.rank), right)
    comm.barrier()
    same(work.wait(), np.full(1_000_000, left))


def check_a_receive_that_does_not_fit_is_an_error_and_loses_nothing(comm: Communicator) -> None:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    sent = [comm.send(np.arange(5.0) + n, right, async_op=True) for n in range(2)]
    with pytest.raises(ValueError, match=r"out has shape \(4,\)"):
        comm.recv(left, out=np.empty(4))
    same(comm.recv(left, out=np.empty(10)[::2]).copy(), np.arange(5.0) + 1)
    for work in sent:
        work.wait()


# ---- groups, memory, counters


def check_split_groups_by_color_and_orders_by_key(comm: Communicator) -> None:
    part = comm.split(comm.rank % 2, -comm.rank, name="tp")
    members = [r for r in range(comm.size) if r % 2 == comm.rank % 2][::-1]
    assert (part.size, part.rank, part.name) == (len(members), members.index(comm.rank), "tp")
    same(part.all_gather(np.array([comm.rank])), np.array(members))
    part.close()
    alone = comm.split(0 if comm.rank == 0 else None)
    assert (alone is None) == (comm.rank != 0)


def check_arrays_from_empty_reduce_like_others(comm: Communicator) -> None:
    group = comm.dup()
    for dtype in ("float32", "float64", "bfloat16", "int64", "bool"):
        x = group.empty((300_000,), dtype_of(dtype))
        for _ in range(3):
            x[:] = values(comm.rank, x.shape, dtype)
            parts = [values(r, x.shape, dtype) for r in range(comm.size)]
            want = np.asarray(reduce(np.add, parts), x.dtype)
            assert group.all_reduce(x, out=x) is x
            same(x, want, dtype)
    x = group.empty((1000, 300))
    x[:] = comm.rank
    total = float(sum(range(comm.size)))
    inner = x[100:]  # a bucket's part; rank 0 comes with memory of its own
    mine = inner.copy() if comm.rank == 0 else inner
    assert (group.all_reduce(mine, out=mine) == total).all()
    x[:] = comm.rank
    group.all_reduce(inner, out=inner)
    assert (inner == total).all() and (x[:100] == comm.rank).all()
    assert group.empty(3, np.int8).shape == (3,)
    group.close()


def check_counts_calls_and_bytes_by_verb(comm: Communicator) -> None:
    group = comm.dup()
    group.all_reduce(np.zeros(10))
    group.all_reduce(np.zeros(5, np.float32))
    group.all_to_all([np.zeros(2)] * comm.size)
    group.barrier()
    stats = group.stats()
    assert stats["all_reduce"] == (2, 100) and stats["barrier"] == (1, 0)
    assert stats["all_to_all"] == (1, 16 * comm.size)
    group.close()
    with pytest.raises(RuntimeError, match="closed"):
        group.barrier()


def check_bad_arguments_are_named(comm: Communicator) -> None:
    x = np.zeros((2, 3))
    cases = [
        (lambda: comm.all_reduce([1.0]), TypeError, "raw arrays, got list"),
        (lambda: comm.all_reduce(x, "mean"), ValueError, "unknown op 'mean'"),
        (lambda: comm.all_reduce(x, "bor"), TypeError, "needs integers"),
        (lambda: comm.all_reduce(x + 1j, "max"), TypeError, "no order"),
        (lambda: comm.all_reduce(x, out=np.zeros(3)), ValueError, r"out has shape \(3,\)"),
        (lambda: comm.reduce_scatter(x, 2), IndexError, "dim 2"),
        (lambda: comm.reduce_scatter(x, 0, [9] * comm.size), ValueError, "add up to"),
        (lambda: comm.all_gather(x, 0, [5] * comm.size), ValueError, "has length 2"),
        (lambda: comm.broadcast(x, comm.size), ValueError, "does not exist"),
        (lambda: comm.all_to_all([x] * (comm.size + 1)), ValueError, "blocks for"),
        (lambda: comm.send(x, -1), ValueError, "rank -1"),
        (lambda: comm.recv(0, -1), ValueError, "tag must be >= 0"),
        (lambda: comm.all_reduce(np.array([None])), TypeError, "object"),
    ]
    for call, error, text in cases:
        with pytest.raises(error, match=text):
            call()


CHECKS = {name[6:]: f for name, f in list(globals().items()) if name.startswith("check_")}


def main() -> None:
    """Run all checks on MPI ranks; rank 0 prints the name of each that passed everywhere."""
    from minitorch_gpu.comm import mpi

    mpi.CHUNK_BYTES = 50  # pickles travel in many pieces
    first = comms.init()
    assert isinstance(first, mpi.MpiCommunicator) and comms.init() is first
    first.close()
    world = comms.init()
    assert world is not first and first.closed and not world.closed
    for name, check in CHECKS.items():
        check(world)
        world.barrier()
        if world.rank == 0:
            print(name, flush=True)


if __name__ == "__main__":
    main()
