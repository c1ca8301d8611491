"""Modules: registries, names, state, modes, moves, copies."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn


class Net(nn.Module):
    """A parameter, two kinds of buffer and a submodule of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(mt.ones(2))
        self.register_buffer("seen", mt.tensor([0]))
        self.register_buffer("cache", mt.zeros(3), persistent=False)
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x) * self.scale


class Tied(nn.Module):
    """A table that is also the weight of the last layer."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, 2)
        self.head = nn.Linear(2, 3, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(self.table(ids))


def copied(state):
    return {name: mt.tensor(value.numpy().copy()) for name, value in state.items()}


def names(pairs):
    return [name for name, _ in pairs]


# ---------------------------------------------------------------- attributes
def test_attributes_are_found_by_their_names():
    net = Net()
    assert names(net.named_parameters()) == ["scale", "layer.weight", "layer.bias"]
    assert names(net.named_parameters(recurse=False)) == ["scale"]
    assert names(net.named_parameters(prefix="net")) == [
        "net.scale", "net.layer.weight", "net.layer.bias"]
    assert names(net.named_buffers()) == ["seen", "cache"]
    assert names(net.named_modules()) == ["", "layer"]
    assert names(net.named_children()) == ["layer"]
    assert net.get_submodule("layer") is net.layer


def test_parameters_are_stamped_with_their_full_names():
    model = nn.Sequential(Net(), nn.Linear(2, 1))
    assert [p.name for p in model.parameters()] == [
        "0.scale", "0.layer.weight", "0.layer.bias", "1.weight", "1.bias"]
    model[0].zero_grad()
    model[0].double().requires_grad_()
    assert model[0].scale.name == "0.scale"


def test_a_mistyped_attribute_names_the_closest_ones():
    with pytest.raises(AttributeError, match="Net has no attribute 'scal'; did you mean scale"):
        _ = Net().scal
    assert not hasattr(Net(), "wieght")


def test_a_property_that_fails_shows_its_own_error():
    class Broken(nn.Module):
        @property
        def size(self):
            return self.missing_inside

    with pytest.raises(AttributeError, match="missing_inside"):
        _ = Broken().size


def test_assigning_before_init_says_what_to_call():
    class Early(nn.Module):
        def __init__(self):
            self.width = 3
            self.layer = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match="before assigning 'layer'"):
        Early()


def test_none_replacement_and_deletion_reach_the_registries():
    net = Net()
    net.scale = None
    assert net.scale is None and "scale" not in net.state_dict()
    net.scale = nn.Parameter(mt.zeros(2))
    assert net.state_dict()["scale"].tolist() == [0, 0]
    del net.scale
    assert names(net.named_parameters()) == ["layer.weight", "layer.bias"]
    with pytest.raises(AttributeError):
        del net.scale
    net.layer = None
    assert list(net.children()) == [] and list(net.parameters()) == []


def test_a_buffer_may_be_assigned_again_and_stays_one():
    net = Net()
    net.seen = net.seen + 5
    net.cache = mt.ones(3)
    assert dict(net.named_buffers())["seen"].tolist() == [5]
    assert "seen" in net.state_dict() and "cache" not in net.state_dict()


def test_the_last_registration_decides_whether_a_buffer_persists():
    net = Net()
    net.register_buffer("cache", mt.ones(1))
    assert "cache" in net.state_dict()
    net.register_buffer("cache", mt.ones(1), persistent=False)
    assert "cache" not in net.state_dict()


@pytest.mark.parametrize("name, value, kind", [
    ("scale", 3.0, "Parameter"), ("scale", mt.ones(2), "Parameter"), ("seen", 3, "Tensor"),
    ("layer", mt.relu, "Module"), ("layer", mt.ones(2), "Module"),
])
def test_a_value_of_another_kind_does_not_push_out_a_registered_one(name, value, kind):
    net = Net()
    before = list(net.state_dict())
    with pytest.raises(TypeError, match=f"'{name}' holds a {kind}"):
        setattr(net, name, value)
    assert list(net.state_dict()) == before


def test_a_parameter_may_take_the_place_of_a_buffer():
    net = Net()
    net.seen = nn.Parameter(mt.ones(1))
    assert names(net.named_buffers()) == ["cache"]
    assert "seen" in names(net.named_parameters())


@pytest.mark.parametrize("name", ["", "a.b", "forward", "training", "seen", "layer"])
def test_a_name_is_refused_where_it_cannot_be_told_apart(name):
    net = Net()
    with pytest.raises(KeyError):
        net.register_parameter(name, nn.Parameter(mt.ones(1)))
    assert names(net.named_parameters(recurse=False)) == ["scale"]


def test_registering_another_kind_is_refused():
    net = Net()
    for register in (net.register_parameter, net.register_buffer, net.register_module):
        with pytest.raises(TypeError, match="'extra'"):
            register("extra", 3)


# ---------------------------------------------------------------- state
def test_state_dict_shares_memory_and_load_keeps_the_objects():
    net = Net()
    parameter = net.scale
    state = net.state_dict()
    assert list(state) == ["scale", "seen", "layer.weight", "layer.bias"]
    assert all(not value.requires_grad for value in state.values())
    state["scale"].fill_(7)
    assert net.scale.tolist() == [7, 7]
    net.load_state_dict({**copied(state), "scale": np.array([1, 2])})
    assert net.scale is parameter and parameter.tolist() == [1, 2]
    assert parameter.dtype == np.float32


def test_all_that_does_not_fit_is_reported_and_nothing_is_written():
    net = Net()
    before = copied(net.state_dict())
    state = {"scale": mt.zeros(2), "layer.weight": mt.zeros(3, 2), "seen": [1], "typo": 1,
             "more": 2}
    with pytest.raises(ValueError) as error:
        net.load_state_dict(state)
    text = str(error.value)
    for part in ("missing: layer.bias", "unknown: typo, more", "seen: expected a Tensor",
                 "layer.weight: shape (3, 2) does not fit (2, 2)", "nothing was loaded"):
        assert part in text
    for name, value in net.state_dict().items():
        assert value.tolist() == before[name].tolist()


def test_a_shape_is_an_error_without_strict_too():
    with pytest.raises(ValueError, match=r"scale: shape \(3,\)"):
        Net().load_state_dict({"scale": mt.zeros(3)}, strict=False)


def test_without_strict_the_names_are_returned():
    net = Net()
    missing, unexpected = net.load_state_dict({"scale": mt.zeros(2), "x": 1}, strict=False)
    assert missing == ["seen", "layer.weight", "layer.bias"] and unexpected == ["x"]
    assert net.scale.tolist() == [0, 0]


def test_a_tensor_that_cannot_be_written_is_found_before_others_are():
    net = Net()
    net.layer.bias = nn.Parameter(mt.zeros(1).expand(2))
    with pytest.raises(ValueError, match=r"layer\.bias: this module's tensor is an expanded"):
        net.load_state_dict({**copied(net.state_dict()), "scale": mt.zeros(2)})
    assert net.scale.tolist() == [1, 1]


def test_complex_values_do_not_fit_real_ones():
    with pytest.raises(ValueError, match="scale: complex values"):
        Net().load_state_dict({"scale": np.zeros(2, complex)}, strict=False)


# ---------------------------------------------------------------- ties
def test_tied_weights_are_one_parameter_with_two_names():
    net = Tied()
    assert names(net.named_parameters()) == ["table.weight"]
    both = ["table.weight", "head.weight"]
    assert names(net.named_parameters(remove_duplicate=False)) == both
    assert list(net.state_dict()) == both


@pytest.mark.parametrize("change", [
    copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), lambda m: m.double(),
    lambda m: m.to("cpu"), lambda m: m.bfloat16(), lambda m: m.to(mt.zeros(1)),
], ids=["deepcopy", "pickle", "double", "to", "bfloat16", "to_like"])
def test_ties_outlive_copies_and_moves(change):
    net = change(Tied())
    assert net.head.weight is net.table.weight
    assert net.head._parameters["weight"] is net.table._parameters["weight"]


def test_ties_outlive_loading():
    net, state = Tied(), copied(Tied().state_dict())
    state["head.weight"] = mt.tensor(state["table.weight"].numpy().copy())
    net.load_state_dict(state)
    assert net.head.weight is net.table.weight
    assert net.table.weight.tolist() == state["table.weight"].tolist()


def test_nan_equals_nan_where_ties_are_compared():
    state = {"table.weight": mt.full((3, 2), float("nan")),
             "head.weight": mt.full((3, 2), float("nan"))}
    net = Tied()
    net.load_state_dict(state)
    assert np.isnan(net.head.weight.detach().numpy()).all()


def test_two_values_for_one_tied_tensor_are_an_error():
    net = Tied()
    before = net.table.weight.tolist()
    with pytest.raises(ValueError, match=r"head\.weight and table\.weight are one tensor"):
        net.load_state_dict({"table.weight": mt.zeros(3, 2), "head.weight": mt.ones(3, 2)})
    assert net.table.weight.tolist() == before


def test_a_deep_copy_shares_no_memory():
    net = Net()
    other = copy.deepcopy(net)
    with mt.no_grad():
        other.scale.zero_()
    other.seen.fill_(9)
    assert net.scale.tolist() == [1, 1] and net.seen.tolist() == [0]
    assert other._parameters["scale"] is other.scale and other.scale.requires_grad


# ---------------------------------------------------------------- modes and moves
def test_train_and_eval_reach_everything_below():
    model = nn.Sequential(Net(), nn.ModuleList([nn.Dropout()]))
    assert model.eval() is model
    assert not any(m.training for m in model.modules())
    assert all(m.training for m in model.train().modules())


def test_a_submodule_may_decide_its_own_mode():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def train(self, mode=True):
            super().train(mode)
            self.norm.eval()
            return self

    model = nn.Sequential(Frozen()).train()
    assert model[0].training and not model[0].norm.training


def test_conversions_keep_parameters_and_leave_integers():
    net = Net()
    parameter = net.scale
    parameter.grad = mt.ones(2)
    for convert, dtype in ((nn.Module.double, mt.float64), (nn.Module.half, mt.float16),
                           (nn.Module.bfloat16, mt.bfloat16), (nn.Module.float, mt.float32)):
        assert convert(net) is net
        assert net.scale is parameter and parameter.requires_grad
        assert parameter.dtype == parameter.grad.dtype == net.cache.dtype == dtype
        assert net.seen.dtype == np.int64


def test_gradients_have_the_new_dtype():
    net = Net().double()
    net(mt.ones(1, 2, dtype=mt.float64)).sum().backward()
    assert {p.grad.dtype for p in net.parameters()} == {np.dtype("float64")}


@pytest.mark.parametrize("dtype", [mt.int64, mt.bool])
def test_weights_cannot_become_integers(dtype):
    net = Net()
    with pytest.raises(TypeError, match="floating dtype"):
        net.to(dtype)
    assert net.scale.dtype == mt.float32


@pytest.mark.skipif(mt.cuda.is_available(), reason="a GPU is there")
def test_without_a_gpu_cuda_says_what_to_install():
    with pytest.raises(RuntimeError, match=r"(?i)cupy"):
        Net().cuda()


def test_zero_grad_drops_or_clears():
    net = Net()
    net(mt.ones(1, 2)).sum().backward()
    gradient = net.scale.grad
    net.zero_grad(set_to_none=False)
    assert net.scale.grad is gradient and gradient.tolist() == [0, 0]
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_clearing_cuts_a_recorded_gradient_off():
    net = Net()
    net(mt.ones(1, 2)).pow(2).sum().backward(create_graph=True)
    assert net.scale.grad.requires_grad
    net.zero_grad(set_to_none=False)
    assert not net.scale.grad.requires_grad and net.scale.grad.tolist() == [0, 0]


def test_requires_grad_freezes_and_thaws():
    net = Net().requires_grad_(False)
    assert not net(mt.ones(1, 2)).requires_grad
    assert net.requires_grad_()(mt.ones(1, 2)).requires_grad


def test_apply_visits_children_first():
    order = []
    nn.Sequential(Net()).apply(lambda m: order.append(type(m).__name__))
    assert order == ["Linear", "Net", "Sequential"]
