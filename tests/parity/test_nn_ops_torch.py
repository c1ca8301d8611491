"""The functions of layers and losses give PyTorch's values and gradients, with all options."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minitorch_gpu as mt
import minitorch_gpu.nn.functional as F

torch = pytest.importorskip("torch", reason="compares with PyTorch")
T = torch.nn.functional

TOLERANCE = {"float64": 1e-10, "float32": 3e-5}


def product(**options):
    """All combinations of options, as dicts."""
    return [dict(zip(options, values)) for values in itertools.product(*options.values())]


def compare(ours, theirs, operands, dtype="float64"):
    """Values and gradients of two functions of the same operands, floats as leaves."""
    tolerance = TOLERANCE[dtype]
    raw = [v.astype(dtype) if v is not None and v.dtype.kind == "f" else v for v in operands]
    a = [None if v is None else mt.Tensor(v.copy(), requires_grad=v.dtype.kind == "f")
         for v in raw]
    b = [None if v is None else torch.tensor(v, requires_grad=v.dtype.kind == "f") for v in raw]
    y, z = ours(*a), theirs(*b)
    assert y.dtype == z.detach().numpy().dtype and y.shape == tuple(z.shape)
    np.testing.assert_allclose(y.array, z.detach().numpy(), rtol=tolerance, atol=tolerance)
    slope = np.random.default_rng(9).normal(size=y.shape).astype(dtype)
    y.backward(mt.Tensor(slope))
    z.backward(torch.tensor(slope))
    for place, (p, q) in enumerate(zip(a, b)):
        if q is not None and q.grad is not None:
            scale = max(1.0, float(q.grad.abs().max())) if q.numel() else 1.0
            np.testing.assert_allclose(p.grad.array, q.grad.numpy(), rtol=tolerance,
                                       atol=tolerance * scale, err_msg=f"operand {place}")


def floats(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


SHAPES = [((5, 4), (5,)), ((3, 4, 5), (3, 5)), ((2, 4, 3, 2), (2, 3, 2)), ((4,), ())]


def compare_class_loss(name, operands, weighted, options, dtype="float64"):
    """A loss over 4 classes of logits, with class weights if asked."""
    weight = np.random.default_rng(2).uniform(0.2, 2, 4).astype(dtype) if weighted else None
    of_logits = name != "nll_loss"

    def loss(functions, tensor):
        def call(x, target):
            x = x if of_logits else functions.log_softmax(x, min(1, x.ndim - 1))
            return getattr(functions, name)(
                x, target, weight=None if weight is None else tensor(weight), **options)

        return call

    compare(loss(F, mt.Tensor), loss(T, torch.tensor), operands, dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("options", product(
    reduction=["mean", "sum", "none"], ignore_index=[-100, 1], label_smoothing=[0.0, 0.3, 1.0]))
def test_cross_entropy(options, dtype):
    for (shape, rows), weighted, far in itertools.product(SHAPES, [False, True], [1.0, 50.0]):
        target = np.asarray(np.random.default_rng(1).integers(0, 4, rows))
        target = target if rows else np.array(2)  # one row that is ignored has no mean
        compare_class_loss("cross_entropy", [floats(*shape) * far, target], weighted, options,
                           dtype)


@pytest.mark.parametrize("options", product(
    reduction=["mean", "sum", "none"], label_smoothing=[0.0, 0.3]))
def test_cross_entropy_of_probabilities(options):
    for (shape, _), weighted in itertools.product(SHAPES, [False, True]):
        target = np.abs(floats(*shape, seed=1))
        compare_class_loss("cross_entropy", [floats(*shape), target], weighted, options)


@pytest.mark.parametrize("options", product(
    reduction=["mean", "sum", "none"], ignore_index=[-100, 2]))
def test_nll_loss(options):
    for (shape, rows), weighted in itertools.product(SHAPES, [False, True]):
        target = np.asarray(np.random.default_rng(4).integers(0, 4, rows))
        target = target if rows else np.array(3)
        compare_class_loss("nll_loss", [floats(*shape), target], weighted, options)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(3, 5), (7,), ()])
def test_losses_of_the_difference(name, reduction, shape):
    compare(lambda x, t: getattr(F, name)(x, t, reduction=reduction),
            lambda x, t: getattr(T, name)(x, t, reduction=reduction),
            [floats(*shape), floats(*shape, seed=1)])


@pytest.mark.filterwarnings("ignore:.*target size", "ignore:.*are broadcast")
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss"])
def test_losses_of_the_difference_broadcast(name):
    compare(getattr(F, name), getattr(T, name), [floats(3, 1), floats(4, seed=1)])


@pytest.mark.parametrize("options", product(
    reduction=["mean", "sum", "none"], weight=[False, True], pos_weight=[False, True]))
def test_binary_cross_entropy_with_logits(options):
    extra = {k: floats(4, seed=3) ** 2 for k in ("weight", "pos_weight") if options[k]}
    for far in (1.0, 200.0):
        compare(lambda x, t: F.binary_cross_entropy_with_logits(
                    x, t, reduction=options["reduction"],
                    **{k: mt.Tensor(v) for k, v in extra.items()}),
                lambda x, t: T.binary_cross_entropy_with_logits(
                    x, t, reduction=options["reduction"],
                    **{k: torch.tensor(v) for k, v in extra.items()}),
                [floats(3, 4) * far, 1 / (1 + np.exp(floats(3, 4, seed=1)))])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("shape", "trailing"), [((3, 5), (5,)), ((2, 3, 4), (3, 4)),
                                                 ((7,), (7,)), ((2, 3, 1), (1,))])
def test_layer_norm_and_rms_norm(shape, trailing, dtype):
    for weighted, biased in itertools.product([True, False], repeat=2):
        operands = [floats(*shape) * 3 + 2, floats(*trailing, seed=1) if weighted else None,
                    floats(*trailing, seed=2) if biased else None]
        compare(lambda x, w, b: F.layer_norm(x, trailing, w, b, 1e-3),
                lambda x, w, b: T.layer_norm(x, trailing, w, b, 1e-3), operands, dtype)
        compare(lambda x, w: F.rms_norm(x, trailing, w),
                lambda x, w: T.rms_norm(x, trailing, w), operands[:2], dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 2), (2, 3, 3, 2), (1, 3, 1, 2),
                                   (2, 3, 1, 2, 2)])
def test_batch_norm_and_its_running_statistics(shape, affine, training, dtype):
    start = [v.astype(dtype) for v in (floats(3, seed=3), floats(3, seed=4) ** 2 + 0.5)]
    running, expected = list(map(mt.Tensor, start)), list(map(torch.tensor, start))
    operands = [floats(*shape) * 3 + 2, *(floats(3, seed=s) if affine else None
                                          for s in (1, 2))]
    compare(lambda x, w, b: F.batch_norm(x, *running, w, b, training, 0.3),
            lambda x, w, b: T.batch_norm(x, *expected, w, b, training, 0.3),
            operands, dtype)
    for a, b in zip(running, expected):
        np.testing.assert_allclose(a.array, b.numpy(), rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, dim, dtype):
    compare(lambda x: getattr(F, name)(x, dim), lambda x: getattr(T, name)(x, dim),
            [floats(3, 4, 5) * 5], dtype)


ATTENTION = [
    dict(shapes=[(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)], options={}),
    dict(shapes=[(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)], options=dict(scale=0.2)),
    dict(shapes=[(2, 1, 6, 4)] * 3, options=dict(is_causal=True)),
    dict(shapes=[(1, 2, 150, 3)] * 3, options=dict(is_causal=True, scale=1.5)),
    dict(shapes=[(1, 1, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4)], options=dict(is_causal=True)),
    dict(shapes=[(1, 1, 5, 4), (1, 1, 3, 4), (1, 1, 3, 4)], options=dict(is_causal=True)),
    dict(shapes=[(3, 4), (5, 4), (5, 2)], options={}),
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", ATTENTION)
def test_attention(case, dtype):
    operands = [floats(*s, seed=i) for i, s in enumerate(case["shapes"])]
    compare(lambda *xs: F.scaled_dot_product_attention(*xs, **case["options"]),
            lambda *xs: T.scaled_dot_product_attention(*xs, **case["options"]), operands, dtype)


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (5, 1), (2, 1, 5, 7), (2, 3, 5, 7)])
def test_attention_masks(shape):
    operands = [floats(2, 3, 5, 4), floats(2, 3, 7, 4, seed=1), floats(2, 3, 7, 6, seed=2)]
    seen = np.random.default_rng(3).random(shape) < 0.6
    seen[..., :1, :] = False  # a query that may see no key
    for mask in (seen, np.where(seen, floats(*shape, seed=4), -np.inf), floats(*shape, seed=5)):
        compare(F.scaled_dot_product_attention, T.scaled_dot_product_attention,
                [*operands, mask])


@pytest.mark.parametrize("options", [{}, dict(p=1.0, dim=-1), dict(p=3.0, dim=0, eps=0.5)])
def test_normalize(options):
    compare(lambda x: F.normalize(x, **options), lambda x: T.normalize(x, **options),
            [floats(3, 4)])


@pytest.mark.parametrize("padding_idx", [None, 1, -1])
def test_embedding(padding_idx):
    ids = np.array([[3, 1], [1, 0]])
    compare(lambda w: F.embedding(mt.tensor(ids), w, padding_idx=padding_idx),
            lambda w: T.embedding(torch.tensor(ids), w, padding_idx=padding_idx),
            [floats(5, 3)])


ACTIVATIONS = [("relu", {}), ("leaky_relu", {}), ("leaky_relu", dict(negative_slope=0.2)),
               ("gelu", {}), ("gelu", dict(approximate="tanh")), ("silu", {}),
               ("softplus", {}), ("softplus", dict(beta=2.0)), ("sigmoid", {}), ("tanh", {})]


@pytest.mark.parametrize(("name", "options"), ACTIVATIONS)
def test_activations(name, options):
    compare(lambda x: getattr(F, name)(x, **options), lambda x: getattr(T, name)(x, **options),
            [floats(3, 5) * 3])
