"""Convolution over one to three spatial dims: three primitives, each other's gradients.

The map (x, weight) -> y is bilinear, so its two gradients and their gradients are again
``convolution``, ``convolution_input`` and ``convolution_weight``: every order is closed.

Windows are copied into the rows of a matrix (im2col; Chellapilla, Puri and Simard 2006) for one
large product. Memory is channels last inside, (n, *size, c): a window's row is then a few long
runs, the product's rows are the output as they are, and a chain of layers transposes nothing.
"""

from __future__ import annotations

from math import prod
from typing import Any

from minitorch_gpu.ops.windows import Sizes, Window, covered, output_sizes, per_dim, taps
from minitorch_gpu.registry import primitive
from minitorch_gpu.registry.scalar import OPS

Array = Any
# Bytes of windows copied at a time: what a CPU core's cache holds, or enough for a GPU to fill.
_COLUMN_BYTES = {"numpy": 1 << 20, "cupy": 1 << 28}
_SHORT_RUN = 16  # elements; below it columns are copied along the image instead

_EXAMPLE = dict(window=Window((3, 2), (2, 1), ((1, 0), (0, 2)), (1, 2)), groups=2)


# ---------------------------------------------------------------- windows as matrices
def _channels_last(xp: Any, x: Array) -> Array:
    return xp.ascontiguousarray(xp.moveaxis(x, 1, -1))


def _padded(xp: Any, x: Array, padding: tuple[tuple[int, int], ...]) -> Array:
    """(n, c, *size) as contiguous (n, *padded, c), with zeros around."""
    if not any(map(any, padding)):
        return _channels_last(xp, x)
    sides = zip(x.shape[2:], padding)
    y = xp.zeros((len(x), *(b + s + a for s, (b, a) in sides), x.shape[1]), x.dtype)
    inner = [slice(b, b + s) for s, (b, _) in zip(x.shape[2:], padding)]
    place = (slice(None), *inner)
    y[place] = xp.moveaxis(x, 1, -1)
    return y


def _windows(xp: Any, x: Array, window: Window, groups: int, out: Sizes) -> Array:
    """All windows of (n, c, *size), as a view: (groups, n, *out, *kernel, c / groups)."""
    rows = _padded(xp, x, window.padding)
    step_n, *steps, step_c = rows.strides
    part = rows.shape[-1] // groups
    return xp.lib.stride_tricks.as_strided(
        rows, (groups, len(rows), *out, *window.kernel, part),
        (step_c * part, step_n, *(s * t for s, t in zip(steps, window.stride)),
         *(s * t for s, t in zip(steps, window.dilation)), step_c))


def _columns(xp: Any, view: Array, dims: int) -> Array:
    """Windows as matrices: (g, n, *out, *kernel, c) -> (g, n * out, kernel * c), copied.

    With few channels the copy runs along the image and the matrices come out transposed.
    """
    count, length = prod(view.shape[1:2 + dims]), prod(view.shape[2 + dims:])
    if view.shape[-1] * view.shape[-2] >= _SHORT_RUN:
        return xp.ascontiguousarray(view).reshape(view.shape[0], count, length)
    order = (0, *range(2 + dims, view.ndim), *range(1, 2 + dims))
    turned = xp.ascontiguousarray(view.transpose(order))
    return turned.reshape(view.shape[0], length, count).swapaxes(1, 2)


