"""The six training workloads, written once in PyTorch's names and run by both libraries."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np


class Workload(NamedTuple):
    """A model and one batch of it: ``model(x, y)`` is the loss."""

    model: Any
    x: np.ndarray
    y: np.ndarray


def build(name: str, lib: ModuleType, nn: ModuleType, F: ModuleType) -> Workload:
    """The workload ``name`` of ``NAMES`` on ``lib`` (torch or minitorch_gpu)."""
    draw = np.random.default_rng(0)
    images = lambda *shape: draw.normal(size=shape).astype("float32")
    tokens = lambda *shape: draw.integers(0, 65, shape)
    if name == "mlp64":
        return Workload(mlp(nn, F, 256), images(64, 784), draw.integers(0, 10, 64))
    if name == "mlp512":
        return Workload(mlp(nn, F, 1024), images(512, 784), draw.integers(0, 10, 512))
    if name == "cnn64":
        return Workload(cnn(nn, F), images(64, 1, 28, 28), draw.integers(0, 10, 64))
    if name == "lstm":
        return Workload(lstm(nn, F), tokens(32, 64), tokens(32, 64))
    if name == "gptS":
        return Workload(gpt(lib, nn, F, 128, 4, 4, 64), tokens(12, 64), tokens(12, 64))
    if name == "gptM":
        return Workload(gpt(lib, nn, F, 384, 6, 6, 256), tokens(8, 256), tokens(8, 256))
    raise ValueError(f"workload {name!r}; there are {', '.join(NAMES)}")


NAMES = ("mlp64", "mlp512", "cnn64", "lstm", "gptS", "gptM")


def mlp(nn: ModuleType, F: ModuleType, width: int) -> Any:
    """784 - width - width - 10 with ReLU."""

    class MLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                nn.Linear(width, 10))

        def forward(self, x: Any, y: Any) -> Any:
            return F.cross_entropy(self.layers(x), y)

    return MLP()


def cnn(nn: ModuleType, F: ModuleType) -> Any:
    """Two 3x3 convolutions with pooling and two linear layers, on 28x28 images."""

    class CNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
            self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
            self.hidden, self.head = nn.Linear(64 * 7 * 7, 128), nn.Linear(128, 10)

        def forward(self, x: Any, y: Any) -> Any:
            x = F.max_pool2d(F.relu(self.conv1(x)), 2)
            x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            return F.cross_entropy(self.head(F.relu(self.hidden(x.flatten(1)))), y)

    return CNN()


def lstm(nn: ModuleType, F: ModuleType) -> Any:
    """Embedding 65-128, LSTM 128, a linear head, 64 steps."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(65, 128)
            self.lstm = nn.LSTM(128, 128, batch_first=True)
            self.head = nn.Linear(128, 65)

        def forward(self, x: Any, y: Any) -> Any:
            hidden, _ = self.lstm(self.embedding(x))
            return F.cross_entropy(self.head(hidden).flatten(0, 1), y.flatten())

    return Recurrent()


def gpt(
    lib: ModuleType, nn: ModuleType, F: ModuleType, width: int, heads: int, layers: int,
    context: int,
) -> Any:
    """A GPT over 65 characters: pre-norm blocks, tanh GELU, no dropout, an untied head."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, time, _ = x.shape
            q, k, v = (part.view(batch, time, heads, width // heads).transpose(1, 2)
                       for part in self.qkv(self.norm1(x)).split(width, 2))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, time, width))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(65, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 65, bias=False)

        def forward(self, x: Any, y: Any) -> Any:
            hidden = self.token(x) + self.position(lib.arange(x.shape[1]))
            logits = self.head(self.norm(self.blocks(hidden)))
            return F.cross_entropy(logits.flatten(0, 1), y.flatten())

    return GPT()
