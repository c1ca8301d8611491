"""One direction of one LSTM layer over a whole sequence, as one op.

The products with the inputs of all steps are one product; a loop over the steps adds the
recurrent part. Its backward pass computes every factor that does not depend on the cotangents
for all steps at once, and the gradients of the weights as one product each.
"""

from __future__ import annotations

from typing import Any

from minitorch_gpu.ops.indexing import select
from minitorch_gpu.ops.shape import stack
from minitorch_gpu.registry import composite
from minitorch_gpu.registry.scalar import OPS

Array = Any
Params = dict[str, Any]
_FLOATING = ("x", "h0", "c0", "weight_ih", "weight_hh", "bias_ih", "bias_hh")


# ---------------------------------------------------------------- the fused pair
def _order(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _halved(xp: Any, weight: Array) -> Array:
    """Rows of o, i, f halved, then those of g: what one tanh turns into all four gates.

    sigmoid(v) is tanh(v / 2) / 2 + 1 / 2; halving is exact. In this order both the logistic
    gates and the gates that lead into c lie side by side.
    """
    hidden = len(weight) // 4
    half = weight * 0.5
    return xp.concatenate([half[3 * hidden:], half[:2 * hidden],
                           weight[2 * hidden:3 * hidden]])


def _input_gates(
    xp: Any, x: Array, weight_ih: Array, bias_ih: Any, bias_hh: Any
) -> Array:
    """The input's part of the halved gates of all steps, one product: (t, n, 4h)."""
    steps, rows, features = x.shape
    flat = xp.matmul(x.reshape(steps * rows, features), _halved(xp, weight_ih).T)
    biases = [b for b in (bias_ih, bias_hh) if b is not None]
    if biases:
        flat += _halved(xp, sum(biases[1:], biases[0]))
    return flat.reshape(steps, rows, -1)


def _live(xp: Any, lengths: Any, steps: int) -> Any:
    """(t, n, 1): whether step t lies within row n's length; None without lengths."""
    if lengths is None:
        return None
    return (xp.arange(steps)[:, None] < lengths)[..., None]


def _within(xp: Any, live: Any, values: Array) -> Array:
    """``values`` (t, n, ..), 0 beyond the lengths, whatever the padding holds."""
    return values if live is None else xp.where(live, values, values.dtype.type(0))


def _cell(
    xp: Any, block: Array, gates: Array, c: Array, after: Array, tanh_c: Array, h: Array
) -> None:
    """From ``block`` (n, 4h) the activations o, i, f, g (4, n, h), the new c, tanh(c) and h."""
    xp.tanh(block.reshape(len(h), 4, -1).swapaxes(0, 1), out=gates)
    logistic, (o, i, f, g) = gates[:3], gates
    logistic *= 0.5
    logistic += 0.5
    xp.multiply(f, c, out=after)
    after += xp.multiply(i, g, out=h)
    xp.multiply(o, xp.tanh(after, out=tanh_c), out=h)


def _forward(
    xp: Any, x: Array, h0: Array, c0: Array, weight_ih: Array, weight_hh: Array,
    bias_ih: Any, bias_hh: Any, lengths: Any, *, reverse: bool,
) -> tuple[Any, Any]:
    steps, live = len(x), _live(xp, lengths, len(x))
    blocks = _input_gates(xp, _within(xp, live, x), weight_ih, bias_ih, bias_hh)
    recurrent = _halved(xp, weight_hh).T.copy()
    # States lie around the steps: step t goes from t to t + 1, in reverse from t + 1 to t.
    hs, cs = (xp.empty((steps + 1, *h0.shape), x.dtype) for _ in range(2))
    tanhs, product = xp.empty((steps, *h0.shape), x.dtype), xp.empty_like(blocks[0])
    gates = xp.empty((steps, 4, *h0.shape), x.dtype)
    start, end = (steps, 0) if reverse else (0, steps)
    hs[start], cs[start] = h0, c0
    for t in _order(steps, reverse):
        before, after = (t + 1, t) if reverse else (t, t + 1)
        xp.matmul(hs[before], recurrent, out=product)
        product += blocks[t]
        _cell(xp, product, gates[t], cs[before], cs[after], tanhs[t], hs[after])
        if live is not None:  # a finished row keeps its state
            xp.copyto(hs[after], hs[before], where=~live[t])
            xp.copyto(cs[after], cs[before], where=~live[t])
    output = hs[:-1] if reverse else hs[1:]
    results = (_within(xp, live, output), hs[end].copy(), cs[end].copy())
    return results, (gates, hs, cs, tanhs)


def _cell_slopes(
    xp: Any, gates: Array, c: Array, tanh_c: Array, dh: Array, dc: Array, slopes: Array
) -> Array:
    """Write d i, d f, d g, d o before activation (n, 4h); return d c before the step.

    ``dc`` becomes the whole cotangent of c after the step.
    """
    o, i, f, g = gates
    through = tanh_c * tanh_c
    xp.subtract(1.0, through, out=through)
    through *= o
    through *= dh
    dc += through
    factors = 1.0 - gates
    factors *= gates
    xp.subtract(1.0, xp.multiply(g, g, out=factors[3]), out=factors[3])
    for factor, other in zip(factors, (tanh_c, g, c, i)):
        factor *= other
    ordered = slopes.reshape(len(dh), 4, -1).swapaxes(0, 1)  # i, f, g, o
    xp.multiply(factors[1:], dc, out=ordered[:3])
    xp.multiply(factors[0], dh, out=ordered[3])
    return xp.multiply(f, dc, out=through)


def _backward(
    xp: Any, g: Any, residuals: Any, inputs: Any, needs: Any, *, reverse: bool
) -> list[Any]:
    gates, hs, cs, tanhs = residuals
    weight_hh, steps, live = inputs[4], len(tanhs), _live(xp, inputs[7], len(tanhs))
    before = slice(1, None) if reverse else slice(0, -1)
    outputs = _within(xp, live, g[0])
    slopes = xp.empty((steps, hs.shape[1], 4 * hs.shape[2]), hs.dtype)
    dh, dc = g[1], g[2].copy()
    for t in reversed(_order(steps, reverse)):
        dh, finished = dh + outputs[t], dc.copy() if live is not None else None
        dc = _cell_slopes(xp, gates[t], cs[before][t], tanhs[t], dh, dc, slopes[t])
        if live is not None:  # a finished row hands its cotangents on as they are
            xp.copyto(slopes[t], 0, where=~live[t])
            xp.copyto(dc, finished, where=~live[t])
        kept, dh = dh, xp.matmul(slopes[t], weight_hh)
        if live is not None:
            xp.copyto(dh, kept, where=~live[t])
    flat = slopes.reshape(-1, slopes.shape[-1])
    x = _within(xp, live, inputs[0])
    return _operand_slopes(xp, flat, x, hs[before], (dh, dc), inputs[3], needs)


def _operand_slopes(
    xp: Any, flat: Array, x: Array, before: Array, starts: tuple[Array, Array],
    weight_ih: Array, needs: Any,
) -> list[Any]:
    """The operands' cotangents, from those of the gates (t * n, 4h) before activation."""
    bias = flat.sum(0) if needs[5] or needs[6] else None
    return [
        xp.matmul(flat, weight_ih).reshape(x.shape) if needs[0] else None,
        starts[0] if needs[1] else None,
        starts[1] if needs[2] else None,
        xp.matmul(flat.T, x.reshape(len(flat), -1)) if needs[3] else None,
        xp.matmul(flat.T, before.reshape(len(flat), -1)) if needs[4] else None,
        bias if needs[5] else None,
        bias if needs[6] else None,
        None,
    ]


# ---------------------------------------------------------------- the op
def _check(params: Params, x: Any, h0: Any, c0: Any, weight_ih: Any, weight_hh: Any,
           bias_ih: Any, bias_hh: Any, lengths: Any) -> Params:
    if x.ndim != 3 or not len(x):
        raise ValueError(f"lstm: x must be (steps, rows, features) with at least one step, its "
                         f"shape is {x.shape}")
    rows, hidden = x.shape[1], weight_hh.shape[-1]
    expected = dict(h0=(h0, (rows, hidden)), c0=(c0, (rows, hidden)),
                    weight_ih=(weight_ih, (4 * hidden, x.shape[2])),
                    weight_hh=(weight_hh, (4 * hidden, hidden)),
                    bias_ih=(bias_ih, (4 * hidden,)), bias_hh=(bias_hh, (4 * hidden,)),
                    lengths=(lengths, (rows,)))
    for name, (operand, shape) in expected.items():
        if operand is not None and operand.shape != shape:
            raise ValueError(f"lstm: {name} has shape {operand.shape}; x of shape {x.shape} "
                             f"and a hidden size of {hidden} need {shape}")
    if lengths is not None and lengths.dtype.kind not in "iu":
        raise TypeError(f"lstm: lengths must be integers, they are {lengths.dtype}")
    return params


_OPERANDS = dict(x=(3, 2, 2), h0=(2, 3), c0=(2, 3), weight_ih=(12, 2), weight_hh=(12, 3))
_BIASES = dict(bias_ih=(12,), bias_hh=(12,))


@composite(
    "(t,n,i),(n,h),(n,h),(k,i),(k,h),(k)?,(k)?,(n)?->(t,n,h),(n,h),(n,h)",
    forward=_forward, backward=_backward, normalise=_check, promote=_FLOATING, methods=(),
    domain=(-1.0, 1.0),
    examples=(dict(**_OPERANDS, **_BIASES), dict(**_OPERANDS, reverse=True),
              dict(**_OPERANDS, lengths=[1, 3]),
              dict(**_OPERANDS, **_BIASES, lengths=[2, 0], reverse=True)),
)
def lstm(
    x: Any, h0: Any, c0: Any, weight_ih: Any, weight_hh: Any, bias_ih: Any = None,
    bias_hh: Any = None, lengths: Any = None, *, reverse: bool = False,
) -> tuple[Any, Any, Any]:
    """A long short-term memory over time (Hochreiter and Schmidhuber 1997, with forget gates).

    With i, f, g, o the four parts of W_ih x_t + b_ih + W_hh h + b_hh, s the logistic function:
    ``c = s(f) * c + s(i) * tanh(g)`` and ``h = s(o) * tanh(c)``, the equations of PyTorch.

    Args:
        x: (T, N, I), the inputs of T steps.
        h0: (N, H), the first output state.
        c0: (N, H), the first cell state.
        weight_ih: (4H, I).
        weight_hh: (4H, H).
        bias_ih: (4H), or None.
        bias_hh: (4H), or None.
        lengths: (N) integers, the steps of each row that count; states stay as they are beyond
            them and outputs are 0, so that the reverse direction starts at a row's end.
        reverse: run from the last step to the first.

    Returns:
        Outputs (T, N, H), the last h (N, H) and the last c (N, H).

    Raises:
        ValueError: shapes that do not fit, or no step.
        TypeError: lengths are no integers.
    """
    outputs, h, c = [], h0, c0
    for t in _order(len(x), reverse):
        step, live = select(x, 0, t), None
        if lengths is not None:
            live = OPS["reshape"](OPS["gt"](lengths, t), (-1, 1))
            step = OPS["where"](live, step, 0.0)
        gates = OPS["linear"](step, weight_ih, bias_ih) + OPS["linear"](h, weight_hh, bias_hh)
        i, f, g, o = OPS["split"](gates, h0.shape[-1], dim=-1)
        after = OPS["sigmoid"](f) * c + OPS["sigmoid"](i) * OPS["tanh"](g)
        y = OPS["sigmoid"](o) * OPS["tanh"](after)
        h = y if live is None else OPS["where"](live, y, h)
        c = after if live is None else OPS["where"](live, after, c)
        outputs.append(y if live is None else OPS["where"](live, y, 0.0))
    return stack(outputs[::-1] if reverse else outputs), h, c
