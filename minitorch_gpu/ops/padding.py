"""Padding at the edges, and pixels traded for channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minitorch_gpu.index import Cut
from minitorch_gpu.ops.dims import sizes
from minitorch_gpu.registry import primitive
from minitorch_gpu.registry.scalar import OPS

Array = Any
Pairs = tuple[tuple[int, int], ...]


@primitive("(...)->(...)", vjp=dict(x=lambda g, x_like, pads: OPS["getitem"](
               g, index=tuple(Cut(before, before + size, None)
                              for size, (before, _) in zip(x_like.shape, pads)))),
           promote=None, methods=(),
           examples=(dict(x=(2, 3), pads=((0, 1), (2, 0)), value=1.5),
                     dict(x=(0, 2), pads=((1, 1), (0, 0)), value=0.0)))
def pad_constant(xp: Any, x: Array, pads: Pairs, value: float) -> Array:
    """x with ``value`` around it: (before, after) per dim, none negative."""
    size = tuple(before + s + after for s, (before, after) in zip(x.shape, pads))
    y = xp.full(size, value, x.dtype)
    y[tuple(slice(before, before + s) for s, (before, _) in zip(x.shape, pads))] = x
    return y


def pad(x: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """x with edges added: ``pad`` is (before, after) of the last dim, then of the one before.

        constant   0 0 | a b c | 0 0        reflect    c b | a b c | b a
        replicate  a a | a b c | c c        circular   b c | a b c | a b

    Args:
        x: any shape; the modes other than "constant" pad the last 1 to 3 dims of x that has
            one or two dims more.
        pad: an even number of widths; a negative one cuts off.
        mode: "constant", "reflect", "replicate" or "circular".
        value: for "constant", 0 by default.
    """
    widths = sizes(pad)
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise ValueError(f"pad: {widths} must be pairs, at most one for each of {x.ndim} dims")
    if mode != "constant" and mode not in EDGES:
        raise ValueError(f'pad: mode {mode!r} must be "constant", "reflect", "replicate" or '
                         '"circular"')
    count = len(widths) // 2
    if mode != "constant" and (value is not None or not count < x.ndim <= count + 2):
        raise ValueError(f"pad: mode {mode!r} takes no value (it is {value}) and pads all but "
                         f"the first 1 or 2 dims, {widths} for shape {x.shape} does not")
    pairs = ((0, 0),) * (x.ndim - count) + tuple(
        (widths[2 * i], widths[2 * i + 1]) for i in reversed(range(count)))
    if mode != "constant":
        for dim, pair in enumerate(pairs):
            x = _with_edges(x, dim, pair, mode)
        return x
    grown = tuple((max(before, 0), max(after, 0)) for before, after in pairs)
    value = 0.0 if value is None else value
    return OPS["pad_constant"](_cut(x, pairs), pads=grown, value=value)


def _cut(x: Any, pairs: Pairs) -> Any:
    """Without what negative widths take off."""
    for dim, (before, after) in enumerate(pairs):
        first, last = -min(before, 0), -min(after, 0)
        if first + last > x.shape[dim]:
            raise ValueError(f"pad: ({before}, {after}) cuts more than dim {dim} of size "
                             f"{x.shape[dim]} holds")
        if first or last:
            x = OPS["narrow"](x, dim=dim, start=first, length=x.shape[dim] - first - last)
    return x


def _circular(x: Any, dim: int, width: int, after: bool) -> Any:
    start = 0 if after else x.shape[dim] - width
    return OPS["narrow"](x, dim=dim, start=start, length=width)


def _reflect(x: Any, dim: int, width: int, after: bool) -> Any:
    start = x.shape[dim] - width - 1 if after else 1
    return OPS["flip"](OPS["narrow"](x, dim=dim, start=start, length=width), dims=(dim,))


def _replicate(x: Any, dim: int, width: int, after: bool) -> Any:
    edge = OPS["narrow"](x, dim=dim, start=x.shape[dim] - 1 if after else 0, length=1)
    return OPS["expand"](edge, shape=tuple(width if i == dim else s
                                           for i, s in enumerate(x.shape)))


# Per mode: the edge it adds, and the widest it can be for a size (None: any).
EDGES: dict[str, tuple[Any, Any]] = {
    "circular": (_circular, lambda size: size),
    "reflect": (_reflect, lambda size: size - 1),
    "replicate": (_replicate, lambda size: None if size else 0),
}


def _with_edges(x: Any, dim: int, pair: tuple[int, int], mode: str) -> Any:
    edge, widest = EDGES[mode]
    cuts = tuple((min(pair[0], 0), min(pair[1], 0)) if i == dim else (0, 0)
                 for i in range(x.ndim))
    if mode == "circular":  # what is left is what comes round again
        x = _cut(x, cuts)
    limit = widest(x.shape[dim])
    if limit is not None and max(pair) > limit:
        raise ValueError(f"pad: mode {mode!r} can add at most {limit} to dim {dim} of shape "
                         f"{x.shape}, not {pair}")
    parts = [x]
    if pair[0] > 0:
        parts.insert(0, edge(x, dim, pair[0], False))
    if pair[1] > 0:
        parts.append(edge(x, dim, pair[1], True))
    joined = OPS["cat"](parts, dim=dim) if len(parts) > 1 else x
    return joined if mode == "circular" else _cut(joined, cuts)


# ---------------------------------------------------------------- pixels and channels
def pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    """(..., C r^2, H, W) to (..., C, H r, W r): sub-pixel convolution's last step.

    Shi et al. 2016, "Real-Time Single Image and Video Super-Resolution", eq. 4.
    """
    r = upscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-3] % (r * r):
        raise ValueError(f"pixel_shuffle: shape {x.shape} needs 3 dims and channels divisible "
                         f"by the square of upscale_factor {r}")
    *outer, channels, height, width = x.shape
    split = OPS["reshape"](x, shape=(*outer, channels // (r * r), r, r, height, width))
    n = len(outer)
    moved = OPS["permute"](split, dims=(*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return OPS["reshape"](moved, shape=(*outer, channels // (r * r), height * r, width * r))


def pixel_unshuffle(x: Any, downscale_factor: int) -> Any:
    """(..., C, H r, W r) to (..., C r^2, H, W): undoes ``pixel_shuffle``."""
    r = downscale_factor
    if x.ndim < 3 or r < 1 or x.shape[-1] % r or x.shape[-2] % r:
        raise ValueError(f"pixel_unshuffle: shape {x.shape} needs 3 dims and a height and "
                         f"width divisible by downscale_factor {r}")
    *outer, channels, height, width = x.shape
    split = OPS["reshape"](x, shape=(*outer, channels, height // r, r, width // r, r))
    n = len(outer)
    moved = OPS["permute"](split, dims=(*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return OPS["reshape"](moved, shape=(*outer, channels * r * r, height // r, width // r))
