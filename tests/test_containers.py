"""Modules that hold modules, and how models print."""

from __future__ import annotations

import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn


def test_a_list_numbers_its_modules():
    layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    layers.append(nn.Sigmoid()).extend([nn.GELU()])
    layers.insert(1, nn.SiLU())
    assert [type(m).__name__ for m in layers] == ["ReLU", "SiLU", "Tanh", "Sigmoid", "GELU"]
    assert list(dict(layers.named_children())) == ["0", "1", "2", "3", "4"]
    assert type(layers.pop(1)) is nn.SiLU and type(layers[-1]) is nn.GELU
    del layers[1:]
    assert list(dict(layers.named_children())) == ["0"]
    layers[0] = nn.Identity()
    assert type(layers[0]) is nn.Identity
    with pytest.raises(IndexError, match="index 3 is out of range for 1 modules"):
        layers[3]


def test_a_sequential_slice_keeps_names():
    model = nn.Sequential({"up": nn.Linear(2, 3), "act": nn.ReLU(), "down": nn.Linear(3, 1)})
    part = model[1:]
    assert type(part) is nn.Sequential
    assert list(part.state_dict()) == ["down.weight", "down.bias"]
    x = mt.ones(1, 2)
    assert part(model[0](x)).tolist() == model(x).tolist()


def test_a_dict_knows_its_modules():
    layers = nn.ModuleDict({"a": nn.Linear(1, 1)})
    layers["b"] = nn.ReLU()
    layers.update({"b": nn.Tanh()})
    assert list(layers) == ["a", "b"] and len(layers) == 2 and "a" in layers
    assert type(layers.pop("b")) is nn.Tanh
    del layers["a"]
    assert list(layers.parameters()) == []
    with pytest.raises(KeyError):
        layers["keys"] = nn.ReLU()


def test_a_model_prints_as_its_tree():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(),
        nn.ModuleList([nn.Linear(2, 2) for _ in range(3)] + [nn.Dropout(0.1)]),
        nn.GELU(), nn.Softmax(dim=1), nn.LayerNorm(3), nn.Embedding(3, 2, padding_idx=0),
        nn.MultiheadAttention(4, 2))
    assert repr(model) == """Sequential(
  (0): Conv2d(1, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)
  (1): BatchNorm2d(4, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
  (2): ReLU()
  (3): MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)
  (4): Flatten(start_dim=1, end_dim=-1)
  (5): ModuleList(
    (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)
    (3): Dropout(p=0.1)
  )
  (6): GELU(approximate='none')
  (7): Softmax(dim=1)
  (8): LayerNorm((3,), eps=1e-05, elementwise_affine=True, bias=True)
  (9): Embedding(3, 2, padding_idx=0)
  (10): MultiheadAttention(
    (out_proj): Linear(in_features=4, out_features=4, bias=True)
  )
)"""
    assert repr(nn.Sequential()) == "Sequential()"
