"""Shape ops: views, copies, joining and splitting, dtype casts and moves between devices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitorch_gpu.device import device, device_of, transfer
from minitorch_gpu.index import Cut
from minitorch_gpu.ops.dims import many_dims, one_dim, sizes
from minitorch_gpu.registry import primitive
from minitorch_gpu.registry.scalar import OPS

Array = Any
Shape = tuple[int, ...]
Params = dict[str, Any]


# ---------------------------------------------------------------- plumbing of the engine
@primitive("(...)->(...)", vjp=dict(x=lambda g: g), promote=None, view=True, methods=(),
           examples=(dict(x=(2, 3)),))
def alias(xp: Any, x: Array) -> Array:
    """The same memory under another name; the boundary of an inner backward walk."""
    return x.view()


@primitive("(...)->(...)", vjp=dict(x=lambda g, x_like: OPS["expand"](g, shape=x_like.shape)),
           promote=None, examples=(dict(x=(2, 3), shape=(3,)), dict(x=(4, 2, 3), shape=(2, 1))),
           methods=("sum_to_size",), variadic="shape")
def sum_to(xp: Any, x: Array, shape: Shape) -> Array:
    """Sum over the dims that broadcasting ``shape`` to x's would have added or stretched."""
    lead = x.ndim - len(shape)
    stretched = tuple(lead + i for i, s in enumerate(shape) if s == 1 != x.shape[lead + i])
    total = xp.add.reduce(x, tuple(range(lead)) + stretched, keepdims=True)
    return total.reshape(shape)


@primitive("(...)->(...)", vjp=dict(x=lambda g: g), promote=None, methods=(),
           examples=(dict(x=(2, 3), dtype="float64"),))
def cast(xp: Any, x: Array, dtype: Any) -> Array:
    """A copy in another dtype."""
    return x.astype(dtype)


@primitive("(...)->(...)", vjp=dict(x=lambda g, x_device: OPS["move"](g, device=x_device)),
           promote=None, methods=(), examples=(dict(x=(2, 3), device="cpu", x_device="cpu"),),
           normalise=lambda params, x: {**params, "x_device": str(device_of(x))})
def move(xp: Any, x: Array, device: str, x_device: str = "") -> Array:
    """A copy on another device."""
    result = transfer(x, _device(device))
    return x.copy() if result is x else result


_device = device


@primitive("(...)->(...)", vjp=dict(x=lambda g: g), promote=None, examples=(dict(x=(2, 3)),))
def clone(xp: Any, x: Array) -> Array:
    """A copy in memory of its own."""
    return x.copy()


@primitive("(...)->(...)", vjp=dict(x=lambda g: g), promote=None, view=True,
           examples=(dict(x=(2, 3)),))
def contiguous(xp: Any, x: Array) -> Array:
    """The same elements in row-major memory; shares it when it is so already."""
    return xp.ascontiguousarray(x).reshape(x.shape).view()


