"""Faults that users met when training over ranks, as small inputs with the right value."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import minitorch_gpu as mt
import minitorch_gpu.nn.functional as F
from minitorch_gpu import nn, optim, parallel
from minitorch_gpu.comm import SoloCommunicator, run_ranks
from minitorch_gpu.data import DataLoader, DistributedBatchSampler, TensorDataset


def scalar_model(weight=1.0):
    """y = weight * x."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, weight)
    return model


def column(*values):
    return mt.tensor(np.array(values, dtype=np.float64).reshape(-1, 1))


def reductions(comm):
    return comm.stats().get("all_reduce", (0, 0))[0]


# ---------------------------------------------------------------- losses over ranks
@pytest.mark.parametrize("weights", ["samples", "equal"])
def test_a_rank_whose_targets_are_all_ignored_divides_nothing_by_nothing(weights):
    """One rank's 0/0 makes every rank's gradient NaN."""
    logits, target = np.arange(12.0).reshape(4, 3) % 5, np.array([0, 2, -100, -100])

    def run(comm):
        model = nn.Linear(3, 3, bias=False).double()
        model.load_state_dict({"weight": np.eye(3)})
        wrapped = parallel.DistributedDataParallel(model, comm, weights=weights)
        part = slice(2 * comm.rank, 2 * comm.rank + 2) if comm.size == 2 else slice(4)
        total, count = F.cross_entropy_terms(wrapped(mt.tensor(logits[part])),
                                             mt.tensor(target[part]))
        loss = parallel.global_mean(total, count, wrapped)
        loss.backward()
        return loss.item(), model.weight.grad.numpy().copy()

    ((serial, slope),) = run_ranks(1, run)
    for loss, gradient in run_ranks(2, run):
        assert loss == pytest.approx(serial, rel=1e-14)
        np.testing.assert_allclose(gradient, slope, rtol=1e-12)


@pytest.mark.parametrize("terms", [
    lambda y: F.cross_entropy_terms(y, mt.tensor([-100, -100])),
    lambda y: ((y.square() * mt.tensor([[0.0], [0.0]])).sum(), 0),
], ids=["cross entropy", "masked squares"])
def test_targets_ignored_on_all_ranks_give_nan_and_zero_gradients(terms):
    """As in one process: the mean of nothing is NaN, and the weights stay whole."""
    def run(comm):
        model = nn.Linear(3, 3).double()
        wrapped = parallel.DistributedDataParallel(model, comm)
        loss = parallel.global_mean(*terms(wrapped(mt.ones(2, 3, dtype=mt.float64))), wrapped)
        loss.backward()
        return loss.item(), model.weight.grad.tolist()

    for loss, gradient in run_ranks(2, run):
        assert np.isnan(loss) and gradient == [[0.0] * 3] * 3


# ---------------------------------------------------------------- data over ranks
@pytest.mark.parametrize(("length", "ranks", "drop_last", "counted"), [
    (5, 2, False, 5), (1, 4, False, 1), (1, 4, True, 0), (10, 4, True, 8), (10, 4, False, 10),
])
def test_a_metric_summed_over_ranks_counts_every_sample_once(length, ranks, drop_last, counted):
    """Samplers that pad by repeating count some samples twice."""
    def run(comm):
        sampler = DistributedBatchSampler(length, ranks, comm.rank, comm.size, shuffle=False,
                                          drop_last=drop_last)
        loader = DataLoader(TensorDataset(mt.arange(length)), batch_sampler=sampler)
        mine = [value for (x,) in loader for value in x.tolist()]
        return comm.all_reduce(np.array([len(mine), sum(mine)])).tolist()

    assert run_ranks(ranks, run) == [[counted, sum(range(counted))]] * ranks


# ---------------------------------------------------------------- data parallelism
def test_no_sync_is_read_at_backward():
    """Read at forward, ``no_sync`` around backward alone leaves 3 and 9 on the ranks."""
    def run(comm):
        model = scalar_model()
        wrapped = parallel.DistributedDataParallel(model, comm)
        first, second = ((1.0, 2.0), (3.0, 6.0))[comm.rank]
        start = reductions(comm)
        loss = wrapped(column(first)).sum()
        with wrapped.no_sync():
            loss.backward()
            loss = wrapped(column(second)).sum()  # a forward in here decides nothing
        quiet = reductions(comm) - start
        loss.backward()
        return model.weight.grad.item(), quiet, reductions(comm) - start

    # one reduction of the gradient and one of the mask of used parameters
    assert run_ranks(2, run) == [(6.0, 0, 2), (6.0, 0, 2)]


