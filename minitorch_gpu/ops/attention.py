"""Scaled dot-product attention: one fused pair that keeps the probabilities and nothing else.

Queries are taken in tiles of rows. With a causal mask a tile meets only the keys up to its end:

    keys ->        0  64 128 192
    rows   0..63   [#]                 # computed, above the diagonal masked
    rows  64..127  [####]
    rows 128..191  [#######]
    rows 192..255  [##########]

so about half the products, exponentials and memory are saved. Without one there is one tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minitorch_gpu.device import array_module
from minitorch_gpu.registry import composite
from minitorch_gpu.registry.promotion import is_floating
from minitorch_gpu.registry.scalar import OPS

Array = Any
Params = dict[str, Any]
TILE = 64  # rows of a causal tile: enough for the matrix product to be efficient
_INFINITY = float("inf")


# ---------------------------------------------------------------- checks
def _check(params: Params, query: Any, key: Any, value: Any, mask: Any, keep: Any) -> Params:
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ValueError(f"attention: operands must be (..., length, features): {shapes}")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ValueError("attention: query and key must have equally many features, key and "
                         f"value be equally long: {shapes}")
    size = (query.shape[-2], key.shape[-2])
    for name, operand in (("attn_mask", mask), ("dropout mask", keep)):
        if operand is not None and not _fits(operand.shape[-2:], size):
            raise ValueError(f"attention: {name} of shape {operand.shape} does not broadcast "
                             f"to (..., {size[0]}, {size[1]}): {shapes}")
    if mask is not None and mask.dtype != bool and not is_floating(mask.dtype):
        raise TypeError(f"attention: attn_mask must be boolean or floating, it is {mask.dtype}")
    scale = params["scale"]
    scale = max(query.shape[-1], 1) ** -0.5 if scale is None else float(scale)
    return {**params, "scale": scale}


def _fits(shape: tuple[int, ...], size: tuple[int, int]) -> bool:
    return len(shape) == 2 and all(s in (1, n) for s, n in zip(shape, size))


# ---------------------------------------------------------------- tiles
def _tiles(rows: int, keys: int, is_causal: bool) -> list[tuple[slice, slice]]:
    """Slices of rows, with the keys that some row of the slice may see."""
    if not is_causal:
        return [(slice(0, rows), slice(0, keys))]
    ends = [min(start + TILE, rows) for start in range(0, rows, TILE)]
    return [(slice(start, end), slice(0, min(end, keys)))
            for start, end in zip(range(0, rows, TILE), ends)]


def _lead(*operands: Any) -> tuple[int, ...]:
    """The leading dims of all operands, broadcast."""
    return np.broadcast_shapes(*(o.shape[:-2] for o in operands if o is not None))


def _empty(xp: Any, like: Array, lead: tuple[int, ...], rows: int, features: int) -> Array:
    """New memory in the order of ``like``: heads cut from (B, L, H, D) are written so again."""
    return xp.empty_like(like, shape=(*lead, rows, features))


def _transposed(x: Array) -> Array:
    return x.swapaxes(-1, -2)


def _part(x: Array, rows: slice, keys: slice) -> Array:
    """A tile of a mask whose last two dims may be 1."""
    rows = rows if x.shape[-2] > 1 else slice(None)
    return x[..., rows, keys if x.shape[-1] > 1 else slice(None)]


def _additive(xp: Any, mask: Any, dtype: Any) -> Any:
    """A mask as what is added to the scores."""
    if mask is None:
        return None
    if mask.dtype == bool:
        return xp.where(mask, dtype.type(0), dtype.type(-_INFINITY))
    return mask.astype(dtype, copy=False)


def _above_diagonal(xp: Any, rows: slice, keys: slice, dtype: Any) -> Array:
    """-inf where a key comes after its row, else 0, for the keys from the tile's first row."""
    size = (rows.stop - rows.start, max(keys.stop - rows.start, 0))
    return xp.triu(xp.full(size, -_INFINITY, dtype), 1)


