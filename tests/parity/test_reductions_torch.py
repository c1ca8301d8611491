"""Reductions, running results, rearrangements and sorting, run with PyTorch and here."""

from __future__ import annotations

import re

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu.nn import functional  # L.nn.functional on both sides

torch = pytest.importorskip("torch")
assert functional

NAN, INF = float("nan"), float("inf")


def raw(value):
    """(dtype name, array) of a result of either library, lists of them; numbers stay."""
    if isinstance(value, (tuple, list)):
        return [raw(v) for v in value]
    name = getattr(value.dtype, "name", None) or str(value.dtype).removeprefix("torch.")
    value = value.detach()
    return name, np.array((value.float() if name == "bfloat16" else value).numpy())


def agree(ours, theirs, rtol=1e-5):
    if isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            agree(one, other, rtol)
        return
    assert ours[0] == theirs[0], f"{ours[0]} instead of {theirs[0]}"
    assert ours[1].shape == theirs[1].shape
    np.testing.assert_allclose(ours[1], theirs[1], rtol=rtol, atol=1e-6)


def inputs(L, grad=False):
    """Operands by the names that the expressions use; n and d may carry gradients."""
    tensor = L.tensor
    y = (L.arange(24.0) * 7 % 11 - 4).reshape(2, 3, 4)
    x = tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
    return dict(
        L=L, x=x.requires_grad_(grad), y=y.requires_grad_(grad),
        v=tensor([0.0, 2.0, 3.0], requires_grad=grad), z=tensor(2.5, requires_grad=grad),
        ties=tensor([[2.0, 1.0, 2.0, 1.0], [3.0, 3.0, 3.0, 3.0]], requires_grad=grad),
        o=tensor([[0.0, 2.0, 0.0], [0.0, -1.0, 4.0]], requires_grad=grad),
        n=tensor([[1.0, NAN, 3.0], [NAN, NAN, -2.0]], requires_grad=grad),
        big=tensor([[-INF, -INF, 1e3], [1e3, -1e3, 999.0]], requires_grad=grad),
        q=(L.arange(64.0) % 7).reshape(2, 4, 2, 4).requires_grad_(grad),
        b=tensor([True, False, True]), i=tensor([2, 0, 1]), j=tensor([[3, -1, 2], [5, -7, 4]]),
        e=L.zeros(0, 3), e2=L.zeros(3, 0), h=x.detach().half(), f=L.nn.functional,
    )


