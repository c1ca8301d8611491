"""Optimizer: parameter groups, and state by parameter that is saved and loaded by name."""

from __future__ import annotations

import math
import numbers
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from minitorch_gpu.device import array_module, transfer
from minitorch_gpu.engine.writes import clock
from minitorch_gpu.inplace import write_raw
from minitorch_gpu.modes import enable_grad
from minitorch_gpu.optim.resume import check_states, plan_loading
from minitorch_gpu.tensor import Tensor

Params = Iterable[Any]  # of Tensors, of (name, Tensor) pairs, or of dicts with such "params"
Key = Any  # a parameter's name, or its position over all groups

# option: (how many numbers it is, least, bound that it stays below)
RANGES = {
    "lr": (1, 0.0, math.inf), "momentum": (1, 0.0, math.inf), "eps": (1, 0.0, math.inf),
    "weight_decay": (1, 0.0, math.inf), "betas": (2, 0.0, 1.0),
}


class Optimizer:
    """Base class: a subclass gives ``defaults`` and ``update``, and ``slots`` if it has state.

    ``param_groups`` is a list of dicts: "params", "param_names" (None where unknown) and the
    group's options. ``state[p]`` is what is kept for p: numbers, and Tensors of p's shape.
    """

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        """Take parameters, ``named_parameters()`` pairs, or dicts of either with options.

        Args:
            params: a list or generator; its order and the names decide how state is saved.
            defaults: options of groups that do not give their own.

        Raises:
            TypeError: ``params`` is a single Tensor or a set, or holds something else.
            ValueError: nothing to optimise, a parameter twice, a recorded result, or an
                option out of its range.
        """
        self.defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        items = _listed(params)
        if not items:
            raise ValueError(f"{type(self).__name__} got an empty parameter list")
        for group in items if isinstance(items[0], dict) else [{"params": items}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimise more parameters: ``{"params": ..., "lr": ...}``; see ``__init__``."""
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise TypeError('a parameter group is a dict with "params", not '
                            f"{param_group!r:.80}")
        given = param_group["params"]
        pairs = _named([given] if isinstance(given, Tensor) else _listed(given))
        known = {p: name for g in self.param_groups for p, name in
                 zip(g["params"], g["param_names"])}
        for place, (name, p) in enumerate(pairs):
            what = _describe(name, place)
            _check_parameter(p, what)
            if p in known:
                raise ValueError(f"{what} is listed twice: it would be updated twice a step")
            known[p] = name
        group = {**param_group, "params": [p for _, p in pairs],
                 "param_names": [name for name, _ in pairs]}
        for option, value in self.defaults.items():
            group.setdefault(option, value)
        self.check_options(group)
        self.param_groups.append(group)

    # ---------------------------------------------------------------- training
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients; with ``set_to_none=False`` fill those there are with zeros."""
        for p in self._parameters():
            if set_to_none or p.grad is None:
                p.grad = None
            else:
                p.grad.detach_()
                write_raw(p.grad.array, 0, "zero_grad")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient, in place; the others stay untouched.

        ``closure``, if given, is called first to compute the loss, which is returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                g = p.grad
                if g is not None:
                    self.update(p.array, g.array, self.state[p], group)
                    clock.record(p.array)
        return loss

    def update(self, p: Any, g: Any, state: dict[str, Any], options: dict[str, Any]) -> None:
        """Write one parameter's raw array ``p`` from its gradient ``g``; subclasses give it."""
        raise NotImplementedError(f"{type(self).__name__} has no update(p, g, state, options)")

    def slots(self, options: dict[str, Any]) -> tuple[str, ...]:
        """Names of the state kept for a parameter with these options."""
        return ()

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise ValueError if an option lies out of its range."""
        for name in RANGES.keys() & self.defaults.keys():
            count, low, high = RANGES[name]
            given = options[name]
            values = given if isinstance(given, (tuple, list)) else (given,)
            if len(values) != count or not all(
                isinstance(value, numbers.Real) and low <= float(value) < high
                for value in values
            ):
                what = "a number" if count == 1 else f"{count} numbers"
                raise ValueError(f"{type(self).__name__}: {name}={given!r} must be {what} "
                                 f"in [{low}, {high})")

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    # ---------------------------------------------------------------- saving
    def state_dict(self) -> dict[str, Any]:
        """State and options as plain dicts; the Tensors are the live ones, not copies.

            {"state": {key: {"step": 3, "exp_avg": Tensor, ...}},
             "param_groups": [{"lr": 0.1, ..., "params": [key, ...]}]}

        A key is the parameter's name if every parameter has one of its own, else its
        position over all groups. Parameters without state do not appear in "state".
        """
        keys = self._keys()
        state = {keys[p]: dict(values) for p, values in self.state.items() if values}
        groups = [
            {**{k: v for k, v in group.items() if k != "param_names"},
             "params": [keys[p] for p in group["params"]]}
            for group in self.param_groups
        ]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take state and options of ``state_dict``, by name where both sides have names.

        Where either side has none the parameters are matched by position, shapes checked.
        State is copied, to each parameter's dtype and device. Nothing changes on an error.

        Raises:
            ValueError: groups, names, shapes or slots differ, or an option is out of range.
        """
        keys = self._keys()
        groups = [[keys[p] for p in group["params"]] for group in self.param_groups]
        match = plan_loading(state_dict, groups)  # a saved key for each of our keys
        options = [self._merged(group, saved) for group, saved in
                   zip(self.param_groups, state_dict["param_groups"])]
        found = {}
        for group, loaded in zip(self.param_groups, options):
            for p in group["params"]:
                values = state_dict["state"].get(match[keys[p]])
                if values:
                    check_states(values, self.slots(loaded), p.shape, keys[p])
                    found[p] = values
        copies = {p: {slot: _copied(slot, value, p) for slot, value in values.items()}
                  for p, values in found.items()}
        for group, loaded in zip(self.param_groups, options):
            group.update(loaded)
        self.state = defaultdict(dict, copies)

    def _merged(self, group: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
        """The options of a saved group, complete and in range."""
        missing = [name for name in self.defaults if name not in saved]
        if missing:
            raise ValueError(f"a saved group lacks {', '.join(missing)}: it was not written by "
                             f"{type(self).__name__}")
        loaded = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()
                  if k not in ("params", "param_names")}
        self.check_options(loaded)
        return loaded

    def _keys(self) -> dict[Tensor, Key]:
        """The key of each parameter in a state dict."""
        parameters = self._parameters()
        names = [name for group in self.param_groups for name in group["param_names"]]
        if None in names or len(set(names)) < len(names):
            return {p: place for place, p in enumerate(parameters)}
        return dict(zip(parameters, names))

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for place, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {place} ({len(group['params'])} parameters)")
            lines += [f"    {k}: {group[k]}" for k in sorted(group)
                      if k not in ("params", "param_names")]
        return "\n".join([*lines, ")"])


def _listed(params: Any) -> list[Any]:
    """Parameters in the order they were given."""
    if isinstance(params, Tensor):
        raise TypeError("params is a Tensor: pass a list of parameters, e.g. [w] or "
                        "model.parameters()")
    if isinstance(params, (set, frozenset)):
        raise TypeError("params is a set, which has no order to save state by: pass a list")
    if not isinstance(params, Iterable) or isinstance(params, (str, bytes, dict)):
        raise TypeError(f"params is {type(params).__name__}: pass a list of parameters, of "
                        '(name, parameter) pairs, or of dicts with "params"')
    return list(params)


def _named(items: list[Any]) -> list[tuple[str | None, Any]]:
    """(name, parameter) of each item; a bare parameter's name is the hint it carries."""
    return [
        (item[0], item[1]) if isinstance(item, tuple) and len(item) == 2
        else (getattr(item, "name", None), item)
        for item in items
    ]


def _describe(name: str | None, place: int) -> str:
    return f"parameter {place if name is None else name!r}"


def _check_parameter(p: Any, what: str) -> None:
    if not isinstance(p, Tensor):
        raise TypeError(f"{what} is {type(p).__name__}, not a Tensor")
    if not p.is_leaf:
        raise ValueError(f"{what} of shape {p.shape} is the result of a recorded op: optimise "
                         "the leaf it was computed from, or .detach() it")
    if p.is_complex():
        raise TypeError(f"{what} is {p.dtype}: optimise its real and imaginary parts as two "
                        "real parameters")


def _copied(slot: str, value: Any, p: Tensor) -> Any:
    """A copy of saved state: a number, or a Tensor on p's device and in its dtype."""
    if slot == "step":
        return int(value)
    raw = transfer(value.array if isinstance(value, Tensor) else value, p.device)
    return Tensor(array_module(raw).array(raw, dtype=p.dtype, order="C"))
