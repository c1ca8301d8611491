"""Optimizers, gradient clipping, and learning-rate schedules (``optim.lr_scheduler``)."""

from minitorch_gpu.optim import lr_scheduler
from minitorch_gpu.optim.adam import Adam, AdamW
from minitorch_gpu.optim.clip import (
    Placement,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from minitorch_gpu.optim.optimizer import Optimizer
from minitorch_gpu.optim.sgd import SGD

__all__ = [
    "Adam",
    "AdamW",
    "Optimizer",
    "Placement",
    "SGD",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "lr_scheduler",
]