DIFFERENTIABLE = """
L.var_mean(x) | L.var_mean(y, 1) | L.var_mean(y, (0, -1), keepdim=True)
L.var_mean(x, dim=1, correction=0) | L.std_mean(y, -1) | L.std_mean(x, 0, False) | L.aminmax(x)
L.aminmax(y, dim=-2, keepdim=True) | L.aminmax(ties, dim=1) | n.nansum() | n.nansum(1)
L.nansum(n, (0, -1), True) | n.nansum(0, dtype=L.float64) | n.nanmean() | n.nanmean(-1)
x.mean(1, dtype=L.float64) | x.mean(dtype=L.float64) | x.sum(0, dtype=L.float64)
x.prod(1, dtype=L.float64) | v.cumprod(0) | o.cumprod(1) | o.cumprod(0) | y.cumprod(-2)
z.cumprod(0) | L.cumprod(y, dim=2) | x.cumprod(1, dtype=L.float64)
x.cumsum(1, dtype=L.float64) | y.cummax(1) | ties.cummax(1) | ties.cummin(-1) | L.cummin(y, 0)
L.cummax(n, 1) | z.cummax(0) | n.cummin(1) | x.logcumsumexp(1) | y.logcumsumexp(-2)
L.logcumsumexp(x, dim=0) | z.logcumsumexp(0) | x.diff() | x.diff(n=2) | y.diff(dim=1)
L.diff(x, prepend=x, append=x) | x.diff(n=3) | x.diff(n=5) | L.diff(x, dim=0, append=x * 2)
x.median() | y.median(1) | ties.median() | n.median(1) | y.median(-1, True) | n.nanmedian()
n.nanmedian(1) | z.median() | z.median(0) | n.median() | L.median(y, dim=0)
x.unflatten(1, (3, 1)) | y.unflatten(-1, (2, -1)) | y.unfold(2, 3, 1) | y.unfold(1, 2, 2)
x.unfold(-1, 2, 1) | v.unfold(0, 1, 2) | z.unfold(0, 1, 1) | f.unfold(q, 2)
f.unfold(q, (1, 2), 2, (0, 1), (2, 1))
f.unfold(y[None], kernel_size=(2, 3), padding=1, stride=2) | f.unfold(y, 2)
f.fold(y.reshape(1, 8, 3), (2, 4), 2) | f.fold(y.reshape(4, 6), (4, 3), (2, 1), stride=(2, 1))
f.fold(y.reshape(3, 2, 4), (2, 4), (1, 2), dilation=2, padding=(0, 1), stride=(1, 2))
y.ravel() | y.permute(2, 0, 1).ravel() | z.ravel() | x.t() | v.t() | L.t(x)
L.swapaxes(y, 0, -1) | L.broadcast_to(v, (2, 3)) | x.repeat(2, 3) | x.repeat((4, 2, 1))
v.repeat(2) | v.repeat(1) | z.repeat(3) | x.repeat(0, 1) | x.repeat_interleave(2)
x.repeat_interleave(3, dim=1) | x.repeat_interleave(L.tensor([1, 2]), 0)
L.repeat_interleave(v, i) | L.repeat_interleave(x, i, dim=-1, output_size=3) | x.tile(2)
x.tile(2, 1) | L.tile(v, (2, 2, 1)) | L.tile(x, (2,)) | z.tile(2) | L.hstack([x, x])
L.hstack([v, v]) | L.vstack([v, x]) | L.dstack([v, v]) | L.dstack([x, x]) | L.hstack([z, v])
L.vstack([z, z]) | L.dstack([y, y]) | y.tensor_split(3, -1) | x.tensor_split(2, 1)
v.tensor_split(5) | L.tensor_split(y, (1, 3), dim=2) | v.tensor_split((-1, 9))
v.tensor_split([2, 1]) | v.tensor_split(L.tensor([1, 2])) | x.roll(1) | x.roll(-2, 1)
y.roll((1, -5), (0, 2)) | L.roll(y, shifts=3, dims=-2) | x.roll(7) | x.rot90()
y.rot90(2, (1, 2)) | y.rot90(-1, (0, 2)) | L.rot90(x, k=3) | x.rot90(4) | x.diagonal()
y.diagonal(1, 0, 2) | y.diagonal(-1, -1, 1) | x.diagonal(9) | L.diagonal(y, dim1=1, dim2=2)
x.diag() | x.diag(-1) | v.diag() | v.diag(2) | L.diag(v, -1) | L.diag_embed(x)
x.diag_embed(1) | L.diag_embed(y, offset=-1, dim1=0, dim2=-1) | v.diag_embed(0, 1, 0)
L.meshgrid(v, i * 1.0, indexing="ij") | L.meshgrid(v, x.ravel(), z, indexing="xy")
L.pixel_shuffle(q, 2) | L.pixel_unshuffle(q, 2) | f.pixel_shuffle(q[0], 2)
f.pixel_unshuffle(q, downscale_factor=1) | f.pixel_shuffle(q, upscale_factor=1)
f.pad(x, (1, 2)) | f.pad(x, (0, 1, 2, 0), value=1.5) | f.pad(y, (-1, 1, 0, -2)) | f.pad(x, ())
f.pad(x, (1, 2), mode="reflect") | f.pad(y, (3, 0), "reflect") | f.pad(x, (3, -1), "replicate")
f.pad(q, (1, 1, 1, 0), "reflect") | f.pad(q, (2, 5, 1, 0), "replicate")
f.pad(q, (4, 1, 2, 0), "circular") | f.pad(x, (3, 2), mode="circular")
f.pad(x, (-1, 2), "circular") | f.pad(x, (2, -1), "circular") | f.pad(y, (-1, 2), "reflect")
L.mm(x, x.t()) | L.bmm(y, y.transpose(1, 2)) | x.mm(x.t()) | y.bmm(y.mT) | x.sort()
y.sort(1, descending=True) | x.sort(dim=0) | L.sort(ties, stable=True) | z.sort()
L.sort(n, dim=1, stable=True) | L.sort(n, descending=True, stable=True, dim=1) | L.msort(y)
x.msort() | L.sort(ties, descending=True, stable=True) | x.topk(2) | y.topk(2, 1)
y.topk(1, dim=0, largest=False) | L.topk(x, 0) | z.topk(1) | x.kthvalue(2) | y.kthvalue(1, 1)
L.kthvalue(x, 1, dim=0, keepdim=True) | z.kthvalue(1)
"""

