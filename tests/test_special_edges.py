"""Special functions and activations at 0, inf, nan and far away: values written down."""

from __future__ import annotations

import math

import pytest

import minitorch_gpu as mt
from minitorch_gpu.nn import functional as F
from minitorch_gpu.registry import OPS
from tests.test_op_edges import HUGE, INF, NAN, SPECIAL, TINY, call, same

HALF_PI = math.pi / 2
# Values at 0, -0, inf, -inf, nan, in this order.
UNARY = {
    "exp2": (1.0, 1.0, INF, 0.0, NAN),
    "log10": (-INF, -INF, INF, NAN, NAN),
    "tan": (0.0, -0.0, NAN, NAN, NAN),
    "asin": (0.0, -0.0, NAN, NAN, NAN),
    "acos": (HALF_PI, HALF_PI, NAN, NAN, NAN),
    "atan": (0.0, -0.0, HALF_PI, -HALF_PI, NAN),
    "sinc": (1.0, 1.0, NAN, NAN, NAN),
    "sinh": (0.0, -0.0, INF, -INF, NAN),
    "cosh": (1.0, 1.0, INF, INF, NAN),
    "asinh": (0.0, -0.0, INF, -INF, NAN),
    "acosh": (NAN, NAN, INF, NAN, NAN),
    "atanh": (0.0, -0.0, NAN, NAN, NAN),
    "erfc": (1.0, 1.0, 0.0, 2.0, NAN),
    "erfinv": (0.0, 0.0, NAN, NAN, NAN),
    "lgamma": (INF, INF, INF, -INF, NAN),
    "digamma": (-INF, INF, INF, NAN, NAN),
    "logit": (-INF, -INF, NAN, NAN, NAN),
    "frac": (0.0, 0.0, NAN, NAN, NAN),
    "elu": (0.0, -0.0, INF, -1.0, NAN),
    "selu": (0.0, -0.0, INF, -1.0507009873554805 * 1.6732632423543772, NAN),
    "celu": (0.0, -0.0, INF, -1.0, NAN),
    "mish": (0.0, -0.0, INF, NAN, NAN),
    "logsigmoid": (-math.log(2), -math.log(2), 0.0, -INF, NAN),
    "softsign": (0.0, -0.0, NAN, NAN, NAN),
    "tanhshrink": (0.0, 0.0, INF, -INF, NAN),
    "hardtanh": (0.0, -0.0, 1.0, -1.0, NAN),
    "relu6": (0.0, 0.0, 6.0, 0.0, NAN),
    "hardsigmoid": (0.5, 0.5, 1.0, 0.0, NAN),
    "hardswish": (0.0, -0.0, INF, NAN, NAN),
    "hardshrink": (0.0, 0.0, INF, -INF, NAN),
    "softshrink": (0.0, -0.0, INF, -INF, NAN),
}
BINARY = (
    ("atan2", 0.0, -1.0, math.pi), ("atan2", -0.0, -1.0, -math.pi),
    ("atan2", 1.0, 0.0, HALF_PI), ("atan2", INF, INF, math.pi / 4),
    ("logaddexp", HUGE, HUGE, HUGE), ("logaddexp", -INF, -INF, -INF),
    ("logaddexp", INF, INF, INF), ("logaddexp", 1000.0, 1000.0, 1000.0 + math.log(2)),
    ("xlogy", 0.0, 0.0, 0.0), ("xlogy", 0.0, INF, 0.0), ("xlogy", 0.0, NAN, NAN),
    ("xlogy", 2.0, 0.0, -INF), ("xlogy", 1.0, -1.0, NAN), ("fmod", 7.0, -2.0, 1.0),
    ("fmod", -7.0, 2.0, -1.0), ("fmod", 5.0, 0.0, NAN), ("fmod", INF, 2.0, NAN),
    ("fmod", -1.0, INF, -1.0), ("copysign", 3.0, -0.0, -3.0), ("copysign", -INF, 1.0, INF),
    ("hypot", HUGE, HUGE, HUGE * math.sqrt(2)), ("hypot", INF, NAN, INF),
    ("hypot", 3.0, -4.0, 5.0), ("fmax", NAN, 1.0, 1.0), ("fmax", 1.0, NAN, 1.0),
    ("fmax", NAN, NAN, NAN), ("fmin", NAN, 1.0, 1.0), ("fmin", INF, NAN, INF),
    ("fmin", -INF, 1.0, -INF), ("sloped", -2.0, 0.25, -0.5), ("sloped", INF, 0.0, INF),
    ("sloped", NAN, 1.0, NAN),
)
OTHERS = {"lerp", "addcmul", "addcdiv", "add_scaled", "sub_scaled", "threshold", "polygamma",
          "bitwise_left_shift", "bitwise_right_shift"}


