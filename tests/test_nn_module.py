"""Modules inside modules: containers, copies, shared children, hooks, random masks."""

from __future__ import annotations

import copy
import gc
import pickle
import time
import weakref

import numpy as np
import pytest

import minitorch_gpu as mt
from minitorch_gpu import nn, optim

BOTH = ("weight", "bias")


def names(pairs):
    return [name for name, _ in pairs]


def raw(module):
    return {name: value.numpy().copy() for name, value in module.state_dict().items()}


class Shared(nn.Module):
    """One layer under two names, and a third that lies deeper."""

    def __init__(self):
        super().__init__()
        self.first = self.second = nn.Linear(2, 2)
        self.deep = nn.Sequential(self.first, nn.ReLU())

    def forward(self, x):
        return self.deep(self.second(self.first(x)))


# ---------------------------------------------------------------- shared modules
def test_a_shared_module_is_walked_once_and_named_often():
    model = Shared()
    assert names(model.named_modules()) == ["", "first", "deep", "deep.1"]
    assert names(model.named_modules(remove_duplicate=False)) == [
        "", "first", "second", "deep", "deep.0", "deep.1"]
    assert names(model.named_children()) == ["first", "deep"]
    assert names(model.named_parameters()) == ["first.weight", "first.bias"]
    assert len(names(model.named_parameters(remove_duplicate=False))) == 6
    assert list(model.state_dict()) == [
        f"{path}.{name}" for path in ("first", "second", "deep.0") for name in BOTH]


def test_apply_reaches_a_child_of_two_names_once_per_parent():
    visits = []
    Shared().apply(lambda m: visits.append(type(m).__name__))
    assert visits == ["Linear", "Linear", "ReLU", "Sequential", "Shared"]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_whole_and_independent(again):
    model = nn.Sequential(Shared(), nn.BatchNorm1d(2))
    model[0].first.weight.grad = mt.ones(2, 2)
    model[0].second.bias.requires_grad_(False)
    model.eval()
    other = again(model)
    assert other[0].first is other[0].second is other[0].deep[0]
    for module in other.modules():
        for registry in (module._parameters, module._buffers, module._modules):
            assert all(getattr(module, name) is value for name, value in registry.items())
    assert not other.training and isinstance(other[0].first.weight, nn.Parameter)
    assert other[0].first.weight.grad.tolist() == [[1, 1], [1, 1]]
    assert not other[0].first.bias.requires_grad
    before = raw(model)
    with mt.no_grad():
        for value in other.state_dict().values():
            value.fill_(7)
    assert all(np.array_equal(v, before[n]) for n, v in raw(model).items())


