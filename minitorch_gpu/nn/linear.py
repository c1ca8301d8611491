"""Linear maps, embeddings and reshaping layers."""

from __future__ import annotations

import math
from typing import Any

from minitorch_gpu.nn import functional as F
from minitorch_gpu.nn import init
from minitorch_gpu.nn.module import Module
from minitorch_gpu.ops.creation import empty
from minitorch_gpu.ops.shape import flatten
from minitorch_gpu.registry.promotion import DEFAULT
from minitorch_gpu.tensor import Parameter, Tensor


class Linear(Module):
    """``y = x @ weight.T + bias``: (..., in_features) -> (..., out_features).

    ``weight`` is (out_features, in_features); weight and bias start uniform in
    +-1 / sqrt(in_features).
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True,
        device: Any = "cpu", dtype: Any = DEFAULT,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(
            empty(out_features, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5.0))
        if self.bias is not None:
            init.bias_uniform_(self.bias, self.in_features)

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes."""
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}")


class Embedding(Module):
    """Rows of a table by integer id: (...) -> (..., embedding_dim).

    Rows start standard normal; the row ``padding_idx`` starts at zero and gets no gradient.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        *, device: Any = "cpu", dtype: Any = DEFAULT,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"padding_idx {padding_idx} is out of range for {num_embeddings} "
                             "embeddings")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.weight = Parameter(empty(num_embeddings, embedding_dim, dtype=dtype,
                                      device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.detach()[self.padding_idx])

    def forward(self, input: Tensor) -> Tensor:
        """Integer ids of any shape -> their rows."""
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """The sizes."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class Flatten(Module):
    """Dims ``start_dim..end_dim`` joined into one; the batch dim is kept by default."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        """(N, ...) -> (N, product of the rest)."""
        result: Tensor = flatten(input, self.start_dim, self.end_dim)
        return result

    def extra_repr(self) -> str:
        """The dims."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Identity(Module):
    """Gives back what it is called with."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """The input."""
        return input
