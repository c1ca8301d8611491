"""Layers with PyTorch's weights give PyTorch's outputs, gradients, buffers, names and repr."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn, optim

torch = pytest.importorskip("torch", reason="compares with PyTorch")

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'", "ignore:.*mask")


def product(**options):
    """All combinations of options, as dicts."""
    return [dict(zip(options, values)) for values in itertools.product(*options.values())]


def floats(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def pair(name, *args, **options):
    """Our layer and PyTorch's in float64, with random parameters that are equal."""
    ours, theirs = (getattr(library, name)(*args, **options) for library in (nn, torch.nn))
    ours.double(), theirs.double()
    for seed, parameter in enumerate(theirs.parameters()):
        parameter.data = torch.tensor(floats(*parameter.shape, seed=seed + 50))
    state = {k: v.detach().numpy().copy() for k, v in theirs.state_dict().items()}
    assert list(state) == list(ours.state_dict())
    ours.load_state_dict(state)
    return ours, theirs


def same(ours, theirs, label=""):
    """Equal shapes, dtypes and values to 1e-9."""
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, label
    np.testing.assert_allclose(ours.numpy(force=True), theirs, rtol=1e-9, atol=1e-9,
                               err_msg=label)


def tensors(raw):
    """Leaves of both kinds; floats collect gradients."""
    return ([None if v is None else mt.Tensor(v.copy(), requires_grad=v.dtype.kind == "f")
             for v in raw],
            [None if v is None else torch.tensor(v, requires_grad=v.dtype.kind == "f")
             for v in raw])


def outputs(result):
    return [y for y in (result if isinstance(result, tuple) else (result,)) if y is not None]


def backward(results, make):
    """Gradients of a random weighing of all outputs."""
    total = sum((y * make(floats(*y.shape, seed=7 + i))).sum() for i, y in enumerate(results))
    total.backward()


def compare(layers, raw, label="", **keywords):
    """One forward and backward pass of both: outputs, input and parameter gradients."""
    ours, theirs = layers
    ours.zero_grad(), theirs.zero_grad()
    a, b = tensors(raw)
    given, expected = outputs(ours(*a, **keywords)), outputs(theirs(*b, **keywords))
    assert len(given) == len(expected)
    for y, z in zip(given, expected):
        same(y, z, f"{label}: output")
    if not expected[0].requires_grad:
        return
    backward(given, mt.tensor), backward(expected, torch.tensor)
    for place, (x, z) in enumerate(zip(a, b)):
        if z is not None and z.grad is not None:
            same(x.grad, z.grad, f"{label}: gradient of input {place}")
    reference = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        same(parameter.grad, reference[name].grad, f"{label}: gradient of {name}")


def compare_state(layers, label=""):
    reference = layers[1].state_dict()
    for name, value in layers[0].state_dict().items():
        same(value, reference[name], f"{label}: {name}")


def compare_in_time(layers, batches, label=""):
    """Two training steps with SGD, the buffers and weights after, then evaluation."""
    optimizers = [optim.SGD(layers[0].parameters(), lr=0.1, momentum=0.9),
                  torch.optim.SGD(layers[1].parameters(), lr=0.1, momentum=0.9)] \
        if list(layers[0].parameters()) else []
    for step, batch in enumerate(batches):
        compare(layers, [batch], f"{label} step {step}")
        for optimizer in optimizers:
            optimizer.step()
    compare_state(layers, label)
    layers[0].eval(), layers[1].eval()
    compare(layers, [batches[0]], f"{label} evaluation")


# ---------------------------------------------------------------- linear, tables
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (2, 1, 3, 5), (0, 5)])
def test_linear(bias, shape):
    compare(pair("Linear", 5, 3, bias=bias), [floats(*shape)])


@pytest.mark.parametrize("padding_idx", [None, 0, 2, -1])
@pytest.mark.parametrize("ids", [[1], [[2, 0, 2], [3, 3, 0]], 3])
def test_embedding(padding_idx, ids):
    layers = pair("Embedding", 4, 3, padding_idx=padding_idx)
    assert layers[0].padding_idx == layers[1].padding_idx
    compare(layers, [np.array(ids)])


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_optimizers_treat_the_padding_row_as_pytorch_does(name, weight_decay):
    layers = pair("Embedding", 4, 3, padding_idx=0)
    before = layers[0].weight.detach().numpy().copy()
    optimizers = [getattr(library, name)(layer.parameters(), lr=0.1, weight_decay=weight_decay)
                  for library, layer in zip((optim, torch.optim), layers)]
    for ids in ([0, 1, 1], [0, 2, 3], [0, 0, 0]):
        compare(layers, [np.array(ids)])
        for optimizer in optimizers:
            optimizer.step()
    compare_state(layers)
    moved = np.any(layers[0].weight.detach().numpy() != before, axis=1)
    assert moved.tolist() == [weight_decay > 0, True, True, True]