def _by_group(rows: Array, groups: int) -> Array:
    """(n, *out, o) -> (groups, n * out, o / groups), a view."""
    channels = rows.shape[-1]
    return rows.reshape(-1, groups, channels // groups).swapaxes(0, 1)


def _blocks(xp: Any, x: Array, row: int, out: Sizes) -> list[slice]:
    """Slices of the batch whose columns fit the buffer; ``row`` elements are a window's."""
    sample = row * prod(out) * x.itemsize
    step = max(1, _COLUMN_BYTES[xp.__name__] // max(sample, 1))
    return [slice(i, min(i + step, len(x))) for i in range(0, len(x), step)]


# ---------------------------------------------------------------- the three primitives
def _input_slope(
    g: Any, weight: Any, x_like: Any, window: Window, groups: int
) -> Any:
    return OPS["convolution_input"](g, weight, window=window, groups=groups,
                                    size=x_like.shape[2:])


def _bias_slope(g: Any) -> Any:
    return OPS["sum"](g, dim=(0, *range(2, g.ndim)))


@primitive(
    "(...),(...),(o)?->(...)",
    vjp=dict(x=_input_slope,
             weight=lambda g, x, window, groups: OPS["convolution_weight"](
                 g, x, window=window, groups=groups),
             bias=_bias_slope),
    methods=(),
    examples=(dict(x=(2, 4, 5, 4), weight=(6, 2, 3, 2), bias=(6,), **_EXAMPLE),
              dict(x=(2, 3, 5), weight=(2, 3, 2),
                   window=Window((2,), (1,), ((0, 0),), (1,)), groups=1),
              dict(x=(0, 3, 3, 3), weight=(2, 3, 2, 2),
                   window=Window((2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1)), groups=1)),
)
def convolution(
    xp: Any, x: Array, weight: Array, bias: Array | None = None, *, window: Window, groups: int
) -> Array:
    """Windows of x (N, C, *size) times weight (O, C / groups, *kernel), plus bias (O).

    Returns (N, O, *out), channels last in memory.
    """
    out = output_sizes("convolution", window, x.shape[2:])
    kernels = _kernel_rows(weight, groups)
    windows = _windows(xp, x, window, groups, out)
    y = xp.empty((len(x), *out, len(weight)), x.dtype)
    for block in _blocks(xp, x, groups * prod(weight.shape[1:]), out):
        columns = _columns(xp, windows[:, block], len(out))
        xp.matmul(columns, kernels, out=_by_group(y[block], groups))
    if bias is not None:
        y += bias
    return xp.moveaxis(y, -1, 1)


def _kernel_rows(weight: Array, groups: int) -> Array:
    """(o, c, *kernel) -> (groups, kernel * c, o / groups), to stand right of the columns."""
    count, channels, *kernel = weight.shape
    split = weight.reshape(groups, count // groups, channels, *kernel)
    dims = range(3, split.ndim)
    return split.transpose(0, *dims, 2, 1).reshape(
        groups, prod(kernel) * channels, count // groups)


@primitive(
    "(...),(...)->(...)",
    vjp=dict(slope=lambda g, weight, window, groups: OPS["convolution"](
                 g, weight, window=window, groups=groups),
             weight=lambda g, slope, window, groups: OPS["convolution_weight"](
                 slope, g, window=window, groups=groups)),
    methods=(),
    examples=(dict(slope=(2, 6, 2, 4), weight=(6, 2, 3, 2), size=(5, 4), **_EXAMPLE),),
)
def convolution_input(
    xp: Any, slope: Array, weight: Array, *, window: Window, groups: int, size: Sizes
) -> Array:
    """The gradient of ``convolution`` in x of spatial ``size``: ``slope`` times the weight.

    Every tap's products are added where the tap had read.
    """
    out, channels = slope.shape[2:], weight.shape[1] * groups
    rows = _channels_last(xp, slope)
    kernels = _kernel_taps(weight, groups)
    y = xp.zeros((len(slope), *size, channels), slope.dtype)
    places = [covered(window, tap, size, out) for tap in taps(window)]
    for block in _blocks(xp, slope, groups * prod(weight.shape[1:]), out):
        products = xp.matmul(_by_group(rows[block], groups), kernels)  # (taps, g, n * out, c)
        products = products.swapaxes(1, 2).reshape(len(kernels), -1, *out, channels)
        for (read, write), part in zip(places, products):
            target, source = (block, *read), (slice(None), *write)
            y[target] += part[source]
    return xp.moveaxis(y, -1, 1)


def _kernel_taps(weight: Array, groups: int) -> Array:
    """(o, c, *kernel) -> (kernel, groups, o / groups, c): one matrix per tap."""
    count, channels, *kernel = weight.shape
    split = weight.reshape(groups, count // groups, channels, prod(kernel))
    return split.transpose(3, 0, 1, 2).copy()


@primitive(
    "(...),(...)->(...)",
    vjp=dict(slope=lambda g, x, window, groups: OPS["convolution"](
                 x, g, window=window, groups=groups),
             x=lambda g, slope, x_like, window, groups: OPS["convolution_input"](
                 slope, g, window=window, groups=groups, size=x_like.shape[2:])),
    methods=(),
    examples=(dict(slope=(2, 6, 2, 4), x=(2, 4, 5, 4), **_EXAMPLE),),
)
def convolution_weight(
    xp: Any, slope: Array, x: Array, *, window: Window, groups: int
) -> Array:
    """The gradient of ``convolution`` in the weight: the windows of x times ``slope``."""
    out, count, part = slope.shape[2:], slope.shape[1], x.shape[1] // groups
    shape = (count, part, *window.kernel)
    windows = _windows(xp, x, window, groups, out)
    rows = _channels_last(xp, slope)
    total = xp.zeros((groups, prod(shape[1:]), count // groups), x.dtype)
    for block in _blocks(xp, x, groups * prod(shape[1:]), out):
        columns = _columns(xp, windows[:, block], len(out))
        total += columns.swapaxes(1, 2) @ _by_group(rows[block], groups)
    total = total.reshape(groups, prod(window.kernel), part, count // groups)
    return total.transpose(0, 3, 2, 1).reshape(shape)


# ---------------------------------------------------------------- what users call
def conv1d(x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Any:
    """Convolution over one dim, as conv2d: x (N, C, L) or (C, L), weight (O, C / groups, K)."""
    return _convolve(1, x, weight, bias, stride, padding, dilation, groups)


def conv2d(x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Any:
    """Cross-correlation of images with kernels, as deep learning calls convolution.

    Args:
        x: (N, C, H, W), or one image (C, H, W).
        weight: (O, C / groups, KH, KW).
        bias: (O), or None.
        stride: step of the window, an int or one per dim.
        padding: zeros on both sides, an int or one per dim; "valid" is none, "same" keeps the
            size at stride 1 (an odd rest goes to the end).
        dilation: step between the kernel's taps, an int or one per dim.
        groups: channels are cut in this many parts that do not mix.

    Returns:
        (N, O, OH, OW), or (O, OH, OW) for one image.

    Raises:
        ValueError: shapes that do not fit, a stride, dilation or groups below 1, negative
            padding, or a kernel larger than the padded input.
        TypeError: operands of different dtypes.
    """
    return _convolve(2, x, weight, bias, stride, padding, dilation, groups)


def conv3d(x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Any:
    """Convolution over three dims, as conv2d: x (N, C, D, H, W) or (C, D, H, W)."""
    return _convolve(3, x, weight, bias, stride, padding, dilation, groups)


def _convolve(
    dims: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> Any:
    name = f"conv{dims}d"
    _check_operands(name, dims, x, weight, bias, groups)
    kernel, steps = tuple(weight.shape[2:]), per_dim(f"{name}: stride", stride, dims, 1)
    gaps = per_dim(f"{name}: dilation", dilation, dims, 1)
    window = Window(kernel, steps, _paddings(name, padding, kernel, steps, gaps), gaps)
    output_sizes(name, window, x.shape[-dims:])
    batch = x if x.ndim == dims + 2 else OPS["reshape"](x, (1, *x.shape))
    y = OPS["convolution"](batch, weight, bias, window=window, groups=groups)
    return y if batch is x else OPS["reshape"](y, y.shape[1:])


def _check_operands(name: str, dims: int, x: Any, weight: Any, bias: Any, groups: int) -> None:
    if x.ndim not in (dims + 1, dims + 2) or weight.ndim != dims + 2:
        raise ValueError(f"{name}: x needs {dims + 2} dims (or {dims + 1} for one sample) and "
                         f"weight {dims + 2}; their shapes are {x.shape} and {weight.shape}")
    if groups < 1 or weight.shape[0] % groups:
        raise ValueError(f"{name}: groups must be at least 1 and divide the "
                         f"{weight.shape[0]} output channels, it is {groups}")
    if x.shape[-dims - 1] != weight.shape[1] * groups:
        raise ValueError(f"{name}: x of shape {x.shape} has {x.shape[-dims - 1]} channels, "
                         f"weight of shape {weight.shape} with groups={groups} takes "
                         f"{weight.shape[1] * groups}")
    if 0 in weight.shape[2:]:
        raise ValueError(f"{name}: weight of shape {weight.shape} has an empty kernel")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"{name}: bias has shape {bias.shape}, weight of shape "
                         f"{weight.shape} needs {weight.shape[:1]}")
    dtypes = [o.dtype for o in (x, weight, bias) if o is not None]
    if any(d != dtypes[0] for d in dtypes):
        raise TypeError(f"{name}: expected operands of one dtype, got "
                        f"{', '.join(d.name for d in dtypes)}: convert with .to(dtype)")


def _paddings(
    name: str, padding: Any, kernel: Sizes, stride: Sizes, dilation: Sizes
) -> tuple[tuple[int, int], ...]:
    """The zeros (before, after) each dim."""
    if not isinstance(padding, str):
        return tuple((p, p) for p in per_dim(f"{name}: padding", padding, len(kernel), 0))
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding != "same":
        raise ValueError(f'{name}: padding is {padding!r}; use an int, a tuple, "same" or '
                         '"valid"')
    if any(s != 1 for s in stride):
        raise ValueError(f'{name}: padding="same" needs stride 1, it is {stride}')
    totals = [d * (k - 1) for k, d in zip(kernel, dilation)]
    return tuple((t // 2, t - t // 2) for t in totals)