def _softmax_inside(xp: Any, scores: Array) -> Array:
    """Softmax of each row in place; a row of -inf alone becomes 0, as in PyTorch."""
    top = scores.max(-1, keepdims=True)
    scores -= xp.maximum(top, np.finfo(scores.dtype).min)
    xp.exp(scores, out=scores)
    # A row that sees a key has exp(0) in its sum.
    scores /= xp.maximum(scores.sum(-1, keepdims=True), 1)
    return scores


# ---------------------------------------------------------------- the fused pair
def _forward(
    xp: Any, query: Array, key: Array, value: Array, attn_mask: Any, keep: Any, *,
    is_causal: bool, scale: float, keep_scale: float,
) -> tuple[Array, tuple[Array, ...]]:
    lead = _lead(query, key, value, attn_mask, keep)
    result = _empty(xp, query, lead, query.shape[-2], value.shape[-1])
    scaled, mask, kept = query * scale, _additive(xp, attn_mask, query.dtype), []
    for rows, keys in _tiles(query.shape[-2], key.shape[-2], is_causal):
        scores = xp.matmul(scaled[..., rows, :], _transposed(key[..., keys, :]))
        if mask is not None:
            scores = _plus(xp, scores, _part(mask, rows, keys))
        if is_causal:
            scores[..., rows.start:] += _above_diagonal(xp, rows, keys, scores.dtype)
        kept.append(_softmax_inside(xp, scores))
        weights = _dropped(scores, keep, keep_scale, rows, keys)
        xp.matmul(weights, value[..., keys, :], out=result[..., rows, :])
    return result, tuple(kept)


def _plus(xp: Any, scores: Array, mask: Array) -> Array:
    """The sum, in the memory of ``scores`` unless the mask has more leading dims."""
    inside = np.broadcast_shapes(scores.shape, mask.shape) == scores.shape
    total: Array = xp.add(scores, mask, out=scores if inside else None)
    return total


def _dropped(weights: Array, keep: Any, scale: float, rows: slice, keys: slice) -> Array:
    """``weights * keep * scale``; the weights themselves without dropout."""
    if keep is None:
        return weights
    weights = weights * _part(keep, rows, keys)
    weights *= scale
    return weights


def _backward(
    xp: Any, g: Array, kept: Any, inputs: Any, needs: Any, *, is_causal: bool, scale: float,
    keep_scale: float,
) -> list[Any]:
    query, key, value, _, keep = inputs
    tiles = _tiles(query.shape[-2], key.shape[-2], is_causal)
    slopes = _allocated(xp, g.shape[:-2], inputs, needs, tiles[-1][1].stop)
    scaled = query * scale if needs[1] else None
    # The last tile sees the most keys, so it writes their slopes and the others add to them.
    for (rows, keys), weights in zip(tiles[::-1], kept[::-1]):
        first, part = rows.stop == query.shape[-2], g[..., rows, :]
        if needs[2]:
            dropped = _dropped(weights, keep, keep_scale, rows, keys)
            _put_product(xp, slopes[2][..., keys, :], _transposed(dropped), part, first)
        if not (needs[0] or needs[1] or needs[3]):
            continue
        inner = xp.matmul(part, _transposed(value[..., keys, :]))
        inner = _dropped(inner, keep, keep_scale, rows, keys)
        inner -= xp.einsum("...ij,...ij->...i", inner, weights)[..., None]
        inner *= weights  # the slopes of the scores
        if needs[0]:
            xp.matmul(inner, key[..., keys, :], out=slopes[0][..., rows, :])
        if scaled is not None:
            _put_product(xp, slopes[1][..., keys, :], _transposed(inner), scaled[..., rows, :],
                         first)
        if needs[3]:
            slopes[3][..., rows, keys] = inner
    if needs[0]:
        slopes[0] *= scale
    return slopes