def test_models_of_one_size_and_other_shapes_or_names_are_refused_on_all_ranks():
    """Equal totals: gradients are summed into each other's places, without a word."""
    def layers(kind, rank):
        if kind == "shape":
            return nn.Sequential(nn.Linear(*((4, 2), (2, 4))[rank], bias=False))
        parts = {"up": nn.Linear(4, 4), "down": nn.Linear(4, 4)}
        return nn.ModuleDict(dict(sorted(parts.items(), reverse=bool(rank))))

    def run(comm, kind):
        with pytest.raises(ValueError, match="same model on every rank") as caught:
            parallel.DistributedDataParallel(layers(kind, comm.rank), comm)
        return str(caught.value)

    for kind, words in (("shape", ("(2, 4)", "(4, 2)")), ("name", ("up.weight", "down."))):
        first, second = run_ranks(2, lambda comm, kind=kind: run(comm, kind))
        assert first == second and all(word in first for word in words)


@pytest.mark.parametrize(("weights", "last"), [("samples", 1.0), ("equal", 0.5)])
def test_a_rank_that_runs_out_of_samples_keeps_step_with_an_empty_batch(weights, last):
    """Uneven numbers of batches hang the job. Divided by active ranks, or by all of them."""
    def run(comm):
        model = scalar_model()
        wrapped = parallel.DistributedDataParallel(model, comm, weights=weights)
        sampler = DistributedBatchSampler(3, 2, comm.rank, 2, shuffle=False)
        optimizer = optim.SGD(wrapped.parameters(), lr=0.25)
        gradients = []
        for (x,) in DataLoader(TensorDataset(column(1, 1, 1)), batch_sampler=sampler):
            optimizer.zero_grad()
            wrapped(x).sum().backward()
            gradients.append(model.weight.grad.item())
            optimizer.step()
        return gradients, model.weight.item()

    assert run_ranks(2, run) == [([1.0, last], 1 - 0.25 * (1.0 + last))] * 2


def test_a_rank_that_stops_early_ends_the_others_with_an_error():
    """A loop of fewer steps leaves the other ranks waiting for ever."""
    def run(comm):
        wrapped = parallel.DistributedDataParallel(scalar_model(), comm)
        for _ in range(2 - comm.rank):
            wrapped(column(1)).sum().backward()

    with pytest.raises(RuntimeError, match="waits for rank 1, which has returned"):
        run_ranks(2, run, timeout=20)


def test_a_gan_step_through_batch_norm_equals_one_process():
    """Buffers sent between the two forwards spoil what the first one saved."""
    x = np.random.default_rng(0).normal(size=(4, 3))

    def run(comm, wrap):
        mt.manual_seed(0)
        critic = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
        forward = parallel.DistributedDataParallel(critic, comm) if wrap else critic
        fake, real = forward(mt.tensor(x * 2.0 - 1.0)), forward(mt.tensor(x))
        (fake.square().mean() - real.mean()).backward()
        return [critic[0].weight.grad.numpy().copy(), critic[1].running_var.numpy().copy()]

    (serial,) = run_ranks(1, lambda comm: run(comm, False))
    for result in run_ranks(2, lambda comm: run(comm, True)):  # all ranks have all samples
        for value, right in zip(result, serial):
            np.testing.assert_allclose(value, right, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("make", [
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: optim.AdamW(p, lr=0.1)])
def test_a_loss_scale_of_128_makes_the_same_update(make):
    """The reduction, or the step after it, forgets to take the scale out again."""
    def run(comm, scale):
        model = scalar_model()
        wrapped = parallel.DistributedDataParallel(model, comm)
        optimizer = make(wrapped.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            (F.mse_loss(wrapped(column(comm.rank + 2.0)), column(1.0)) * scale).backward()
            with mt.no_grad():
                model.weight.grad /= scale
            optim.clip_grad_norm_(wrapped.parameters(), 0.5)
            optimizer.step()
        return model.weight.item()

    plain, scaled = (run_ranks(2, lambda comm, s=s: run(comm, s)) for s in (1.0, 128.0))
    assert plain == scaled and plain[0] == plain[1] != 1.0


def test_calls_that_return_the_model_return_the_wrapper_and_a_copy_shares_the_communicator():
    """A fluent call hands out the inner model, which then trains alone on each rank."""
    wrapped = parallel.DistributedDataParallel(scalar_model(), SoloCommunicator())
    for call in ("eval", "train", "double", "float", "requires_grad_"):
        assert getattr(wrapped, call)() is wrapped, call
    assert wrapped.to("cpu") is wrapped
    twin = copy.deepcopy(wrapped)
    assert type(twin) is type(wrapped) and twin.comm is wrapped.comm
    twin(mt.ones(1, 1)).sum().backward()
    assert twin.module.weight.grad.item() == 1.0 and wrapped.module.weight.grad is None
