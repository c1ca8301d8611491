"""Convolution and pooling layers over images (N, C, H, W)."""

from __future__ import annotations

import math
from typing import Any

from minitorch_gpu.nn import functional as F
from minitorch_gpu.nn import init
from minitorch_gpu.nn.module import Module
from minitorch_gpu.ops.creation import empty
from minitorch_gpu.registry.promotion import DEFAULT
from minitorch_gpu.tensor import Parameter, Tensor


def _pair(name: str, value: Any, least: int = 1) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or min(pair) < least:
        raise ValueError(f"{name} is {value}; it must be an int or a pair, from {least}")
    return pair


def _padding(value: Any) -> tuple[int, int] | str:
    if not isinstance(value, str):
        return _pair("padding", value, least=0)
    if value not in ("same", "valid"):
        raise ValueError(f'padding is {value!r}; use "same", "valid", an int or a pair')
    return value


class Conv2d(Module):
    """Cross-correlation of images with ``out_channels`` filters.

    ``weight`` is (out_channels, in_channels / groups, kH, kW); weight and bias start uniform in
    +-1 / sqrt(in_channels / groups * kH * kW).

    Args:
        in_channels: C of the input.
        out_channels: C of the output.
        kernel_size, stride, dilation: an int or a pair (vertical, horizontal).
        padding: zeros around the image: an int, a pair, "same" or "valid".
        groups: input and output channels are cut into this many independent groups.
        bias: whether a value is added per output channel.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True,
        *, device: Any = "cpu", dtype: Any = DEFAULT,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f"groups={groups} must divide in_channels={in_channels} and "
                             f"out_channels={out_channels}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = _pair("kernel_size", kernel_size)
        self.stride, self.dilation = _pair("stride", stride), _pair("dilation", dilation)
        self.padding = _padding(padding)
        self.groups = groups
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(empty(*shape, dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(
            empty(out_channels, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5.0))
        if self.bias is not None:
            init.bias_uniform_(self.bias, init.fans(self.weight.shape)[0])

    def forward(self, input: Tensor) -> Tensor:
        """(N, C_in, H, W) -> (N, C_out, H', W')."""
        return F.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation,
                        self.groups)

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
                 f"stride={self.stride}"]
        for name, default in (("padding", (0, 0)), ("dilation", (1, 1)), ("groups", 1)):
            if getattr(self, name) != default:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts + ["bias=False"] * (self.bias is None))


class _Pool2d(Module):
    """Windows of an image reduced to one value each."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride

    def extra_repr(self) -> str:
        """The windows."""
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, "
                f"padding={self.padding}")


class MaxPool2d(_Pool2d):
    """The largest value of each window; the stride is the window's size by default."""

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        *, ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.dilation, self.ceil_mode = dilation, ceil_mode

    def extra_repr(self) -> str:
        """The windows."""
        return f"{super().extra_repr()}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, H', W')."""
        return F.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation,
                            self.ceil_mode)


class AvgPool2d(_Pool2d):
    """The mean of each window; the stride is the window's size by default."""

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, H', W')."""
        return F.avg_pool2d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
                            self.count_include_pad)
