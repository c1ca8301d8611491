"""Faults that users of other frameworks met, as small inputs with the right value."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import subprocess
import sys
import tracemalloc
import weakref

import numpy as np
import pytest

import minitorch_gpu as mt
import minitorch_gpu.nn.functional as F
from minitorch_gpu import nn, optim, random
from minitorch_gpu.data import DataLoader
from minitorch_gpu.registry import OPS, composite, primitive
from tests.data_support import Numbers, flat
from tests.nn_support import gradient, leaf, near
from tests.optim_support import parameter


@pytest.fixture
def no_collector():
    """What dies inside dies by reference counts alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# ---------------------------------------------------------------- autograd
def test_where_with_no_branch_taken_leaks_nan_and_the_recipe_does_not():
    """A zero cotangent times the infinite slope of a branch that was not selected is NaN."""
    x = leaf([-1.0, -4.0])
    mt.where(x > 0, x.sqrt(), x).sum().backward()
    assert np.isnan(x.grad.array).all()  # PyTorch's answer, in docs/differences.md
    for values, slope in (([-1.0, -4.0], [1.0, 1.0]), ([-1.0, 4.0], [1.0, 0.25])):
        x = leaf(values)
        mt.where(x > 0, mt.where(x > 0, x, 1.0).sqrt(), x).sum().backward()
        assert x.grad.tolist() == slope


def test_in_place_on_a_leaf_and_on_an_element_of_a_leaf_raise_at_once():
    """Found only by backward, or not at all, after the leaf's values were lost."""
    a = mt.zeros(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf that requires grad"):
        a += 1
    b = a[1]
    with pytest.raises(RuntimeError, match="view of a leaf"):
        b += 1
    assert a.tolist() == [0.0, 0.0] and b.item() == 0.0


VIEWS = {
    "detach": lambda o: o.detach(), "data": lambda o: o.data, "row": lambda o: o.detach()[1],
    "column": lambda o: o.detach()[:, 2], "transposed": lambda o: o.detach().T,
    "flat": lambda o: o.detach().reshape(6), "element": lambda o: o.detach()[0, 1],
    "view of a view": lambda o: o.detach().permute(-1, -2)[1:][0],
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_saved_tensor_zeroed_through_any_view_is_an_error(view):
    """Wrong gradients without a word: sigmoid's rule reads the output that was zeroed."""
    o = leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).sigmoid()
    VIEWS[view](o).zero_()
    with pytest.raises(RuntimeError, match=r"sigmoid saved an array of shape \(2, 3\)"):
        o.sum().backward()


def test_a_graph_of_5000_nodes_is_walked_copied_and_freed_without_recursion(no_collector):
    """A walk, a deep copy or the death of a long graph overflows the stack."""
    x = leaf(1.0)
    y = x
    for _ in range(5000):
        y = y + 0
    for copied in (copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))):
        with pytest.raises(RuntimeError, match="detach") as caught:
            copied(y)
        assert caught.type is RuntimeError  # not its subclass RecursionError
        del caught
    y.backward(retain_graph=True)
    assert x.grad.item() == 1.0
    edge = weakref.ref(y.edge)
    del y
    assert edge() is None


def test_backward_twice_is_an_error_and_with_retain_graph_inner_gradients_do_not_pile_up():
    """The second walk starts from the first one's inner gradients: more than 54."""
    a = leaf(3.0)
    y = a * a
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()
    assert a.grad.item() == 6.0
    a = leaf(3.0)
    y = (a * a) * a
    y.backward(retain_graph=True)
    assert a.grad.item() == 27.0
    y.backward(retain_graph=True)
    assert a.grad.item() == 54.0
    y.backward()
    assert a.grad.item() == 81.0


