"""Modules: layers, containers, losses, and their initial values."""

from minitorch_gpu.nn import functional, init
from minitorch_gpu.nn.activation import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Dropout,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softshrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
)
from minitorch_gpu.nn.attention import MultiheadAttention
from minitorch_gpu.nn.container import ModuleDict, ModuleList, Sequential
from minitorch_gpu.nn.convolution import AvgPool2d, Conv2d, MaxPool2d
from minitorch_gpu.nn.linear import Embedding, Flatten, Identity, Linear
from minitorch_gpu.nn.loss import BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss, NLLLoss
from minitorch_gpu.nn.module import Module
from minitorch_gpu.nn.normalisation import BatchNorm1d, BatchNorm2d, LayerNorm
from minitorch_gpu.nn.recurrent import LSTM
from minitorch_gpu.tensor import Parameter

__all__ = [
    "GELU", "LSTM", "AvgPool2d", "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d", "Conv2d",
    "CrossEntropyLoss", "Dropout", "Embedding", "Flatten", "Identity", "L1Loss", "LayerNorm",
    "LeakyReLU", "Linear", "LogSoftmax", "MSELoss", "MaxPool2d", "Module", "ModuleDict",
    "ModuleList", "MultiheadAttention", "NLLLoss", "Parameter", "ReLU", "Sequential", "SiLU",
    "Sigmoid", "Softmax", "Softplus", "Tanh", "functional", "init", "ReLU6", "ELU", "SELU",
    "CELU", "Mish", "Hardtanh", "Hardsigmoid", "Hardswish", "Softsign", "Tanhshrink",
    "Hardshrink", "Softshrink", "LogSigmoid", "Threshold", "GLU", "PReLU",
]
