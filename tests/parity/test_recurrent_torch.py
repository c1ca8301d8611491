"""The LSTM gives PyTorch's outputs, states and gradients, option by option."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn

torch = pytest.importorskip("torch", reason="compares with PyTorch")


def both(**options):
    """Our LSTM and PyTorch's with the same float64 parameters, by name."""
    theirs = torch.nn.LSTM(3, 4, dtype=torch.float64, **options)
    ours = nn.LSTM(3, 4, dtype=mt.float64, **options)
    assert [name for name, _ in ours.named_parameters()] == [
        name for name, _ in theirs.named_parameters()]
    ours.load_state_dict({name: mt.tensor(value.numpy())
                          for name, value in theirs.state_dict().items()})
    return ours, theirs


def assert_equal(ours, theirs, label):
    np.testing.assert_allclose(ours.numpy(force=True), theirs.detach().numpy(), rtol=1e-10,
                               atol=1e-12, err_msg=str(label))


def backward(results, seed=0):
    """From a fixed random cotangent for every result."""
    draw = np.random.default_rng(seed)
    weights = [draw.normal(size=tuple(r.shape)) for r in results]
    sum((r * type(r)(w) if isinstance(r, mt.Tensor) else r * torch.tensor(w)).sum()
        for r, w in zip(results, weights)).backward()


@pytest.mark.parametrize(("layers", "bias", "batch_first", "bidirectional", "states"), list(
    itertools.product((1, 2, 3), (True, False), (True, False), (True, False), (True, False))))
def test_outputs_states_and_gradients(layers, bias, batch_first, bidirectional, states):
    options = dict(num_layers=layers, bias=bias, batch_first=batch_first,
                   bidirectional=bidirectional)
    ours, theirs = both(**options)
    draw = np.random.default_rng(1)
    count = layers * (2 if bidirectional else 1)
    values = [draw.normal(size=(5, 2, 3) if not batch_first else (2, 5, 3)),
              *(draw.normal(size=(count, 2, 4)) for _ in range(2 if states else 0))]
    a = [mt.Tensor(v, requires_grad=True) for v in values]
    b = [torch.tensor(v, requires_grad=True) for v in values]
    y, (h, c) = ours(a[0], tuple(a[1:]) or None)
    y_t, (h_t, c_t) = theirs(b[0], tuple(b[1:]) or None)
    for result, expected in zip((y, h, c), (y_t, h_t, c_t)):
        assert_equal(result, expected, options)
    backward([y, h, c])
    backward([y_t, h_t, c_t])
    for x, x_t in zip(a, b):
        assert_equal(x.grad, x_t.grad, options)
    for (name, p), (_, p_t) in zip(ours.named_parameters(), theirs.named_parameters()):
        assert_equal(p.grad, p_t.grad, (options, name))


def test_one_sequence_without_a_batch_dim():
    ours, theirs = both(num_layers=2, bidirectional=True)
    x = np.random.default_rng(0).normal(size=(5, 3))
    start = [np.random.default_rng(k).normal(size=(4, 4)) for k in (1, 2)]
    for states in (None, start):
        given = None if states is None else tuple(map(mt.Tensor, states))
        given_t = None if states is None else tuple(map(torch.tensor, states))
        y, (h, c) = ours(mt.Tensor(x), given)
        y_t, (h_t, c_t) = theirs(torch.tensor(x), given_t)
        for result, expected in zip((y, h, c), (y_t, h_t, c_t)):
            assert_equal(result, expected, "unbatched")


@pytest.mark.parametrize("bidirectional", [True, False])
def test_lengths_are_packed_sequences(bidirectional):
    ours, theirs = both(num_layers=2, bidirectional=bidirectional, batch_first=True)
    lengths = [4, 2, 5]
    values = np.random.default_rng(0).normal(size=(3, 5, 3))
    x, x_t = mt.Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    y, (h, c) = ours(x, lengths=lengths)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x_t, torch.tensor(lengths),
                                                     batch_first=True, enforce_sorted=False)
    y_t, (h_t, c_t) = theirs(packed)
    y_t, _ = torch.nn.utils.rnn.pad_packed_sequence(y_t, batch_first=True)
    for result, expected in zip((y, h, c), (y_t, h_t, c_t)):
        assert_equal(result, expected, "packed")
    backward([y, h, c])
    backward([y_t, h_t, c_t])
    assert_equal(x.grad, x_t.grad, "packed")
    for p, p_t in zip(ours.parameters(), theirs.parameters()):
        assert_equal(p.grad, p_t.grad, "packed")
