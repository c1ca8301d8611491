"""``mt.cuda``: whether there is a GPU, how many, and which is current."""

from __future__ import annotations

from minitorch_gpu.device import (
    Event,
    Stream,
    cuda_available,
    cuda_device_count,
    device,
    synchronize,
    use_device,
)

__all__ = ["Event", "Stream", "current_device", "device_count", "is_available", "synchronize",
           "use_device"]

is_available = cuda_available
device_count = cuda_device_count


def current_device() -> int:
    """The index that plain ``"cuda"`` stands for in this context."""
    return device("cuda").index
