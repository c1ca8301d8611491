"""Elements in other places: repeats, rolls, rotations, diagonals, padding, pixel shuffles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minitorch_gpu.device import array_module
from minitorch_gpu.index import Cut
from minitorch_gpu.ops import linalg, shape
from minitorch_gpu.ops.dims import one_dim, sizes
from minitorch_gpu.registry import primitive
from minitorch_gpu.registry.scalar import OPS
from minitorch_gpu.tensor import Tensor

Array = Any
Shape = tuple[int, ...]
Params = dict[str, Any]


def _loose(values: tuple[Any, ...]) -> Shape:
    """Integers given one by one or as one sequence."""
    return sizes(values[0]) if len(values) == 1 else sizes(values)


# ---------------------------------------------------------------- shapes
def unflatten(x: Any, dim: int, sizes: Sequence[int]) -> Any:
    """Dim ``dim`` split into ``sizes``, of which one may be -1."""
    place, rest = one_dim(dim, x.ndim), [int(s) for s in sizes]
    known = math.prod(s for s in rest if s != -1)
    if rest.count(-1) == 1 and known:
        rest[rest.index(-1)] = x.shape[place] // known
    if math.prod(rest) != x.shape[place] or min(rest, default=0) < 0:
        raise ValueError(f"unflatten: sizes {tuple(sizes)} do not multiply up to dim {dim} of "
                         f"size {x.shape[place]}")
    return OPS["reshape"](x, shape=(*x.shape[:place], *rest, *x.shape[place + 1:]))


def ravel(x: Any) -> Any:
    """All elements in one dim: a view where memory allows."""
    return OPS["reshape"](x, shape=(-1,))


def t(x: Any) -> Any:
    """A matrix transposed; fewer dims stay as they are. A view."""
    if x.ndim > 2:
        raise ValueError(f"t: needs at most 2 dims, x has shape {x.shape}: use .transpose")
    return OPS["permute"](x, dims=tuple(range(x.ndim))[::-1])


def swapaxes(x: Any, axis0: int, axis1: int) -> Any:
    """Two dims swapped: a view."""
    return OPS["transpose"](x, dim0=axis0, dim1=axis1)


def broadcast_to(x: Any, shape: Sequence[int]) -> Any:
    """x as if repeated to ``shape``: a read-only view."""
    return OPS["expand"](x, shape=shape)


def mm(a: Any, b: Any) -> Any:
    """Product of two matrices: (n, k), (k, m) give (n, m)."""
    return _product("mm", a, b, 2)


def bmm(a: Any, b: Any) -> Any:
    """Products of two batches of matrices: (b, n, k), (b, k, m) give (b, n, m)."""
    return _product("bmm", a, b, 3)


def _product(name: str, a: Any, b: Any, dims: int) -> Any:
    if a.ndim != dims or b.ndim != dims or a.shape[:-2] != b.shape[:-2]:
        raise ValueError(f"{name}: needs two operands of {dims} dims and equal leading ones, "
                         f"got shapes {a.shape} and {b.shape}: matmul broadcasts")
    return linalg.matmul(a, b)


# ---------------------------------------------------------------- repeating
def repeat(x: Any, *repeats: Any) -> Any:
    """x laid out again and again: ``repeats`` times along each dim, new dims in front.

    Raises:
        ValueError: fewer repeats than dims.
    """
    times = _loose(repeats)
    lead = len(times) - x.ndim
    if lead < 0 or any(n < 0 for n in times):
        raise ValueError(f"repeat: repeats {times} for {x.ndim} dims: give one non-negative "
                         "number per dim at least")
    old = (1,) * lead + tuple(x.shape)
    split = OPS["reshape"](x, shape=[part for s in old for part in (1, s)])
    full = OPS["expand"](split, shape=[part for pair in zip(times, old) for part in pair])
    joined = OPS["reshape"](full, shape=[n * s for n, s in zip(times, old)])
    return joined if math.prod(times) != 1 else OPS["clone"](joined)


def tile(x: Any, *dims: Any) -> Any:
    """``repeat`` with fewer numbers than dims allowed: 1 for the dims in front."""
    times = _loose(dims)
    return repeat(x, (1,) * (x.ndim - len(times)) + times)


def repeat_interleave(x: Any, repeats: Any, dim: int | None = None, *,
                      output_size: int | None = None) -> Any:
    """Each slice along ``dim`` ``repeats`` times in a row; of the flat x for None.

    Args:
        x: any shape.
        repeats: a number, or integers, one per slice.
        dim: None flattens x first.
        output_size: the size that comes out, checked.
    """
    if dim is None:
        x, dim = OPS["reshape"](x, shape=(-1,)), 0
    place = one_dim(dim, x.ndim)
    xp = array_module(getattr(x, "array", x))
    times = xp.asarray(getattr(repeats, "array", repeats))
    if times.dtype.kind not in "iu" or times.ndim > 1 or (times < 0).any():
        raise ValueError(f"repeat_interleave: repeats {repeats} must be a number >= 0 or a "
                         "line of them")
    if times.size not in (1, x.shape[place]):
        raise ValueError(f"repeat_interleave: {times.size} repeats for dim {dim} of size "
                         f"{x.shape[place]}")
    places = _counted(xp, xp.broadcast_to(times.reshape(-1), (x.shape[place],)))
    if output_size not in (None, places.size):
        raise ValueError(f"repeat_interleave: output_size {output_size}, the repeats add up to "
                         f"{places.size}")
    return OPS["index"](x, [Tensor(places) if isinstance(x, Tensor) else places],
                        spec=(Cut(None, None, None),) * place + ("array",))


def _counted(xp: Any, times: Array) -> Array:
    """0 ``times[0]`` times, 1 ``times[1]`` times, ...: where each output place ends up."""
    ends = xp.cumsum(times)
    return xp.searchsorted(ends, xp.arange(int(times.sum())), side="right")


# ---------------------------------------------------------------- joining and splitting
def _at_least(x: Any, dims: int) -> Any:
    """PyTorch's atleast_1d..3d: a line is a row; a matrix becomes (n, m, 1)."""
    if dims == 3 and x.ndim in (1, 2):
        return OPS["reshape"](x, shape=(*(1,) * (2 - x.ndim), *x.shape, 1))
    return OPS["reshape"](x, shape=(1,) * (dims - x.ndim) + tuple(x.shape))


