"""Planted one-line faults, each of which must turn a named test red."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import random
from minitorch_gpu.comm.thread import ThreadCommunicator
from minitorch_gpu.parallel.bucket import Bucket
from tests import test_autograd, test_data_parallel, test_ops_generated
from tests.op_samples import all_ops


@pytest.fixture(scope="module")
def serial():
    return test_data_parallel.run_ranks(1, test_data_parallel.train, False)[0]


def turns_red(test, *arguments):
    """The test fails because of what it asserts, not for want of an argument."""
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(*arguments)


def law_turns_red(serial, ranks=2):
    turns_red(test_data_parallel.test_any_number_of_ranks_equals_one_process, serial, ranks,
              25.0)


def test_dropping_the_all_reduce_is_seen(monkeypatch, serial):
    monkeypatch.setattr(ThreadCommunicator, "all_reduce",
                        lambda self, x, op="sum", out=None, async_op=False: x)
    law_turns_red(serial)


def test_forgetting_the_weights_is_seen(monkeypatch, serial):
    monkeypatch.setattr(Bucket, "scale", lambda self, weight: None)
    law_turns_red(serial)


def test_weights_that_ignore_uneven_batches_are_seen(monkeypatch, serial):
    scale = Bucket.scale
    monkeypatch.setattr(Bucket, "scale", lambda self, weight: scale(self, 1 / 3))
    law_turns_red(serial, 3)


def test_draws_that_do_not_know_their_place_in_the_batch_are_seen(monkeypatch, serial):
    @contextmanager
    def nowhere(start, local, total):
        yield

    monkeypatch.setattr(random, "global_slice", nowhere)
    law_turns_red(serial)


def test_a_gradient_off_by_a_thousandth_is_seen(monkeypatch):
    op = next(op for op in all_ops() if op.name == "layer_norm")
    joint = op.vjp.joint
    monkeypatch.setattr(op.vjp, "joint", lambda *a: [
        c if c is None else c * 1.001 for c in joint(*a)])
    turns_red(test_ops_generated.test_gradient_equals_finite_differences, op)
    turns_red(test_ops_generated.test_the_fused_pair_equals_the_definition, op)


def test_a_residual_treated_as_a_constant_is_seen(monkeypatch):
    op = next(op for op in all_ops() if op.name == "tanh")
    monkeypatch.setattr(op.vjp, "pulls", (lambda g, s, p: g * (1.0 - _frozen(s[1])),))
    turns_red(test_ops_generated.test_second_order_equals_finite_differences, op)


def _frozen(y):
    """y squared, cut off from the graph when it is a Tensor."""
    return y * y if isinstance(y, np.ndarray) else (y * y).detach()


def test_a_gradient_that_is_not_copied_is_seen(monkeypatch):
    monkeypatch.setattr(mt.Tensor, "_receive",
                        lambda self, g, owned: setattr(self, "_grad", mt.Tensor(g)))
    turns_red(test_autograd.test_no_two_gradients_share_memory)
