"""Elementwise functions and activations, here and in PyTorch: values, gradients, dtypes."""

from __future__ import annotations

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn
from tests.parity.test_core_torch import raw

torch = pytest.importorskip("torch")
INF, NAN = float("inf"), float("nan")

# Expressions in L (either library), F (L.nn.functional) and the operands a, b, c.
FUNCTIONS = """
L.exp2(a) | L.log10(a) | L.tan(a) | L.asin(a) | L.acos(a) | L.atan(a) | L.atan2(a, b)
L.sinh(a) | L.cosh(a) | L.asinh(a) | L.acosh(a) | L.atanh(a) | L.erfc(a) | L.erfinv(a)
L.lgamma(a) | L.digamma(a) | L.polygamma(1, a) | L.polygamma(2, a) | L.logit(a)
L.logit(a, eps=0.1) | L.fmod(a, b) | L.frac(a) | L.copysign(a, b) | L.fmax(a, b)
L.fmin(a, b) | L.hypot(a, b) | L.lerp(a, b, c) | L.lerp(a, b, 0.3) | L.lerp(a, b, 0.8)
L.nan_to_num(a) | L.nan_to_num(a, nan=1.0, posinf=2.0, neginf=3.0) | L.logaddexp(a, b)
L.xlogy(a, b) | L.sinc(a) | L.addcmul(a, b, c) | L.addcmul(a, b, c, value=-0.5)
L.addcdiv(a, b, c) | L.addcdiv(a, b, c, value=2) | a.add(b, alpha=2)
L.add(a, b, alpha=-0.25) | L.add(a, 2, alpha=3) | a.sub(b, alpha=2) | L.sub(a, b, alpha=0.5)
a.subtract(b, alpha=0.5) | L.div(a, b, rounding_mode="floor")
a.div(b, rounding_mode="trunc") | a.div(b) | a.div(0.7, rounding_mode="trunc") | a.arctan()
a.arcsinh() | a.arctan2(b) | a.polygamma(1)
"""
ACTIVATIONS = """
F.elu(a) | F.elu(a, 0.5) | F.elu(a, alpha=2.0) | F.selu(a) | F.celu(a) | F.celu(a, 0.7)
F.mish(a) | F.hardtanh(a) | F.hardtanh(a, -0.5, 0.7) | F.hardsigmoid(a) | F.hardswish(a)
F.relu6(a) | F.softsign(a) | F.tanhshrink(a) | F.hardshrink(a) | F.hardshrink(a, 1.0)
F.softshrink(a) | F.softshrink(a, lambd=0.1) | F.logsigmoid(a) | F.threshold(a, 0.1, 20.0)
F.glu(a) | F.glu(a, 0) | F.threshold(a, threshold=0.3, value=-1) | F.prelu(a, b[:1, 0])
F.prelu(a, b[0]) | a.hardshrink() | a.prelu(b[0]) | F.leaky_relu(a, 0.2) | F.silu(a)
F.relu6(input=a) | F.elu(a * 1, 0.5, True) | F.leaky_relu(a * 1, 0.2, inplace=True)
F.hardswish(a * 1, True)
"""


# PyTorch has a series of few terms here, or rounds a constant to float32.
COARSE = ("L.polygamma(1, a)", "a.polygamma(1)", "F.celu(a, 0.7)", "F.hardsigmoid(a)")


def listed(text):
    return [e.strip() for line in text.strip().splitlines() for e in line.split("|") if e]


def arrays():
    """Uneven values on both sides of 0 and of the pieces' ends, none where slopes are wild."""
    generator = np.random.default_rng(3)
    return [generator.uniform(low, high, (6, 4)) for low, high in
            ((-0.9, 0.9), (0.3, 2.0), (0.5, 1.5))]


def operands(L, values, dtype, grad):
    made = [L.tensor(v.tolist(), dtype=getattr(L, dtype)) for v in values]
    return [t.requires_grad_(grad) for t in made]


def both(text, values, dtype="float64", grad=False):
    """((result, operands) here, the same in PyTorch)."""
    results = []
    for L in (mt, torch):
        a, b, c = operands(L, values, dtype, grad)
        scope = dict(L=L, F=nn.functional if L is mt else torch.nn.functional, a=a, b=b, c=c)
        results.append((eval(text, scope), (a, b, c)))
    return results


