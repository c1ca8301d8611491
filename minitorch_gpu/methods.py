"""Tensor's methods and operators, installed from the ops' declarations and three tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitorch_gpu.backward import backward, retain_grad
from minitorch_gpu.engine.writes import owner_of
from minitorch_gpu.inplace import get_item, in_place, set_item
from minitorch_gpu.ops import (
    activation,
    blend,
    creation,
    indexing,
    linalg,
    rearrange,
    scan,
    shape,
    sorting,
    statistics,
)
from minitorch_gpu.registry.declare import declaration_of
from minitorch_gpu.registry.scalar import OPS
from minitorch_gpu.tensor import Tensor

Function = Callable[..., Any]
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
UNARY = ("neg", "abs", "invert")

# Functions of ops that are methods as well.
FUNCTIONS: dict[str, Function] = {
    "flatten": shape.flatten, "squeeze": shape.squeeze, "unsqueeze": shape.unsqueeze,
    "movedim": shape.movedim, "chunk": shape.chunk, "unbind": shape.unbind,
    "select": indexing.select, "gather": indexing.gather, "nonzero": indexing.nonzero,
    "matmul": linalg.matmul, "mm": rearrange.mm, "bmm": rearrange.bmm, "outer": linalg.outer,
    "zeros_like": creation.zeros_like,
    "allclose": blend.allclose, "equal": blend.equal, "prelu": activation.prelu,
    "var_mean": statistics.var_mean, "std_mean": statistics.std_mean,
    "aminmax": statistics.aminmax, "count_nonzero": statistics.count_nonzero,
    "median": statistics.median, "nanmedian": statistics.nanmedian,
    "cummax": scan.cummax, "cummin": scan.cummin, "diff": scan.diff,
    "unflatten": rearrange.unflatten, "ravel": rearrange.ravel, "t": rearrange.t,
    "repeat": rearrange.repeat, "repeat_interleave": rearrange.repeat_interleave,
    "tile": rearrange.tile, "tensor_split": rearrange.tensor_split, "rot90": rearrange.rot90,
    "unfold": rearrange.unfold, "diag": rearrange.diag, "diag_embed": rearrange.diag_embed,
    "sort": sorting.sort, "msort": sorting.msort, "topk": sorting.topk,
    "kthvalue": sorting.kthvalue, "unique": sorting.unique,
}

# Names whose functions take a factor or a rounding more than the operators' ops.
SCALED: dict[str, Function] = {
    "add": blend.add, "sub": blend.sub, "subtract": blend.sub,
    "div": blend.div, "divide": blend.div, "true_divide": blend.div,
}

CASTS = {"float": "float32", "double": "float64", "half": "float16", "long": "int64",
         "int": "int32", "bool": "bool"}


def install() -> None:
    """Put every declared method, operator and in-place form on Tensor."""
    for call in OPS.values():
        op = declaration_of(call)
        for name in op.methods:
            setattr(Tensor, name, call)
            if op.kind == "elementwise" and op.name not in COMPARISONS:
                setattr(Tensor, f"{name}_", in_place(call, f"{name}_"))
        if op.operator is not None:
            _install_operator(op.operator, call)
    for name, function in {**FUNCTIONS, **SCALED}.items():
        setattr(Tensor, name, function)
    for name, function in SCALED.items():
        setattr(Tensor, f"{name}_", in_place(function, f"{name}_"))
    for name, dtype in CASTS.items():
        setattr(Tensor, name, _cast(name, np.dtype(dtype)))
    for name, value in _METHODS.items():
        setattr(Tensor, name, value)


def _install_operator(operator: str, call: Function) -> None:
    if operator in UNARY:
        setattr(Tensor, f"__{operator}__", lambda self: call(self))
        return
    setattr(Tensor, f"__{operator}__", call)
    if operator in COMPARISONS:
        setattr(Tensor, f"__{operator}__", _comparison(call))
        return
    setattr(Tensor, f"__r{operator}__", lambda self, other: call(other, self))
    setattr(Tensor, f"__i{operator}__", in_place(call, f"{operator}_"))


def _comparison(call: Function) -> Function:
    """Comparison with something that is no number is Python's business, not an error."""

    def compare(self: Tensor, other: Any) -> Any:
        if other is None or isinstance(other, str):
            return NotImplemented
        return call(self, other)

    return compare


def _cast(name: str, dtype: Any) -> Function:
    def cast(self: Tensor) -> Tensor:
        return self.to(dtype=dtype)

    cast.__name__ = name
    cast.__doc__ = f"This tensor as {dtype.name}; itself if it is so already."
    return cast


def _bfloat16(self: Tensor) -> Tensor:
    """This tensor as bfloat16."""
    import ml_dtypes

    return self.to(dtype=np.dtype(ml_dtypes.bfloat16))