def _allocated(
    xp: Any, lead: tuple[int, ...], inputs: Any, needs: Any, seen: int
) -> list[Any]:
    """Memory for the operands' slopes, zero for the keys that no query sees."""
    query, key, value = inputs[:3]
    slopes = [_empty(xp, x, lead, *x.shape[-2:]) if need else None
              for x, need in zip((query, key, value), needs)]
    for slope in slopes[1:]:
        if slope is not None:
            slope[..., seen:, :] = 0
    mask = (*lead, query.shape[-2], key.shape[-2])
    return [*slopes, xp.zeros(mask, query.dtype) if needs[3] else None, None]


def _put_product(xp: Any, place: Array, a: Array, b: Array, first: bool) -> None:
    if first:
        xp.matmul(a, b, out=place)
    else:
        place += xp.matmul(a, b)


# ---------------------------------------------------------------- the op
_OPERANDS = dict(query=(2, 3, 2), key=(2, 4, 2), value=(2, 4, 3))
_SQUARE = dict(query=(2, 2, 3, 2), key=(2, 1, 3, 2), value=(2, 3, 1))
_SEEN = np.array([[True, False, True], [False] * 3, [True] * 3])


@composite(
    "(l,e),(s,e),(s,v),(...)?,(l,s)?->(l,v)", forward=_forward, backward=_backward,
    normalise=_check, promote=("query", "key", "value"), methods=(), domain=(-1.0, 1.0),
    examples=(_OPERANDS, dict(**_OPERANDS, is_causal=True, scale=0.3),
              dict(**_OPERANDS, attn_mask=(3, 4)), dict(**_OPERANDS, attn_mask=(2, 2, 1, 4)),
              dict(**_OPERANDS, keep=np.arange(24).reshape(2, 3, 4) % 5 > 0, keep_scale=1.25),
              dict(**_SQUARE, attn_mask=_SEEN), dict(**_SQUARE, is_causal=True),
              dict(query=(4, 2), key=(3, 2), value=(3, 2), is_causal=True)),
)
def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, keep: Any = None, *,
    is_causal: bool = False, scale: Any = None, keep_scale: float = 1.0,
) -> Any:
    """``softmax(query @ key.mT * scale + mask) @ value`` (Vaswani et al. 2017, eq. 1).

    Rows that see no key are 0, and so are their gradients.

    Args:
        query: (..., L, E).
        key: (..., S, E); leading dims broadcast.
        value: (..., S, V).
        attn_mask: broadcasts to (..., L, S). Boolean: True takes part; floating: added.
        keep: boolean, broadcasts to (..., L, S): the probabilities that dropout keeps.
        is_causal: query i sees keys 0 to i.
        scale: ``1 / sqrt(E)`` by default.
        keep_scale: the factor of the probabilities that are kept.

    Returns:
        (..., L, V).

    Raises:
        ValueError: shapes that do not fit.
        TypeError: a mask of integers.
    """
    scores = OPS["matmul_matrices"](query * scale, OPS["transpose"](key, -2, -1))
    if attn_mask is not None:
        scores = scores + _added(attn_mask, scores.dtype)
    if is_causal:
        xp = array_module(getattr(query, "array", query))
        late = ~xp.tri(query.shape[-2], key.shape[-2], dtype=bool)
        scores = OPS["masked_fill"](scores, late, value=-_INFINITY)
    if attn_mask is None:
        weights = OPS["softmax"](scores, dim=-1)
    else:
        blind = OPS["eq"](OPS["amax"](scores, dim=-1, keepdim=True), -_INFINITY)
        weights = OPS["softmax"](OPS["masked_fill"](scores, blind, value=0.0), dim=-1)
        weights = OPS["masked_fill"](weights, blind, value=0.0)
    if keep is not None:
        weights = OPS["mask_scale"](weights, keep, scale=keep_scale)
    return OPS["matmul_matrices"](weights, value)


def _added(mask: Any, dtype: Any) -> Any:
    if mask.dtype == bool:
        mask = OPS["where"](mask, 0.0, -_INFINITY)
    return OPS["cast"](mask, dtype=dtype)