@pytest.mark.parametrize("name", UNARY)
def test_special_values_of_a_unary_op(name):
    for x, expected in zip(SPECIAL, UNARY[name]):
        assert same(call(name, x), expected), f"{name}({x}) is {call(name, x)}, not {expected}"


@pytest.mark.parametrize("name, a, b, expected", BINARY)
def test_special_values_of_a_binary_op(name, a, b, expected):
    assert same(call(name, a, b), expected), f"{name}({a}, {b}) is {call(name, a, b)}"


# Far from 1, and at the ends of domains: (op, x, value).
FAR = (
    ("exp2", 1024.0, INF), ("exp2", -1074.0, 5e-324), ("log10", 1e300, 300.0),
    ("asin", 1.0, HALF_PI), ("acos", -1.0, math.pi), ("atan", -HUGE, -HALF_PI),
    ("asinh", HUGE, math.asinh(HUGE)), ("asinh", TINY, TINY), ("acosh", 1.0, 0.0),
    ("acosh", 0.5, NAN), ("atanh", 1.0, INF), ("atanh", -1.0, -INF), ("sinh", -711.0, -INF),
    ("erfc", 25.0, math.erfc(25.0)), ("erfc", 30.0, 0.0), ("erfinv", 1.0, INF),
    ("erfinv", -1.0, -INF), ("erfinv", 1.1, NAN), ("lgamma", -1.0, INF), ("lgamma", 1.0, 0.0),
    ("lgamma", 1e10, math.lgamma(1e10)), ("digamma", -1.0, NAN),
    ("digamma", 1.0, -0.5772156649015329), ("logit", 1.0, INF), ("logit", -0.5, NAN),
    ("frac", -1.75, -0.75), ("frac", HUGE, 0.0), ("sinc", 0.5, 2 / math.pi),
    ("elu", -1e-20, -1e-20), ("elu", 1000.0, 1000.0), ("celu", -HUGE, -1.0),
    ("mish", HUGE, HUGE), ("mish", -40.0, -40.0 * math.exp(-40.0)),
    ("logsigmoid", -1000.0, -1000.0), ("logsigmoid", 40.0, -math.exp(-40.0)),
    ("softsign", HUGE, 1.0), ("tanhshrink", HUGE, HUGE), ("hardsigmoid", -3.0, 0.0),
    ("hardswish", 3.0, 3.0), ("hardswish", -3.0, -0.0), ("hardshrink", 0.5, 0.0),
    ("softshrink", -0.5, -0.0), ("softshrink", 1.5, 1.0),
)


@pytest.mark.parametrize("name, x, expected", FAR)
def test_far_values_and_ends_of_domains(name, x, expected):
    assert same(call(name, x), expected), f"{name}({x}) is {call(name, x)}, not {expected}"


def test_every_op_of_these_files_is_here():
    declared = {name for name, op in OPS.items() if op.op.kind == "elementwise"
                and op.op.function.__module__.rpartition(".")[2] in
                ("special", "blend", "activation")}
    assert declared == {*UNARY, *(case[0] for case in BINARY)} | OTHERS


