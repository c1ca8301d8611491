"""Data parallelism against one process: the law, on threads that are ranks."""

from __future__ import annotations

import copy
import weakref

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn, optim, parallel, random
from minitorch_gpu.comm import SoloCommunicator
from minitorch_gpu.comm import run_ranks as run_threads
from minitorch_gpu.nn import functional as F
from minitorch_gpu.partition import split_range

X = np.random.default_rng(0).normal(size=(7, 5))
Y = np.random.default_rng(1).integers(0, 3, 7)


def run_ranks(size, function, *args, **kwargs):
    return run_threads(size, lambda comm: function(comm, *args, **kwargs))


class Net(nn.Module):
    """Dropout, a frozen layer, a layer nobody uses and one used on some ranks only."""

    def __init__(self, p=0.3):
        super().__init__()
        self.first, self.frozen = nn.Linear(5, 6), nn.Linear(6, 6)
        self.unused, self.last = nn.Linear(6, 6), nn.Linear(6, 3)
        self.dropout = nn.Dropout(p)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        hidden = self.dropout(F.relu(self.first(x)))
        return self.last(self.dropout(self.frozen(hidden).tanh()))


def make(model=Net, seed=3, **options):
    mt.manual_seed(seed)
    return model(**options).double()


def mine(comm, *arrays):
    start, stop = split_range(len(arrays[0]), comm.size, comm.rank)
    return [mt.tensor(a[start:stop]) for a in arrays]


def train(comm, wrap=True, steps=3, model=Net, parts=1, **options):
    """Losses, gradients of the last step, weights and the number of reductions."""
    net = make(model)
    wrapped = parallel.DistributedDataParallel(net, comm, **options) if wrap else net
    optimizer = optim.AdamW(wrapped.parameters(), lr=1e-2)
    x, y = mine(comm, X, Y)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        for part_x, part_y in parallel.microbatches((x, y), parts):
            loss = F.cross_entropy(wrapped(part_x), part_y) * parallel.current_weight()
            loss.backward()
        losses.append(loss.item())
        optimizer.step()
    gradients = {n: None if p.grad is None else p.grad.numpy().copy()
                 for n, p in net.named_parameters()}
    weights = {n: p.detach().numpy().copy() for n, p in net.named_parameters()}
    return losses, gradients, weights, comm.stats().get("all_reduce", (0, 0))[0]


def agree(a, b, tol=1e-9):
    _, gradients, weights, _ = a
    _, other_gradients, other_weights, _ = b
    largest = max(np.abs(g).max() for g in other_gradients.values() if g is not None)
    for name, g in gradients.items():
        h = other_gradients[name]
        assert (g is None) == (h is None), name
        if g is not None:
            assert np.abs(g - h).max() <= tol * max(np.abs(h).max(), 1e-3 * largest), name
    for name, w in weights.items():
        assert np.abs(w - other_weights[name]).max() <= 1e-9 * np.abs(w).max() + 3e-11, name


@pytest.fixture(scope="module")
def serial():
    return run_ranks(1, train, False)[0]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("bucket_mb", [25.0, 1e-6])
def test_any_number_of_ranks_equals_one_process(serial, ranks, bucket_mb):
    for result in run_ranks(ranks, train, True, bucket_mb=bucket_mb):
        agree(result, serial)


@pytest.mark.parametrize(("ranks", "parts"), [(1, 3), (2, 2), (3, 3), (2, 4), (5, 2)])
def test_accumulation_over_microbatches_equals_one_process(serial, ranks, parts):
    results = run_ranks(ranks, train, True, parts=parts)
    for result in results:
        agree(result, serial)
    whole = run_ranks(ranks, train, True)
    assert results[0][3] == whole[0][3], "only the last part reduces"


def test_one_rank_is_bit_equal_to_no_wrapper(serial):
    (result,) = run_ranks(1, train, True)
    assert result[0] == serial[0]
    for name, w in result[2].items():
        np.testing.assert_array_equal(w, serial[2][name])