# ---------------------------------------------------------------- images
@pytest.mark.parametrize("options", [
    *product(stride=[1, (2, 1)], padding=[0, (1, 2), "valid"], dilation=[1, (1, 2)],
             groups=[1, 2], bias=[True, False]),
    *product(padding=["same"], dilation=[1, (1, 2)], groups=[1, 2], bias=[True, False])])
def test_conv2d(options):
    for kernel in (2, (3, 2)):
        compare(pair("Conv2d", 4, 6, kernel, **options), [floats(2, 4, 7, 8)], f"{kernel}")


@pytest.mark.parametrize("options", product(
    kernel_size=[2, (3, 2)], stride=[None, 1, (2, 3)], padding=[0, 1], dilation=[1, (2, 1)],
    ceil_mode=[False, True]))
def test_max_pool2d(options):
    compare(pair("MaxPool2d", **options), [floats(2, 3, 7, 8)])


@pytest.mark.parametrize("options", product(
    kernel_size=[2, (3, 2)], stride=[None, 1, (2, 3)], padding=[0, 1],
    ceil_mode=[False, True], count_include_pad=[False, True]))
def test_avg_pool2d(options):
    compare(pair("AvgPool2d", **options), [floats(2, 3, 7, 8)])


@pytest.mark.parametrize("options", [
    {}, dict(start_dim=0), dict(end_dim=2), dict(start_dim=-2)])
def test_flatten(options):
    compare(pair("Flatten", **options), [floats(2, 3, 4, 5)])


# ---------------------------------------------------------------- normalisation
@pytest.mark.parametrize("options", product(
    affine=[True, False], track_running_stats=[True, False], momentum=[0.1, 0.7, None],
    eps=[1e-5, 0.1]))
@pytest.mark.parametrize("name, shapes", [
    ("BatchNorm1d", [(5, 3), (2, 3)]), ("BatchNorm1d", [(2, 3, 4), (1, 3, 2)]),
    ("BatchNorm2d", [(2, 3, 3, 2), (1, 3, 1, 2)])])
def test_batch_norm(name, shapes, options):
    batches = [floats(*shape, seed=i) * 3 + 2 for i, shape in enumerate(shapes)]
    compare_in_time(pair(name, 3, **options), batches)


@pytest.mark.parametrize("shape", [5, (5,), (3, 5), (2, 3, 5)])
@pytest.mark.parametrize("options", product(
    elementwise_affine=[True, False], bias=[True, False], eps=[1e-5, 0.1]))
def test_layer_norm(shape, options):
    compare_in_time(pair("LayerNorm", shape, **options),
                    [floats(2, 3, 5), floats(4, 2, 3, 5, seed=1)])


# ---------------------------------------------------------------- sequences
@pytest.mark.parametrize("options", product(
    num_layers=[1, 2], bias=[True, False], batch_first=[True, False],
    bidirectional=[True, False]))
def test_lstm(options):
    ours, theirs = layers = pair("LSTM", 3, 4, **options)
    x = floats(5, 2, 3)
    a, b = tensors([x])
    (y, (h, c)), (z, (p, q)) = ours(*a), theirs(*b)
    for given, expected in zip((y, h, c), (z, p, q)):
        same(given, expected)
    backward([y, h, c], mt.tensor), backward([z, p, q], torch.tensor)
    same(a[0].grad, b[0].grad)
    for (name, parameter), expected in zip(ours.named_parameters(), layers[1].parameters()):
        same(parameter.grad, expected.grad, name)


def attention_masks(kind, shape, seed):
    if kind is None:
        return None
    blocked = np.random.default_rng(seed).random(shape) < 0.4
    blocked[..., 0] = False  # every query sees a key
    return {"bool": blocked, "float": floats(*shape, seed=seed),
            "infinite": np.where(blocked, -np.inf, 0.0)}[kind]


def attend(layers, lengths, features, batch, **options):
    """Both attentions on query, key and value of the given sizes; batch None for none."""
    batch_first, per_head = layers[0].batch_first, options.pop("per_head", False)
    lead = lambda length: ((length,) if batch is None else (batch, length) if batch_first
                           else (length, batch))
    raw = [floats(*lead(n), f, seed=i) for i, (n, f) in enumerate(
        zip((lengths[0], lengths[1], lengths[1]), features))]
    rows = () if batch is None else (batch,)
    padding = attention_masks(options.pop("padding", None), (*rows, lengths[1]), 11)
    heads = ((batch or 1) * layers[0].num_heads,) if per_head else ()
    mask = attention_masks(options.pop("mask", None), (*heads, *lengths), 12)
    keywords = [dict(options, **{name: make(value) for name, value in (
        ("key_padding_mask", padding), ("attn_mask", mask)) if value is not None})
        for make in (mt.tensor, torch.tensor)]
    a, b = tensors(raw)
    given = outputs(layers[0](*a, **keywords[0]))
    expected = outputs(layers[1](*b, **keywords[1]))
    assert len(given) == len(expected)
    for y, z in zip(given, expected):
        same(y, z)
    backward(given, mt.tensor), backward(expected, torch.tensor)
    for x, z in zip(a, b):
        same(x.grad, z.grad)
    reference = dict(layers[1].named_parameters())
    for name, parameter in layers[0].named_parameters():
        same(parameter.grad, reference[name].grad, name)


