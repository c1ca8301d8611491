"""A mini deep-learning framework: tensors, autograd, modules and parallel training.

    import minitorch_gpu as mt
    x = mt.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    x.grad                                   # tensor([2., 4.])
"""

from __future__ import annotations

import importlib
import warnings as _warnings
from typing import Any

import numpy as _np

# An op on 1/0 or log(0) gives inf or nan, as on a GPU and in PyTorch, without a word.
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"minitorch_gpu\.")

from minitorch_gpu import autograd, cuda, methods
from minitorch_gpu.device import Device, device
from minitorch_gpu.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from minitorch_gpu.ops import OPS as _OPS
from minitorch_gpu.ops.activation import prelu
from minitorch_gpu.ops.blend import add, allclose, div, equal, sub
from minitorch_gpu.ops.creation import (
    arange,
    as_tensor,
    bernoulli,
    empty,
    empty_like,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    multinomial,
    ones,
    ones_like,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    randperm,
    tensor,
    zeros,
    zeros_like,
)
from minitorch_gpu.ops.indexing import gather, nonzero
from minitorch_gpu.ops.linalg import matmul, outer
from minitorch_gpu.ops.padding import pixel_shuffle, pixel_unshuffle
from minitorch_gpu.ops.rearrange import (
    bmm,
    broadcast_to,
    diag,
    diag_embed,
    dstack,
    hstack,
    meshgrid,
    mm,
    ravel,
    repeat_interleave,
    rot90,
    swapaxes,
    t,
    tensor_split,
    tile,
    unflatten,
    vstack,
)
from minitorch_gpu.ops.scan import cummax, cummin, diff
from minitorch_gpu.ops.shape import (
    chunk,
    flatten,
    movedim,
    squeeze,
    stack,
    unbind,
    unsqueeze,
)
from minitorch_gpu.ops.sorting import kthvalue, msort, sort, topk, unique
from minitorch_gpu.ops.special import polygamma
from minitorch_gpu.ops.statistics import (
    aminmax,
    count_nonzero,
    median,
    nanmedian,
    std_mean,
    var_mean,
)
from minitorch_gpu.random import Generator, manual_seed
from minitorch_gpu.registry.declare import declaration_of as _declaration_of
from minitorch_gpu.tensor import Parameter, Tensor

__version__ = "0.1.0"

methods.install()
# Ops that are methods are functions of the package too, and a few that have no self.
globals().update({
    name: call for name, call in _OPS.items()
    if (_declaration_of(call).methods or name in ("cat", "where", "real", "imag"))
    and name not in globals()
})

float16, float32, float64 = map(_np.dtype, ("float16", "float32", "float64"))
half, float, double = float16, float32, float64
uint8, int8, int16, int32, int64 = map(_np.dtype, ("uint8", "int8", "int16", "int32", "int64"))
int, long = int32, int64
bool = _np.dtype("bool")
complex64, complex128 = map(_np.dtype, ("complex64", "complex128"))

_SUBPACKAGES = ("comm", "data", "io", "nn", "optim", "parallel")


def __getattr__(name: str) -> Any:
    """Subpackages and bfloat16 load where first used, so that importing stays quick."""
    if name in _SUBPACKAGES:
        return importlib.import_module(f"minitorch_gpu.{name}")
    if name in ("save", "load"):
        return getattr(importlib.import_module("minitorch_gpu.io"), name)
    if name == "bfloat16":
        import ml_dtypes

        return _np.dtype(ml_dtypes.bfloat16)
    raise AttributeError(f"module 'minitorch_gpu' has no attribute {name!r}")


def max(x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The largest value; with ``dim`` values and indices; with a tensor elementwise."""
    return x.max(*args, **kwargs)


def min(x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The smallest value; with ``dim`` values and indices; with a tensor elementwise."""
    return x.min(*args, **kwargs)


def norm(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The p-norm; see ``Tensor.norm``."""
    return x.norm(*args, **kwargs)