# ---------------------------------------------------------------- reshaping
def _inferred(params: Params, x: Any) -> Params:
    """A shape with at most one -1, resolved."""
    shape = sizes(params["shape"])
    if shape.count(-1) > 1 or any(s < -1 for s in shape):
        raise ValueError(f"reshape: shape {shape} may hold one -1 and no other negative size")
    known = 1
    for size in shape:
        known *= 1 if size == -1 else size
    fits = x.size == known if -1 not in shape else known and x.size % known == 0
    if not fits:
        raise ValueError(f"reshape: {x.size} elements of shape {x.shape} do not fit {shape}")
    return {**params, "shape": tuple(x.size // known if s == -1 else s for s in shape)}


@primitive("(...)->(...)", vjp=dict(x=lambda g, x_like: OPS["reshape"](g, shape=x_like.shape)),
           promote=None, view=True, normalise=_inferred, variadic="shape",
           examples=(dict(x=(2, 6), shape=(3, -1)), dict(x=(2, 3), shape=(6,)),
                     dict(x=(), shape=(1, 1))))
def reshape(xp: Any, x: Array, shape: Shape) -> Array:
    """The same elements in another shape; one size may be -1. A view where memory allows."""
    return x.reshape(shape)


def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Dims ``start_dim..end_dim`` joined into one."""
    first, last = one_dim(start_dim, x.ndim), one_dim(end_dim, x.ndim)
    if first > last:
        raise ValueError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    joined = math.prod(x.shape[first:last + 1])
    return OPS["reshape"](x, shape=(*x.shape[:first], joined, *x.shape[last + 1:]))


def squeeze(x: Any, dim: Any = None) -> Any:
    """Without its dims of size 1, all or just ``dim``."""
    dims = many_dims(dim, x.ndim)
    shape = tuple(s for i, s in enumerate(x.shape) if not (i in dims and s == 1))
    return OPS["reshape"](x, shape=shape)


def unsqueeze(x: Any, dim: int) -> Any:
    """With a dim of size 1 put in at ``dim``."""
    place = one_dim(dim, x.ndim + 1)
    return OPS["reshape"](x, shape=(*x.shape[:place], 1, *x.shape[place:]))


def _dims_permuted(params: Params, x: Any) -> Params:
    dims = tuple(one_dim(d, x.ndim) for d in params["dims"])
    if sorted(dims) != list(range(x.ndim)):
        raise ValueError(f"permute: dims {tuple(params['dims'])} must name each of "
                         f"{x.ndim} dims once")
    return {**params, "dims": dims}


def _inverse(dims: Shape) -> Shape:
    return tuple(dims.index(i) for i in range(len(dims)))


@primitive("(...)->(...)",
           vjp=dict(x=lambda g, dims: OPS["permute"](g, dims=_inverse(dims))),
           promote=None, view=True, normalise=_dims_permuted, variadic="dims",
           examples=(dict(x=(2, 3, 4), dims=(2, 0, 1)), dict(x=(2, 3), dims=(-1, -2))))
def permute(xp: Any, x: Array, dims: Shape) -> Array:
    """Dims in another order; a view."""
    return x.transpose(dims)


def _two_dims(params: Params, x: Any) -> Params:
    return {"dim0": one_dim(params["dim0"], x.ndim), "dim1": one_dim(params["dim1"], x.ndim)}


@primitive("(...)->(...)",
           vjp=dict(x=lambda g, dim0, dim1: OPS["transpose"](g, dim0=dim0, dim1=dim1)),
           promote=None, view=True, normalise=_two_dims, methods=("transpose", "swapaxes"),
           examples=(dict(x=(2, 3, 4), dim0=0, dim1=-1), dict(x=(2, 3), dim0=0, dim1=1)))
def transpose(xp: Any, x: Array, dim0: int, dim1: int) -> Array:
    """Two dims swapped; a view."""
    return x.swapaxes(dim0, dim1) if x.ndim else x.view()


def movedim(x: Any, source: Any, destination: Any) -> Any:
    """Dims moved to other places, the rest in order."""
    sources = [one_dim(d, x.ndim) for d in sizes(source)]
    places = [one_dim(d, x.ndim) for d in sizes(destination)]
    rest = iter(i for i in range(x.ndim) if i not in sources)
    moved = dict(zip(places, sources))
    return OPS["permute"](x, dims=tuple(moved[i] if i in moved else next(rest)
                                        for i in range(x.ndim)))


def _expanded(params: Params, x: Any) -> Params:
    shape = sizes(params["shape"])
    lead = len(shape) - x.ndim
    if lead < 0 or any(s == -1 for s in shape[:lead]):
        raise ValueError(f"expand: shape {shape} for a tensor of shape {x.shape}")
    return {**params, "shape": tuple(x.shape[i - lead] if s == -1 else s
                                     for i, s in enumerate(shape))}


@primitive("(...)->(...)", vjp=dict(x=lambda g: g), promote=None, view=True,
           normalise=_expanded, variadic="shape", methods=("expand", "broadcast_to"),
           examples=(dict(x=(1, 3), shape=(2, -1)), dict(x=(3,), shape=(2, 4, 3))))
def expand(xp: Any, x: Array, shape: Shape) -> Array:
    """Broadcast to ``shape`` (-1 keeps a size): a read-only view."""
    return xp.broadcast_to(x, shape)


def _dims_all(params: Params, x: Any) -> Params:
    return {**params, "dims": many_dims(sizes(params["dims"]), x.ndim)}


@primitive("(...)->(...)", vjp=dict(x=lambda g, dims: OPS["flip"](g, dims=dims)), promote=None,
           normalise=_dims_all, variadic="dims",
           examples=(dict(x=(2, 3), dims=(0,)), dict(x=(2, 3, 2), dims=(-1, 0))))
def flip(xp: Any, x: Array, dims: Shape) -> Array:
    """Reversed along ``dims``: a copy."""
    return xp.flip(x, dims).copy()


# ---------------------------------------------------------------- joining and splitting
def _lists_along(params: Params, *xs: Any) -> Params:
    if not xs:
        raise ValueError("cat: needs at least one tensor")
    return {**params, "dim": one_dim(params["dim"], xs[0].ndim)}


@primitive("(...)*->(...)",
           vjp=dict(tensors=lambda g, tensors_like, dim: OPS["split"](
               g, sizes=tuple(x.shape[dim] for x in tensors_like), dim=dim)),
           normalise=_lists_along, methods=(),
           examples=(dict(tensors=[(2, 3), (1, 3)]),
                     dict(tensors=[(2, 3), (2, 1), (2, 2)], dim=-1)))
def cat(xp: Any, tensors: list[Array], dim: int = 0) -> Array:
    """The tensors one after another along ``dim``."""
    return xp.concatenate(tensors, dim)


def stack(tensors: Any, dim: int = 0) -> Any:
    """The tensors as slices of a new dim."""
    return OPS["cat"]([unsqueeze(x, dim) for x in tensors], dim=dim)


def _split_sizes(params: Params, x: Any) -> Params:
    """One size for all parts (the last may be smaller), or the sizes of the parts."""
    dim, parts = one_dim(params["dim"], x.ndim), params["sizes"]
    total = x.shape[dim]
    if isinstance(parts, int):
        if parts <= 0:
            raise ValueError(f"split: the size of a part must be positive, not {parts}")
        parts = [min(parts, total - i) for i in range(0, total, parts)] or [0]
    if sum(parts) != total:
        raise ValueError(f"split: sizes {tuple(parts)} add up to {sum(parts)}, dim {dim} "
                         f"has {total}")
    return {"sizes": tuple(int(p) for p in parts), "dim": dim}


@primitive("(...)->(...)*",
           vjp=dict(x=lambda g, dim: OPS["cat"](list(g), dim=dim)),
           promote=None, view=True, normalise=_split_sizes,
           examples=(dict(x=(5, 2), sizes=2), dict(x=(2, 6), sizes=(1, 2, 3), dim=1)))
def split(xp: Any, x: Array, sizes: Any, dim: int = 0) -> tuple[Array, ...]:
    """Parts along ``dim``, as views: of one size, or of the sizes listed."""
    parts, start = [], 0
    for size in sizes:
        parts.append(x[(slice(None),) * dim + (slice(start, start + size),)])
        start += size
    return tuple(parts)


def chunk(x: Any, chunks: int, dim: int = 0) -> Any:
    """At most ``chunks`` parts of equal size along ``dim``, the last one smaller."""
    if chunks <= 0:
        raise ValueError(f"chunk: chunks must be positive, not {chunks}")
    size = x.shape[one_dim(dim, x.ndim)]
    return OPS["split"](x, -(-size // chunks) or (0,) * chunks, dim=dim)


def unbind(x: Any, dim: int = 0) -> tuple[Any, ...]:
    """The slices along ``dim``, without it."""
    place = one_dim(dim, x.ndim)
    before = (Cut(None, None, None),) * place
    return tuple(OPS["getitem"](x, index=(*before, i)) for i in range(x.shape[place]))


def _triangle(params: Params, x: Any) -> Params:
    if x.ndim < 2:
        raise ValueError(f"tril/triu: needs at least 2 dims, x has shape {x.shape}")
    return params


@primitive("(n,m)->(n,m)", vjp=dict(x=lambda g, diagonal: OPS["tril"](g, diagonal=diagonal)),
           promote=None, normalise=_triangle,
           examples=(dict(x=(3, 3)), dict(x=(2, 3, 4), diagonal=1)))
def tril(xp: Any, x: Array, diagonal: int = 0) -> Array:
    """The lower triangle, zeros above."""
    return xp.tril(x, diagonal)


@primitive("(n,m)->(n,m)", vjp=dict(x=lambda g, diagonal: OPS["triu"](g, diagonal=diagonal)),
           promote=None, normalise=_triangle,
           examples=(dict(x=(3, 3)), dict(x=(2, 3, 4), diagonal=-1)))
def triu(xp: Any, x: Array, diagonal: int = 0) -> Array:
    """The upper triangle, zeros below."""
    return xp.triu(x, diagonal)


# ---------------------------------------------------------------- complex parts
@primitive("(...)->(...)", vjp=dict(x=lambda g: g), promote=None, methods=(),
           examples=(dict(x=(2, 3)),))
def real(xp: Any, x: Array) -> Array:
    """The real part."""
    return x.real.copy()


@primitive("(...)->(...)", vjp=dict(x=lambda g: g * -1j), promote=None, methods=(),
           examples=(dict(x=np.array([[1 + 2j, 3 - 1j]])),))
def imag(xp: Any, x: Array) -> Array:
    """The imaginary part of a complex tensor."""
    if x.dtype.kind != "c":
        raise TypeError(f"imag: needs a complex dtype, x is {x.dtype}")
    return x.imag.copy()


@primitive("(...)*->(...)*", vjp=dict(xs=lambda g, on_backward: on_backward(g)), promote=None,
           methods=(), view=True, examples=(dict(xs=[(2, 3), (1,)]),))
def boundary(
    xp: Any, xs: list[Array], on_backward: Any = lambda g: g
) -> tuple[Array, ...]:
    """The tensors themselves; their cotangents pass through ``on_backward`` on the way back."""
    return tuple(x.view() for x in xs)