@pytest.mark.parametrize("options", product(
    padding=[None, "bool"], mask=[None, "bool", "float"], per_head=[False, True],
    need_weights=[True, False]))
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention(batch_first, batch, options):
    layers = pair("MultiheadAttention", 6, 2, batch_first=batch_first)
    attend(layers, (5, 4), (6, 6, 6), batch, **options)


@pytest.mark.parametrize("options", product(
    bias=[True, False], sizes=[dict(), dict(kdim=5), dict(vdim=7), dict(kdim=5, vdim=7)]))
def test_multihead_attention_of_other_widths(options):
    layers = pair("MultiheadAttention", 6, 3, bias=options["bias"], **options["sizes"])
    for average in (True, False):
        attend(layers, (5, 4), (6, layers[0].kdim, layers[0].vdim), 2, padding="float",
               mask="infinite", average_attn_weights=average)
        layers[0].zero_grad(), layers[1].zero_grad()


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_self_attention_with_the_causal_hint(batch_first, need_weights):
    ours, theirs = layers = pair("MultiheadAttention", 6, 2, batch_first=batch_first)
    later = np.triu(np.ones((4, 4), bool), 1)
    (a,), (b,) = tensors([floats(4, 4, 6)])
    given = outputs(ours(a, a, a, attn_mask=mt.tensor(later), is_causal=True,
                         need_weights=need_weights))
    expected = outputs(theirs(b, b, b, attn_mask=torch.tensor(later), is_causal=True,
                              need_weights=need_weights))
    for y, z in zip(given, expected):
        same(y, z)
    backward(given, mt.tensor), backward(expected, torch.tensor)
    same(a.grad, b.grad)
    same(layers[0].in_proj_weight.grad, layers[1].in_proj_weight.grad)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("boolean", [True, False])
def test_a_query_that_sees_no_key(need_weights, boolean):
    layers = pair("MultiheadAttention", 4, 2)
    blocked = np.array([[True, True, True], [True, False, False]])
    mask = blocked if boolean else np.where(blocked, -np.inf, 0.0)
    raw = [floats(2, 1, 4), *[floats(3, 1, 4, seed=1)] * 2]
    given = layers[0](*map(mt.tensor, raw), attn_mask=mt.tensor(mask),
                      need_weights=need_weights)
    expected = layers[1](*map(torch.tensor, raw), attn_mask=torch.tensor(mask),
                         need_weights=need_weights)
    for y, z in zip(outputs(given), outputs(expected)):
        same(y, z)


# ---------------------------------------------------------------- activations and losses
@pytest.mark.parametrize("name, args", [
    ("ReLU", ()), ("ReLU", (True,)), ("LeakyReLU", ()), ("LeakyReLU", (0.3,)), ("GELU", ()),
    ("GELU", ("tanh",)), ("SiLU", ()), ("Softplus", ()), ("Softplus", (2.5,)), ("Tanh", ()),
    ("Sigmoid", ()), ("Softmax", (0,)), ("Softmax", (-1,)), ("LogSoftmax", (1,)),
    ("Identity", ())])
def test_activations(name, args):
    layers = pair(name, *args)
    raw = floats(3, 4) * 4
    (a,), (b,) = tensors([raw])
    y, z = layers[0](a * 1.0), layers[1](b * 1.0)
    same(y, z)
    backward([y], mt.tensor), backward([z], torch.tensor)
    same(a.grad, b.grad)


