"""Convolution and pooling give PyTorch's values and gradients, option by option."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu.ops import convolution, pooling

torch = pytest.importorskip("torch", reason="compares with PyTorch")
F = torch.nn.functional

CONVOLUTIONS = {
    "conv1d": ((2, 4, 9), (6, 4, 3)),
    "conv2d": ((2, 4, 7, 8), (6, 4, 3, 2)),
    "conv3d": ((1, 4, 5, 6, 4), (6, 4, 3, 2, 1)),
}


def compare(name, ours, theirs, operands, options):
    """The values and, for random cotangents, the gradients of both; all in float64."""
    a = [mt.Tensor(v.copy(), requires_grad=True) for v in operands]
    b = [torch.tensor(v, requires_grad=True) for v in operands]
    label = f"{name} {options}"
    expected = theirs(*b, **options)
    result = ours(*a, **options)
    np.testing.assert_allclose(result.numpy(force=True), expected.detach().numpy(),
                               rtol=1e-10, atol=1e-10, err_msg=label)
    cotangent = np.random.default_rng(5).normal(size=result.shape)
    result.backward(mt.Tensor(cotangent))
    expected.backward(torch.tensor(cotangent))
    for place, (x, y) in enumerate(zip(a, b)):
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9, atol=1e-9,
                                   err_msg=f"{label}: gradient {place}")


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_over_the_product_of_their_options(name):
    draw = np.random.default_rng(0)
    shape, weight_shape = CONVOLUTIONS[name]
    for stride, padding, dilation, groups in itertools.product(
            (1, 2), (0, 1, "same", "valid"), (1, 2), (1, 2)):
        if padding == "same" and stride != 1:
            continue
        weight = draw.normal(size=(weight_shape[0], weight_shape[1] // groups,
                                   *weight_shape[2:]))
        operands = [draw.normal(size=shape), weight, draw.normal(size=weight_shape[0])]
        options = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
        compare(name, getattr(convolution, name), getattr(F, name), operands, options)


def test_uneven_options_and_depthwise_kernels():
    draw = np.random.default_rng(1)
    for stride, padding, dilation in itertools.product(
            ((1, 2), (3, 1)), ((0, 2), (1, 0)), ((1, 3), (2, 1))):
        operands = [draw.normal(size=(2, 3, 7, 9)), draw.normal(size=(6, 1, 3, 2))]
        options = dict(stride=stride, padding=padding, dilation=dilation, groups=3)
        compare("conv2d", convolution.conv2d, F.conv2d, operands, options)


@pytest.mark.parametrize("name", ["max_pool1d", "max_pool2d"])
def test_max_pools_over_the_product_of_their_options(name):
    dims = int(name[-2])
    for seed, (kernel, stride, padding, dilation, ceil_mode) in enumerate(itertools.product(
            (1, 2, 3), (None, 1, 2, 3), (0, 1), (1, 2), (False, True))):
        if 2 * padding > kernel:
            continue
        # Few distinct values: ties in nearly every window.
        x = np.random.default_rng(seed).integers(0, 3, (2, 3, 7, 8)[:2 + dims]).astype("d")
        options = dict(kernel_size=kernel, stride=stride, padding=padding, dilation=dilation,
                       ceil_mode=ceil_mode)
        compare(name, getattr(pooling, name), getattr(F, name), [x], options)


@pytest.mark.parametrize("name", ["avg_pool1d", "avg_pool2d"])
def test_average_pools_over_the_product_of_their_options(name):
    dims = int(name[-2])
    for seed, (kernel, stride, padding, ceil_mode, include) in enumerate(itertools.product(
            (1, 2, 3), (None, 1, 2, 3), (0, 1), (False, True), (False, True))):
        if 2 * padding > kernel:
            continue
        x = np.random.default_rng(seed).normal(size=(2, 3, 7, 8)[:2 + dims])
        options = dict(kernel_size=kernel, stride=stride, padding=padding,
                       ceil_mode=ceil_mode, count_include_pad=include)
        compare(name, getattr(pooling, name), getattr(F, name), [x], options)


def test_nan_in_a_max_pool():
    x = np.random.default_rng(0).normal(size=(2, 2, 6, 6))
    x[np.random.default_rng(1).random(x.shape) < 0.2] = np.nan
    for padding, stride in itertools.product((0, 1), (1, 2)):
        compare("max_pool2d", pooling.max_pool2d, F.max_pool2d, [x],
                dict(kernel_size=3, stride=stride, padding=padding))


@pytest.mark.parametrize("size", [1, 3, (2, 5), (7, None), (4, 3)])
def test_adaptive_average_pools(size):
    x = np.random.default_rng(0).normal(size=(2, 3, 7, 9))
    compare("adaptive_avg_pool2d", pooling.adaptive_avg_pool2d, F.adaptive_avg_pool2d, [x],
            dict(output_size=size))