def test_different_seeds_still_start_from_rank_zeros_weights():
    def weights(comm):
        net = make(seed=comm.rank)
        parallel.DistributedDataParallel(net, comm)
        return net.first.weight.detach().numpy().copy()

    first, second = run_ranks(2, weights)
    np.testing.assert_array_equal(first, second)


def scalar_model(weight=1.0):
    model = nn.Linear(1, 1, bias=False).double()
    with mt.no_grad():
        model.weight.fill_(weight)
    return model


@pytest.mark.parametrize(("weights", "expected"), [("samples", 15.0), ("equal", 32 / 3)])
def test_uneven_batches_are_weighed_by_samples_or_equally(weights, expected):
    def gradient(comm):
        model = scalar_model()
        wrapped = parallel.DistributedDataParallel(model, comm, weights=weights)
        x = mt.tensor([[1.0]] if comm.rank == 0 else [[2.0], [3.0], [4.0]], dtype=mt.float64)
        F.mse_loss(wrapped(x), mt.zeros_like(x)).backward()
        return model.weight.grad.item()

    assert run_ranks(2, gradient) == pytest.approx([expected] * 2, rel=1e-15)


def test_no_sync_accumulates_and_reduces_once():
    def gradient(comm):
        model = scalar_model()
        wrapped = parallel.DistributedDataParallel(model, comm)
        first, second = ((1.0, 2.0), (3.0, 6.0))[comm.rank]
        before = comm.stats().get("all_reduce", (0, 0))[0]
        with wrapped.no_sync():
            wrapped(mt.tensor([[first]], dtype=mt.float64)).sum().backward()
        quiet = comm.stats().get("all_reduce", (0, 0))[0] - before
        wrapped(mt.tensor([[second]], dtype=mt.float64)).sum().backward()
        total = comm.stats()["all_reduce"][0] - before
        return model.weight.grad.item(), quiet, total

    # One reduction of the bucket, one of the mask of used parameters.
    assert run_ranks(2, gradient) == [(6.0, 0, 2), (6.0, 0, 2)]


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(1, 1, bias=False).double() for _ in range(3))

    def forward(self, x, use_b):
        y = self.a(x)
        return y + self.b(x) if use_b else y


def test_a_parameter_used_on_one_rank_averages_with_zeros_and_one_used_nowhere_is_none():
    def gradients(comm):
        model = Heads()
        wrapped = parallel.DistributedDataParallel(model, comm)
        x = mt.tensor([[2.0]], dtype=mt.float64)
        wrapped(x, use_b=comm.rank == 0).sum().backward()
        return [None if p.grad is None else p.grad.item() for p in model.parameters()]

    assert run_ranks(2, gradients) == [[2.0, 1.0, None]] * 2


def test_a_rank_without_samples_contributes_nothing_not_nan():
    def gradient(comm):
        model = scalar_model()
        wrapped = parallel.DistributedDataParallel(model, comm)
        x = mt.tensor([[3.0]], dtype=mt.float64)[: 1 - comm.rank]
        F.mse_loss(wrapped(x), mt.zeros_like(x)).backward()
        return model.weight.grad.item()

    assert run_ranks(2, gradient) == [18.0, 18.0]


def test_a_global_mean_is_right_for_ragged_counts():
    targets = np.array([0, -100, 2, -100, -100, -100, 1])

    def gradient(comm, wrap):
        model = nn.Linear(5, 3).double() if wrap is None else make(lambda: nn.Linear(5, 3))
        if comm.size > 1:
            wrapped = parallel.DistributedDataParallel(model, comm, weights=wrap)
        else:
            wrapped = model
        x, y = mine(comm, X, targets)
        total = F.cross_entropy(wrapped(x), y, reduction="sum", ignore_index=-100)
        over = wrapped if comm.size > 1 and wrap == "samples" else comm
        loss = parallel.global_mean(total, int((y.array != -100).sum()), over)
        loss.backward()
        return loss.item(), model.weight.grad.numpy().copy()

    (reference,) = run_ranks(1, gradient, "equal")
    for wrap in ("samples", "equal"):
        results = run_ranks(3, gradient, wrap)
        assert len({value for value, _ in results}) == 1
        for value, slope in results:
            assert value == pytest.approx(reference[0], rel=1e-12)
            np.testing.assert_allclose(slope, reference[1], rtol=1e-9)


