"""LSTM layers: stacked, in one or both directions, over batches of equal or unequal lengths."""

from __future__ import annotations

from typing import Any

from minitorch_gpu.nn import init
from minitorch_gpu.nn.functional import dropout
from minitorch_gpu.nn.module import Module
from minitorch_gpu.ops import OPS
from minitorch_gpu.ops.creation import as_tensor, empty, zeros
from minitorch_gpu.ops.shape import squeeze, stack
from minitorch_gpu.registry.promotion import DEFAULT
from minitorch_gpu.tensor import Parameter, Tensor

States = tuple[Tensor, Tensor]


class LSTM(Module):
    """Long short-term memory over a sequence; PyTorch's equations and parameter names.

    Layer k, direction forward, has ``weight_ih_lk`` (4H, I), ``weight_hh_lk`` (4H, H),
    ``bias_ih_lk`` and ``bias_hh_lk`` (4H), the rows in the order i, f, g, o; the other
    direction has the same names with ``_reverse``. All start uniform in +-1 / sqrt(H).

    Args:
        input_size: features I of the input.
        hidden_size: size H of the states.
        num_layers: layers, each reading the outputs of the one before.
        bias: whether there are bias vectors.
        batch_first: the input and output are (N, T, features) and not (T, N, features).
        dropout: the fraction dropped from every layer's outputs but the last's, in training.
        bidirectional: a second run from the end; outputs are concatenated, (.., 2H).
        device: where the parameters live.
        dtype: the dtype of the parameters.

    Raises:
        ValueError: a size below 1, or a dropout outside [0, 1].
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        device: Any = "cpu",
        dtype: Any = DEFAULT,
    ) -> None:
        super().__init__()
        sizes = dict(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"LSTM: {name} must be at least 1, it is {value}")
        if not 0 <= dropout <= 1:
            raise ValueError(f"LSTM: dropout must lie in [0, 1], it is {dropout}")
        self.input_size, self.hidden_size, self.num_layers = sizes.values()
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.dropout = dropout
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                for name, shape in self._shapes(layer).items():
                    values = empty(shape, dtype=dtype, device=device)
                    setattr(self, name + suffix, Parameter(values))
        self.reset_parameters()

    def _suffixes(self, layer: int) -> list[str]:
        directions = ["", "_reverse"] if self.bidirectional else [""]
        return [f"_l{layer}{direction}" for direction in directions]

    def _shapes(self, layer: int) -> dict[str, tuple[int, ...]]:
        hidden, directions = self.hidden_size, 2 if self.bidirectional else 1
        features = self.input_size if layer == 0 else hidden * directions
        shapes = dict(weight_ih=(4 * hidden, features), weight_hh=(4 * hidden, hidden))
        biases = dict(bias_ih=(4 * hidden,), bias_hh=(4 * hidden,))
        return {**shapes, **biases} if self.bias else {**shapes}

    def reset_parameters(self) -> None:
        """Draw every parameter anew, uniform in +-1 / sqrt(hidden_size)."""
        bound = self.hidden_size ** -0.5
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def extra_repr(self) -> str:
        """The arguments that are not the defaults."""
        options = dict(num_layers=1, bias=True, batch_first=False, dropout=0.0,
                       bidirectional=False)
        given = {name: getattr(self, name) for name in options}
        shown = [f"{n}={v}" for n, v in given.items() if v != options[n]]
        return ", ".join([str(self.input_size), str(self.hidden_size), *shown])

    def forward(
        self, input: Tensor, hx: States | None = None, lengths: Any = None
    ) -> tuple[Tensor, States]:
        """Run over a sequence.

        Args:
            input: (T, N, I), or (N, T, I) with batch_first, or (T, I) for one sequence.
            hx: first states h0 and c0, (layers * directions, N, H) each, without N for one
                sequence; zeros by default.
            lengths: N integers, the steps of each row that count, for padded batches. Outputs
                beyond them are zero, the last states are those at the row's end, and the
                reverse direction starts there.

        Returns:
            ``output, (h_n, c_n)``: the last layer's h of all steps (T, N, directions * H), laid
            out as the input, and the last states, shaped as the first.

        Raises:
            ValueError: shapes that do not fit, or a length outside 0..T.
        """
        alone = input.ndim == 2
        x = self._time_first(input)
        h0, c0 = self._first_states(x, hx, alone)
        if lengths is not None:
            lengths = _checked_lengths(lengths, x)
        last: list[States] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = self._dropped(x)
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                weights = [getattr(self, name + suffix, None) for name in _WEIGHTS]
                y, h, c = OPS["lstm"](x, h0[len(last)], c0[len(last)], *weights, lengths,
                                      reverse=direction == 1)
                outputs.append(y)
                last.append((h, c))
            x = outputs[0] if len(outputs) == 1 else OPS["cat"](outputs, dim=-1)
        return self._as_given(x, last, alone)

    def _time_first(self, input: Tensor) -> Tensor:
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ValueError(f"LSTM: input must have {self.input_size} features and 3 dims (2 "
                             f"for one sequence), its shape is {input.shape}")
        if input.ndim == 2:
            return OPS["reshape"](input, (input.shape[0], 1, input.shape[1]))
        return OPS["transpose"](input, 0, 1) if self.batch_first else input

    def _first_states(self, x: Tensor, hx: States | None, alone: bool) -> States:
        count = self.num_layers * (2 if self.bidirectional else 1)
        shape = (count, x.shape[1], self.hidden_size)
        if hx is None:
            start = zeros(shape, dtype=x.dtype, device=x.device)
            return start, start
        expected = (count, self.hidden_size) if alone else shape
        for name, state in zip(("h0", "c0"), hx):
            if state.shape != expected:
                raise ValueError(f"LSTM: {name} has shape {state.shape}, the input and layers "
                                 f"need {expected}")
        h0, c0 = (OPS["reshape"](state, shape) for state in hx)
        return h0, c0

    def _dropped(self, x: Tensor) -> Tensor:
        """Dropout with the batch as dim 0, the dim that ranks and micro-batches cut."""
        rows = OPS["transpose"](x, 0, 1)
        return OPS["transpose"](dropout(rows, self.dropout, self.training), 0, 1)

    def _as_given(self, x: Tensor, last: list[States], alone: bool) -> tuple[Tensor, States]:
        """Outputs and states in the layout of the input."""
        h, c = (stack(states) for states in zip(*last))
        if alone:
            return squeeze(x, 1), (squeeze(h, 1), squeeze(c, 1))
        return OPS["transpose"](x, 0, 1) if self.batch_first else x, (h, c)


_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _checked_lengths(lengths: Any, x: Tensor) -> Tensor:
    counts = as_tensor(lengths, device=x.device)
    steps, rows = x.shape[:2]
    if counts.shape != (rows,) or counts.dtype.kind not in "iu":
        raise ValueError(f"LSTM: lengths must be {rows} integers, one per row, they are "
                         f"{counts.dtype} of shape {counts.shape}")
    if rows and not 0 <= counts.min().item() <= counts.max().item() <= steps:
        raise ValueError(f"LSTM: lengths must lie in 0..{steps}, they are {counts.tolist()}")
    return counts
