"""Gradient rules bound by name: what a rule's parameters say it needs is all a node keeps.

A recorded node holds one flat tuple, ``links``: first an edge per operand, then the values its
rules may read. A rule ``lambda g, b: g * b`` becomes a pull ``(g, links, params) -> cotangent``
that finds ``b`` at a fixed place in that tuple:

    links = (edge of a, edge of b, a or None, b or None)
             <-- arity edges --->  <---- sources ---->
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minitorch_gpu.device import array_module, is_array
from minitorch_gpu.registry.promotion import is_half

Pull = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class Source(NamedTuple):
    """A value that rules read: ``kind`` is operand, like, output, outputs or residuals."""

    kind: str
    place: int = 0


class Like(NamedTuple):
    """Stands for an operand that is not kept: ``x_like`` has only shape and dtype."""

    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)


class Vjp:
    """The backward side of an op: its pulls, and which sources each mask of edges needs."""

    __slots__ = ("_counts", "_keeps", "_variants", "arity", "definition", "joint", "name",
                 "outputs", "pulls", "readers", "sources")

    def __init__(
        self,
        name: str,
        arity: int,
        outputs: int,
        sources: tuple[Source, ...],
        pulls: tuple[Pull | None, ...],
        readers: tuple[frozenset[int], ...],
        joint: Pull | None = None,
        definition: Callable[..., Any] | None = None,
    ) -> None:
        self.name, self.arity, self.outputs = name, arity, outputs
        self.sources = sources
        self.pulls = pulls          # one per operand; None: not differentiable
        self.readers = readers      # per operand: which sources its pull reads
        self.joint = joint          # one pull for all operands (fused pairs, lists)
        self.definition = definition  # a composite's: used where cotangents are Tensors
        self._counts: dict[int, Vjp] = {}
        self._keeps: dict[int, tuple[bool, ...]] = {}
        self._variants: dict[tuple[bool, bool], Vjp] = {}

    def keeps(self, mask: int) -> tuple[bool, ...]:
        """Per source, whether to save it when operands with edges form the bit ``mask``."""
        known = self._keeps.get(mask)
        if known is None:
            running = [r for i, r in enumerate(self.readers) if mask >> i & 1]
            known = tuple(any(s in r for r in running) for s in range(len(self.sources)))
            self._keeps[mask] = known
        return known

    def with_count(self, count: int) -> Vjp:
        """For an op whose last operand is a list: this vjp for ``count`` tensors in it."""
        if count not in self._counts:
            self._counts[count] = _spread(self, count)
        return self._counts[count]

    def variant(self, *, complex_values: bool, half: bool) -> Vjp:
        """This vjp for complex operands (conjugates around each rule) or half precision."""
        key = (complex_values, half)
        if key == (False, False):
            return self
        if key not in self._variants:
            wrap = _conjugated if complex_values else _in_float32
            self._variants[key] = Vjp(
                self.name, self.arity, self.outputs, self.sources,
                tuple(p and wrap(p, self.arity) for p in self.pulls), self.readers,
                self.joint and wrap(self.joint, self.arity), self.definition,
            )
        return self._variants[key]


def _spread(vjp: Vjp, count: int) -> Vjp:
    """``links`` with one edge per tensor of the list, folded to what the pulls were bound for.

    The list operand's rule returns one cotangent per tensor of the list.
    """
    fixed, total = vjp.arity - 1, vjp.arity - 1 + count

    def joint(g: Any, links: tuple[Any, ...], params: dict[str, Any]) -> list[Any]:
        folded = (*links[:fixed], None, *links[total:])
        results = [
            pull(g, folded, params) if pull and edge is not None else None
            for pull, edge in zip(vjp.pulls[:fixed], links)
        ]
        rest = vjp.pulls[fixed]
        if rest is None or all(edge is None for edge in links[fixed:total]):
            return results + [None] * count
        return results + list(rest(g, folded, params))

    readers = vjp.readers[:fixed] + (vjp.readers[fixed],) * count
    return Vjp(vjp.name, total, vjp.outputs, vjp.sources, (), readers, joint)


def _map_cotangent(function: Callable[[Any], Any], g: Any) -> Any:
    return tuple(map(function, g)) if isinstance(g, (tuple, list)) else function(g)


def _conjugate(value: Any) -> Any:
    if value is None:
        return None
    return value.conj() if value.dtype.kind == "c" else value


def _conjugated(pull: Pull, arity: int) -> Pull:
    """For a holomorphic rule ``g * f'(x)`` the cotangent is ``g * conj(f'(x))``."""

    def run(g: Any, links: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return _map_cotangent(_conjugate, pull(_map_cotangent(_conjugate, g), links, params))

    return run


def _upcast(value: Any) -> Any:
    if is_array(value) and is_half(value.dtype):
        return value.astype(np.float32)
    return value


def _in_float32(pull: Pull, arity: int) -> Pull:
    """Half precision on raw arrays: the rule runs in float32, its result is rounded once."""

    def run(g: Any, links: tuple[Any, ...], params: dict[str, Any]) -> Any:
        saved = tuple(map(_upcast, links[arity:]))
        return pull(_map_cotangent(_upcast, g), links[:arity] + saved, params)

    return run


def bind(
    name: str,
    operands: Sequence[str],
    params: Sequence[str],
    outputs: int,
    rules: dict[str, Callable[..., Any]],
) -> Vjp:
    """Resolve every rule's parameter names, once, at declaration.

    Raises:
        TypeError: a rule names neither ``g``, ``y``/``ys``, an operand, ``<operand>_like``
            nor a keyword parameter of the body; or a rule is for no operand.
    """
    unknown = set(rules) - set(operands)
    if unknown:
        raise TypeError(f"{name}: vjp for {sorted(unknown)}; the operands are {list(operands)}")
    sources: list[Source] = []
    arity = len(operands)
    bound = {
        operand: _bind_rule(name, rule, operands, params, arity, sources)
        for operand, rule in rules.items()
    }
    pulls = tuple(bound[o][0] if o in bound else None for o in operands)
    readers = tuple(bound[o][1] if o in bound else frozenset[int]() for o in operands)
    return Vjp(name, arity, outputs, tuple(sources), pulls, readers)


def _bind_rule(
    name: str,
    rule: Callable[..., Any],
    operands: Sequence[str],
    params: Sequence[str],
    arity: int,
    sources: list[Source],
) -> tuple[Pull, frozenset[int]]:
    """The pull of one rule and the places of the sources it reads."""
    arguments, reads = [], set()
    for wanted in inspect.signature(rule).parameters:
        if wanted == "g":
            arguments.append("g")
            continue
        if wanted in params:
            arguments.append(f"p[{wanted!r}]")
            continue
        source = _source_named(name, wanted, operands, params)
        if source not in sources:
            sources.append(source)
        reads.add(sources.index(source))
        arguments.append(f"s[{arity + sources.index(source)}]")
    text = f"lambda g, s, p: rule({', '.join(arguments)})"
    return eval(text, {"rule": rule}), frozenset(reads)


def _source_named(
    name: str, wanted: str, operands: Sequence[str], params: Sequence[str]
) -> Source:
    if wanted == "y":
        return Source("output")
    if wanted == "ys":
        return Source("outputs")
    if wanted in operands:
        return Source("operand", list(operands).index(wanted))
    if wanted.endswith("_like") and wanted[:-5] in operands:
        return Source("like", list(operands).index(wanted[:-5]))
    known = ["g", "y", "ys", *operands, *(f"{o}_like" for o in operands), *params]
    raise TypeError(f"{name}: a rule asks for {wanted!r}; it may ask for {', '.join(known)}")


def bind_fused(
    name: str,
    operands: Sequence[str],
    outputs: int,
    definition: Callable[..., Any],
    backward: Callable[..., Any],
) -> Vjp:
    """The vjp of a composite with a fused pair: keeps its operands and the residuals."""
    arity = len(operands)
    sources = (*(Source("operand", i) for i in range(arity)), Source("residuals"))

    def joint(g: Any, links: tuple[Any, ...], params: dict[str, Any]) -> Any:
        needs = tuple(edge is not None for edge in links[:arity])
        inputs, residuals = links[arity:-1], links[-1]
        first = g[0] if isinstance(g, tuple) else g
        return backward(array_module(first), g, residuals, inputs, needs, **params)

    everything = frozenset(range(arity + 1))
    return Vjp(name, arity, outputs, sources, (), (everything,) * arity, joint, definition)