def test_polygamma_is_a_zeta_function():
    one = mt.tensor(1.0, dtype=mt.float64)
    assert math.isclose(one.polygamma(1).item(), math.pi ** 2 / 6, rel_tol=1e-14)
    assert math.isclose(mt.polygamma(3, one).item(), math.pi ** 4 / 15, rel_tol=1e-14)
    assert one.polygamma(0).item() == one.digamma().item()
    with pytest.raises(ValueError, match="-1"):
        one.polygamma(-1)


def test_lerp_meets_both_ends():
    a, b = mt.tensor([0.1, 1e8, -3.0]), mt.tensor([1e8, 0.1, 7.0])
    assert a.lerp(b, 0.0).tolist() == a.tolist() and a.lerp(b, 1.0).tolist() == b.tolist()


@pytest.mark.parametrize("function, x, slope", [
    (lambda x: F.elu(x), 0.0, 1.0), (lambda x: F.elu(x), 1e5, 1.0),
    (lambda x: F.elu(x), -INF, 0.0), (lambda x: F.mish(x), 0.0, 0.6),
    (lambda x: F.hardtanh(x), 1.0, 0.0), (lambda x: F.relu6(x), 0.0, 0.0),
    (lambda x: F.hardsigmoid(x), -3.0, 0.0), (lambda x: F.hardswish(x), 4.0, 1.0),
    (lambda x: F.hardshrink(x), 0.5, 0.0), (lambda x: F.logsigmoid(x), -HUGE, 1.0),
    (lambda x: F.threshold(x, 1.0, 5.0), 1.0, 0.0), (lambda x: x.sinc(), 0.0, 0.0),
    (lambda x: x.copysign(mt.tensor(-1.0, dtype=mt.float64)), 3.0, -1.0),
    (lambda x: x.nan_to_num(), NAN, 0.0), (lambda x: x.xlogy(0.0), 0.0, 0.0),
    (lambda x: x.logaddexp(mt.tensor(-INF, dtype=mt.float64)), 2.0, 1.0),
    (lambda x: x.fmax(NAN), 2.0, 1.0), (lambda x: x.fmax(2.0), 2.0, 1.0),
    (lambda x: x.div(2.0, rounding_mode="floor"), 7.0, 0.0),
    (lambda x: x.add(1.0, alpha=3), 2.0, 1.0), (lambda x: mt.sub(1.0, x, alpha=3), 2.0, -3.0),
    (lambda x: x.logit(eps=0.25), 0.1, 0.0),
])
def test_slopes_at_the_edges(function, x, slope):
    leaf = mt.tensor(x, dtype=mt.float64, requires_grad=True)
    function(leaf).backward()
    assert math.isclose(leaf.grad.item(), slope, rel_tol=1e-14), leaf.grad


def test_numbers_replace_nan_and_infinities_within_the_dtype():
    for dtype, largest in ((mt.float16, 65504.0), (mt.float32, 3.4028234663852886e38),
                           (mt.bfloat16, 3.3895313892515355e38)):
        x = mt.tensor([INF, -INF, NAN, 2.0]).to(dtype).nan_to_num()
        assert x.dtype == dtype and x.float().tolist() == [largest, -largest, 0.0, 2.0]
    assert mt.tensor([1, 2]).nan_to_num().tolist() == [1, 2]


def test_large_integers_divide_exactly():
    x = mt.tensor([2**62 + 1, -(2**62) - 1, -7, 7])
    assert x.div(2, rounding_mode="trunc").tolist() == [2**61, -(2**61), -3, 3]
    assert x.div(2, rounding_mode="floor").tolist() == [2**61, -(2**61) - 1, -4, 3]
    with pytest.raises(ValueError, match="'up'"):
        x.div(2, rounding_mode="up")


def test_weights_that_fit_no_channel_are_refused():
    with pytest.raises(ValueError, match=r"\(3,\).*\(2, 4\)"):
        F.prelu(mt.ones(2, 4), mt.ones(3))
    with pytest.raises(ValueError, match="halves"):
        F.glu(mt.ones(2, 3))
    assert F.prelu(-mt.ones(()), mt.tensor([0.5])).item() == -0.5
    assert F.glu(mt.ones(2, 0)).shape == (2, 0)
