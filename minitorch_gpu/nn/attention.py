"""Multi-head attention."""

from __future__ import annotations

from typing import Any

from minitorch_gpu.nn import functional as F
from minitorch_gpu.nn import init
from minitorch_gpu.nn.linear import Linear
from minitorch_gpu.nn.module import Module
from minitorch_gpu.ops import OPS
from minitorch_gpu.ops.creation import empty, ones, zeros
from minitorch_gpu.registry.promotion import DEFAULT
from minitorch_gpu.tensor import Parameter, Tensor


class MultiheadAttention(Module):
    """Attention of ``num_heads`` heads of embed_dim / num_heads features (Vaswani et al. 2017).

    Parameters: ``in_proj_weight`` (3E, E) with the rows of query, key, value one after another
    (or ``q_proj_weight``, ``k_proj_weight``, ``v_proj_weight`` where kdim or vdim differ from
    E), ``in_proj_bias`` (3E), ``out_proj``.

    Args:
        embed_dim: E, divisible by num_heads.
        num_heads: H.
        dropout: probability of dropping an attention weight, in training.
        bias: whether the projections add one.
        kdim, vdim: features of key and value, E by default.
        batch_first: tensors are (N, L, E), else (L, N, E).
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        *, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Any = "cpu", dtype: Any = DEFAULT,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first = batch_first
        make = lambda *shape: Parameter(empty(*shape, dtype=dtype, device=device))
        same = self.kdim == self.vdim == embed_dim
        self.register_parameter("in_proj_weight",
                                make(3 * embed_dim, embed_dim) if same else None)
        for name, width in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            self.register_parameter(f"{name}_proj_weight",
                                    None if same else make(embed_dim, width))
        self.register_parameter("in_proj_bias", make(3 * embed_dim) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values: Xavier for the projections, zero biases."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight,
                       self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor,
        key_padding_mask: Tensor | None = None, need_weights: bool = True,
        attn_mask: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from query (N, L, E) to key and value (N, S, kdim), (N, S, vdim).

        Args:
            key_padding_mask: (N, S), True where a key takes no part, or values to add.
            need_weights: also return the attention weights.
            attn_mask: (L, S) or (N * H, L, S), True where attention is not allowed, or values
                to add.
            average_attn_weights: return weights averaged over heads (N, L, S), else
                (N, H, L, S).
            is_causal: a hint that attn_mask is the causal mask, which must be given too.

        Raises:
            ValueError: shapes that do not fit, or is_causal without attn_mask.
            TypeError: a mask of integers.

        Returns:
            The output, shaped as query, and the weights or None. An input without the batch
            dim gives an output without it.
        """
        if is_causal and attn_mask is None:
            raise ValueError("is_causal is a hint about attn_mask: give the mask as well")
        _check_inputs(query, key, value, 0 if self.batch_first else 1)
        batched, alike = query.ndim == 3, query is key is value
        if not batched:
            query, key, value = (t.unsqueeze(0 if self.batch_first else 1)
                                 for t in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        if not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        q, k, v = (self._heads(t) for t in self._projected(query, key, value, alike))
        mask = self._mask(attn_mask, key_padding_mask, q, k)
        output, weights = self._attend(q, k, v, mask, need_weights)
        batch, _, length, _ = q.shape
        output = self.out_proj(output.transpose(1, 2).reshape(batch, length, self.embed_dim))
        if not self.batch_first:
            output = output.transpose(0, 1)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            output = output.squeeze(0 if self.batch_first else 1)
            weights = None if weights is None else weights.squeeze(0)
        return output, weights

    def _projected(
        self, query: Tensor, key: Tensor, value: Tensor, alike: bool
    ) -> list[Tensor]:
        biases = [None] * 3 if self.in_proj_bias is None else self.in_proj_bias.split(
            self.embed_dim)
        if self.in_proj_weight is None:
            weights: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif alike:
            return list(F.linear(query, self.in_proj_weight, self.in_proj_bias).split(
                self.embed_dim, dim=2))
        else:
            weights = self.in_proj_weight.split(self.embed_dim)
        return [F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)]

    def _heads(self, x: Tensor) -> Tensor:
        """(N, L, E) -> (N, H, L, E / H)."""
        batch, length, _ = x.shape
        return x.reshape(batch, length, self.num_heads,
                         self.embed_dim // self.num_heads).transpose(1, 2)

    def _mask(
        self, attn_mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor
    ) -> Tensor | None:
        """One additive mask that broadcasts to (N, H, L, S); -inf where not allowed."""
        batch, heads, length, _ = q.shape
        places = k.shape[2]
        masks = []
        if attn_mask is not None:
            _check("attn_mask", attn_mask, (length, places), (batch * heads, length, places))
            mask = _additive(attn_mask, q)
            masks.append(mask.reshape(batch, heads, length, places) if mask.ndim == 3 else mask)
        if padding is not None:
            _check("key_padding_mask", padding, (batch, places))
            masks.append(_additive(padding, q).reshape(batch, 1, 1, places))
        return masks[0] + masks[1] if len(masks) == 2 else masks[0] if masks else None

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        p = self.dropout if self.training else 0.0
        if not need_weights:
            return F.scaled_dot_product_attention(q, k, v, mask, dropout_p=p), None
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        weights = F.softmax(scores if mask is None else scores + mask, dim=-1)
        weights = F.dropout(weights, p, self.training)
        return weights @ v, weights


def _check_inputs(query: Tensor, key: Tensor, value: Tensor, batch_dim: int) -> None:
    shapes = (query.shape, key.shape, value.shape)
    fits = query.ndim in (2, 3) and query.ndim == key.ndim == value.ndim
    if fits and query.ndim == 3:
        fits = query.shape[batch_dim] == key.shape[batch_dim] == value.shape[batch_dim]
    if not fits or key.shape[:-1] != value.shape[:-1]:
        raise ValueError(
            "query, key and value must be (length, features), or the three with a batch dim "
            f"{batch_dim} of one size, key and value of one length; they are {shapes}")


def _check(name: str, mask: Tensor, *allowed: tuple[int, ...]) -> None:
    if mask.dtype != bool and not mask.is_floating_point():
        raise TypeError(f"{name} is {mask.dtype}; it must be bool or floating")
    if mask.shape not in allowed:
        raise ValueError(f"{name} has shape {mask.shape}; it must be "
                         f"{' or '.join(map(str, allowed))}")


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask as values to add, in the dtype of ``like``; where it is boolean, True is -inf."""
    if mask.dtype != bool:
        return mask.to(dtype=like.dtype)
    blocked = ones(1, dtype=like.dtype, device=like.device) * float("-inf")
    result: Tensor = OPS["where"](mask, blocked, zeros(1, dtype=like.dtype, device=like.device))
    return result