def test_a_fused_pair_that_keeps_an_intermediate_has_its_second_derivative():
    """The kept 2x enters the gradient as a constant, and f'' is 0 instead of 8."""
    @composite("()->()", methods=(), forward=lambda xp, x: (4.0 * x * x, (2.0 * x,)),
               backward=lambda xp, g, kept, inputs, needs: [4.0 * g * kept[0]],
               examples=(dict(x=(2,)),))
    def square_of_double(x):
        """(2x) squared."""
        return (2.0 * x) * (2.0 * x)

    del OPS["square_of_double"]  # not for the generated tests
    x = leaf(2.0)
    square_of_double(x).backward()
    assert x.grad.item() == 16.0
    (g,) = mt.autograd.grad(square_of_double(x), x, create_graph=True)
    (h,) = mt.autograd.grad(g, x)
    assert (g.item(), h.item()) == (16.0, 8.0)
    assert mt.autograd.gradgradcheck(square_of_double, leaf([2.0, -1.0]))


def test_gradgradcheck_finds_a_rule_that_treats_a_value_as_a_constant():
    """First derivatives are right, second ones silently lack a term."""
    @primitive("()->()", vjp=dict(x=lambda g, x: g * 2.0 * getattr(x, "detach", lambda: x)()),
               methods=(), examples=(dict(x=(2,)),))
    def square_once(xp, x):
        """x squared, differentiable once."""
        return x * x

    del OPS["square_once"]  # not for the generated tests
    assert mt.autograd.gradcheck(square_once, leaf([1.0, 2.0]))
    with pytest.raises(AssertionError):
        mt.autograd.gradgradcheck(square_once, leaf([1.0, 2.0]))


def model_and_loss():
    weight = leaf(np.ones((20, 20)))
    return weight, lambda: (weight @ weight).tanh().mean()


@pytest.mark.parametrize("take", [lambda loss: loss.detach(), lambda loss: loss.item()],
                         ids=["detach", "item"])
def test_a_total_of_1000_detached_losses_keeps_no_graph(no_collector, take):
    """``total += loss`` keeps the graph of every step alive."""
    weight, forward = model_and_loss()
    total, old = mt.zeros((), dtype=mt.float64), []
    for _ in range(1000):
        loss = forward()
        old.append(weakref.ref(loss.edge))
        total += take(loss)
        loss.backward()
        weight.grad = None
    alive = sum(ref() is not None for ref in old)
    assert alive == 1, f"{alive} of 1000 graphs are alive; only the last loss is"
    assert total.edge is None and total.item() == pytest.approx(1000 * loss.item())


def test_a_total_of_1000_recorded_losses_dies_with_its_last_reference(no_collector):
    """The sum of all losses holds their graphs while it lives, and not a moment longer."""
    weight, forward = model_and_loss()
    total, old = mt.zeros((), dtype=mt.float64), []
    for _ in range(1000):
        loss = forward()
        old.append(weakref.ref(loss.edge))
        total += loss
    assert all(ref() is not None for ref in old)
    expected = gradient(forward(), weight)[0].array * 1000
    weight.grad = None
    total.backward()
    near(weight.grad, expected, 1e-9)
    del total, loss
    assert not any(ref() is not None for ref in old)


def test_losses_that_were_walked_leave_next_to_nothing_in_a_recorded_total(no_collector):
    """Each step leaves its activations behind: 1000 of them are 3 MB here."""
    weight, forward = model_and_loss()
    total = mt.zeros((), dtype=mt.float64)
    tracemalloc.start()
    for _ in range(1000):
        loss = forward()
        total += loss
        loss.backward()
        weight.grad = None
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 1000 * weight.nbytes / 2, f"{kept / 1000:.0f} bytes a step"


def test_create_graph_on_backward_makes_no_cycle(no_collector):
    """x -> x.grad -> its graph -> x lives until the collector runs, and on a GPU too long."""
    x = leaf(np.ones(1000))
    loss = (x ** 3.0).sum()
    loss.backward(create_graph=True)
    assert x.grad.requires_grad
    dead = [weakref.ref(o) for o in (x, x.array, x.edge, x.grad, x.grad.edge, loss, loss.edge)]
    del x, loss
    assert [ref() for ref in dead] == [None] * len(dead)


@pytest.mark.parametrize("index", [[0, 0, 2], mt.tensor([0, 0, 2]), np.array([0, 0, 2])],
                         ids=["list", "Tensor", "array"])
