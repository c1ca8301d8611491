"""Every elementwise op and reduction at inf, nan, -0.0, huge and tiny: values written down."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu.nn import functional as F
from minitorch_gpu.registry import OPS

INF, NAN, HUGE, TINY = math.inf, math.nan, 1e300, 1e-300
SPECIAL = (0.0, -0.0, INF, -INF, NAN)


def call(name, *operands, **params):
    """The value of an op on float64 tensors of one element, as a Python number."""
    tensors = [mt.tensor([v], dtype=mt.float64) for v in operands]
    return OPS[name](*tensors, **params).item()


def same(value, expected):
    """Equal to 3 units in the last place; nan is nan, and zeros have the same sign."""
    if isinstance(expected, bool):
        return value is expected
    if expected != expected:
        return value != value
    if expected == 0:
        return value == 0 and math.copysign(1, value) == math.copysign(1, expected)
    return math.isclose(value, expected, rel_tol=7e-16)


# Values at 0, -0, inf, -inf, nan, in this order.
UNARY = {
    "neg": (-0.0, 0.0, -INF, INF, NAN),
    "abs": (0.0, 0.0, INF, INF, NAN),
    "conj": (0.0, -0.0, INF, -INF, NAN),
    "exp": (1.0, 1.0, INF, 0.0, NAN),
    "expm1": (0.0, -0.0, INF, -1.0, NAN),
    "log": (-INF, -INF, INF, NAN, NAN),
    "log2": (-INF, -INF, INF, NAN, NAN),
    "log1p": (0.0, -0.0, INF, NAN, NAN),
    "sqrt": (0.0, -0.0, INF, NAN, NAN),
    "rsqrt": (INF, -INF, 0.0, NAN, NAN),
    "square": (0.0, 0.0, INF, INF, NAN),
    "reciprocal": (INF, -INF, 0.0, -0.0, NAN),
    "sin": (0.0, -0.0, NAN, NAN, NAN),
    "cos": (1.0, 1.0, NAN, NAN, NAN),
    "tanh": (0.0, -0.0, 1.0, -1.0, NAN),
    "sigmoid": (0.5, 0.5, 1.0, 0.0, NAN),
    "erf": (0.0, -0.0, 1.0, -1.0, NAN),
    "floor": (0.0, -0.0, INF, -INF, NAN),
    "ceil": (0.0, -0.0, INF, -INF, NAN),
    "trunc": (0.0, -0.0, INF, -INF, NAN),
    "round": (0.0, -0.0, INF, -INF, NAN),
    "isnan": (False, False, False, False, True),
    "isinf": (False, False, True, True, False),
    "isfinite": (True, True, False, False, False),
    "logical_not": (True, True, False, False, False),
    "gelu": (0.0, -0.0, INF, NAN, NAN),
    "silu": (0.0, -0.0, INF, NAN, NAN),
    "softplus": (math.log(2), math.log(2), INF, 0.0, NAN),
    "leaky_relu": (0.0, -0.0, INF, -INF, NAN),
}
# Magnitudes, where the sign of a zero or the sign of nan is not a promise.
UNSIGNED = {"sign": (0.0, 0.0, 1.0, -1.0, NAN), "relu": (0.0, 0.0, INF, 0.0, NAN)}


@pytest.mark.parametrize("name", UNARY)
def test_special_values_of_a_unary_op(name):
    for x, expected in zip(SPECIAL, UNARY[name]):
        assert same(call(name, x), expected), f"{name}({x}) is {call(name, x)}, not {expected}"


@pytest.mark.parametrize("name", UNSIGNED)
def test_special_values_up_to_the_sign_of_zero(name):
    for x, expected in zip(SPECIAL, UNSIGNED[name]):
        assert same(abs(call(name, x)), abs(expected)), f"{name}({x}) is {call(name, x)}"


# Far from 1: (op, x, value).
FAR = (
    ("exp", 709.0, math.exp(709.0)), ("exp", 710.0, INF), ("exp", -800.0, 0.0),
    ("expm1", 1e-20, 1e-20), ("log1p", 1e-20, 1e-20), ("log", TINY, math.log(TINY)),
    ("sqrt", HUGE, 1e150), ("sqrt", TINY, 1e-150), ("square", HUGE, INF),
    ("square", TINY, 0.0), ("reciprocal", HUGE, TINY), ("tanh", HUGE, 1.0),
    ("tanh", TINY, TINY), ("erf", HUGE, 1.0), ("erf", TINY, TINY * 2 / math.sqrt(math.pi)),
    ("sigmoid", 800.0, 1.0), ("sigmoid", -40.0, math.exp(-40.0)),
    ("sigmoid", -700.0, math.exp(-700.0)), ("sigmoid", -HUGE, 0.0),
    ("silu", -40.0, -40.0 * math.exp(-40.0)), ("silu", HUGE, HUGE), ("silu", -HUGE, -0.0),
    ("softplus", HUGE, HUGE), ("softplus", -40.0, math.exp(-40.0)), ("softplus", -HUGE, 0.0),
    ("gelu", HUGE, HUGE), ("gelu", -HUGE, -0.0), ("floor", HUGE, HUGE), ("round", 0.5, 0.0),
    ("round", 1.5, 2.0), ("round", -2.5, -2.0), ("round", -0.3, -0.0), ("ceil", -0.5, -0.0),
    ("trunc", -1.7, -1.0), ("floor", -0.5, -1.0), ("abs", -TINY, TINY), ("sign", -TINY, -1.0),
    ("relu", -TINY, 0.0), ("relu", TINY, TINY), ("leaky_relu", -HUGE, -1e298),
)


@pytest.mark.parametrize("name, x, expected", FAR)
def test_huge_and_tiny_values(name, x, expected):
    assert same(call(name, x), expected), f"{name}({x}) is {call(name, x)}, not {expected}"


BINARY = (
    ("add", INF, -INF, NAN), ("add", HUGE, HUGE, 2e300), ("add", 1.7e308, 1.7e308, INF),
    ("add", -0.0, -0.0, -0.0), ("add", -0.0, 0.0, 0.0), ("sub", INF, INF, NAN),
    ("sub", 0.0, 0.0, 0.0), ("mul", INF, 0.0, NAN), ("mul", -0.0, 2.0, -0.0),
    ("mul", HUGE, HUGE, INF), ("mul", TINY, TINY, 0.0), ("div", 1.0, 0.0, INF),
    ("div", 1.0, -0.0, -INF), ("div", 0.0, 0.0, NAN), ("div", INF, INF, NAN),
    ("div", 1.0, -INF, -0.0), ("pow", 0.0, 0.0, 1.0), ("pow", NAN, 0.0, 1.0),
    ("pow", 1.0, NAN, 1.0), ("pow", 0.0, -1.0, INF), ("pow", -0.0, -1.0, -INF),
    ("pow", -8.0, 1 / 3, NAN), ("pow", INF, -1.0, 0.0), ("pow", -INF, 3.0, -INF),
    ("pow", HUGE, 2.0, INF), ("pow", 0.5, INF, 0.0), ("floor_divide", 7.0, -2.0, -4.0),
    ("floor_divide", -7.0, 2.0, -4.0), ("floor_divide", 1.0, INF, 0.0),
    ("remainder", 7.0, -2.0, -1.0), ("remainder", -7.0, 2.0, 1.0),
    ("remainder", 5.0, 0.0, NAN),
    ("remainder", INF, 2.0, NAN), ("remainder", 1.0, INF, 1.0), ("maximum", 1.0, NAN, NAN),
    ("maximum", NAN, 1.0, NAN), ("maximum", INF, HUGE, INF), ("minimum", 1.0, NAN, NAN),
    ("minimum", NAN, 1.0, NAN), ("minimum", -INF, -HUGE, -INF), ("eq", NAN, NAN, False),
    ("ne", NAN, NAN, True), ("eq", 0.0, -0.0, True), ("lt", -0.0, 0.0, False),
    ("lt", NAN, 1.0, False), ("ge", NAN, 1.0, False), ("gt", INF, HUGE, True),
    ("le", -INF, -HUGE, True), ("logical_and", NAN, 1.0, True),
    ("logical_or", 0.0, -0.0, False),
    ("logical_xor", INF, 0.0, True),
)


@pytest.mark.parametrize("name, a, b, expected", BINARY)
def test_special_values_of_a_binary_op(name, a, b, expected):
    assert same(call(name, a, b), expected), f"{name}({a}, {b}) is {call(name, a, b)}"


@pytest.mark.parametrize("x, bounds, expected", [
    (NAN, dict(min=0.0), NAN), (INF, dict(max=1.0), 1.0), (-INF, dict(min=-1.0, max=1.0), -1.0),
    (5.0, dict(min=2.0, max=1.0), 1.0), (-0.0, dict(min=-1.0), -0.0),
])
def test_special_values_of_clamp(x, bounds, expected):
    assert same(call("clamp", x, **bounds), expected)


def test_every_elementwise_op_is_here():
    known = {*UNARY, *UNSIGNED, *(case[0] for case in BINARY), "clamp"}
    integers = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"}
    files = ("loss", "updates", "special", "blend", "activation")
    elsewhere = {name for name, op in OPS.items()
                 if op.op.function.__module__.rpartition(".")[2] in files
                 or not op.op.function.__module__.startswith("minitorch_gpu.ops")}
    declared = {name for name, op in OPS.items() if op.op.kind == "elementwise"}
    assert declared - integers - elsewhere - known == set()


def test_bits_of_integers():
    a, b = mt.tensor([-1, 0, 2**62]), mt.tensor([5, -1, 2**62])
    assert (a & b).tolist() == [5, 0, 2**62] and (a | b).tolist() == [-1, -1, 2**62]
    assert (a ^ b).tolist() == [-6, -1, 0] and (~a).tolist() == [0, -1, -(2**62) - 1]


# ---------------------------------------------------------------- gradients
@pytest.mark.parametrize("function, x, slope", [
    (lambda x: x.abs(), 0.0, 0.0), (lambda x: x.abs(), -INF, -1.0),
    (lambda x: x.sqrt(), 0.0, INF), (lambda x: x ** 0, 0.0, 0.0), (lambda x: x ** 2, 0.0, 0.0),
    (lambda x: x ** 0.5, 0.0, INF), (lambda x: x.relu(), 0.0, 0.0),
    (lambda x: x.log(), 0.0, INF),
    (lambda x: x.tanh(), 1e30, 0.0), (lambda x: x.exp(), -INF, 0.0),
    (lambda x: x.sigmoid(), -40.0, math.exp(-40.0)), (lambda x: x.sigmoid(), -HUGE, 0.0),
    (lambda x: F.softplus(x), -40.0, math.exp(-40.0)), (lambda x: F.softplus(x), HUGE, 1.0),
    (lambda x: F.silu(x), -40.0, -39.0 * math.exp(-40.0)), (lambda x: F.silu(x), -HUGE, 0.0),
    (lambda x: F.gelu(x), HUGE, 1.0), (lambda x: x.clamp(min=0.0), 0.0, 1.0),
    (lambda x: x.reciprocal(), INF, 0.0), (lambda x: x.erf(), INF, 0.0),
    (lambda x: x.floor(), 0.5, 0.0), (lambda x: x.square(), TINY, 2 * TINY),
    (lambda x: 2 ** x, -INF, 0.0), (lambda x: x % 3, 7.0, 1.0),
])
def test_slopes_at_the_edges(function, x, slope):
    leaf = mt.tensor(x, dtype=mt.float64, requires_grad=True)
    function(leaf).backward()
    assert math.isclose(leaf.grad.item(), slope, rel_tol=1e-14), leaf.grad


# ---------------------------------------------------------------- reductions
REDUCTIONS = {
    #        [inf, -inf]  [nan, 1]  [-inf, -inf]  [1e308, 1e308]  [1000, 1000]
    "sum": (NAN, NAN, -INF, INF, 2000.0),
    "mean": (NAN, NAN, -INF, INF, 1000.0),
    "prod": (-INF, NAN, INF, INF, 1e6),
    "amax": (INF, NAN, -INF, 1e308, 1000.0),
    "amin": (-INF, NAN, -INF, 1e308, 1000.0),
    "var": (NAN, NAN, NAN, INF, 0.0),
    "std": (NAN, NAN, NAN, INF, 0.0),
    "logsumexp": (INF, NAN, -INF, 1e308, 1000.0 + math.log(2)),
    "vector_norm": (INF, NAN, INF, INF, 1000.0 * math.sqrt(2)),
    "argmax": (0, 0, 0, 0, 0),
    "argmin": (1, 0, 0, 0, 0),
    "any": (True, True, True, True, True),
    "all": (True, True, True, True, True),
}
ROWS = ([INF, -INF], [NAN, 1.0], [-INF, -INF], [1e308, 1e308], [1000.0, 1000.0])


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_special_values(name):
    for row, expected in zip(ROWS, REDUCTIONS[name]):
        value = OPS[name](mt.tensor(row, dtype=mt.float64)).item()
        assert same(value, expected), f"{name}({row}) is {value}, not {expected}"


@pytest.mark.parametrize("name, expected", [
    ("sum", 0.0), ("prod", 1.0), ("mean", NAN), ("var", NAN), ("std", NAN), ("any", False),
    ("all", True), ("vector_norm", 0.0),
])
def test_reductions_of_nothing(name, expected):
    assert same(OPS[name](mt.zeros(0)).item(), expected)


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin"])
def test_nothing_has_no_largest_element(name):
    with pytest.raises(ValueError, match=name):
        OPS[name](mt.zeros(0))


def test_softmax_of_special_rows():
    rows = mt.tensor([[1000.0, 0.0], [-INF, 0.0], [-INF, -INF], [INF, 0.0]])
    assert np.array_equal(rows.softmax(1).numpy(), [[1, 0], [0, 1], [NAN] * 2, [NAN] * 2],
                          equal_nan=True)
    assert rows[:2].log_softmax(1).tolist() == [[0.0, -1000.0], [-INF, 0.0]]


def test_the_deviation_of_equal_values_has_gradient_zero():
    x = mt.tensor([[2.0, 2.0, 2.0], [1.0, 2.0, 3.0]], requires_grad=True)
    x.std(1).sum().backward()
    assert np.allclose(x.grad.numpy(), [[0, 0, 0], [-0.5, 0, 0.5]])


def test_running_sums_keep_what_came_before():
    x = mt.tensor([1.0, INF, 1.0, -INF, 1.0]).cumsum(0).tolist()
    assert x[:3] == [1.0, INF, INF] and x[3] != x[3] and x[4] != x[4]