def test_a_copy_trains_like_the_original():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    x = mt.tensor(np.random.default_rng(0).normal(size=(5, 3)))
    twins = [model, copy.deepcopy(model)]
    for twin in twins:
        optimizer = optim.AdamW(twin.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (twin(x) ** 2).mean().backward()
            optimizer.step()
    for a, b in zip(*(raw(twin).values() for twin in twins)):
        assert np.array_equal(a, b)


def test_hooks_travel_with_a_deep_copy_and_stay_its_own():
    layer, calls = nn.ReLU(), []
    layer.register_forward_hook(lambda m, args, y: calls.append(m))
    other = copy.deepcopy(layer)
    other.register_forward_hook(lambda m, args, y: y + 1)
    assert layer(mt.ones(1)).item() == 1 and other(mt.ones(1)).item() == 2
    assert calls == [layer, other]


# ---------------------------------------------------------------- moves and optimizers
@pytest.mark.parametrize("convert", [nn.Module.double, nn.Module.half, nn.Module.bfloat16])
def test_an_optimizer_made_before_a_conversion_still_trains(convert):
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    convert(model)
    with mt.no_grad():
        model.weight.fill_(1.0)
    model(mt.ones(1, 2, dtype=model.weight.dtype)).sum().backward()
    optimizer.step()
    assert model.weight.tolist() == [[0.5, 0.5]]


def test_to_takes_a_device_and_a_dtype_together():
    for arguments in (("cpu", mt.float64), (mt.float64,), (mt.zeros(1, dtype=mt.float64),)):
        assert nn.Linear(1, 1).to(*arguments).weight.dtype == mt.float64
    assert nn.Linear(1, 1).to(device="cpu", dtype=mt.float16).bias.dtype == mt.float16
    assert nn.BatchNorm1d(2).half().num_batches_tracked.dtype == mt.int64


def test_text_and_objects_in_a_state_dict_are_reported_and_nothing_is_written():
    layer = nn.Linear(2, 2)
    before = raw(layer)
    for bad in (np.array(["a", "b"]), np.array([None, 1.0])):
        with pytest.raises(ValueError, match="bias: expected numbers"):
            layer.load_state_dict({"weight": mt.zeros(2, 2), "bias": bad})
    assert np.array_equal(layer.weight.detach().numpy(), before["weight"])


def test_loading_converts_dtypes_both_ways():
    layer = nn.Linear(2, 1).bfloat16()
    layer.load_state_dict({"weight": np.array([[1.0, 1.001]]), "bias": np.array([3])})
    assert layer.weight.tolist() == [[1, 1]] and layer.weight.dtype == mt.bfloat16
    wide = nn.Linear(2, 1).double()
    wide.load_state_dict(layer.state_dict())
    assert wide.bias.tolist() == [3] and wide.bias.dtype == mt.float64


# ---------------------------------------------------------------- attributes
@pytest.mark.parametrize("name", ["", "a.b"])
def test_a_name_that_state_dict_could_not_tell_apart_is_refused_by_assignment_too(name):
    for value in (nn.Parameter(mt.ones(1)), nn.ReLU()):
        with pytest.raises(KeyError, match="empty or holds a dot"):
            setattr(nn.Module(), name, value)


def test_a_plain_attribute_may_become_a_parameter():
    module = nn.Module()
    module.bias = None
    module.bias = nn.Parameter(mt.ones(1))
    assert names(module.named_parameters()) == ["bias"]
    module.bias = nn.ReLU()
    assert names(module.named_parameters()) == [] and names(module.named_children()) == ["bias"]


def test_an_unknown_submodule_is_named():
    model = nn.Sequential(nn.Linear(1, 1))
    assert model.get_submodule("") is model and model.get_submodule("0") is model[0]
    with pytest.raises(AttributeError, match="Linear has no submodule 'x'"):
        model.get_submodule("0.x")


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match="Module defines no forward"):
        nn.Module()(1)


# ---------------------------------------------------------------- containers
def test_a_sequential_runs_in_order_and_slices_keep_names():
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(3)))
    assert [model[1:][0] is model[1], model[-1] is model[2], len(model)] == [True, True, 3]
    assert list(model[1:].state_dict()) == ["1.weight", "1.bias", "2.weight", "2.bias"]
    x = mt.ones(1, 1)
    assert model(x).item() == model[1:](model[0](x)).item()


def test_appending_to_a_slice_replaces_none_of_it():
    part = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())[1:]
    part.append(nn.GELU())
    assert [type(m).__name__ for m in part] == ["Tanh", "Sigmoid", "GELU"]


def test_a_sequential_takes_names():
    model = nn.Sequential({"in": nn.Linear(1, 2), "out": nn.Linear(2, 1)})
    assert list(model.state_dict()) == ["in.weight", "in.bias", "out.weight", "out.bias"]


def test_a_list_of_modules_is_edited_like_a_list():
    a, b, c, d = (nn.Linear(1, n) for n in range(1, 5))
    modules = nn.ModuleList([a, b])
    modules.append(c).extend([d])
    modules.insert(1, d)
    assert list(modules) == [a, d, b, c, d]
    del modules[0]
    assert modules.pop() is d and list(modules) == [d, b, c]
    modules[-1] = a
    assert list(modules[1:]) == [b, a] and isinstance(modules[1:], nn.ModuleList)
    assert list(modules.state_dict()) == [f"{i}.{n}" for i in range(3) for n in BOTH]
    with pytest.raises(IndexError, match="index 3 is out of range for 3 modules"):
        modules[3]


def test_modules_by_name():
    a, b = nn.ReLU(), nn.Linear(1, 1)
    modules = nn.ModuleDict({"a": a})
    modules.update({"b": b})
    assert list(modules) == list(modules.keys()) == ["a", "b"] and "b" in modules
    assert list(modules.values()) == [a, b] and dict(modules.items()) == {"a": a, "b": b}
    assert list(modules.state_dict()) == ["b.weight", "b.bias"]
    assert modules.pop("a") is a and len(modules) == 1
    for name in ("keys", "training"):
        with pytest.raises(KeyError, match=f"{name}' is an attribute of ModuleDict"):
            modules[name] = a
    with pytest.raises(KeyError):
        del modules["a"]


def test_what_is_no_module_is_refused_by_place_and_type():
    with pytest.raises(TypeError, match="'1': expected a Module, got function"):
        nn.Sequential(nn.ReLU(), lambda x: x)


