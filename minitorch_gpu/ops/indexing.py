"""Indexing: NumPy-style ``x[...]``, gather and scatter, embedding rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minitorch_gpu.device import array_module, is_array
from minitorch_gpu.index import Cut, as_plain
from minitorch_gpu.ops.dims import along, one_dim
from minitorch_gpu.registry import Ints, primitive
from minitorch_gpu.registry.scalar import OPS
from minitorch_gpu.tensor import Tensor

Array = Any
Params = dict[str, Any]


def _basic(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(map(as_plain, index))


# ---------------------------------------------------------------- basic indexing: views
@primitive("(...)->(...)",
           vjp=dict(x=lambda g, x_like, index: OPS["embed_at"](
               g, shape=x_like.shape, index=index)),
           promote=None, view=True, methods=(),
           examples=(dict(x=(3, 4), index=(Cut(1, 3, None), 2)),
                     dict(x=(3, 4), index=(Ellipsis, None, Cut(None, None, 2))),
                     dict(x=(3,), index=(-1,))))
def getitem(xp: Any, x: Array, index: tuple[Any, ...]) -> Array:
    """``x[index]`` for integers, slices, None and Ellipsis: a view."""
    key = _basic(index)
    y = x[key]
    if is_array(y):
        return y
    key = (*key, Ellipsis)  # else NumPy makes a lone element a scalar
    return x[key]


@primitive("(...)->(...)", vjp=dict(x=lambda g, index: OPS["getitem"](g, index=index)),
           promote=None, methods=(),
           examples=(dict(x=(2,), shape=(3, 4), index=(Cut(1, 3, None), 2)),))
def embed_at(xp: Any, x: Array, shape: tuple[int, ...], index: tuple[Any, ...]) -> Array:
    """Zeros of ``shape`` with x at ``index``: the gradient of a view."""
    y = xp.zeros(shape, x.dtype)
    y[_basic(index)] = x
    return y


def _start_length(params: Params, x: Any) -> Params:
    dim = one_dim(params["dim"], x.ndim)
    start, length, size = int(params["start"]), int(params["length"]), x.shape[dim]
    start = start + size if start < 0 else start
    if not 0 <= start <= start + length <= size:
        raise IndexError(f"narrow: [{start}, {start + length}) leaves dim {dim} of size {size}")
    return {"dim": dim, "start": start, "length": length}


@primitive("(...)->(...)",
           vjp=dict(x=lambda g, x_like, dim, start, length: OPS["embed_at"](
               g, shape=x_like.shape, index=_along(dim, start, length))),
           promote=None, view=True, normalise=_start_length,
           examples=(dict(x=(4, 3), dim=0, start=1, length=2),
                     dict(x=(4, 3), dim=-1, start=0, length=0)))
def narrow(xp: Any, x: Array, dim: int, start: int, length: int) -> Array:
    """``length`` slices along ``dim`` from ``start``: a view."""
    return x[_basic(_along(dim, start, length))]


def _along(dim: int, start: int, length: int) -> tuple[Any, ...]:
    return (Cut(None, None, None),) * dim + (Cut(start, start + length, None),)


def select(x: Any, dim: int, index: int) -> Any:
    """One slice along ``dim``, without the dim: a view."""
    place, size = one_dim(dim, x.ndim), x.shape[one_dim(dim, x.ndim)]
    if not -size <= index < size:
        raise IndexError(f"select: index {index} is out of range for dim {dim} of size {size}")
    return OPS["getitem"](x, index=(Cut(None, None, None),) * place + (int(index),))


# ---------------------------------------------------------------- advanced indexing: copies
def _advanced(spec: tuple[Any, ...], indices: Any) -> tuple[Any, ...]:
    """The index with its arrays back where ``spec`` marks them by "array"."""
    arrays = iter(indices)
    return tuple(next(arrays) if i == "array" else i for i in _basic(spec))


@primitive("(...),(...)*->(...)",
           vjp=dict(x=lambda g, x_like, indices, spec: OPS["index_add_into"](
               g, indices, shape=x_like.shape, spec=spec)),
           promote=None, methods=(),
           examples=(dict(x=(4, 3), indices=[Ints((5,), 4)], spec=("array",)),
                     dict(x=(4, 3, 2), indices=[Ints((2, 1), 4), Ints((3,), 2)],
                          spec=("array", Cut(1, 3, None), "array"))))
def index(xp: Any, x: Array, indices: list[Array], spec: tuple[Any, ...]) -> Array:
    """``x[spec]`` with integer arrays in the places marked "array": a copy."""
    y = x[_advanced(spec, indices)]
    return y.copy() if y.base is x else y


@primitive("(...),(...)*->(...)",
           vjp=dict(x=lambda g, indices, spec: OPS["index"](g, indices, spec=spec)),
           promote=None, methods=(),
           examples=(dict(x=(5,), indices=[Ints((5,), 4)], shape=(4,), spec=("array",)),))
def index_add_into(
    xp: Any, x: Array, indices: list[Array], shape: tuple[int, ...], spec: tuple[Any, ...]
) -> Array:
    """Zeros of ``shape`` plus x added at ``spec``; equal places add up."""
    y = xp.zeros(shape, x.dtype)
    if len(spec) == 1 and len(indices) == 1:
        return _add_rows(xp, y, indices[0], x)
    xp.add.at(y, _advanced(spec, indices), x)
    return y


def _add_rows(xp: Any, table: Array, rows: Array, values: Array) -> Array:
    """``table[rows] += values`` with repeats adding up, in a fixed order: sorted segments."""
    flat = rows.reshape(-1) % max(table.shape[0], 1)
    values = xp.broadcast_to(values, rows.shape + table.shape[1:])
    values = values.reshape(flat.size, *table.shape[1:])
    if flat.size == 0:
        return table
    order = xp.argsort(flat, kind="stable")
    ordered = flat[order]
    starts = xp.flatnonzero(xp.concatenate([xp.ones(1, bool), ordered[1:] != ordered[:-1]]))
    table[ordered[starts]] = xp.add.reduceat(values[order], starts, axis=0, dtype=values.dtype)
    return table


@primitive("(...),(...),(...)*->(...)",
           vjp=dict(x=lambda g, indices, spec: OPS["index_put"](g, 0.0, indices, spec=spec),
                    value=lambda g, indices, spec: OPS["index"](g, indices, spec=spec)),
           promote=None, methods=(),
           examples=(dict(x=(4, 3), value=(2, 3), indices=[np.array([3, 1])], spec=("array",)),
                     dict(x=(4, 3), value=(3,), indices=[np.array([0, 2])], spec=("array",))))
def index_put(
    xp: Any, x: Array, value: Array, indices: list[Array], spec: tuple[Any, ...]
) -> Array:
    """A copy of x with ``value`` at ``spec``; of equal places one wins, which is not said."""
    y = x.copy()
    y[_advanced(spec, indices)] = value
    return y


@primitive("(...),(...)->(...)",
           vjp=dict(x=lambda g, path: OPS["view_put"](g, 0.0, path=path),
                    value=lambda g, path: _replay(g, path)),
           promote=None, methods=(),
           examples=(dict(x=(3, 4), value=(4,), path=(
               ("getitem", (("index", (1,)),), None),)),
               dict(x=(3, 4), value=(2, 3), path=(
                   ("transpose", (("dim0", 0), ("dim1", 1)), None),
                   ("getitem", (("index", (Cut(0, 2, None),)),), None)))))
def view_put(xp: Any, x: Array, value: Array, path: tuple[Any, ...]) -> Array:
    """A copy of x whose view along ``path`` holds ``value``."""
    y = xp.array(x, order="K", copy=True)
    _replay(y, path)[...] = value
    return y


def _replay(x: Any, path: tuple[Any, ...]) -> Any:
    """The view that the ops of ``path`` make of x."""
    for name, params, place in path:
        x = OPS[name](x, **dict(params))
        x = x if place is None else x[place]
    return x


# ---------------------------------------------------------------- along a dim
def _gather_params(params: Params, x: Any, index: Any, *rest: Any) -> Params:
    dim = one_dim(params["dim"], x.ndim)
    if index.ndim != x.ndim:
        raise ValueError(f"gather/scatter: index of shape {index.shape} needs as many dims as "
                         f"the tensor of shape {x.shape}")
    return {**params, "dim": dim}


def _check_range(xp: Any, name: str, index: Array, size: int, low: int = 0) -> None:
    """Indices are checked here: CuPy wraps silently, NumPy counts negative ones backwards."""
    if index.size and (int(index.min()) < low or int(index.max()) >= size):
        bad = index[(index < low) | (index >= size)].reshape(-1)[0]
        raise IndexError(f"{name}: index {int(bad)} is out of range for size {size}")


def _places(xp: Any, index: Array, dim: int) -> tuple[Any, ...]:
    """Coordinates of every element of ``index``, with its values along ``dim``."""
    grids = list(xp.ix_(*(xp.arange(s) for s in index.shape)))
    grids[dim] = index
    return tuple(grids)


@primitive("(...),(...)->(...)",
           vjp=dict(x=lambda g, index, x_like, dim: OPS["scatter_add_into"](
               g, index, shape=x_like.shape, dim=dim)),
           promote=None, methods=(), normalise=_gather_params,
           examples=(dict(x=(3, 4), index=Ints((3, 2), 4), dim=1),
                     dict(x=(3, 4), index=Ints((2, 4), 3), dim=0)))
def gather_along(xp: Any, x: Array, index: Array, dim: int) -> Array:
    """``y[i][j] = x[i][index[i][j]]`` for dim 1, and so on."""
    _check_range(xp, "gather", index, x.shape[dim])
    return x[_places(xp, index, dim)]


def gather(x: Any, dim: int, index: Any) -> Any:
    """Values of x along ``dim`` at ``index``: ``y[i][j] = x[i][index[i][j]]`` for dim 1."""
    return OPS["gather_along"](x, index, dim=dim)


@primitive("(...),(...)->(...)",
           vjp=dict(x=lambda g, index, dim: OPS["gather_along"](g, index, dim=dim)),
           promote=None, methods=(),
           examples=(dict(x=(3, 2), index=Ints((3, 2), 4), shape=(3, 4), dim=1),))
def scatter_add_into(
    xp: Any, x: Array, index: Array, shape: tuple[int, ...], dim: int
) -> Array:
    """Zeros of ``shape`` plus x added at ``index`` along ``dim``; repeats add up."""
    y = xp.zeros(shape, x.dtype)
    xp.add.at(y, _places(xp, index, dim), x)
    return y


def _row_ids(params: Params, weight: Any, ids: Any) -> Params:
    padding = params["padding_idx"]
    if ids.dtype.kind not in "iu":
        raise TypeError(f"embedding: ids must be integers, they are {ids.dtype}")
    _check_range(array_module(ids), "embedding", ids, weight.shape[0])
    if padding is None:
        return params
    rows = weight.shape[0]
    if not -rows <= padding < rows:
        raise ValueError(f"embedding: padding_idx {padding} is out of range for {rows} rows")
    return {**params, "padding_idx": int(padding) % rows}


@primitive("(v,d),()->(d)",
           vjp=dict(weight=lambda g, ids, weight_like, padding_idx: OPS["embedding_grad"](
               g, ids, rows=weight_like.shape[0], padding_idx=padding_idx)),
           promote=None, methods=(), normalise=_row_ids,
           examples=(dict(weight=(5, 3), ids=Ints((2, 4), 5)),
                     dict(weight=(5, 3), ids=np.array([[3, 0], [0, 2]]), padding_idx=-1)))
def embedding_rows(xp: Any, weight: Array, ids: Array, padding_idx: int | None = None) -> Array:
    """Row ``ids[...]`` of ``weight`` (V, D): shape (..., D); padding_idx gets no gradient."""
    return weight[ids]


@primitive("(...),(...)->(v,d)",
           vjp=dict(x=lambda g, ids, padding_idx: _unpadded_rows(g, ids, padding_idx)),
           promote=None, methods=(),
           examples=(dict(x=(4, 3), ids=Ints((4,), 5), rows=5, padding_idx=None),
                     dict(x=(4, 3), ids=Ints((4,), 5), rows=5, padding_idx=2)))
def embedding_grad(xp: Any, x: Array, ids: Array, rows: int, padding_idx: Any) -> Array:
    """The rows of x summed by their id: (rows, D), zero at ``padding_idx``."""
    table = _add_rows(xp, xp.zeros((rows, x.shape[-1]), x.dtype), ids, x)
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


def _unpadded_rows(g: Any, ids: Any, padding_idx: Any) -> Any:
    rows = OPS["embedding_rows"](g, ids)
    if padding_idx is None:
        return rows
    keep = OPS["reshape"](OPS["ne"](ids, padding_idx), shape=(*ids.shape, 1))
    return OPS["where"](keep, rows, 0.0)


@primitive("()->(n)", promote=None, methods=())
def one_hot(xp: Any, x: Array, num_classes: int = -1) -> Array:
    """Integer classes as rows of zeros with a one: shape (..., num_classes), int64."""
    classes = int(x.max()) + 1 if num_classes == -1 else num_classes
    _check_range(xp, "one_hot", x, classes)
    return (x[..., None] == xp.arange(classes)).astype(np.int64)


def nonzero(x: Any, *, as_tuple: bool = False) -> Any:
    """Coordinates of the non-zero elements: (count, ndim), int64; or one tensor per dim."""
    raw = getattr(x, "array", x)
    wrap = Tensor if isinstance(x, Tensor) else lambda places: places
    if as_tuple:
        return tuple(map(wrap, raw.nonzero()))
    return wrap(array_module(raw).argwhere(raw))


class Extreme(NamedTuple):
    """The largest or smallest values along a dim, and where they are."""

    values: Any
    indices: Any


def max_along(x: Any, dim: int, keepdim: bool = False) -> Extreme:
    """Largest values along ``dim`` and their indices; one index gets the whole gradient."""
    return _extreme_along(x, OPS["argmax"], dim, keepdim)


def min_along(x: Any, dim: int, keepdim: bool = False) -> Extreme:
    """Smallest values along ``dim`` and their indices."""
    return _extreme_along(x, OPS["argmin"], dim, keepdim)


def _extreme_along(x: Any, arg: Any, dim: int, keepdim: bool) -> Extreme:
    place = one_dim(dim, x.ndim)
    if not x.ndim:
        return _extreme_along(OPS["reshape"](x, shape=(1,)), arg, 0, False)
    indices = arg(x, dim=place, keepdim=True)
    values = OPS["gather_along"](x, indices, dim=place)
    if keepdim:
        return Extreme(values, indices)
    shape = x.shape[:place] + x.shape[place + 1:]
    return Extreme(OPS["reshape"](values, shape=shape), OPS["reshape"](indices, shape=shape))


@primitive("(...)->(...)", promote=None, normalise=along)
def argsort(xp: Any, x: Array, dim: int = -1, descending: bool = False) -> Array:
    """Indices that sort x along ``dim``; equal values keep their order."""
    if not descending:
        return xp.argsort(x, dim, kind="stable")
    backwards = xp.flip(x, dim)
    return x.shape[dim] - 1 - xp.flip(xp.argsort(backwards, dim, kind="stable"), dim)
