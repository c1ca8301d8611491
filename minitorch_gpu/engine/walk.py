"""The backward walk: reachable nodes in decreasing creation number, leaves as they complete.

    reach      every node below the roots; per leaf, how many edges point to it
    run        newest node first: pull its cotangent through its rules, finish each result
    finish     sum over broadcast dims, cast to the operand's dtype, add to what is there
    report     a leaf is never queued: it is handed over where its count reaches zero, so the
               weights of the last layer come first whichever operand they are
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from sys import getrefcount
from typing import Any, NamedTuple

from minitorch_gpu.engine.graph import Leaf, Node, Output
from minitorch_gpu.engine.saved import saved
from minitorch_gpu.engine.writes import clock


class Helpers(NamedTuple):
    """What the engine needs to do with cotangents, given to it by the Tensor layer."""

    sum_to: Callable[[Any, tuple[int, ...]], Any]   # over broadcast dims
    cast: Callable[[Any, Any], Any]                 # to a dtype; complex to real by .real
    zeros: Callable[[tuple[int, ...], Any, Any], Any]  # shape, dtype, on the device of
    view_as_tensor: Callable[[Any, Any], Any]       # array, edge -> Tensor
    run_hook: Callable[[Any, Any], Any]             # hook, cotangent -> cotangent
    recorded: bool                                  # cotangents are Tensors (create_graph)


class FreedGraphError(RuntimeError):
    """A second walk through nodes whose saved arrays the first one freed."""


def walk(
    roots: Sequence[tuple[Any, Any]],
    helpers: Helpers,
    *,
    retain: bool = False,
    targets: Sequence[Any] | None = None,
) -> dict[Any, Any]:
    """Pull cotangents from ``roots`` (pairs of edge and cotangent) down the graph.

    Args:
        roots: where to start. An edge may come twice; its cotangents add up.
        helpers: arithmetic on cotangents, raw or recorded.
        retain: keep what the nodes saved, for another walk.
        targets: collect these edges' cotangents and run only what leads to them, instead of
            handing gradients to all leaves.

    Returns:
        Target edge -> cotangent, without targets that nothing reached.

    Raises:
        FreedGraphError: the graph was walked before without ``retain``.
        RuntimeError: a saved array was changed in place since.
    """
    # Edges lead to smaller numbers: what is older than every target leads to none of them.
    oldest = min((edge.number for edge in targets), default=0) if targets is not None else 0
    order, waiting = _reach([edge for edge, _ in roots], oldest)
    if targets is not None:
        order = _leading_to(order, targets)
    run = _Walk(helpers, retain, waiting, targets)
    error: BaseException | None = None
    try:
        run.start(roots)
        run.drain(order)
    except BaseException as raised:
        error = raised
        raise
    finally:
        listeners = {leaf.listener for leaf in waiting if leaf.listener is not None}
        if targets is None:
            for listener in listeners:
                listener.walk_finished(error)
    return run.found


def _reach(roots: list[Any], oldest: int) -> tuple[list[Any], dict[Leaf, int]]:
    """Every node under the roots, oldest first, and the edges that point to each leaf.

    Nodes with a number below ``oldest`` are left out.
    """
    waiting: dict[Leaf, int] = {}
    seen = set()
    stack = []
    for edge in roots:
        if edge.__class__ is Leaf:
            waiting[edge] = waiting.get(edge, 0) + 1
        elif edge not in seen:
            seen.add(edge)
            stack.append(edge)
    while stack:
        node = stack.pop()
        if node.__class__ is Output:
            edges = (node.node,)
        elif node.links is None:
            raise FreedGraphError(
                f"backward a second time through {node.vjp.name}, whose saved arrays were "
                "freed by the first: pass retain_graph=True to the first call"
            )
        else:
            edges = node.links[: node.vjp.arity]
        for edge in edges:
            if edge is None or edge.number < oldest:
                continue
            if edge.__class__ is Leaf:
                waiting[edge] = waiting.get(edge, 0) + 1
            elif edge not in seen:
                seen.add(edge)
                stack.append(edge)
    return sorted(seen, key=attrgetter("number")), waiting


def _leading_to(order: list[Any], targets: Sequence[Any]) -> list[Any]:
    """The nodes of ``order`` from which some target can be reached."""
    wanted = set(targets)
    kept = []
    for node in order:  # oldest first: operands are decided before their consumers
        if node in wanted or any(edge in wanted for edge in node.edges if edge is not None):
            wanted.add(node)
            kept.append(node)
    return kept


class _Walk:
    """The state of one walk: cotangents by edge, and counts of the leaves."""

    def __init__(
        self,
        helpers: Helpers,
        retain: bool,
        waiting: dict[Leaf, int],
        targets: Sequence[Any] | None,
    ) -> None:
        self.helpers, self.retain = helpers, retain
        self.waiting = dict(waiting)
        self.targets = None if targets is None else set(targets)
        self.found: dict[Any, Any] = {}
        self.cotangents: dict[Any, Any] = {}

    def start(self, roots: Sequence[tuple[Any, Any]]) -> None:
        for edge, cotangent in roots:
            self.add(edge, cotangent)
            if edge.__class__ is Leaf and edge in self.waiting:
                self.arrived(edge)

    def drain(self, order: list[Any]) -> None:
        """Run nodes newest first, dropping each as soon as it has run."""
        cotangents, targets = self.cotangents, self.targets
        while order:
            node = order.pop()
            g = cotangents.pop(node, None)
            if g is not None and node.hooks:
                g = self.hooked(node.hooks, g)
            if targets is not None and node in targets and g is not None:
                self.found[node] = g
            if node.__class__ is Output:
                if g is not None:
                    self.add_output(node, g)
                continue
            self.pull(node, g)
            if not self.retain:
                node.links = None

    def pull(self, node: Node, g: Any) -> None:
        """Run one node's rules and hand every finished cotangent on."""
        links, vjp = node.links, node.vjp
        arity = vjp.arity
        results = None
        if g is not None:
            if clock.latest > node.number:
                _check_unchanged(node)
            if saved.in_use:
                links = links[:arity] + tuple(map(saved.load, links[arity:]))
            if vjp.outputs != 1:
                g = self.with_zeros(node, g)
            if self.helpers.recorded:
                links = self.as_tensors(node, links)
                if vjp.definition is not None:
                    results = vjp.definition(g, links, node.params)
            if results is None and vjp.joint is not None:
                results = vjp.joint(g, links, node.params)
            if results is not None:
                results = list(results)
        params, pulls, targets = node.params, vjp.pulls, self.targets
        for i in range(arity):
            edge = links[i]
            if edge is None:
                continue
            if g is not None and (targets is None or self.leads(edge)):
                if results is None:
                    c = pulls[i](g, links, params)
                else:
                    c, results[i] = results[i], None
                if c is not None:
                    if c.shape != edge.shape:
                        c = self.helpers.sum_to(c, edge.shape)
                    if c.dtype is not edge.dtype:
                        c = self.helpers.cast(c, edge.dtype)
                    self.add(edge, c)
                c = None  # the sum must be the only holder of its array
            if edge.__class__ is Leaf and (targets is None or edge in targets):
                self.arrived(edge)

    def leads(self, edge: Any) -> bool:
        """Whether a cotangent for ``edge`` is of use in a walk towards targets."""
        return edge.__class__ is not Leaf or edge in self.targets  # type: ignore[operator]

    def add(self, edge: Any, c: Any) -> None:
        """Add a cotangent to what ``edge`` has, in place where the sum is ours alone."""
        total = self.cotangents.pop(edge, None)
        if total is None:
            self.cotangents[edge] = c
        elif getrefcount(total) == 2 and not self.helpers.recorded and _writable(total):
            total += c
            self.cotangents[edge] = total
        else:
            self.cotangents[edge] = total + c

    def arrived(self, leaf: Leaf) -> None:
        """One more edge into ``leaf`` is done; hand the gradient over with the last one."""
        left = self.waiting[leaf] = self.waiting[leaf] - 1
        if left:
            return
        g = self.cotangents.pop(leaf, None)
        if g is not None and leaf.hooks:
            g = self.hooked(leaf.hooks, g)
        if self.targets is not None:
            if g is not None and leaf in self.targets:
                self.found[leaf] = g
            return
        owner = leaf.owner()
        if owner is not None and g is not None:
            sole = getrefcount(g) == 2 and not self.helpers.recorded  # g and the argument
            owner._receive(g, sole)
        if leaf.listener is not None:
            leaf.listener.leaf_ready(leaf)

    def hooked(self, hooks: list[Any], g: Any) -> Any:
        for hook in list(hooks):
            g = self.helpers.run_hook(hook, g)
        return g

    def add_output(self, output: Output, g: Any) -> None:
        parts = self.cotangents.setdefault(output.node, [None] * len(output.node.shape))
        known = parts[output.index]
        parts[output.index] = g if known is None else known + g

    def with_zeros(self, node: Node, parts: list[Any]) -> tuple[Any, ...]:
        """The cotangents of all outputs; an unused output's reads as zeros."""
        like = next(p for p in parts if p is not None)
        zeros = self.helpers.zeros
        return tuple(
            zeros(shape, dtype, like) if p is None else p
            for p, shape, dtype in zip(parts, node.shape, node.dtype)
        )

    def as_tensors(self, node: Node, links: tuple[Any, ...]) -> tuple[Any, ...]:
        """The links with every saved array as a Tensor that carries its edge."""
        wrap, vjp = self.helpers.view_as_tensor, node.vjp
        result = list(links)
        for place, source in enumerate(vjp.sources, vjp.arity):
            value = links[place]
            if value is None or source.kind in ("like", "residuals"):
                continue
            if source.kind == "operand" and isinstance(value, tuple):  # a list operand
                edges = links[source.place : vjp.arity]
                result[place] = tuple(map(wrap, value, edges))
            elif source.kind == "operand":
                result[place] = wrap(value, links[source.place])
            elif source.kind == "output":
                result[place] = wrap(value, node)
            else:
                result[place] = tuple(wrap(v, Output(node, j)) for j, v in enumerate(value))
        return tuple(result)


def _writable(array: Any) -> bool:
    flags = getattr(array, "flags", None)
    return flags is not None and flags.owndata and getattr(flags, "writeable", True) \
        and array.ndim > 0


def _check_unchanged(node: Node) -> None:
    """Raise when an array that ``node`` saved was written in place afterwards."""
    for value in node.links[node.vjp.arity:]:
        for array in value if isinstance(value, tuple) else (value,):
            if hasattr(array, "base") and clock.written_since(array, node.number):
                raise RuntimeError(
                    f"{node.vjp.name} saved an array of shape {tuple(array.shape)} for its "
                    "gradient and it was changed in place afterwards: use the functional "
                    "form, or clone before writing"
                )