def test_duplicate_indices_add_up(index):
    """``gradient[index] += v`` writes a repeated place once: [1, 0, 1]."""
    rows = mt.tensor([0, 0, 2])
    for read in (lambda x: x[index], lambda x: x.gather(0, rows),
                 lambda x: F.embedding(rows, x.reshape(3, 1)).reshape(3)):
        x = leaf([0.0, 0.0, 0.0])
        read(x).sum().backward()
        assert x.grad.tolist() == [2.0, 0.0, 1.0]
        x.grad = None
        (read(x) * mt.tensor([1.0, 2.0, 4.0])).sum().backward()
        assert x.grad.tolist() == [3.0, 0.0, 4.0]


# ---------------------------------------------------------------- losses
@pytest.mark.parametrize("second_order", [False, True])
def test_all_targets_ignored_give_nan_and_zero_gradients_in_the_module_too(second_order):
    """0/0 spreads into every weight."""
    x, target = leaf(np.arange(9.0).reshape(3, 3)), mt.tensor([-100] * 3)
    for reduction, value in (("mean", math.nan), ("sum", 0.0), ("none", [0.0] * 3)):
        loss = nn.CrossEntropyLoss(reduction=reduction)(x, target)
        np.testing.assert_array_equal(loss.array, value)
        (g,) = mt.autograd.grad(loss.sum(), x, create_graph=second_order)
        assert g.tolist() == [[0.0] * 3] * 3


def test_log_sums_of_large_numbers_have_finite_gradients():
    """exp(1000) is inf, and inf / inf is NaN, in the value or only in the gradient."""
    for function, values, value, slope in [
        (lambda x: F.softplus(x).sum(), [1000.0, -1000.0], 1000.0, [1.0, 0.0]),
        (lambda x: -F.softplus(-x).sum(), [-1000.0, 1000.0], -1000.0, [1.0, 0.0]),
        (lambda x: x.logsumexp(0), [1000.0, 1000.0], 1000.693147, [0.5, 0.5]),
        (lambda x: -F.log_softmax(x, 0)[2], [1e4, 0.0, -1e4], 20000.0, [1.0, 0.0, -1.0]),
    ]:
        for dtype in (np.float32, np.float64):
            x = leaf(values, dtype)
            y = function(x)
            near(y.reshape(1), [value], 1e-6)
            assert gradient(y, x)[0].tolist() == slope


def test_infinite_logits_of_bce_are_nan_in_the_module_too():
    """PyTorch's answer: inf - inf. The limit would be 0."""
    loss = nn.BCEWithLogitsLoss(reduction="none")(
        mt.tensor([math.inf, -math.inf]), mt.tensor([1.0, 0.0]))
    assert np.isnan(loss.array).all()


# ---------------------------------------------------------------- layers
@pytest.mark.parametrize(("make", "factor"), [
    (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), 1.0),
    (lambda p: optim.Adam(p, lr=0.1), 1.0),
    (lambda p: optim.SGD(p, lr=0.1, weight_decay=0.5), 0.95 ** 3),
    (lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.5), 0.95 ** 3),
])
def test_an_optimizers_state_does_not_move_the_padding_row(make, factor):
    """A row of gradient zero moves by what others left in the state; only decay may."""
    layer = nn.Embedding(3, 2, padding_idx=0)
    nn.init.ones_(layer.weight)
    optimizer = make(layer.parameters())
    for ids in ([0, 1], [0, 2], [0, 0]):
        optimizer.zero_grad()
        layer(mt.tensor(ids)).sum().backward()
        optimizer.step()
    near(layer.weight[0], [factor, factor])
    assert (layer.weight.detach().numpy()[1:] < 1).all()


def test_a_tied_model_stays_tied_through_a_file(tmp_path):
    """A head read from a file is a second weight: the two drift apart from then on."""
    def tied():
        model = nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 3, bias=False))
        model[1].weight = model[0].weight
        return model

    saved, model = tied(), tied()
    path = tmp_path / "tied.safetensors"
    mt.save(saved.state_dict(), path)
    state = mt.load(path)
    assert list(state) == ["0.weight", "1.weight"] and state["0.weight"] is state["1.weight"]
    model.load_state_dict(state)
    for each in (model, copy.deepcopy(model), model.to("cpu")):
        assert each[0].weight is each[1].weight
        assert [name for name, _ in each.named_parameters()] == ["0.weight"]
        assert each[1].weight.tolist() == saved[0].weight.tolist()


