"""Buckets: gradients of several parameters in one flat memory, reduced by one call.

    memory  | head.bias | head.weight      | norm.weight | ...      one communicator.empty
              slot 0      slot 1             slot 2                 views in parameter shape

A parameter's gradient is its slot, so backward writes straight into what is reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minitorch_gpu.comm.base import Communicator
from minitorch_gpu.tensor import Parameter, Tensor


class Bucket:
    """Flat gradient memory of ``parameters``, all of one dtype, in the order given."""

    def __init__(self, parameters: Sequence[Parameter], comm: Communicator) -> None:
        self.parameters = list(parameters)
        self.memory = comm.empty(sum(p.numel() for p in parameters), parameters[0].dtype)
        self.slots: list[Any] = []
        offset = 0
        for parameter in self.parameters:
            end = offset + parameter.numel()
            self.slots.append(self.memory[offset:end].reshape(parameter.shape))
            parameter.edge.slot = self.slots[-1]
            offset = end
        self.waiting = len(self.parameters)

    def collect(self) -> None:
        """Bring every gradient into its slot; a parameter without one counts as zeros."""
        for parameter, slot in zip(self.parameters, self.slots):
            gradient = parameter.grad
            if gradient is None:
                slot[...] = 0
            elif gradient.array is not slot:
                slot[...] = gradient.array

    def scale(self, weight: float) -> None:
        """Weigh the whole memory; weight 0 clears it, whatever it holds."""
        if weight == 0.0:
            self.memory[...] = 0
        elif weight != 1.0:
            self.memory *= weight

    def hand_out(self, used: Sequence[bool]) -> None:
        """Let ``grad`` be the slot where ``used``, else None."""
        for parameter, slot, use in zip(self.parameters, self.slots, used):
            if not use:
                parameter.grad = None
            elif parameter.grad is None or parameter.grad.array is not slot:
                parameter.grad = Tensor(slot)

    def release(self) -> None:
        """Give the parameters gradients of their own again."""
        for parameter, slot in zip(self.parameters, self.slots):
            if parameter.edge is not None and parameter.edge.slot is slot:
                parameter.edge.slot = None
            if parameter.grad is not None and parameter.grad.array is slot:
                parameter.grad = Tensor(slot.copy())


def make_buckets(
    parameters: Sequence[Parameter], comm: Communicator, bucket_mb: float
) -> list[Bucket]:
    """Buckets of at most ``bucket_mb`` MiB (or one parameter) and one dtype.

    Parameters are taken last first: backward completes them in about that order, so the first
    bucket can be reduced while the walk goes on.
    """
    limit = bucket_mb * 2**20
    groups: list[list[Parameter]] = []
    size, dtype = 0.0, None
    for parameter in reversed(parameters):
        if not groups or parameter.dtype != dtype or size + parameter.nbytes > limit:
            groups.append([parameter])
            size, dtype = 0.0, parameter.dtype
        else:
            groups[-1].append(parameter)
        size += parameter.nbytes
    return [Bucket(group, comm) for group in groups]
