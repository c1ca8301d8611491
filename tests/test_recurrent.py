"""The LSTM: its equations, directions, padded batches, and gradients through stacked layers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn
from minitorch_gpu.ops import OPS

lstm = OPS["lstm"]


def noise(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, shape)


def operands(steps=3, rows=2, features=2, hidden=3, grad=True):
    """x, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh with random values."""
    shapes = [(steps, rows, features), (rows, hidden), (rows, hidden), (4 * hidden, features),
              (4 * hidden, hidden), (4 * hidden,), (4 * hidden,)]
    return [mt.Tensor(noise(*s, seed=k), requires_grad=grad) for k, s in enumerate(shapes)]


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


# ---------------------------------------------------------------- the op
def test_one_unit_for_two_steps_by_hand():
    w, u, b, d = ([0.5, -1.0, 2.0, 0.3], [1.0, 0.2, -0.7, 0.4], [0.1, 0.2, 0.3, 0.4],
                  [0.0, 0.5, -0.2, 0.1])
    h, c, expected = 0.3, -0.6, []
    for x in (1.5, -0.8):
        i, f, g, o = (w[k] * x + u[k] * h + b[k] + d[k] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * math.tanh(g)
        h = sigmoid(o) * math.tanh(c)
        expected.append(h)
    column = lambda values: mt.tensor(values, dtype=mt.float64).reshape(4, 1)
    flat = lambda values: mt.tensor(values, dtype=mt.float64)
    y, h_n, c_n = lstm(flat([1.5, -0.8]).reshape(2, 1, 1), flat([[0.3]]), flat([[-0.6]]),
                       column(w), column(u), flat(b), flat(d))
    np.testing.assert_allclose(y.numpy().ravel(), expected, rtol=1e-14)
    np.testing.assert_allclose([h_n.item(), c_n.item()], [h, c], rtol=1e-14)


def test_the_reverse_direction_is_the_forward_one_on_the_reversed_sequence():
    x, *rest = operands(steps=5, grad=False)
    forward = lstm(mt.flip(x, 0), *rest)
    backward = lstm(x, *rest, reverse=True)
    np.testing.assert_array_equal(backward[0].numpy(), forward[0].numpy()[::-1])
    for a, b in zip(backward[1:], forward[1:]):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize(("biases", "lengths", "reverse"), list(itertools.product(
    [True, False], [None, [1, 3]], [True, False])))
def test_gradients_to_second_order(biases, lengths, reverse):
    leaves = operands()[:7 if biases else 5]
    counts = None if lengths is None else mt.tensor(lengths)

    def call(*leaves):
        padded = (*leaves, *[None] * (7 - len(leaves)))
        return lstm(*padded, counts, reverse=reverse)

    assert mt.autograd.gradcheck(call, leaves)
    assert mt.autograd.gradgradcheck(lambda *xs: call(*xs)[0], leaves, rtol=1e-4)


@pytest.mark.parametrize("reverse", [True, False])
def test_a_padded_row_equals_the_row_alone(reverse):
    x, h0, c0, *weights = operands(steps=4, grad=False)
    x.array[2:, 1] = 99.0
    y, h, c = lstm(x, h0, c0, *weights, mt.tensor([4, 2]), reverse=reverse)
    alone, h_alone, c_alone = lstm(x[:2, 1:], h0[1:], c0[1:], *weights, reverse=reverse)
    np.testing.assert_allclose(y.numpy()[:2, 1:], alone.numpy(), rtol=1e-13)
    np.testing.assert_allclose(h.numpy()[1:], h_alone.numpy(), rtol=1e-13)
    np.testing.assert_allclose(c.numpy()[1:], c_alone.numpy(), rtol=1e-13)
    assert not y.numpy()[2:, 1].any()


def test_nan_in_the_padding_reaches_no_output_state_or_gradient():
    leaves = operands(steps=4)
    with mt.no_grad():
        leaves[0].array[2:, 1] = np.nan
    outputs = lstm(*leaves, mt.tensor([4, 2]))
    sum(part.sum() for part in outputs).backward()
    assert all(np.isfinite(part.numpy(force=True)).all() for part in outputs)
    assert all(np.isfinite(leaf.grad.numpy()).all() for leaf in leaves)


def test_a_second_backward_pass_gives_the_same_gradients():
    leaves = operands()
    loss = lstm(*leaves)[0].square().sum()
    first = mt.autograd.grad(loss, leaves, retain_graph=True)
    for a, b in zip(mt.autograd.grad(loss, leaves), first):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_large_gates_saturate_and_stay_finite():
    leaves = [mt.Tensor(p.array * 1e4, requires_grad=True) for p in operands()]
    y = lstm(*leaves)[0]
    y.sum().backward()
    assert np.isfinite(y.numpy(force=True)).all() and np.abs(y.numpy(force=True)).max() <= 1
    assert all(np.isfinite(p.grad.numpy()).all() for p in leaves)


@pytest.mark.parametrize(("place", "shape", "named"), [
    (0, (3, 2), "x must be .*steps"), (0, (0, 2, 2), ".*at least one step"),
    (1, (3, 3), r"h0 has shape \(3, 3\).*\(2, 3\)"), (2, (2, 4), r"c0 has shape \(2, 4\)"),
    (3, (12, 3), r"weight_ih has shape \(12, 3\).*\(12, 2\)"),
    (4, (9, 3), r"weight_hh has shape \(9, 3\).*\(12, 3\)"),
    (6, (9,), r"bias_hh has shape \(9,\).*\(12,\)"),
])
def test_an_operand_that_does_not_fit_is_named(place, shape, named):
    leaves = operands(grad=False)
    leaves[place] = mt.zeros(*shape, dtype=mt.float64)
    with pytest.raises(ValueError, match=f"lstm: {named}"):
        lstm(*leaves)


def test_lengths_are_integers_one_per_row():
    with pytest.raises(TypeError, match="lengths must be integers, they are float32"):
        lstm(*operands(), mt.ones(2))
    with pytest.raises(ValueError, match=r"lengths has shape \(3,\).*need \(2,\)"):
        lstm(*operands(), mt.tensor([1, 2, 3]))


# ---------------------------------------------------------------- the module
def test_parameters_have_pytorchs_names_shapes_and_bounds():
    module = nn.LSTM(5, 4, num_layers=2, bidirectional=True)
    shapes = {name: p.shape for name, p in module.named_parameters()}
    ends = [f"_l{layer}{way}" for layer in (0, 1) for way in ("", "_reverse")]
    kinds = dict(weight_ih=(16, 5), weight_hh=(16, 4), bias_ih=(16,), bias_hh=(16,))
    assert shapes == {kind + end: (16, 8) if kind == "weight_ih" and "l1" in end else shape
                      for end in ends for kind, shape in kinds.items()}
    values = np.concatenate([p.numpy(force=True).ravel() for p in module.parameters()])
    assert 0.49 < values.max() <= 0.5 and -0.5 <= values.min() < -0.49
    assert abs(values.mean()) < 4 * 0.5 / math.sqrt(3 * values.size)


def test_a_stack_in_two_directions_ends_where_its_outputs_say():
    module = nn.LSTM(2, 3, num_layers=2, bidirectional=True, batch_first=True)
    output, (h, c) = module(mt.randn(4, 5, 2))
    assert (output.shape, h.shape, c.shape) == ((4, 5, 6), (4, 4, 3), (4, 4, 3))
    np.testing.assert_array_equal(h.numpy(force=True)[-2], output.numpy(force=True)[:, -1, :3])
    np.testing.assert_array_equal(h.numpy(force=True)[-1], output.numpy(force=True)[:, 0, 3:])


def test_a_short_row_of_a_padded_batch_equals_the_row_alone():
    module = nn.LSTM(2, 3, num_layers=2, bidirectional=True, batch_first=True,
                     dtype=mt.float64)
    x = mt.Tensor(noise(2, 4, 2))
    x.array[1, 2:] = 99.0
    output, (h, c) = module(x, lengths=[4, 2])
    alone, (h_alone, c_alone) = module(x[1:, :2])
    for padded, single in ((output[1:, :2], alone), (h[:, 1:], h_alone), (c[:, 1:], c_alone)):
        np.testing.assert_allclose(padded.numpy(force=True), single.numpy(force=True),
                                   rtol=1e-12)


def test_weight_gradients_of_three_layers_in_two_directions():
    module = nn.LSTM(2, 2, num_layers=3, bidirectional=True, dtype=mt.float64)
    x = mt.Tensor(noise(3, 2, 2))
    loss = lambda: (module(x, lengths=[3, 1])[0] * mt.Tensor(noise(3, 2, 4, seed=9))).sum()
    loss().backward()
    for name, parameter in module.named_parameters():
        numeric = np.empty(parameter.shape)
        for at in np.ndindex(parameter.shape):
            ends = []
            for side in (1e-5, -1e-5):
                parameter.array[at] += side
                ends.append(loss().item())
                parameter.array[at] -= side
            numeric[at] = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(parameter.grad.numpy(), numeric, rtol=1e-5, atol=1e-9,
                                   err_msg=name)


def test_dropout_acts_between_the_layers_and_in_training_only():
    mt.manual_seed(0)
    module, x = nn.LSTM(4, 64, num_layers=2, dropout=1.0), mt.randn(3, 2, 4)
    module.eval()
    kept, (h_kept, _) = module(x)
    module.train()
    dropped, (h, _) = module(x)
    assert not np.allclose(dropped.numpy(force=True), kept.numpy(force=True))
    np.testing.assert_array_equal(h.numpy(force=True)[0], h_kept.numpy(force=True)[0])
    same, _ = module(mt.randn(3, 2, 4))  # the second layer sees zeros whatever x is
    np.testing.assert_array_equal(dropped.numpy(force=True), same.numpy(force=True))
    assert h.numpy(force=True).any(), "the last layer's outputs are not dropped"


@pytest.mark.parametrize(("options", "named"), [
    (dict(input_size=0), "input_size.*0"), (dict(hidden_size=-1), "hidden_size.*-1"),
    (dict(num_layers=0), "num_layers.*0"), (dict(dropout=1.5), "dropout.*1.5"),
])
def test_a_bad_argument_of_the_module_is_named(options, named):
    with pytest.raises(ValueError, match=f"LSTM: {named}"):
        nn.LSTM(**{**dict(input_size=2, hidden_size=3), **options})


def test_inputs_states_and_lengths_that_do_not_fit_are_named():
    module = nn.LSTM(2, 3)
    with pytest.raises(ValueError, match=r"2 features.*\(4, 2, 3\)"):
        module(mt.zeros(4, 2, 3))
    with pytest.raises(ValueError, match=r"h0 has shape \(1, 3\).*\(1, 2, 3\)"):
        module(mt.zeros(4, 2, 2), (mt.zeros(1, 3), mt.zeros(1, 2, 3)))
    with pytest.raises(ValueError, match=r"2 integers.*\(1,\)"):
        module(mt.zeros(4, 2, 2), lengths=[4])
    with pytest.raises(ValueError, match=r"0\.\.4, they are \[5, 1\]"):
        module(mt.zeros(4, 2, 2), lengths=[5, 1])
