"""Convolution and pooling: known values, second order, layouts, corners, and errors."""

from __future__ import annotations

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu.ops import convolution
from minitorch_gpu.ops.convolution import conv1d, conv2d, conv3d
from minitorch_gpu.ops.pooling import (
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    max_pool1d,
    max_pool2d,
)


def image(values, *shape, grad=True):
    return mt.Tensor(np.asarray(values, np.float64).reshape(shape), requires_grad=grad)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def one_window_at_a_time(x, weight, bias, stride, padding, dilation, groups):
    """conv2d by its definition: a sum over each window, in plain loops."""
    n, (o, part, kh, kw) = len(x), weight.shape
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    out = [(s - d * (k - 1) - 1) // t + 1
           for s, k, d, t in zip(x.shape[2:], (kh, kw), dilation, stride)]
    y = np.empty((n, o, *out))
    for at in np.ndindex(n, o, *out):
        first = at[1] // (o // groups) * part
        window = x[at[0], first:first + part,
                   at[2] * stride[0]:at[2] * stride[0] + dilation[0] * (kh - 1) + 1:dilation[0],
                   at[3] * stride[1]:at[3] * stride[1] + dilation[1] * (kw - 1) + 1:dilation[1]]
        y[at] = (window * weight[at[1]]).sum() + bias[at[1]]
    return y


