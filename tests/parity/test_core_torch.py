"""The same expressions, run with PyTorch and here: value, dtype, shape and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu.nn import functional  # L.nn.functional on both sides

torch = pytest.importorskip("torch")
assert functional

EDGES = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-40, 1e30, -1e30,
         100.0, -100.0, 20.0, -20.0]


def raw(value):
    """(dtype name, array) of a result of either library, lists of them; numbers stay."""
    if isinstance(value, (tuple, list)):
        return [raw(v) for v in value]
    if isinstance(value, mt.Tensor):
        name, value = value.dtype.name, value.detach()
        return name, (value.float() if name == "bfloat16" else value).numpy()
    if isinstance(value, torch.Tensor):
        name, value = str(value.dtype).removeprefix("torch."), value.detach()
        return name, (value.float() if name == "bfloat16" else value).numpy()
    return value


def agree(ours, theirs, rtol):
    if isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            agree(one, other, rtol)
    elif isinstance(ours, tuple):
        assert ours[0] == theirs[0], f"{ours[0]} instead of {theirs[0]}"
        assert ours[1].shape == theirs[1].shape
        np.testing.assert_allclose(ours[1], theirs[1], rtol=rtol, atol=1e-38)
    else:
        assert ours == theirs


def inputs(L, grad):
    """Operands by the names that the expressions use."""
    x = L.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], requires_grad=grad)
    return dict(
        L=L, x=x, m=x.detach() > 0, b=L.tensor([True, False, True]), i=L.tensor([2, 0, 1]),
        j=L.tensor([[3, -1, 2], [5, -7, 4]]), z=L.tensor(2.5),
        y=L.arange(24.0).reshape(2, 3, 4), F=L.nn.functional,
    )


VALUES = """
x.sum(1) | x.sum(dim=(0, 1)) | y.sum((0, -1)) | x.sum(1, True) | x.sum([]) | j.sum(0)
b.sum() | j.sum(dtype=L.float32) | j.int().sum() | j.int().prod() | x.mean((0, 1)) | x.prod(1)
j.prod(1) | x.var() | x.var(0) | x.var(0, False) | x.var(unbiased=False)
x.std(1, unbiased=False, keepdim=True) | x.amax((0, 1)) | x.max() | x.max(1)
x.max(dim=1, keepdim=True).values | x.min(1).indices | z.max(0) | L.max(x, x * 2)
L.maximum(x, z) | x.argmax() | x.argmax(-1) | x.argmin(0) | j.argmax(1) | x.any(1)
m.all(dim=0, keepdim=True) | x.cumsum(1) | m.cumsum(1) | x.norm(1) | x.norm(2, 1)
x.norm(p="fro", dim=(0, 1)) | x.logsumexp((0, 1)) | x.softmax(-1) | L.log_softmax(x, 0)
x.view(-1) | x.view(3, 2) | x.view((3, -1)) | x.reshape(3, -1) | y.permute(0, 2, 1)
y.permute((0, 2, 1)) | y.transpose(-1, 0) | x[:1].expand(2, -1) | z.expand(3) | y.flatten(1)
z.flatten() | y.movedim((0, 1), (2, 0)) | L.zeros(0, 3).flatten(1) | L.zeros(0, 3).chunk(2)
x[None].squeeze(0) | x.unsqueeze(-1) | x.T | y.mT | L.cat([x, x], 1) | L.cat([x, j], 0)
L.stack([x, x], 1) | x.split([1, 2], dim=1) | x.split(2, 1) | x.chunk(2, dim=-1) | x.unbind()
x.unbind(1) | x.flip((0, 1)) | x.tril() | x.triu(1) | x[None] | x[..., 0] | x[:, None, 1]
x[-1, -1] | x[:, ::2] | x[i[1]] | x[[1, 0]] | x[[0, 1], [2, 0]] | x[m] | x[:, b] | x[1, b]
y[:, i, 0] | y[0, i, :2] | y[0, :, [1, 2]] | y[0, None, [1, 2]] | y[i[1], :, L.tensor([1, 2])]
y[[0, 1], :, [1, 2]] | y[[0, 1], :, 1] | y[..., 1, [1, 2]] | x[()] | x[0:0]
y[L.tensor([[True, False, True], [False, True, False]])]
y[L.tensor([[0], [1]]), L.tensor([2, 1])] | x.gather(1, L.tensor([[0], [2]])) | m.nonzero()
m.nonzero(as_tuple=True) | x.argsort(dim=1, descending=True) | 2**x | j**2 | x**-1 | x // 2
j // 2 | x // -2 | j % 3 | j % -3 | 7 % j | -7 // j | ~m | m & b | m ^ b | j & 3 | j / 2
j + 1.5 | j * True | b + b | b + 1 | b * 2.5 | b / 2 | x + j | x - 1 | 1 / x | x == 1 | x > j
x * b | j.exp() | b.exp() | j.sigmoid() | j.round() | j.floor() | j.clamp(min=0)
j.clamp(min=0.5) | x.clamp(2, 1) | x.clamp(min=L.tensor(0.0)) | L.where(m, 1.0, 0.0)
L.where(m, 1, 0) | L.where(m, x, 0) | L.where(m, j, 0.5) | x.masked_fill(m, 0)
x.masked_fill(b, z) | j.masked_fill(m, -1) | x.masked_select(m) | L.outer(x[0], x[1])
x.half() + 1.5 | x.half() + z | x.half() + x | x.half() + x.bfloat16() | x.half() * j
x.bfloat16() * 2 | x.double() + x | x + z.double() | z + z.double() | z.double() * j | j + z
j.int() + j | j.int() + L.tensor(1) | x.bfloat16().max(1) | x.bfloat16().cumsum(1)
x.bfloat16().softmax(1) | x.half().logsumexp(1) | x.half().norm() | x @ x.T | x @ x[0]
x[0] @ x[0] | y @ y.mT | x.half() @ x.half().T | L.zeros(0, 3) @ L.zeros(3, 2)
L.tensor([1, 2.5]) | L.tensor([z, z]) | L.tensor([z.double(), z]) | L.tensor([])
L.tensor([True, 2]) | L.tensor([1.7, 2.2], dtype=L.int64) | L.arange(1, 5, 2)
L.arange(0, 1, 0.25) | L.arange(5, 0, -1) | L.full((2,), 1) | L.full((2,), True)
L.full_like(x, fill_value=2) | L.linspace(0, 1, steps=3) | L.eye(2, 3) | L.zeros(x.shape)
x.tolist() | z.item() | x.size(-1) | x.stride() | x.T.is_contiguous() | len(x) | float(z)
bool(z) | 5.0 in x
"""


def split(table):
    """The expressions of a table, which stand between bars."""
    return [e for line in table.strip().splitlines() for e in line.split(" | ")]


@pytest.mark.parametrize("expression", split(VALUES))
def test_values_dtypes_and_shapes(expression):
    ours, theirs = (raw(eval(expression, inputs(L, False))) for L in (mt, torch))
    agree(ours, theirs, 1e-6 if "half" not in expression and "bf" not in expression else 8e-3)


GRADIENTS = """
x.sum(1) | x.mean(0) | x.var(1) | x.std(1, correction=0) | x.amax(1) | x.max() | x.max(1)[0]
x.prod(1) | x.norm() | x.norm(1) | x.norm(3) | x.norm(2, 1) | x.logsumexp(1) | x.softmax(1)
x.log_softmax(0) | x.cumsum(1) | L.maximum(x, L.zeros(3)) | x.clamp(-1, 3)
x.clamp(min=L.tensor(0.0)) | x.abs() | x**3 | x**0 | 2**x | x % 2 | x.abs() ** x | x / 3
3 / x | x.exp() | x.tanh() | x.sigmoid() | (20 * x).sigmoid() | x.relu() | x.abs().sqrt()
x.abs().rsqrt() | x.square() | x.reciprocal() | x.erf() | x.sin() * x.cos() | x.abs().log1p()
x.floor() | x.gather(1, L.tensor([[0, 0], [2, 1]])) | x[:, i] | x[[0, 0, 1]] | x[x > 0]
x[1, [0, 2]] | x[..., None] | x[:, ::2] | x.T @ x | x @ x[0] | x.T.reshape(-1)
x[:1].expand(4, 3) | x.flip(1) | x.tril() | L.cat([x, x * 2], 1) | x.split(2, 1)[0]
x.unbind(1)[0] * x.unbind(1)[2] | x.masked_fill(x > 0, 2.0) | L.where(x > 0, x, x * x)
x.double() * 2 | x.half().float() | x.bfloat16().float() | F.gelu(x)
F.gelu(x, approximate="tanh") | F.silu(x) | F.silu(20 * x) | F.softplus(20 * x)
F.leaky_relu(x, 0.2) | x * x.sum() | L.outer(x[0], x[1])
"""


@pytest.mark.parametrize("expression", split(GRADIENTS))
def test_gradients(expression):
    found = []
    for L in (mt, torch):
        names = inputs(L, True)
        y = eval(expression, names)
        (y * L.arange(1.0, 1.0 + y.numel()).reshape(y.shape)).sum().backward()
        found.append(raw(names["x"].grad)[1])
    np.testing.assert_allclose(*found, rtol=2e-4, atol=2e-6)


ON_EDGES = [
    "exp", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "square", "reciprocal",
    "sin", "cos", "tanh", "sigmoid", "erf", "floor", "ceil", "trunc", "round", "isnan",
    "isinf", "isfinite", "neg", "abs",
]


@pytest.mark.parametrize("name", ON_EDGES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_values_at_the_edges(name, dtype):
    results = [raw(getattr(L.tensor(EDGES, dtype=getattr(L, dtype)), name)())
               for L in (mt, torch)]
    agree(*results, dict(float32=2e-6, float64=1e-12).get(dtype, 1e-2))


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "**", "//", "%", "==", "<", ">=", "!="])
def test_pairs_of_edges(symbol):
    pairs = f"p[:, None] {symbol} p"
    results = [raw(eval(pairs, dict(p=L.tensor(EDGES)))) for L in (mt, torch)]
    agree(*results, 1e-6)


CASES = {
    "x = w * 2; x[1:3] += 1; y = x * x": "a view of a result",
    "x = w * 1; x[1:3] = x[1:3] * 10; y = x": "a view from itself",
    "o = Z; o[0] = w.sum(); y = o * 2": "an element of zeros",
    "o = Z; v = o[1:3]; v += w[1:3]; y = o * o": "a view of zeros",
    "o = Z; o[[0, 2]] = w[:2] * 2; y = o * o": "index tensors",
    "o = Z; o[o == 0] = w.sum(); y = o * o": "a mask",
    "x = w * 1; u = x[0:2]; v = x[1:3]; u *= 3; y = v": "two views",
    "x = w.view(2, 2) * 1; v = x.T; v[0] = 0.0; y = x * x": "a transpose",
    "x = w.view(2, 2) * 1; v = x.reshape(-1); v[1] = 9.0; y = x * x": "a reshape",
    "x = w * 1; x.zero_(); y = x * 2": "zeros",
    "x = w * 1; x.clamp_(min=2.0); y = x": "clamp",
    "x = Z; v = x.view(2, 2); x += w; y = v * v": "a view of what is rebound",
    "x = Z.clone(); v = x[1:]; x.requires_grad_(); y = v * w[1:]": "a view from before",
}


@pytest.mark.parametrize("script", CASES, ids=CASES.values())
def test_in_place(script):
    found = []
    for L in (mt, torch):
        names = dict(L=L, w=L.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True), Z=L.zeros(4))
        exec("\n".join(script.split("; ")), names)
        names["y"].sum().backward()
        found.append([raw(names["y"]), raw(names["w"].grad)])
    agree(*found, 1e-6)