def test_ranks_that_differ_in_their_model_all_get_the_same_error():
    def build(comm, kind):
        layers = [nn.Linear(4, 4), nn.Linear(4, 2)]
        if comm.rank == 1:
            layers = {"order": layers[::-1], "extra": [*layers, nn.Linear(2, 2)],
                      "dtype": [layers[0].double(), layers[1]],
                      "frozen": [layers[0].requires_grad_(False), layers[1]],
                      "same size": [nn.Linear(4, 4), nn.Linear(2, 4, bias=False)]}[kind]
        with pytest.raises(ValueError, match="same model on every rank") as caught:
            parallel.DistributedDataParallel(nn.Sequential(*layers), comm)
        return str(caught.value)

    for kind in ("order", "extra", "dtype", "frozen", "same size"):
        first, second = run_ranks(2, build, kind)
        assert first == second and "rank 1" in first


def test_buffers_follow_rank_zero_even_when_reassigned():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(mt.ones(1))
            self.register_buffer("seen", mt.zeros(1))

        def forward(self, x):
            self.seen = self.seen + x.detach().sum()
            return x * self.scale

    def run(comm):
        model = Counting()
        wrapped = parallel.DistributedDataParallel(model, comm)
        for _ in range(2):
            wrapped(mt.full((2, 1), comm.rank + 1.0)).sum().backward()
        wrapped(mt.zeros(1, 1))
        return model.seen.item()

    assert run_ranks(2, run) == [4.0, 4.0]


def test_two_forwards_with_batch_norm_before_one_backward_work():
    def run(comm):
        model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)).double()
        wrapped = parallel.DistributedDataParallel(model, comm)
        x = mine(comm, X)[0]
        (wrapped(x).sum() + wrapped(x * 2.0).sum()).backward()
        return model[0].weight.grad.shape

    assert run_ranks(2, run) == [(4, 5)] * 2


def test_reductions_start_before_the_last_leaf_is_ready():
    events = []

    def run(comm):
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
        wrapped = parallel.DistributedDataParallel(model, comm, bucket_mb=1e-6)
        said = events if comm.rank == 0 else []
        reduce, ready = wrapped._reducer.all_reduce, wrapped.leaf_ready
        wrapped._reducer.all_reduce = lambda *a, **k: (
            said.append("reduce"), reduce(*a, **k))[1]
        wrapped.leaf_ready = lambda leaf: (said.append("leaf"), ready(leaf))[1]
        for leaf in wrapped._place:
            leaf.listener = wrapped
        wrapped(mt.ones(2, 4)).sum().backward()

    run_ranks(2, run)
    assert events.index("reduce") < len(events) - 1 - events[::-1].index("leaf")
    assert events.count("leaf") == 8 and events.count("reduce") == 9


def test_gradients_are_views_of_the_bucket_and_zeroing_keeps_training_right():
    def run(comm, to_none):
        net = make()
        wrapped = parallel.DistributedDataParallel(net, comm)
        x, y = mine(comm, X, Y)
        for _ in range(3):
            wrapped.zero_grad(set_to_none=to_none)
            F.cross_entropy(wrapped(x), y).backward()
        assert net.first.weight.grad.array.base is not None
        return net.first.weight.grad.numpy().copy()

    for a, b in zip(run_ranks(2, run, True), run_ranks(2, run, False)):
        np.testing.assert_array_equal(a, b)


def test_gradients_left_from_the_step_before_add_up():
    def run(comm, size):
        net = make(p=0.0)
        wrapped = parallel.DistributedDataParallel(net, comm) if size > 1 else net
        x, y = mine(comm, X, Y)
        for _ in range(2):
            F.cross_entropy(wrapped(x), y).backward()
        return net.last.weight.grad.numpy().copy()

    (reference,) = run_ranks(1, run, 1)
    for result in run_ranks(3, run, 3):
        np.testing.assert_allclose(result, reference, rtol=1e-10)