VALUES = """
L.count_nonzero(x) | o.count_nonzero(1) | L.count_nonzero(y, (0, 2)) | b.count_nonzero()
n.count_nonzero(dim=0) | ties.median(1).values | L.nanmean(n, 0, True) | j.nansum()
j.aminmax() | b.nansum(0) | L.aminmax(n) | big.logcumsumexp(1) | e.logcumsumexp(0)
j.cumprod(1) | b.cumprod(0) | j.int().cumprod(0) | j.cumprod(0, dtype=L.float32)
j.int().cumsum(0) | b.cumsum(0) | j.to(L.uint8).cumsum(0) | j.cummax(1) | b.cummax(0)
e2.cummax(1) | e2.cumprod(1) | e.cumprod(0) | j.cummin(0) | b.diff() | j.diff() | e.diff(dim=0)
e2.diff() | j.median() | j.median(1) | j.nanmedian(0) | e.nansum() | e.nanmean() | e.mean(0)
e.count_nonzero(0) | L.zeros(0).median() | e2.median(0) | e2.sort() | e.msort() | e.topk(0, 0)
e2.sort(0) | j.mean(dtype=L.float32) | h.mean(dtype=L.float32) | h.mean(1) | h.nansum()
h.nanmean(1) | h.cumprod(1) | h.logcumsumexp(1) | h.median(0) | h.topk(2) | L.var_mean(h, 1)
j.prod(dtype=L.float64) | j.sort(0) | j.topk(2) | b.sort() | j.msort() | j.kthvalue(2, 0)
i.repeat(2, 2) | j.roll(1, 0) | b.roll(1) | j.diag() | b.diag_embed() | e.roll(1, 1)
e.rot90() | e.tile(2, 2) | e.repeat(3, 1) | e.repeat_interleave(2, 0) | e.diagonal()
L.zeros(0).diag() | e.tensor_split(2) | L.hstack([b, i]) | L.vstack([e, x]) | e.ravel() | e.t()
e2.unflatten(0, (3, 1)) | L.unique(ties)
n.unique() | n.unique(return_inverse=True, return_counts=True) | z.cumsum(0)
L.unique(j) | j.unique(return_inverse=True)
b.unique(return_counts=True) | L.unique(ties, return_inverse=True, return_counts=True)
L.unique(ties, dim=1) | L.unique(ties, dim=1, return_inverse=True, return_counts=True)
L.unique(x, dim=0) | e.unique() | f.pad(j, (1, 0), value=7) | f.pad(b, (1, 1))
f.pad(e, (1, 1, 2, 0)) | f.pad(j.to(L.int32), (0, 2)) | x.new_zeros(2, 3) | j.new_ones((2,))
x.new_full((2, 2), 3) | j.new_tensor([1, 2]) | x.new_zeros(2, dtype=L.int64) | h.new_ones(1)
x.new_empty(0, 2) | h.new_full((), 2.5) | L.meshgrid(i, i, indexing="ij")
L.meshgrid([i, i], indexing="xy")
"""

