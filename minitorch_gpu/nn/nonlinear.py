"""The activations of ``F``: functions of one tensor by PyTorch's names and argument names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from minitorch_gpu.inplace import in_place
from minitorch_gpu.ops import activation
from minitorch_gpu.registry import OPS
from minitorch_gpu.tensor import Tensor

__all__ = [
    "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "selu",
    "sigmoid", "silu", "softmax", "softplus", "softshrink", "softsign", "taking_input", "tanh",
    "tanhshrink", "threshold",
]

Function = Callable[..., Any]


def taking_input(function: Function) -> Function:
    """``function`` with its first argument called ``input``, as in PyTorch."""
    first, *rest = inspect.signature(function).parameters.values()

    @wraps(function)
    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        return function(input, *args, **kwargs)

    signature = inspect.Signature([first.replace(name="input"), *rest])
    vars(call)["__signature__"] = signature
    return call


def _or_inplace(name: str) -> Function:
    """The op with a last argument ``inplace``: write to (or rebind) ``input`` and return it."""
    function = OPS[name]
    first, *rest = inspect.signature(function).parameters.values()
    written = in_place(function, f"{name}_")

    @wraps(function)
    def call(input: Any, *args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        if len(args) > len(rest):
            *args, inplace = args  # type: ignore[assignment]
        return (written if inplace else function)(input, *args, **kwargs)

    last = inspect.Parameter("inplace", inspect.Parameter.KEYWORD_ONLY, default=False)
    vars(call)["__signature__"] = inspect.Signature([first.replace(name="input"), *rest, last])
    return call


relu = _or_inplace("relu")
relu6 = _or_inplace("relu6")
leaky_relu = _or_inplace("leaky_relu")
elu = _or_inplace("elu")
selu = _or_inplace("selu")
celu = _or_inplace("celu")
silu = _or_inplace("silu")
mish = _or_inplace("mish")
hardtanh = _or_inplace("hardtanh")
hardsigmoid = _or_inplace("hardsigmoid")
hardswish = _or_inplace("hardswish")
threshold = _or_inplace("threshold")
gelu = taking_input(OPS["gelu"])
softplus = taking_input(OPS["softplus"])
sigmoid = taking_input(OPS["sigmoid"])
tanh = taking_input(OPS["tanh"])
logsigmoid = taking_input(OPS["logsigmoid"])
softsign = taking_input(OPS["softsign"])
tanhshrink = taking_input(OPS["tanhshrink"])
hardshrink = taking_input(OPS["hardshrink"])
softshrink = taking_input(OPS["softshrink"])
glu = taking_input(OPS["glu"])
prelu = taking_input(activation.prelu)


def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """``exp(input) / sum(exp(input))`` along ``dim``.

    Args:
        input: any shape.
        dim: the dim that sums to 1.
        dtype: what to cast to before.
    """
    result: Tensor = OPS["softmax"](_cast(input, dtype), dim=dim)
    return result


def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """``log(softmax(input))`` along ``dim``, never overflowing.

    Args:
        input: any shape.
        dim: the dim whose exponentials sum to 1.
        dtype: what to cast to before.
    """
    result: Tensor = OPS["log_softmax"](_cast(input, dtype), dim=dim)
    return result


def _cast(input: Tensor, dtype: Any) -> Tensor:
    return input if dtype is None else input.to(dtype=dtype)
