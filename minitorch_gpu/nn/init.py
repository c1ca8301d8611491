"""Initial values of parameters: PyTorch's distributions, drawn by our generator, in place.

``shard={dim: (start, total)}`` draws only the slice of a larger parameter that a rank holds;
fans are those of the full shape, or of ``fan_shape`` where a parameter is several weights.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitorch_gpu import random
from minitorch_gpu.inplace import write_raw
from minitorch_gpu.tensor import Tensor

Shape = tuple[int, ...]
Shard = dict[int, tuple[int, int]] | None

# Factor that keeps the variance of activations, by nonlinearity (He et al. 2015, eq. 10).
_GAINS = {"linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "sigmoid": 1.0,
          "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The recommended gain of a nonlinearity; ``param`` is leaky_relu's slope (0.01)."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1.0 + slope * slope))
    if nonlinearity not in _GAINS:
        known = ", ".join([*_GAINS, "leaky_relu"])
        raise ValueError(f"no gain for nonlinearity {nonlinearity!r}; there are {known}")
    return _GAINS[nonlinearity]


def fans(shape: Shape) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight (out, in, ...receptive field).

    Raises:
        ValueError: the shape has fewer than 2 dims.
    """
    if len(shape) < 2:
        raise ValueError(f"fans need a weight of at least 2 dims, the shape is {shape}")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def _cuts(tensor: Tensor, shard: Shard) -> list[tuple[int, int]]:
    """(start, total) of every dim."""
    return [(shard or {}).get(dim, (0, n)) for dim, n in enumerate(tensor.shape)]


def _whole_shape(tensor: Tensor, shard: Shard) -> Shape:
    return tuple(total for _, total in _cuts(tensor, shard))


def _write(tensor: Tensor, values: Any) -> Tensor:
    write_raw(tensor.array, values, "init")
    return tensor


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Any = None,
    shard: Shard = None,
) -> Tensor:
    """Uniform in [a, b)."""
    return _write(tensor, random.uniform(tensor.shape, a, b, dtype=tensor.dtype,
                                         where=tensor.device, generator=generator, shard=shard))


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None,
    shard: Shard = None,
) -> Tensor:
    """Normal with the given mean and standard deviation."""
    return _write(tensor, random.normal(tensor.shape, mean, std, dtype=tensor.dtype,
                                        where=tensor.device, generator=generator, shard=shard))


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, *,
    generator: Any = None, shard: Shard = None,
) -> Tensor:
    """Normal, limited to [a, b], by inverting the distribution function of a uniform draw."""
    from scipy.special import ndtr, ndtri

    if std <= 0 or a >= b:
        raise ValueError(f"trunc_normal_ needs std > 0 and a < b, got std={std}, a={a}, b={b}")
    low, high = ndtr((a - mean) / std), ndtr((b - mean) / std)
    draw = random.uniform(tensor.shape, low, high, dtype=np.float64, generator=generator,
                          shard=shard)
    values = np.clip(mean + std * ndtri(draw), a, b).astype(tensor.dtype)
    tensor.data.copy_(Tensor(values).to(tensor.device))
    return tensor


def constant_(tensor: Tensor, val: float) -> Tensor:
    """The same value everywhere."""
    return _write(tensor, val)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return _write(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return _write(tensor, 1)


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, *, generator: Any = None, shard: Shard = None,
    fan_shape: Shape | None = None,
) -> Tensor:
    """Uniform in +-gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010, eq. 16)."""
    fan_in, fan_out = fans(fan_shape or _whole_shape(tensor, shard))
    bound = gain * math.sqrt(6.0 / max(fan_in + fan_out, 1))
    return uniform_(tensor, -bound, bound, generator=generator, shard=shard)


def xavier_normal_(
    tensor: Tensor, gain: float = 1.0, *, generator: Any = None, shard: Shard = None,
    fan_shape: Shape | None = None,
) -> Tensor:
    """Normal with std gain * sqrt(2 / (fan_in + fan_out))."""
    fan_in, fan_out = fans(fan_shape or _whole_shape(tensor, shard))
    std = gain * math.sqrt(2.0 / max(fan_in + fan_out, 1))
    return normal_(tensor, 0.0, std, generator=generator, shard=shard)


def _kaiming_std(shape: Shape, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f'mode is {mode!r}; use "fan_in" or "fan_out"')
    fan = fans(shape)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", *,
    generator: Any = None, shard: Shard = None, fan_shape: Shape | None = None,
) -> Tensor:
    """Uniform in +-gain * sqrt(3 / fan) (He et al. 2015)."""
    shape = fan_shape or _whole_shape(tensor, shard)
    bound = math.sqrt(3.0) * _kaiming_std(shape, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator=generator, shard=shard)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", *,
    generator: Any = None, shard: Shard = None, fan_shape: Shape | None = None,
) -> Tensor:
    """Normal with std gain / sqrt(fan) (He et al. 2015, eq. 10)."""
    std = _kaiming_std(fan_shape or _whole_shape(tensor, shard), a, mode, nonlinearity)
    return normal_(tensor, 0.0, std, generator=generator, shard=shard)


def orthogonal_(
    tensor: Tensor, gain: float = 1.0, *, generator: Any = None, shard: Shard = None
) -> Tensor:
    """Rows (or columns, if fewer) orthonormal, times gain (Saxe et al. 2014).

    The QR decomposition of a normal matrix, signs fixed so that it is uniformly distributed.
    With ``shard`` the whole is drawn, then cut.
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_ needs at least 2 dims, the shape is {tensor.shape}")
    cuts, shape = _cuts(tensor, shard), _whole_shape(tensor, shard)
    rows, columns = shape[0], math.prod(shape[1:])
    flat = random.normal((max(rows, columns), min(rows, columns)), dtype=np.float64,
                         generator=generator)
    q, r = np.linalg.qr(flat)
    q = q * np.sign(np.diag(r))
    whole = gain * (q if rows >= columns else q.T).reshape(shape)
    values = whole[tuple(slice(start, start + n) for (start, _), n in zip(cuts, tensor.shape))]
    tensor.data.copy_(Tensor(values.astype(tensor.dtype)).to(tensor.device))
    return tensor


def bias_uniform_(bias: Tensor, fan_in: int, *, shard: Shard = None) -> Tensor:
    """Uniform in +-1 / sqrt(fan_in): the bias of linear and convolution layers."""
    bound = 1.0 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return uniform_(bias, -bound, bound, shard=shard)