@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("text", listed(FUNCTIONS) + listed(ACTIVATIONS))
def test_values_and_gradients_are_pytorchs(text, scale):
    (y, ours), (z, theirs) = both(text, [v * scale for v in arrays()], grad=True)
    coarse = 1e-7 if text in COARSE else 1e-10
    np.testing.assert_allclose(raw(y)[1], raw(z)[1], rtol=coarse, atol=1e-12)
    weight = np.random.default_rng(1).uniform(0.5, 1.5, y.shape)
    y.backward(mt.tensor(weight))
    z.backward(torch.tensor(weight))
    for one, other in zip(ours, theirs):
        assert (one.grad is None) == (other.grad is None), text
        if one.grad is not None:
            np.testing.assert_allclose(raw(one.grad)[1], raw(other.grad)[1],
                                       rtol=10 * coarse, atol=1e-11)


TOLERANCE = {"float32": (2e-5, 1e-6), "float16": (2e-3, 1e-3), "bfloat16": (1.6e-2, 8e-3),
             "int64": (1e-5, 1e-6), "int32": (1e-5, 1e-6), "uint8": (1e-5, 1e-6),
             "bool": (1e-5, 1e-6)}


# PyTorch cuts a float parameter to an integer for integer tensors, and 2 to True for booleans;
# here the result is one in which the parameter keeps its value.
CUTTING = {("L.addcmul(a, b, c, value=-0.5)", "int"), ("F.hardtanh(a, -0.5, 0.7)", "int"),
           ("F.threshold(a, 0.1, 20.0)", "int"), ("a.add(b, alpha=2)", "bool"),
           ("F.threshold(a, threshold=0.3, value=-1)", "int")}


@pytest.mark.parametrize("text, dtype", [
    (text, dtype) for text in listed(FUNCTIONS) + listed(ACTIVATIONS) for dtype in TOLERANCE
    if (text, dtype.rstrip("0123456789").lstrip("u")) not in CUTTING])
def test_dtypes_are_pytorchs_wherever_it_takes_them(text, dtype):
    values = arrays()
    if dtype not in ("float32", "float16", "bfloat16"):
        values = [np.ceil(np.abs(v) * 2) for v in values]
    try:
        (_, (a, b, c)) = (None, operands(torch, values, dtype, False))
        z = eval(text, dict(L=torch, F=torch.nn.functional, a=a, b=b, c=c))
    except RuntimeError:
        return  # here the domain is larger: integers become floats
    a, b, c = operands(mt, values, dtype, False)
    y = eval(text, dict(L=mt, F=nn.functional, a=a, b=b, c=c))
    (name, value), (expected, other) = raw(y), raw(z)
    assert name == expected
    rtol, atol = TOLERANCE[dtype]
    np.testing.assert_allclose(value.astype("d"), other.astype("d"), rtol=rtol, atol=atol)


EDGES = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.5, -0.5, 3.0, -3.0, 6.0, 20.0, -20.0, 100.0,
         -100.0, 1e30, -1e30, 1e-30]
# What differs on purpose: SciPy's values are kept where PyTorch's follow another convention.
OTHER = {"L.lgamma(a)": [-INF], "L.polygamma(1, a)": [-INF, -1.0, -3.0, -20.0, -100.0, -1e30],
         "a.polygamma(1)": [-INF, -1.0, -3.0, -20.0, -100.0, -1e30],
         "L.polygamma(2, a)": [INF, -INF, -1e30], "L.digamma(a)": [INF]}


@pytest.mark.parametrize("text", [t for t in listed(FUNCTIONS) + listed(ACTIVATIONS)
                                  if "glu" not in t and "prelu" not in t])
def test_edges_are_pytorchs(text):
    pairs = np.array([(x, y) for x in EDGES for y in (EDGES if "b" in text else [1.0])
                      if x not in OTHER.get(text, [])])
    values = [pairs[:, 0], pairs[:, 1], np.full(len(pairs), 0.25)]
    (y, _), (z, _) = both(text, values)
    np.testing.assert_allclose(raw(y)[1], raw(z)[1], atol=0, err_msg=text,
                               rtol=1e-7 if text in COARSE else 1e-10)