# ---------------------------------------------------------------- optimizers
@pytest.mark.parametrize("unordered", [set, frozenset])
@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW])
def test_parameters_without_an_order_are_refused(kind, unordered):
    """State matched by place goes to whichever parameter a set lists there today."""
    with pytest.raises(TypeError, match="no order"):
        kind(unordered([parameter([1.0]), parameter([2.0])]), lr=0.1)


# ---------------------------------------------------------------- data and resuming
def test_random_samples_are_distinct_over_workers_and_epochs_and_come_again_from_the_seed():
    """Workers that inherit one NumPy state, and epochs that restart it, repeat themselves."""
    def two_epochs(workers, seed):
        draw = Numbers(16, lambda index: int(random.integers(0, 10**6, ())))
        loader = DataLoader(draw, batch_size=2, num_workers=workers, seed=seed)
        return flat(loader) + flat(loader)

    values = two_epochs(4, 1)
    assert len(set(values)) == 32
    assert values == two_epochs(4, 1) == two_epochs(0, 1)
    assert not set(values) & set(two_epochs(4, 2))


RUN = """
import sys
import minitorch_gpu as mt
from minitorch_gpu import io, nn, optim
from minitorch_gpu.data import DataLoader, TensorDataset

folder, begin, end, save = sys.argv[1], *map(int, sys.argv[2:])
generator = mt.manual_seed(0 if begin == 0 else 99)
model = nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.5), nn.Linear(4, 1))
optimizer = optim.AdamW(model.named_parameters(), lr=0.1)
samples = TensorDataset(mt.arange(20).float().reshape(20, 1))
loader = DataLoader(samples, 2, shuffle=True, seed=5)
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
parts = dict(model=model, optimizer=optimizer, scheduler=scheduler, sampler=loader,
             generator=generator)
step = begin
if begin:
    io.load_checkpoint(f"{folder}/step_{begin}.safetensors", **parts)
while step < end:
    for (x,) in loader:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        print(step, x.tolist(), loss.item(), scheduler.get_last_lr()[0])
        if step == save:
            io.save_checkpoint(folder, step=step, **parts)
        if step == end:
            break
"""


def lines_of_a_run(folder, begin, end, save):
    done = subprocess.run([sys.executable, "-c", RUN, *map(str, (folder, begin, end, save))],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("save", [3, 10], ids=["in the epoch", "at its end"])
def test_a_new_process_resumes_with_the_samples_that_come_next(tmp_path, save):
    """After a resume: the epoch's first samples again, or another shuffle, mask or rate."""
    whole = lines_of_a_run(tmp_path, 0, 14, save)
    assert len(whole) == 14
    assert lines_of_a_run(tmp_path, save, 14, 0) == whole[save:]


# ---------------------------------------------------------------- files
def test_strided_views_are_saved_as_their_values(tmp_path):
    """safetensors writes the memory behind a view, or memory beyond it, without a word."""
    x, y = np.array([[0.0, 1, 2], [3, 4, 5]]), np.arange(8.0)
    views = {"x.T": x.T, "y[::2]": y[::2], "y[::-1]": y[::-1], "F": np.asfortranarray(x),
             "broadcast": np.broadcast_to(y[:3], (2, 3))}
    mt.save({name: mt.Tensor(view) for name, view in views.items()}, tmp_path / "v.safetensors")
    loaded = mt.load(tmp_path / "v.safetensors")
    assert {name: tensor.tolist() for name, tensor in loaded.items()} == {
        "x.T": [[0, 3], [1, 4], [2, 5]], "y[::2]": [0, 2, 4, 6],
        "y[::-1]": [7, 6, 5, 4, 3, 2, 1, 0], "F": [[0, 1, 2], [3, 4, 5]],
        "broadcast": [[0, 1, 2], [0, 1, 2]]}