def test_a_layer_unfrozen_later_joins_the_buckets():
    def run(comm):
        net = make(p=0.0)
        wrapped = parallel.DistributedDataParallel(net, comm)
        x, y = mine(comm, X, Y)
        F.cross_entropy(wrapped(x), y).backward()
        assert net.frozen.weight.grad is None
        net.frozen.requires_grad_(True)
        wrapped.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        return net.frozen.weight.grad.numpy().copy()

    first, second = run_ranks(2, run)
    np.testing.assert_array_equal(first, second)


def test_masks_are_real_and_differ_between_ranks_samples_and_steps():
    def masks(comm):
        dropout = nn.Dropout(0.4)
        wrapped = parallel.DistributedDataParallel(dropout, comm)
        rows = split_range(101, comm.size, comm.rank)
        x = mt.ones(rows[1] - rows[0], 50)
        return [wrapped(x).numpy() != 0 for _ in range(2)]

    (serial,) = run_ranks(1, masks)
    parts = run_ranks(3, masks)
    for step in range(2):
        np.testing.assert_array_equal(np.concatenate([p[step] for p in parts]), serial[step])
    n = serial[0].size
    assert abs(serial[0].mean() - 0.6) < 4 * np.sqrt(0.24 / n)
    for a, b in [(serial[0], serial[1]), (serial[0][:50], serial[0][50:100])]:
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4 / np.sqrt(a.size)


def test_evaluation_asks_nothing_of_other_ranks():
    def run(comm):
        wrapped = parallel.DistributedDataParallel(make(), comm).eval()
        before = sum(t[0] for t in comm.stats().values())
        for _ in range(comm.rank + 1):  # not even the same number of calls
            wrapped(mt.tensor(X))
        return sum(t[0] for t in comm.stats().values()) - before

    assert run_ranks(2, run) == [0, 0]


def test_names_and_state_are_the_wrapped_models():
    net = make()
    wrapped = parallel.DistributedDataParallel(net, SoloCommunicator())
    assert list(wrapped.state_dict()) == list(net.state_dict())
    assert [n for n, _ in wrapped.named_parameters()] == [n for n, _ in net.named_parameters()]
    wrapped.load_state_dict(net.state_dict())
    twin = copy.deepcopy(wrapped)
    assert twin.comm is wrapped.comm and twin.module is not net


def test_bad_arguments_are_named():
    for options, message in [(dict(weights="mean"), "weights is 'mean'"),
                             (dict(bucket_mb=0), "bucket_mb"), (dict(zero=7), "zero is 7")]:
        with pytest.raises(ValueError, match=message):
            parallel.DistributedDataParallel(nn.Linear(1, 1), SoloCommunicator(), **options)
    with pytest.raises(ValueError, match="count must be positive"):
        next(parallel.microbatches(mt.ones(3), 0))
    with pytest.raises(ValueError, match="no Tensor"):
        next(parallel.microbatches([1], 2))
    with pytest.raises(ValueError, match="batch of 3"):
        next(parallel.microbatches((mt.ones(3), mt.ones(2)), 2))


def test_microbatches_cut_nests_and_leave_out_empty_parts():
    batch = {"x": mt.arange(5), "rest": (mt.arange(5).reshape(5, 1), "name")}
    parts = list(parallel.microbatches(batch, 3))
    assert [p["x"].tolist() for p in parts] == [[0, 1], [2, 3], [4]]
    assert parts[0]["rest"][1] == "name" and parts[2]["rest"][0].shape == (1, 1)
    assert len(list(parallel.microbatches(mt.arange(2), 4))) == 2
    assert random.current_batch() is None and parallel.current_weight() == 1.0


def test_the_wrapper_goes_with_its_last_reference():
    import gc

    wrapped = parallel.DistributedDataParallel(nn.Linear(2, 2), SoloCommunicator())
    ref = weakref.ref(wrapped)
    del wrapped
    gc.collect()
    assert ref() is None