def test_closeness_is_pytorchs():
    values = [1.0, 1.0 + 1e-6, 1.0 + 1e-4, INF, -INF, NAN, 0.0, 1e-9]
    pairs = [(x, y) for x in values for y in values]
    for options in ({}, dict(equal_nan=True), dict(rtol=0.0, atol=0.0), dict(atol=1e-3)):
        ours, theirs = (L.isclose(*(L.tensor(v, dtype=L.float64) for v in zip(*pairs)),
                                  **options).tolist() for L in (mt, torch))
        assert ours == theirs, options
    for L in (mt, torch):
        x = L.tensor([1, 2, 2**60])
        assert L.isclose(x, x + 1).tolist() == [False, False, True]
        assert L.allclose(x, x) is True and x.allclose(x + 1) is False
        assert L.equal(x, x + 0) is True and x.equal(x[:2]) is False
        nan = L.tensor([NAN])
        assert not L.equal(nan, nan) and L.allclose(nan, nan, equal_nan=True)


def test_shifts_are_pytorchs():
    for L in (mt, torch):
        x = L.tensor([5, -9, 1 << 40])
        assert (x << 2).tolist() == [20, -36, 1 << 42] and (x >> 1).tolist() == [2, -5, 1 << 39]
        assert L.bitwise_left_shift(x, x * 0 + 1).tolist() == [10, -18, 1 << 41]


def test_in_place_forms_take_the_factor_and_the_rounding():
    for L in (mt, torch):
        p = L.tensor([1.0, -7.0, 3.0], requires_grad=True)
        with L.no_grad():
            assert p.add_(L.tensor([1.0, 2.0, 4.0]), alpha=-0.5) is p
            p.sub_(1.0, alpha=2).div_(2.0, rounding_mode="trunc")
            p.addcmul_(p, p, value=0.5).addcdiv_(p, L.tensor(2.0), value=2).lerp_(p * 0, 0.5)
        assert p.tolist() == [0.0, 7.5, 0.0] and p.requires_grad
        n = L.tensor([7, -7])
        assert n.div(2, rounding_mode="floor").tolist() == [3, -4]
        assert n.div_(2, rounding_mode="trunc").tolist() == [3, -3]
        assert L.tensor([INF, 1.0]).nan_to_num_(posinf=5.0).tolist() == [5.0, 1.0]


LAYERS = """
ReLU6() | ELU() | ELU(0.5) | SELU() | CELU(alpha=0.7) | Mish() | Hardtanh(-0.5, 0.7)
Hardtanh() | Hardsigmoid() | Hardswish() | Softsign() | Tanhshrink() | Hardshrink()
Hardshrink(0.1) | Softshrink(0.2) | LogSigmoid() | Threshold(0.1, 20) | GLU() | GLU(0)
PReLU() | PReLU(4, 0.1) | ELU(inplace=True) | LeakyReLU(0.2, inplace=True)
SiLU(inplace=True) | Hardswish(True)
"""


@pytest.mark.parametrize("text", listed(LAYERS))
def test_layers_are_pytorchs(text):
    results = []
    for L, package in ((mt, nn), (torch, torch.nn)):
        layer = eval(text, vars(package))
        x = L.tensor(arrays()[0].tolist(), requires_grad=True)
        y = layer(x * 2)
        y.sum().backward()
        results.append((raw(y)[1], raw(x.grad)[1], list(layer.state_dict()),
                        [raw(p.grad)[1] for p in layer.parameters()], repr(layer)))
    ours, theirs = results
    for one, other in zip((ours[0], ours[1], *ours[3]), (theirs[0], theirs[1], *theirs[3])):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)
    assert ours[2] == theirs[2]


@pytest.mark.parametrize("call", [
    lambda L, F, x: F.prelu(x, L.ones(3)), lambda L, F, x: F.glu(x[:, :3]),
    lambda L, F, x: L.div(x, x, rounding_mode="up"), lambda L, F, x: F.softshrink(x, -1.0),
    lambda L, F, x: L.isclose(x, x, rtol=-1.0), lambda L, F, x: F.hardtanh(x, 2.0, 1.0),
    lambda L, F, x: F.celu(x, 0.0), lambda L, F, x: L.polygamma(-1, x),
])
def test_what_pytorch_refuses_is_refused(call):
    with pytest.raises((ValueError, ZeroDivisionError)):
        call(mt, nn.functional, mt.ones(2, 4))
    with pytest.raises((ValueError, RuntimeError)):
        call(torch, torch.nn.functional, torch.ones(2, 4))
