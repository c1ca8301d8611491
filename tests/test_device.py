"""Devices without a GPU: names, errors that say what to install, no-op streams and events."""

from __future__ import annotations

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu.device import array_module, device_of, to_numpy, transfer


def test_device_names():
    assert str(mt.device("cpu")) == "cpu" and str(mt.device("cuda:1")) == "cuda:1"
    assert mt.device("cuda") == "cuda:0" and mt.device("cuda:1") != "cuda:0"
    assert repr(mt.device("cuda:1")) == "device('cuda:1')"
    assert mt.ones(2).device == "cpu"
    for name in ("gpu", "cuda:x", "cpu:1", ""):
        with pytest.raises(ValueError, match="unknown device"):
            mt.device(name)


@pytest.mark.skipif(mt.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_cuda_says_what_to_install():
    assert mt.cuda.is_available() is False and mt.cuda.device_count() == 0
    for move in (lambda: mt.ones(2).to("cuda"), lambda: mt.ones(2).cuda(),
                 lambda: mt.zeros(2, device="cuda:1")):
        with pytest.raises(RuntimeError, match=r"minitorch_gpu\[cuda12\]|CUDA"):
            move()


def test_streams_and_events_do_nothing_on_the_cpu():
    stream, event = mt.cuda.Stream("cpu"), mt.cuda.Event("cpu")
    with stream:
        event.record(stream)
    stream.wait_event(event)
    event.synchronize()
    mt.cuda.synchronize("cpu")
    assert event.query()


def test_arrays_know_their_module_and_device():
    x = np.ones(2)
    assert array_module(x, 1.0) is np and device_of(x) == "cpu"
    assert transfer(x, mt.device("cpu")) is x and to_numpy(x) is x


def test_to_keeps_the_object_when_nothing_changes():
    x = mt.ones(2)
    assert x.to("cpu") is x and x.to(mt.float32) is x and x.cpu() is x
    assert x.to("cpu", mt.float64).dtype == mt.float64
    assert x.to(mt.ones(1, dtype=mt.int64)).dtype == mt.int64
    y = x.to("cpu", copy=True)
    assert y is not x and not np.shares_memory(y.array, x.array)