def hstack(tensors: Sequence[Any]) -> Any:
    """Side by side: along dim 1, lines along dim 0."""
    parts = [_at_least(x, 1) for x in tensors]
    return OPS["cat"](parts, dim=0 if parts and parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Any]) -> Any:
    """On top of each other: along dim 0, lines being rows."""
    return OPS["cat"]([_at_least(x, 2) for x in tensors], dim=0)


def dstack(tensors: Sequence[Any]) -> Any:
    """Behind each other: along dim 2."""
    return OPS["cat"]([_at_least(x, 3) for x in tensors], dim=2)


def tensor_split(x: Any, indices_or_sections: Any, dim: int = 0) -> tuple[Any, ...]:
    """Parts along ``dim``, as views: so many of nearly equal size, or cut at the indices."""
    place = one_dim(dim, x.ndim)
    if not x.ndim:
        raise ValueError("tensor_split: needs at least 1 dim, x has none")
    size, cuts = x.shape[place], getattr(indices_or_sections, "array", indices_or_sections)
    if np.ndim(cuts) == 0:
        count = int(cuts)
        if count <= 0:
            raise ValueError(f"tensor_split: the number of sections must be positive: {count}")
        cuts = [part * (size // count) + min(part, size % count) for part in range(1, count)]
    edges = [slice(int(cut), None).indices(size)[0] for cut in cuts]
    starts, ends = [0, *edges], [*edges, size]
    return tuple(OPS["narrow"](x, dim=place, start=a, length=max(b - a, 0))
                 for a, b in zip(starts, ends))


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Any, ...]:
    """Coordinate grids of lines: grid k holds line k along dim k, equal along the others.

    Args:
        tensors: at most 1-D each, one by one or in one list.
        indexing: "ij" for matrix order; "xy" swaps the first two dims.
    """
    listed = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    given = tensors[0] if listed else tensors
    if indexing not in ("ij", "xy") or any(x.ndim > 1 for x in given):
        raise ValueError(f'meshgrid: indexing {indexing!r} must be "ij" or "xy", and the '
                         f"shapes {[x.shape for x in given]} at most 1-D")
    if len({x.dtype for x in given}) > 1:
        raise TypeError(f"meshgrid: the dtypes {[x.dtype.name for x in given]} differ: "
                        "convert with .to(dtype)")
    lines = [OPS["reshape"](x, shape=(-1,)) for x in given]
    full = tuple(x.shape[0] for x in lines)
    grids = [OPS["expand"](_in_dim(x, k, len(full)), shape=full) for k, x in enumerate(lines)]
    if indexing == "xy" and len(grids) > 1:
        grids = [OPS["transpose"](grid, dim0=0, dim1=1) for grid in grids]
    return tuple(grids)


def _in_dim(line: Any, dim: int, ndim: int) -> Any:
    """A line lying along ``dim`` of ``ndim``, the other dims of size 1."""
    return OPS["reshape"](line, shape=[-1 if i == dim else 1 for i in range(ndim)])


def unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    """All slices of ``size`` along ``dimension``, ``step`` apart, as a new last dim: a copy."""
    place = one_dim(dimension, x.ndim)
    line = x if x.ndim else OPS["reshape"](x, shape=(1,))
    if not 0 <= size <= line.shape[place] or step < 1:
        raise ValueError(f"unfold: size {size} and step {step} do not fit dim {dimension} of "
                         f"shape {x.shape}")
    xp = array_module(getattr(x, "array", x))
    starts = xp.arange(0, line.shape[place] - size + 1, step)
    places = starts[:, None] + xp.arange(size)
    taken = OPS["index"](line, [Tensor(places) if isinstance(x, Tensor) else places],
                         spec=(Cut(None, None, None),) * place + ("array",))
    moved = shape.movedim(taken, place + 1, -1)
    return moved if x.ndim else OPS["reshape"](moved, shape=(size,))


# ---------------------------------------------------------------- turning
def _roll_params(params: Params, x: Any) -> Params:
    shifts, dims = sizes(params["shifts"]), params["dims"]
    if dims is None:
        return {"shifts": shifts, "dims": None}
    places = tuple(one_dim(d, x.ndim) for d in sizes(dims))
    if len(places) != len(shifts):
        raise ValueError(f"roll: shifts {shifts} and dims {dims} differ in number")
    return {"shifts": shifts, "dims": places}


@primitive("(...)->(...)",
           vjp=dict(x=lambda g, shifts, dims: OPS["roll"](
               g, shifts=tuple(-s for s in shifts), dims=dims)),
           promote=None, normalise=_roll_params,
           examples=(dict(x=(2, 3), shifts=2), dict(x=(2, 3), shifts=(-1, 4), dims=(0, -1)),
                     dict(x=(3, 0), shifts=1, dims=1), dict(x=(), shifts=1)))
def roll(xp: Any, x: Array, shifts: Any, dims: Any = None) -> Array:
    """Elements moved on by ``shifts`` along ``dims``, the last coming back first.

    Without ``dims`` in the flat order of all elements.
    """
    if dims is None:
        return xp.roll(x.reshape(-1), sum(shifts)).reshape(x.shape)
    return xp.roll(x, shifts, dims) if x.ndim else x.copy()


def rot90(x: Any, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    """Turned ``k`` times by 90 degrees, from the first of ``dims`` towards the second."""
    if len(dims) != 2 or x.ndim < 2:
        raise ValueError(f"rot90: needs two dims of at least 2, got {dims} of shape {x.shape}")
    first, second = (one_dim(d, x.ndim) for d in dims)
    if first == second:
        raise ValueError(f"rot90: dims {tuple(dims)} are the same")
    turns = k % 4
    if turns in (0, 2):
        return OPS["flip"](x, dims=(first, second)) if turns else OPS["clone"](x)
    flipped = OPS["flip"](x, dims=(second if turns == 1 else first,))
    return OPS["transpose"](flipped, dim0=first, dim1=second)


# ---------------------------------------------------------------- diagonals
def _two_different(params: Params, x: Any, *rest: Any) -> Params:
    first, second = one_dim(params["dim1"], x.ndim), one_dim(params["dim2"], x.ndim)
    if x.ndim < 2 or first == second:
        raise ValueError(f"diagonal: dim1 {params['dim1']} and dim2 {params['dim2']} must be "
                         f"two dims of x, which has shape {x.shape}")
    return {**params, "dim1": first, "dim2": second}


@primitive("(...)->(...)",
           vjp=dict(x=lambda g, x_like, offset, dim1, dim2: OPS["diagonal_put"](
               g, shape=x_like.shape, offset=offset, dim1=dim1, dim2=dim2)),
           promote=None, view=True, normalise=_two_different,
           examples=(dict(x=(3, 4)), dict(x=(2, 3, 4), offset=-1, dim1=2, dim2=0),
                     dict(x=(2, 3), offset=5)))
def diagonal(xp: Any, x: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """The diagonal of dims ``dim1`` and ``dim2`` as a last dim, ``offset`` above: a view."""
    y = x.diagonal(offset, dim1, dim2)
    if isinstance(y, np.ndarray):
        y.flags.writeable = x.flags.writeable  # NumPy's own is read-only
    return y


@primitive("(...)->(...)",
           vjp=dict(x=lambda g, offset, dim1, dim2: OPS["diagonal"](
               g, offset=offset, dim1=dim1, dim2=dim2)),
           promote=None, methods=(),
           examples=(dict(x=(3,), shape=(3, 4), offset=0, dim1=0, dim2=1),
                     dict(x=(3, 2), shape=(2, 3, 4), offset=-1, dim1=2, dim2=0)))
def diagonal_put(xp: Any, x: Array, shape: Shape, offset: int, dim1: int, dim2: int) -> Array:
    """Zeros of ``shape`` with x on a diagonal: the gradient of ``diagonal``."""
    y = xp.zeros(shape, x.dtype)
    diagonal_of = OPS["diagonal"](y, offset=offset, dim1=dim1, dim2=dim2)
    diagonal_of[...] = x
    return y


def diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Square matrices in dims ``dim1`` and ``dim2`` with the last dim of x on a diagonal."""
    first, second = one_dim(dim1, x.ndim + 1), one_dim(dim2, x.ndim + 1)
    if first == second or not x.ndim:
        raise ValueError(f"diag_embed: dim1 {dim1} and dim2 {dim2} must differ, and x have a "
                         f"dim; its shape is {x.shape}")
    side = x.shape[-1] + abs(offset)
    outer = iter(x.shape[:-1])
    full = tuple(side if i in (first, second) else next(outer) for i in range(x.ndim + 1))
    return OPS["diagonal_put"](x, shape=full, offset=offset, dim1=first, dim2=second)


def diag(x: Any, diagonal: int = 0) -> Any:
    """The diagonal of a matrix, copied; or a matrix with a line on its diagonal."""
    if x.ndim not in (1, 2):
        raise ValueError(f"diag: needs 1 or 2 dims, x has shape {x.shape}: use diagonal")
    if x.ndim == 1:
        return diag_embed(x, diagonal)
    return OPS["clone"](OPS["diagonal"](x, offset=diagonal))