PROBABILITIES = 1 / (1 + np.exp(floats(6, 4, seed=1)))
CLASSES = np.array([0, 3, 1, -100, 2, 2])
LOSSES = [
    ("MSELoss", {}, floats(6, 4, seed=1)),
    ("L1Loss", {}, floats(6, 4, seed=1)),
    *[("BCEWithLogitsLoss", {k: floats(4, seed=i) ** 2 for i, k in enumerate(keys)},
       PROBABILITIES) for keys in ((), ("weight",), ("weight", "pos_weight"))],
    *[("CrossEntropyLoss", options, target) for target in (CLASSES, PROBABILITIES)
      for options in ({}, dict(weight=floats(4) ** 2), dict(label_smoothing=0.2))],
    ("CrossEntropyLoss", dict(ignore_index=2, weight=floats(4) ** 2), abs(CLASSES) % 4),
    ("NLLLoss", {}, CLASSES),
    ("NLLLoss", dict(weight=floats(4) ** 2, ignore_index=3), abs(CLASSES) % 4),
]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name, options, target", LOSSES)
def test_losses(name, options, target, reduction):
    theirs = getattr(torch.nn, name)(reduction=reduction, **{
        k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()})
    ours = getattr(nn, name)(reduction=reduction, **{
        k: mt.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    compare((ours, theirs), [floats(6, 4, seed=2), target])
    if reduction == "mean":
        total, count = ours.terms(mt.tensor(floats(6, 4, seed=2)), mt.tensor(target))
        same(total / count, theirs(torch.tensor(floats(6, 4, seed=2)), torch.tensor(target)))


# ---------------------------------------------------------------- models
def zoo(n):
    """A model of every layer, that exists in both libraries."""
    return n.Sequential(
        n.Sequential(n.Conv2d(3, 8, 3, padding="same", bias=False), n.BatchNorm2d(8), n.ReLU(),
                     n.MaxPool2d(2), n.Conv2d(8, 8, (3, 2), stride=2, groups=2, padding=1)),
        n.ModuleDict({"norm": n.BatchNorm1d(3, momentum=None), "none": n.Identity()}),
        n.ModuleList([n.Linear(4, 4), n.Linear(4, 4), n.GELU(), n.Linear(4, 1, bias=False)]),
        n.Embedding(5, 3, padding_idx=0), n.LSTM(3, 4, 2, bidirectional=True, batch_first=True),
        n.MultiheadAttention(4, 2), n.MultiheadAttention(4, 2, kdim=3, bias=False),
        n.LayerNorm((2, 3)), n.BatchNorm1d(3, affine=False, track_running_stats=False))


def test_state_dict_has_pytorchs_names_shapes_and_dtypes():
    describe = lambda state: [(k, tuple(v.shape), str(v.dtype).split(".")[-1])
                              for k, v in state.items()]
    assert describe(zoo(nn).state_dict()) == describe(zoo(torch.nn).state_dict())
    for registry in ("named_parameters", "named_buffers", "named_modules"):
        assert [k for k, _ in getattr(zoo(nn), registry)()] == [
            k for k, _ in getattr(zoo(torch.nn), registry)()]


@pytest.mark.parametrize("make", [
    lambda n: n.Sequential(
        n.Conv2d(3, 8, 3, padding="same", bias=False), n.ReLU(), n.ReLU(inplace=True),
        n.MaxPool2d(2), n.AvgPool2d((2, 1), padding=(1, 0)), n.Flatten(), n.Linear(4, 5)),
    lambda n: n.ModuleList([n.ReLU(), n.ReLU(), *(n.Sequential(n.Tanh()) for _ in range(2))]),
    lambda n: n.ModuleDict({"a": n.ModuleList(), "b": n.Sequential(n.Identity())}),
    lambda n: n.Sequential(n.Embedding(5, 3, padding_idx=0), n.LSTM(3, 4, 2, bias=False)),
    lambda n: n.Sequential(n.Softmax(dim=1), n.LogSoftmax(dim=-1), n.GELU(), n.LeakyReLU(),
                           n.MSELoss(), n.CrossEntropyLoss(), n.SiLU(), n.Sigmoid())])
def test_repr(make):
    assert repr(make(nn)) == repr(make(torch.nn))


def watched(layer, record):
    """The list that ``record`` fills at every call of a backward hook of the layer."""
    calls = []
    layer.register_full_backward_hook(lambda m, gi, go: record(calls, gi, go))
    return calls


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("with_gradient, answer", [(True, None), (True, 3.0), (False, None)])
def test_full_backward_hooks(with_gradient, answer):
    layers = pair("Linear", 3, 2)

    def record(calls, grad_input, grad_output):
        calls.append([None if g is None else np.array(g.detach().numpy())
                      for g in (*grad_input, *grad_output)])
        return None if answer is None else (grad_input[0] * answer,)

    calls = [watched(layer, record) for layer in layers]
    (a,), (b,) = tensors([floats(4, 3)])
    a, b = (a, b) if with_gradient else (a.detach(), b.detach())
    backward([layers[0](a)], mt.tensor), backward([layers[1](b)], torch.tensor)
    assert len(calls[0]) == len(calls[1]) == 1
    for given, expected in zip(calls[0][0], calls[1][0]):
        assert (given is None) == (expected is None)
        if given is not None:
            np.testing.assert_allclose(given, expected, rtol=1e-9)
    same(layers[0].weight.grad, layers[1].weight.grad)
    if with_gradient:
        same(a.grad, b.grad)