# ---------------------------------------------------------------- convolution
@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), [
    ((1, 1), (0, 0), (1, 1), 1), ((2, 3), (1, 0), (1, 2), 2), ((1, 2), (2, 1), (2, 1), 6),
    ((3, 1), (0, 2), (1, 1), 3),
])
def test_conv2d_is_the_sum_over_each_window(stride, padding, dilation, groups):
    x, w, b = noise(2, 6, 7, 8), noise(6, 6 // groups, 3, 2, seed=1), noise(6, seed=2)
    y = conv2d(mt.Tensor(x), mt.Tensor(w), mt.Tensor(b), stride, padding, dilation, groups)
    expected = one_window_at_a_time(x, w, b, stride, padding, dilation, groups)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_depthwise_and_strided_convolution_has_the_right_input_gradient():
    x = image(np.arange(32), 1, 2, 4, 4)
    w = image(np.arange(18), 2, 1, 3, 3)
    y = conv2d(x, w, stride=2, padding=1, groups=2)
    assert y.tolist() == [[[[73, 154], [279, 438]], [[1123, 1762], [2034, 3120]]]]
    y.sum().backward()
    assert x.grad.tolist() == [[
        [[4, 8, 4, 5], [8, 16, 8, 10], [4, 8, 4, 5], [7, 14, 7, 8]],
        [[13, 26, 13, 14], [26, 52, 26, 28], [13, 26, 13, 14], [16, 32, 16, 17]],
    ]]


@pytest.mark.parametrize("options", [
    dict(stride=(2, 1), padding=1, groups=2), dict(padding="same", dilation=(2, 1)),
])
def test_gradients_of_conv2d_to_second_order(options):
    groups = options.get("groups", 1)
    operands = [image(noise(2, 4, 5, 4), 2, 4, 5, 4),
                image(noise(4, 4 // groups, 3, 2, seed=1), 4, 4 // groups, 3, 2),
                image(noise(4, seed=2), 4)]
    call = lambda x, w, b: conv2d(x, w, b, **options)
    assert mt.autograd.gradcheck(call, operands)
    assert mt.autograd.gradgradcheck(call, operands)


def test_one_and_three_dims_are_slices_of_the_same_sum():
    x, w = noise(2, 3, 6), noise(4, 3, 3, seed=1)
    line = conv1d(mt.Tensor(x), mt.Tensor(w), padding=1, stride=2)
    plane = conv2d(mt.Tensor(x[:, :, None]), mt.Tensor(w[:, :, None]), padding=(0, 1),
                   stride=(1, 2))
    volume = conv3d(mt.Tensor(x[:, :, None, None]), mt.Tensor(w[:, :, None, None]),
                    padding=(0, 0, 1), stride=(1, 1, 2))
    np.testing.assert_allclose(line.numpy(), plane.numpy()[:, :, 0], rtol=1e-12)
    np.testing.assert_allclose(line.numpy(), volume.numpy()[:, :, 0, 0], rtol=1e-12)


def test_same_padding_puts_the_odd_zero_at_the_end():
    y = conv1d(image([1, 2, 3], 1, 1, 3), image([1, 10], 1, 1, 2), padding="same")
    assert y.tolist() == [[[21, 32, 3]]]
    assert conv1d(image([1, 2, 3], 1, 1, 3), image([1, 10], 1, 1, 2),
                  padding="valid").tolist() == [[[21, 32]]]


def test_one_sample_needs_no_batch_dim():
    x, w = noise(3, 5, 5), noise(2, 3, 2, 2, seed=1)
    single = conv2d(mt.Tensor(x), mt.Tensor(w))
    assert single.shape == (2, 4, 4)
    np.testing.assert_array_equal(single.numpy(),
                                  conv2d(mt.Tensor(x[None]), mt.Tensor(w)).numpy()[0])


def test_an_empty_batch_gives_empty_results_and_zero_gradients():
    x = mt.zeros(0, 3, 5, 5, requires_grad=True)
    w = mt.ones(2, 3, 2, 2, requires_grad=True)
    y = max_pool2d(conv2d(x, w), 2)
    assert y.shape == (0, 2, 2, 2)
    avg_pool2d(y, 2).sum().backward()
    assert x.grad.shape == (0, 3, 5, 5)
    assert not w.grad.numpy().any() and w.grad.shape == w.shape


def test_a_batch_cut_into_blocks_gives_the_same_sums(monkeypatch):
    operands = [image(noise(5, 4, 6, 6), 5, 4, 6, 6),
                image(noise(6, 2, 3, 3, seed=1), 6, 2, 3, 3)]

    def results():
        y = conv2d(*operands, stride=2, padding=1, groups=2)
        return [y, *mt.autograd.grad(y.square().sum(), operands)]

    whole = results()
    one_sample = 4 * 9 * 9 * 8
    monkeypatch.setitem(convolution._COLUMN_BYTES, "numpy", 2 * one_sample)
    for a, b in zip(results(), whole):
        np.testing.assert_allclose(a.numpy(force=True), b.numpy(force=True), rtol=1e-12)


def test_float16_is_computed_in_float32_and_rounded_once():
    x, w = mt.tensor(noise(1, 64, 3, 3)).half(), mt.tensor(noise(2, 64, 3, 3, seed=1)).half()
    exact = (x.double().numpy() * w.double().numpy()).sum((1, 2, 3))
    y = conv2d(x, w)
    assert y.dtype == mt.float16
    np.testing.assert_array_equal(y.numpy().reshape(2), exact.astype(np.float16))


@pytest.mark.parametrize(("options", "named"), [
    (dict(stride=0), "stride.*0"), (dict(stride=(1, -1)), r"stride.*\(1, -1\)"),
    (dict(dilation=0), "dilation.*0"), (dict(padding=-1), "padding.*-1"),
    (dict(padding=(1, 1, 1)), r"padding.*\(1, 1, 1\)"), (dict(padding="full"), "'full'"),
    (dict(dilation=3), r"spans \(4, 4\), more than the input of \(3, 3\)"),
    (dict(groups=0), "groups.*0"), (dict(groups=2), "groups.*2"),
    (dict(padding="same", stride=2), r"stride 1, it is \(2, 2\)"),
])
def test_a_bad_option_of_conv2d_is_named(options, named):
    with pytest.raises(ValueError, match=f"conv2d: .*{named}"):
        conv2d(mt.ones(1, 1, 3, 3), mt.ones(1, 1, 2, 2), **options)


@pytest.mark.parametrize(("x", "weight", "bias", "named"), [
    ((1, 2, 3, 3), (1, 1, 2, 2), None, "2 channels.*takes 1"),
    ((3, 3), (1, 1, 2, 2), None, r"x needs 4 dims.*\(3, 3\)"),
    ((1, 1, 3, 3), (1, 2, 2), None, r"weight 4.*\(1, 2, 2\)"),
    ((1, 1, 3, 3), (2, 1, 4, 1), None, r"spans \(4, 1\)"),
    ((1, 1, 3, 3), (2, 1, 2, 2), (3,), r"bias has shape \(3,\).*\(2,\)"),
    ((1, 1, 3, 3), (2, 1, 0, 2), None, "empty kernel"),
])
def test_operands_of_conv2d_that_do_not_fit_are_named(x, weight, bias, named):
    with pytest.raises(ValueError, match=f"conv2d: .*{named}"):
        conv2d(mt.ones(*x), mt.ones(*weight), None if bias is None else mt.ones(*bias))


def test_operands_of_two_dtypes_are_refused():
    with pytest.raises(TypeError, match="conv2d: expected operands of one dtype"):
        conv2d(mt.ones(1, 1, 3, 3), mt.ones(1, 1, 2, 2, dtype=mt.float64))


# ---------------------------------------------------------------- max pooling
def test_the_first_of_equal_values_gets_the_gradient():
    x = image([[5, 5, 1], [5, 2, 1], [0, 1, 1]], 1, 1, 3, 3)
    y = max_pool2d(x, 2, stride=1)
    assert y.tolist() == [[[[5, 5], [5, 2]]]]
    y.backward(image([[1, 10], [100, 1000]], 1, 1, 2, 2))
    assert x.grad.tolist() == [[[[1, 10, 0], [100, 1000, 0], [0, 0, 0]]]]


def test_padding_never_wins_not_even_over_minus_infinity():
    x = image([-np.inf] * 4, 1, 1, 2, 2)
    y = max_pool2d(x, 3, stride=2, padding=1)
    assert y.tolist() == [[[[-np.inf]]]]
    y.sum().backward()
    assert x.grad.tolist() == [[[[1, 0], [0, 0]]]]
    assert max_pool2d(image([-3], 1, 1, 1, 1), 2, padding=1, stride=1).tolist() == [[
        [[-3, -3], [-3, -3]]]]


def test_a_window_with_a_nan_gives_nan_and_its_gradient_goes_to_the_last_one():
    x = image([np.nan, 1, np.nan, 2, 3, 4], 1, 1, 6)
    y = max_pool1d(x, 4, stride=2)
    np.testing.assert_array_equal(y.numpy(force=True), [[[np.nan, np.nan]]])
    y.backward(image([1, 10], 1, 1, 2))
    assert x.grad.tolist() == [[[0, 0, 11, 0, 0, 0]]]


def test_an_infinite_cotangent_leaves_the_other_elements_at_zero():
    x = image([1, 2], 1, 1, 2)
    max_pool1d(x, 2).backward(image([np.inf], 1, 1, 1))
    assert x.grad.tolist() == [[[0, np.inf]]]


def test_integers_pool_too():
    assert max_pool1d(mt.tensor([[[-5, -7, -9]]]), 2, padding=1).tolist() == [[[-5, -7]]]


def test_kernels_of_more_than_256_taps_remember_their_position():
    x = image(np.arange(400), 1, 1, 20, 20)
    max_pool2d(x, 20).sum().backward()
    assert x.grad.numpy().argmax() == 399 and x.grad.sum().item() == 1


@pytest.mark.parametrize("options", [
    dict(kernel_size=2), dict(kernel_size=(3, 2), stride=(2, 1), padding=(1, 0)),
    dict(kernel_size=2, stride=3, dilation=2, ceil_mode=True),
])
def test_max_pool_to_second_order(options):
    x = image(np.random.default_rng(0).permutation(60) / 7.0, 1, 2, 5, 6)
    call = lambda x: max_pool2d(x, **options)
    assert mt.autograd.gradcheck(call, x)
    squared = lambda x: max_pool2d(x * x, **options).square()
    assert mt.autograd.gradgradcheck(squared, x, rtol=1e-4)


# ---------------------------------------------------------------- average pooling
def test_ceil_mode_counts_only_what_lies_in_the_image():
    x = image(np.arange(49), 1, 1, 7, 7)
    assert avg_pool2d(x, 2, stride=3, ceil_mode=True).tolist() == [[
        [[4, 7, 9.5], [25, 28, 30.5], [42.5, 45.5, 48]]]]


def test_the_padding_counts_or_not():
    x = image([[1, 2], [3, 4]], 1, 1, 2, 2)
    include = avg_pool2d(x, 3, stride=1, padding=1)
    np.testing.assert_allclose(include.numpy(force=True), np.full((1, 1, 2, 2), 10 / 9))
    exclude = avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
    assert exclude.tolist() == [[[[2.5, 2.5], [2.5, 2.5]]]]
    assert avg_pool2d(x, 2, divisor_override=5).tolist() == [[[[2]]]]
    assert avg_pool1d(image([1, 2, 3], 1, 1, 3), 2, stride=1).tolist() == [[[1.5, 2.5]]]


@pytest.mark.parametrize("include", [True, False])
def test_avg_pool_to_second_order(include):
    x = image(noise(1, 2, 5, 4), 1, 2, 5, 4)
    call = lambda x: avg_pool2d(x, (3, 2), stride=2, padding=1, ceil_mode=True,
                                count_include_pad=include).square()
    assert mt.autograd.gradcheck(call, x)
    assert mt.autograd.gradgradcheck(call, x)


def test_adaptive_windows_start_at_the_floor_and_end_at_the_ceiling():
    x = image(np.arange(5), 1, 1, 5)
    assert adaptive_avg_pool2d(x, (1, 3)).tolist() == [[[0.5, 2, 3.5]]]
    assert adaptive_avg_pool2d(image(np.arange(4), 1, 2, 2), 1).tolist() == [[[1.5]]]
    assert adaptive_avg_pool2d(image(np.arange(4), 1, 2, 2), (None, 1)).tolist() == [
        [[0.5], [2.5]]]
    assert mt.autograd.gradcheck(lambda x: adaptive_avg_pool2d(x, (2, 3)),
                                 image(noise(2, 5, 4), 2, 5, 4))


@pytest.mark.parametrize("pool", [max_pool2d, avg_pool2d])
@pytest.mark.parametrize(("options", "named"), [
    (dict(kernel_size=0), "kernel_size.*0"), (dict(kernel_size=2, stride=0), "stride.*0"),
    (dict(kernel_size=2, padding=-1), "padding.*-1"),
    (dict(kernel_size=2, padding=2), "half.*2"),
    (dict(kernel_size=4), r"spans \(4, 4\), more than the input of \(3, 3\)"),
])
def test_a_bad_option_of_a_pool_is_named(pool, options, named):
    with pytest.raises(ValueError, match=f"{pool.__name__}: .*{named}"):
        pool(mt.ones(1, 1, 3, 3), **options)


def test_a_dilation_below_one_and_a_divisor_of_zero_are_named():
    with pytest.raises(ValueError, match="dilation must be at least 1, it is 0"):
        max_pool2d(mt.ones(1, 1, 3, 3), 2, dilation=0)
    with pytest.raises(ValueError, match="divisor_override must not be 0"):
        avg_pool2d(mt.ones(1, 1, 3, 3), 2, divisor_override=0)
    with pytest.raises(ValueError, match=r"x needs 4 dims.*\(3, 3\)"):
        max_pool2d(mt.ones(3, 3), 2)


@pytest.mark.parametrize("channels_last", [True, False])
def test_the_memory_layout_of_x_changes_no_value(channels_last):
    x = noise(2, 3, 6, 6)
    if channels_last:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    leaf, w = mt.Tensor(x, requires_grad=True), mt.Tensor(noise(4, 3, 3, 3, seed=1))
    y = max_pool2d(conv2d(leaf, w, padding=1), 2)
    y.backward(mt.Tensor(noise(2, 4, 3, 3, seed=2)))
    expected = one_window_at_a_time(x, w.numpy(), np.zeros(4), (1, 1), (1, 1), (1, 1), 1)
    expected = expected.reshape(2, 4, 3, 2, 3, 2).max((3, 5))
    np.testing.assert_allclose(y.numpy(force=True), expected, rtol=1e-12)
    assert leaf.grad.is_contiguous()