ERRORS = """
x.cumprod(2) | x.cummax(5) | x.logcumsumexp(-3) | z.diff() | x.diff(n=-1)
j.mean(dtype=L.int64) | j.nanmean() | x.median(3) | e2.median(1) | x.unflatten(1, (2, 2))
y.t() | x.repeat(2) | v.repeat_interleave(L.tensor([1, 2])) | v.repeat_interleave(-1)
x.repeat(-1, 2) | x.repeat_interleave(2, 0, output_size=3) | L.hstack([]) | x.tensor_split(0)
z.tensor_split(1) | x.roll((1, 2), 0) | x.roll(1, 2) | v.rot90() | x.rot90(1, (0, 0))
x.rot90(1, (0, 3)) | v.diagonal() | x.diagonal(0, 1, 1) | z.diag() | y.diag()
v.diag_embed(0, 0, 0) | v.unfold(0, 4, 1) | v.unfold(0, 2, 0) | f.unfold(x, 2) | f.unfold(q, 5)
f.fold(y, (3, 3), 2) | f.fold(y, (3, 3), 4) | f.pixel_shuffle(q, 3) | f.pixel_unshuffle(q, 3)
f.pixel_shuffle(x, 1) | f.pad(x, (1,)) | f.pad(v, (1, 1, 1, 1))
f.pad(x, (3, 0), mode="reflect") | f.pad(x, (0, -4)) | f.pad(x, (4, 0), mode="circular")
f.pad(v, (1, 1), mode="reflect") | f.pad(x, (1, 1), mode="x") | L.mm(v, v) | L.bmm(x, x)
L.mm(y, y) | L.bmm(y, y[:1].mT) | x.topk(4) | x.topk(-1) | x.kthvalue(0) | x.kthvalue(4)
x.sort(2) | x.topk(1, 2) | L.meshgrid(v, x) | L.meshgrid(i, b, indexing="ij")
L.meshgrid(v, v, indexing="ji")
"""


def listed(text):
    return [part.strip() for part in re.split(r"[|\n]", text) if part.strip()]


@pytest.mark.parametrize("expression", listed(DIFFERENTIABLE) + listed(VALUES))
def test_values_dtypes_and_shapes(expression):
    ours, theirs = (eval(expression, inputs(L)) for L in (mt, torch))
    agree(raw(ours), raw(theirs), 2e-3 if "h." in expression or "(h" in expression else 1e-5)


def gradients(L, expression):
    """The gradients of a weighted sum of all floating outputs, by operand."""
    names = inputs(L, grad=True)
    result = eval(expression, names)
    outputs = result if isinstance(result, (tuple, list)) else [result]
    total = sum((y * (L.arange(float(np.prod(y.shape))).reshape(y.shape) * 0.37 + 1.0)).sum()
                for y in outputs if y.requires_grad)
    total.backward()
    grads = {k: v.grad for k, v in names.items() if getattr(v, "requires_grad", False)}
    return {k: raw(v) for k, v in grads.items() if v is not None}


@pytest.mark.parametrize("expression", listed(DIFFERENTIABLE))
def test_gradients(expression):
    ours, theirs = gradients(mt, expression), gradients(torch, expression)
    assert ours.keys() == theirs.keys()
    for name in ours:
        agree(ours[name], theirs[name])


@pytest.mark.parametrize("expression", listed(ERRORS))
def test_errors(expression):
    with pytest.raises((RuntimeError, IndexError, ValueError, TypeError)):
        eval(expression, inputs(torch))
    with pytest.raises((IndexError, ValueError, TypeError)):
        eval(expression, inputs(mt))


def test_a_diagonal_is_a_view_that_can_be_written():
    for L in (mt, torch):
        x = L.zeros(3, 3)
        x.diagonal(1).copy_(L.tensor([1.0, 2.0]))
        assert x.tolist() == [[0, 1, 0], [0, 0, 2], [0, 0, 0]]


def test_results_are_named_as_in_pytorch():
    x = mt.tensor([[1.0, 3.0, 2.0]])
    assert x.aminmax().min == 1 and x.aminmax().max == 3
    for pair in (x.sort(), x.topk(2), x.kthvalue(1), x.cummax(1), x.cummin(1), x.median(1)):
        assert pair.values is pair[0] and pair.indices is pair[1]


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 13])
def test_running_results_of_every_length(width):
    generator = np.random.default_rng(width)
    x = generator.integers(-2, 3, (2, width, 3)).astype("d")
    for name in ("cumprod", "cummax", "cummin", "logcumsumexp"):
        ours = mt.tensor(x, requires_grad=True)
        theirs = torch.tensor(x, requires_grad=True)
        a, b = getattr(ours, name)(1), getattr(theirs, name)(1)
        agree(raw(a), raw(b), 1e-12)
        (a[0] if isinstance(a, tuple) else a).sum().backward()
        (b[0] if isinstance(b, tuple) else b).sum().backward()
        agree(raw(ours.grad), raw(theirs.grad), 1e-11)
