"""Matrix products and the affine map."""

from __future__ import annotations

from typing import Any

from minitorch_gpu.registry import primitive
from minitorch_gpu.registry.scalar import OPS

Array = Any


def _same_dtype(params: dict[str, Any], *operands: Any) -> dict[str, Any]:
    dtypes = [x.dtype for x in operands if x is not None]
    if any(d != dtypes[0] for d in dtypes):
        names = ", ".join(d.name for d in dtypes)
        raise TypeError(f"expected operands of one dtype, got {names}: convert with .to(dtype)")
    return params


@primitive(
    "(n,k),(k,m)->(n,m)",
    vjp=dict(a=lambda g, b: g @ OPS["transpose"](b, -2, -1),
             b=lambda g, a: OPS["transpose"](a, -2, -1) @ g),
    normalise=_same_dtype, methods=(),
    examples=(dict(a=(2, 3), b=(3, 4)), dict(a=(5, 1, 2, 3), b=(4, 3, 1)),
              dict(a=(2, 0), b=(0, 3))),
)
def matmul_matrices(xp: Any, a: Array, b: Array) -> Array:
    """Products of matrices over broadcast leading dims."""
    return xp.matmul(a, b)


def matmul(a: Any, b: Any) -> Any:
    """Matrix product; 1-D operands are a row on the left, a column on the right.

    Shapes (..., n, k) and (..., k, m) give (..., n, m).
    """
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"matmul: needs at least 1 dim, got shapes {a.shape} and {b.shape}")
    left = OPS["reshape"](a, (1, a.shape[0])) if a.ndim == 1 else a
    right = OPS["reshape"](b, (b.shape[0], 1)) if b.ndim == 1 else b
    y = OPS["matmul_matrices"](left, right)
    if a.ndim == 1:
        y = OPS["reshape"](y, (*y.shape[:-2], y.shape[-1]))
    return OPS["reshape"](y, y.shape[:-1]) if b.ndim == 1 else y


def _matrix_and_vector(params: dict[str, Any], x: Any, weight: Any, bias: Any) -> Any:
    """A weight of exactly 2 dims and a bias of 1: leading dims are the input's alone."""
    if weight.ndim != 2 or (bias is not None and bias.ndim != 1) or not x.ndim:
        shapes = ", ".join(str(v.shape) for v in (x, weight, bias) if v is not None)
        raise ValueError(f"linear: expects (..., n), (m, n) and (m), got {shapes}")
    return _same_dtype(params, x, weight, bias)


def _weight_slope(g: Any, x: Any) -> Any:
    """One product over all leading dims: (N, m).T @ (N, n)."""
    rows = OPS["reshape"](g, shape=(-1, g.shape[-1])) if g.ndim != 2 else g
    inputs = OPS["reshape"](x, shape=(-1, x.shape[-1])) if x.ndim != 2 else x
    return OPS["transpose"](rows, 0, 1) @ inputs


@primitive(
    "(n),(m,n),(m)?->(m)",
    vjp=dict(x=lambda g, weight: g @ weight, weight=_weight_slope, bias=lambda g: g),
    normalise=_matrix_and_vector, methods=(),
    examples=(dict(x=(2, 3), weight=(4, 3), bias=(4,)), dict(x=(2, 5, 3), weight=(1, 3)),
              dict(x=(3,), weight=(2, 3), bias=(2,))),
)
def linear(xp: Any, x: Array, weight: Array, bias: Array | None = None) -> Array:
    """``x @ weight.T + bias``: x (..., n), weight (m, n), bias (m) give (..., m)."""
    rows = x.reshape(-1, x.shape[-1]) if x.size else x
    y = xp.matmul(rows, weight.T)
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], weight.shape[0])


def outer(a: Any, b: Any) -> Any:
    """All products of two vectors: (n), (m) -> (n, m)."""
    return OPS["reshape"](a, (-1, 1)) * OPS["reshape"](b, (1, -1))