def test_a_repr_of_several_lines_is_indented():
    class Noted(nn.Module):
        def extra_repr(self):
            return "one\ntwo"

    assert repr(Noted()) == "Noted(\n  one\n  two\n)"
    assert repr(nn.Sequential(Noted())) == (
        "Sequential(\n  (0): Noted(\n    one\n    two\n  )\n)")


# ---------------------------------------------------------------- backward hooks
def test_a_hooked_graph_dies_without_the_collector():
    layer, seen = nn.Linear(2, 2), []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append(weakref.ref(go[0])))
    gc.collect()
    gc.disable()
    try:
        x = mt.ones(3, 2, requires_grad=True)
        y = layer(x)
        y.sum().backward(retain_graph=True)
        assert seen[0]() is None  # no gradient outlives the walk, though the graph does
        references = [weakref.ref(x.array), weakref.ref(layer)]
        del x, y, layer
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()


def test_a_gradient_that_goes_round_the_outputs_runs_no_hook():
    class Leaking(nn.Module):
        def forward(self, x):
            self.inside = x * 2
            return x * 3

    layer, calls = Leaking(), []
    layer.register_full_backward_hook(lambda m, gi, go: calls.append(go))
    x = mt.ones(1, requires_grad=True)
    layer(x)
    layer.inside.sum().backward()
    assert calls == [] and x.grad.item() == 2


def test_a_second_walk_over_one_graph_runs_the_hooks_again():
    layer, calls = nn.Tanh(), []
    layer.register_full_backward_hook(lambda m, gi, go: calls.append(go[0].item()))
    x = mt.zeros(1, requires_grad=True)
    y = layer(x)
    (2 * y).sum().backward(retain_graph=True)
    (3 * y).sum().backward()
    assert calls == [2, 3] and x.grad.item() == 5


def test_hooks_run_in_order_each_on_what_the_last_one_made():
    layer, x = nn.Identity(), mt.ones(1, requires_grad=True)
    for factor in (2, 5):
        layer.register_full_backward_hook(lambda m, gi, go, f=factor: (gi[0] * f + 1,))
    layer(x).sum().backward()
    assert x.grad.item() == (1 * 2 + 1) * 5 + 1


def test_a_hook_cannot_give_inputs_gradients_that_they_lack():
    layer = nn.Linear(1, 1)
    layer.register_full_backward_hook(lambda m, gi, go: (mt.ones(1, 1),))
    with pytest.raises(RuntimeError, match="for inputs of Linear that have none"):
        layer(mt.ones(1, 1)).sum().backward()


def test_a_hook_that_answers_no_tensor_is_named():
    layer = nn.ReLU()
    layer.register_full_backward_hook(lambda m, gi, go: (3.0,))
    with pytest.raises(RuntimeError, match="hook of ReLU returned gradients of shapes"):
        layer(mt.ones(1, requires_grad=True)).sum().backward()


# ---------------------------------------------------------------- random draws
class TwoMasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Dropout(), nn.Dropout()

    def forward(self, x):
        return self.a(x), self.b(x), self.a(x)


def masks(model, size=200):
    return [tuple(y.tolist()) for y in model(mt.ones(size))]


def test_masks_differ_by_layer_by_call_and_by_step():
    mt.manual_seed(3)
    model = TwoMasks()
    drawn = masks(model) + masks(model)
    assert len(set(drawn)) == 6
    mt.manual_seed(3)
    assert masks(TwoMasks()) == drawn[:3]
    mt.manual_seed(4)
    assert not set(masks(model)) & set(drawn)


def test_a_mask_does_not_depend_on_what_other_layers_draw():
    class Outer(nn.Module):
        def __init__(self, extra):
            super().__init__()
            self.inner, self.extra = TwoMasks(), nn.Dropout()
            self.draws_more = extra

        def forward(self, x):
            if self.draws_more:
                self.extra(x)
            return self.inner(x)

    results = []
    for extra in (False, True):
        mt.manual_seed(3)
        results.append(masks(Outer(extra)))
    assert results[0] == results[1]


def test_calling_a_module_costs_little_more_than_its_forward():
    layer = nn.Identity()

    def quickest(function):
        times = []
        for _ in range(30):
            start = time.perf_counter()
            for _ in range(200):
                function(None)
            times.append((time.perf_counter() - start) / 200)
        return min(times)

    assert quickest(layer) - quickest(layer.forward) < 20e-6
