"""The path for any mix of Tensors, raw arrays, numbers, dtypes and devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from minitorch_gpu.device import array_module, device_of, is_array
from minitorch_gpu.dispatch.record import record_outputs
from minitorch_gpu.modes import is_recording
from minitorch_gpu.registry.declare import Op
from minitorch_gpu.registry.promotion import (
    float32,
    is_half,
    result_type,
    to_floating,
)
from minitorch_gpu.tensor import Tensor
from minitorch_gpu.views import track_view

ndarray = np.ndarray


def slowly(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Any mix of Tensors, raw arrays, numbers, dtypes and devices."""
    flat = (*operands[:-1], *operands[-1]) if op.listed else operands
    raw = [o.array if isinstance(o, Tensor) else _constant(op, o) for o in flat]
    if op.normalise is not None:
        params = op.normalise(params, *raw)
    if not any(isinstance(o, Tensor) for o in flat):
        return _compute(op, raw, params)[0]
    return _on_tensors(op, flat, raw, params)


def _constant(op: Op, value: Any) -> Any:
    """A raw operand as the body takes it: arrays, Python numbers and None."""
    if isinstance(value, np.generic):  # before float, which np.float64 derives from
        return np.asarray(value)
    if value is None or isinstance(value, (bool, int, float, complex)) or is_array(value):
        return value
    raise TypeError(f"{op.name}: expected a Tensor, got {type(value).__name__} "
                    f"({value!r:.60}); make one with mt.tensor(...)")


def _on_tensors(op: Op, flat: tuple[Any, ...], raw: list[Any], params: dict[str, Any]) -> Any:
    _check_devices(op, raw)
    raw = _promoted(op, raw, params)
    half = op.promote is not None and any(
        is_array(v) and is_half(v.dtype) and device_of(v).type == "cpu" for v in raw
    )
    working = [_to_float32(v) for v in raw] if half else raw
    outputs, residuals = _compute(op, working, params)
    single = not isinstance(outputs, tuple)
    arrays = [_as_array(y, raw) for y in ((outputs,) if single else outputs)]
    if half:
        dtype = next(v.dtype for v in raw if is_array(v) and is_half(v.dtype))
        arrays = [y.astype(dtype) if y.dtype == float32 else y for y in arrays]
    outputs = arrays[0] if single else tuple(arrays)
    return finish(op, flat, raw, params, outputs, residuals, half)


def finish(
    op: Op, flat: tuple[Any, ...], raw: list[Any], params: dict[str, Any], outputs: Any,
    residuals: Any, half: bool,
) -> Any:
    """Wrap, record, and remember views."""
    single = not isinstance(outputs, tuple)
    results = tuple(_wrap(_as_array(y, raw)) for y in ((outputs,) if single else outputs))
    if op.vjp is not None and is_recording():
        record_outputs(op, flat, raw, params, results, residuals, single, half)
    if op.view and isinstance(flat[0], Tensor):
        for place, result in enumerate(results):
            track_view(result, flat[0], op, params, None if single else place)
    return results[0] if single else results


def _wrap(array: Any) -> Tensor:
    return Tensor(array)


def _as_array(value: Any, raw: list[Any]) -> Any:
    return value if is_array(value) else array_module(*raw).asarray(value)


def _to_float32(value: Any) -> Any:
    return value.astype(float32) if is_array(value) and is_half(value.dtype) else value


def _check_devices(op: Op, raw: list[Any]) -> None:
    """Arrays of one call live on one device; Python numbers and None live anywhere."""
    if all(v.__class__ is ndarray for v in raw):
        return
    places = sorted({str(device_of(v)) for v in raw if is_array(v)})
    if len(places) > 1:
        raise RuntimeError(f"{op.name}: operands are on {' and '.join(places)}; move them to "
                           "one device with .to(...)")


def _promoted(op: Op, raw: list[Any], params: dict[str, Any]) -> list[Any]:
    if op.promote is None:
        return raw
    named = op.promote if isinstance(op.promote, tuple) else op.operands
    chosen = [op.listed or name in named for name in (op.operands * len(raw))[:len(raw)]]
    values = [v for v, c in zip(raw, chosen) if c and v is not None]
    numbers = [p for p in params.values() if p.__class__ is float] \
        if op.kind == "elementwise" else []  # clamp(min=0.5) of integers is a float
    dtype = result_type(values + numbers)
    if op.promote == "float":
        dtype = to_floating(dtype)
    if not any(map(is_array, values)):  # where(mask, 1.0, 0.0): no array says the dtype
        xp = array_module(*raw)
        return [xp.asarray(v, dtype) if c else v for v, c in zip(raw, chosen)]
    return [_cast(v, dtype) if c else v for v, c in zip(raw, chosen)]


def _cast(value: Any, dtype: Any) -> Any:
    if is_array(value):
        return value if value.dtype == dtype else value.astype(dtype)
    if isinstance(value, (bool, int, float)) and not is_half(dtype):
        return _python_number(value, dtype)
    return value


def _python_number(value: Any, dtype: Any) -> Any:
    """A Python number as the computing dtype sees it: True + int64 is 1."""
    return float(value) if dtype.kind == "f" else value


def _compute(op: Op, raw: list[Any], params: dict[str, Any]) -> tuple[Any, Any]:
    """Outputs and residuals on raw arrays; a failure is explained by the signature."""
    xp = array_module(*raw)
    try:
        if op.forward is not None:
            outputs, residuals = op.forward(xp, *raw, **params)
            return outputs, residuals
        if op.listed:
            fixed = len(op.operands) - 1
            return op.body(xp, *raw[:fixed], raw[fixed:], **params), None
        return op.body(xp, *raw, **params), None
    except (ValueError, TypeError, IndexError) as error:
        raise explained(op, raw, error) from error


def explained(op: Op, raw: list[Any], error: Exception) -> Exception:
    """The body's error with the op's name, the operands' shapes and what was expected."""
    if str(error).startswith(op.name):
        return error
    shapes = [tuple(v.shape) if is_array(v) else None for v in raw]
    reason = "" if op.listed else op.signature.mismatch(op.operands, shapes)
    shown = ", ".join(
        f"{name} {shape if shape is not None else value!r}"
        for name, shape, value in zip(op.operands * len(raw), shapes, raw)
    )
    kind = ValueError if reason else next(
        k for k in (IndexError, TypeError, ValueError) if isinstance(error, k))
    return kind(f"{op.name}: {reason or error} (operands {shown}; expected "
                f"{op.signature.text})")
