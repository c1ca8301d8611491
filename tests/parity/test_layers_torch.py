"""Layers with PyTorch's weights give its outputs, gradients and names, with all options."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn

torch = pytest.importorskip("torch", reason="compares with PyTorch")

TOLERANCE = 1e-10


def product(**options):
    """All combinations of options, as dicts."""
    return [dict(zip(options, values)) for values in itertools.product(*options.values())]


def twins(name, *args, **options):
    """Our layer and PyTorch's in float64, with PyTorch's weights in both."""
    torch.manual_seed(0)
    ours = getattr(nn, name)(*args, **options)
    theirs = getattr(torch.nn, name)(*args, **options).double()
    with torch.no_grad():
        for parameter in theirs.parameters():  # biases start at zero: give them values
            parameter.add_(torch.rand_like(parameter) * 0.2)
    state = {key: value.numpy().copy() for key, value in theirs.state_dict().items()}
    ours.double()
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    return ours, theirs


def near(ours, theirs, what):
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=TOLERANCE,
                               atol=TOLERANCE, err_msg=what)
    assert ours.shape == tuple(theirs.shape), what


def first(result):
    return [r for r in (result if isinstance(result, tuple) else (result,)) if r is not None]


def compare(pair, *inputs, **options):
    """Outputs, gradients of inputs and of parameters, and buffers afterwards."""
    layer, reference = pair
    as_ours = lambda v: mt.Tensor(v.copy(), requires_grad=v.dtype.kind == "f")
    as_theirs = lambda v: torch.tensor(v, requires_grad=v.dtype.kind == "f")
    plain = lambda make: {k: make(v) if isinstance(v, np.ndarray) else v
                          for k, v in options.items()}
    a, b = [as_ours(v) for v in inputs], [as_theirs(v) for v in inputs]
    outputs = first(layer(*a, **plain(mt.tensor)))
    references = first(reference(*b, **plain(torch.tensor)))
    assert len(outputs) == len(references)
    for y, z in zip(outputs, references):
        near(y, z, "output")
    (outputs[0] ** 2).sum().backward()
    (references[0] ** 2).sum().backward()
    for p, q in zip(a, b):
        if q.grad is not None:
            near(p.grad, q.grad, "input")
    theirs = dict(reference.named_parameters())
    for name, parameter in layer.named_parameters():
        near(parameter.grad, theirs[name].grad, name)
    theirs = dict(reference.named_buffers())
    for name, buffer in layer.named_buffers():
        near(buffer, theirs[name], name)


def normal(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_linear(lead, bias):
    compare(twins("Linear", 3, 4, bias=bias), normal(*lead, 3))


@pytest.mark.parametrize("padding_idx", [None, 0, -2])
def test_embedding(padding_idx):
    compare(twins("Embedding", 4, 3, padding_idx=padding_idx), np.array([[0, 2], [2, 3]]))


@pytest.mark.parametrize("options", [
    *product(stride=[1, (2, 1)], padding=[0, (1, 2)], dilation=[1, (1, 2)], groups=[1, 2],
             bias=[True, False]),
    dict(padding="same", dilation=2),
    dict(padding="valid", stride=2),
], ids=str)
def test_conv2d(options):
    compare(twins("Conv2d", 4, 6, (3, 2), **options), normal(2, 4, 7, 6))


@pytest.mark.parametrize("options", product(
    stride=[None, 1, (2, 3)], padding=[0, 1], dilation=[1, 2],
    ceil_mode=[False, True]), ids=str)
def test_max_pool2d(options):
    compare(twins("MaxPool2d", 2, **options), normal(2, 3, 7, 6))


@pytest.mark.parametrize("options", product(
    stride=[None, 1, (2, 3)], padding=[0, 1], ceil_mode=[False, True],
    count_include_pad=[True, False]), ids=str)
def test_avg_pool2d(options):
    compare(twins("AvgPool2d", (2, 3), **options), normal(2, 3, 7, 6))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", product(
    momentum=[0.1, None], affine=[True, False], track_running_stats=[True, False]), ids=str)
@pytest.mark.parametrize("name, shape", [
    ("BatchNorm1d", (5, 3)), ("BatchNorm1d", (4, 3, 2)), ("BatchNorm2d", (4, 3, 2, 5))])
def test_batch_norm(name, shape, options, training):
    pair = twins(name, 3, **options)
    for module in pair:
        module.train(training)
    compare(pair, normal(*shape))
    if training:
        for module in pair:
            module.zero_grad()
        compare(pair, 3 + 2 * normal(*shape))


@pytest.mark.parametrize("options", product(
    elementwise_affine=[True, False], bias=[True, False]), ids=str)
@pytest.mark.parametrize("trailing", [4, (3, 4)])
def test_layer_norm(trailing, options):
    compare(twins("LayerNorm", trailing, eps=1e-3, **options), normal(2, 3, 4))


@pytest.mark.parametrize("name, options", [
    ("ReLU", {}), ("LeakyReLU", {}), ("LeakyReLU", dict(negative_slope=0.3)), ("GELU", {}),
    ("GELU", dict(approximate="tanh")), ("SiLU", {}), ("Softplus", {}),
    ("Softplus", dict(beta=2.0)), ("Tanh", {}), ("Sigmoid", {}), ("Softmax", dict(dim=1)),
    ("LogSoftmax", dict(dim=-1)), ("Flatten", {}), ("Flatten", dict(start_dim=0, end_dim=1)),
    ("Identity", {}), ("Dropout", dict(p=0.0)),
])
def test_layers_without_weights(name, options):
    pair = twins(name, **options)
    compare(pair, normal(2, 3, 4))
    if name not in ("Dropout", "Softplus"):  # PyTorch's have an option more
        assert repr(pair[0]) == repr(pair[1])


BLOCKED = np.triu(np.ones((3, 5), bool), 2)
PADDED = np.array([[False] * 5, [False, False, False, True, True]])
MASKS = {
    "none": {},
    "boolean": dict(attn_mask=BLOCKED),
    "added": dict(attn_mask=np.where(BLOCKED, -np.inf, 0.5)),
    "by_head": dict(attn_mask=np.stack([BLOCKED] * 3 + [BLOCKED ^ BLOCKED])),
    "padding": dict(key_padding_mask=PADDED),
    "both": dict(attn_mask=BLOCKED, key_padding_mask=PADDED),
}


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("options", product(
    batch_first=[True, False], bias=[True, False], kdim=[None, 6], vdim=[None, 2]), ids=str)
@pytest.mark.parametrize("call", [
    {}, dict(average_attn_weights=False), dict(need_weights=False)], ids=str)
def test_multihead_attention(masks, options, call):
    inputs = [normal(2, 3, 4), normal(2, 5, options["kdim"] or 4),
              normal(2, 5, options["vdim"] or 4) + 1]
    if not options["batch_first"]:
        inputs = [x.swapaxes(0, 1).copy() for x in inputs]
    compare(twins("MultiheadAttention", 4, 2, **options), *inputs, **call, **MASKS[masks])


@pytest.mark.parametrize("call", [{}, dict(attn_mask=BLOCKED[:, :3])], ids=["plain", "masked"])
def test_self_attention_of_one_tensor(call):
    ours, theirs = twins("MultiheadAttention", 4, 2, batch_first=True)
    x = normal(2, 3, 4)
    a, b = mt.Tensor(x.copy(), requires_grad=True), torch.tensor(x, requires_grad=True)
    y, w = ours(a, a, a, **{k: mt.tensor(v) for k, v in call.items()})
    z, v = theirs(b, b, b, **{k: torch.tensor(v) for k, v in call.items()})
    near(y, z, "output")
    near(w, v, "weights")
    (y ** 2).sum().backward()
    (z ** 2).sum().backward()
    near(a.grad, b.grad, "input")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name, options, integer", [
    ("MSELoss", {}, False), ("L1Loss", {}, False), ("BCEWithLogitsLoss", {}, False),
    ("CrossEntropyLoss", {}, True), ("NLLLoss", {}, True),
    ("CrossEntropyLoss", dict(ignore_index=1, label_smoothing=0.2), True),
    ("CrossEntropyLoss", {}, False),
])
def test_losses(name, options, integer, reduction):
    target = np.array([0, 2, 1, 2]) if integer else np.full((4, 3), 1 / 3)
    pair = twins(name, reduction=reduction, **options)
    x = normal(4, 3)
    y = pair[0](mt.Tensor(x), mt.Tensor(target))
    z = pair[1](torch.tensor(x), torch.tensor(target))
    near(y, z, "loss")


@pytest.mark.parametrize("layer", [
    ("Linear", 3, 4), ("Conv2d", 2, 4, 3), ("Embedding", 5, 2), ("AvgPool2d", 2),
    ("MaxPool2d", (2, 3), 1), ("CrossEntropyLoss",), ("LSTM", 3, 4, 2),
], ids=lambda args: args[0])
def test_layers_print_alike(layer):
    name, *args = layer
    assert repr(getattr(nn, name)(*args)) == repr(getattr(torch.nn, name)(*args))


def test_backward_hooks_see_what_pytorch_shows():
    x = normal(2, 3)
    seen = []
    pair = twins("Linear", 3, 4)
    for module, leaf in zip(pair, (mt.Tensor(x, requires_grad=True),
                                   torch.tensor(x, requires_grad=True))):
        module.register_full_backward_hook(
            lambda m, gi, go: seen.append([g.detach().numpy() for g in (*gi, *go)]))
        (module(leaf) ** 2).sum().backward()
    for ours, theirs in zip(*seen):
        np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE)


def test_tied_weights_have_pytorchs_names():
    def tie(library):
        model = library.Sequential(library.Embedding(3, 2), library.Linear(2, 3))
        model[1].weight = model[0].weight
        return model

    ours, theirs = tie(nn), tie(torch.nn)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]


@pytest.fixture(autouse=True)
def _quiet():
    """PyTorch warns of its own choices, such as even kernels under padding="same"."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch")
        yield