def _swapped(self: Tensor) -> Tensor:
    """The last two dims swapped."""
    if self.ndim < 2:
        raise ValueError(f"mT needs at least 2 dims, the shape is {self.shape}")
    return OPS["transpose"](self, -2, -1)


def _reversed(self: Tensor) -> Tensor:
    """All dims in reverse order."""
    return OPS["permute"](self, dims=tuple(range(self.ndim))[::-1])


def _max(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The largest value; with ``dim`` values and indices; with a tensor elementwise."""
    return _extreme(self, "amax", "maximum", indexing.max_along, args, kwargs)


def _min(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The smallest value; with ``dim`` values and indices; with a tensor elementwise."""
    return _extreme(self, "amin", "minimum", indexing.min_along, args, kwargs)


def _extreme(self: Tensor, whole: str, pairwise: str, along: Function, args: Any,
             kwargs: Any) -> Any:
    if not args and not kwargs:
        return OPS[whole](self)
    if args and isinstance(args[0], Tensor):
        return OPS[pairwise](self, *args)
    return along(self, *args, **kwargs)


def _copy(self: Tensor, source: Any) -> Tensor:
    """In place: the values of ``source``, broadcast and cast to this tensor."""
    return _copy_form(self, source)


_copy_form = in_place(
    lambda x, source: OPS["cast"](OPS["expand"](source, shape=x.shape), dtype=x.dtype), "copy_")


def _filled(x: Tensor, value: Any) -> Tensor:
    """x with ``value`` everywhere, recorded: its gradient is zero."""
    everywhere = creation.ones((), dtype=bool, device=x.device)
    return OPS["masked_fill"](x, everywhere, value=value)


def _view(self: Tensor, *shape: Any) -> Tensor:
    """The same memory in another shape; one size may be -1.

    Raises:
        ValueError: no strides over this memory give that shape; ``reshape`` copies then.
    """
    result: Tensor = OPS["reshape"](self, *shape)
    if result.array.size and owner_of(result.array) is not owner_of(self.array):
        raise ValueError(f"view: the memory of shape {self.shape} cannot be seen as "
                         f"{result.shape}: use .reshape(...)")
    return result


def _type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in the dtype of ``other``."""
    return self.to(dtype=other.dtype)


def _as_shape(name: str) -> Function:
    def method(self: Tensor, other: Tensor) -> Any:
        return OPS[name](self, shape=other.shape)

    method.__name__ = f"{name}_as"
    method.__doc__ = f"``{name}`` to the shape of another tensor."
    return method


def _masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """The elements where ``mask`` holds, 1-D."""
    return self[mask]


def _norm(self: Tensor, p: Any = 2.0, dim: Any = None, keepdim: bool = False) -> Any:
    """The p-norm over ``dim``; see ``linalg.vector_norm``."""
    return OPS["vector_norm"](self, ord=p, dim=dim, keepdim=keepdim)


def _new(name: str, make: Function) -> Function:
    def method(self: Tensor, *args: Any, dtype: Any = None, device: Any = None,
               requires_grad: bool = False) -> Tensor:
        result: Tensor = make(
            *args, dtype=self.dtype if dtype is None else dtype,
            device=self.device if device is None else device, requires_grad=requires_grad)
        return result

    method.__name__ = name
    method.__doc__ = f"``{make.__name__}`` in the dtype and on the device of this tensor."
    return method


_NEW: dict[str, Function] = {
    "new_empty": creation.empty, "new_full": creation.full, "new_ones": creation.ones,
    "new_tensor": creation.tensor, "new_zeros": creation.zeros,
}

_METHODS: dict[str, Any] = {
    **{name: _new(name, make) for name, make in _NEW.items()},
    "backward": backward, "retain_grad": retain_grad, "view": _view,
    "__pos__": lambda self: self,
    "__getitem__": get_item, "__setitem__": set_item,
    "__matmul__": linalg.matmul, "__rmatmul__": lambda self, other: linalg.matmul(other, self),
    "mT": property(_swapped), "T": property(_reversed), "bfloat16": _bfloat16,
    "max": _max, "min": _min, "norm": _norm, "copy_": _copy,
    "fill_": in_place(_filled, "fill_"), "zero_": in_place(lambda x: _filled(x, 0.0), "zero_"),
    "nan_to_num_": in_place(OPS["nan_to_num"], "nan_to_num_"),
    "type_as": _type_as, "view_as": _as_shape("reshape"), "reshape_as": _as_shape("reshape"),
    "expand_as": _as_shape("expand"), "masked_select": _masked_select,
    "masked_fill_": in_place(lambda x, mask, value: OPS["masked_fill"](x, mask, value=value),
                             "masked_fill_"),
}
