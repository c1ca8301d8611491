"""What a forward pass leaves behind: nodes that point to nodes, never to Tensors.

    loss.edge -> Node(sum) -> Node(mul) -> Leaf(w) ~~weak~~> the parameter w
                                 |
                                 +------> Node(tanh) -> Leaf(x) ~~weak~~> x

A Tensor owns its edge and nothing points back, so dropping the loss frees the graph without
the garbage collector. Creation numbers only grow along time, so decreasing number is a valid
order of the backward walk: when a node's turn comes, all its consumers have had theirs.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

# One clock for node creation and in-place writes; next() on it is atomic.
next_number = itertools.count(1).__next__

Hook = Callable[[Any], Any]

# One tuple per distinct shape, so that a recorded op allocates three collected containers
# (Tensor, Node, links) and no more: their number is what starts Python's collector.
_SHAPES: dict[Any, Any] = {}
_same_shape = _SHAPES.setdefault


class Node:
    """One recorded op call.

    ``links`` holds an edge per operand, then the sources its rules read (see
    ``registry.rules``); None once the walk has freed it. ``shape`` and ``dtype`` are the
    output's, tuples of them where the op has several outputs.
    """

    __slots__ = ("__weakref__", "dtype", "hooks", "links", "number", "params", "shape", "vjp")

    def __init__(self, vjp: Any, links: Any, params: Any, number: int, shape: Any, dtype: Any):
        self.vjp = vjp
        self.links = links
        self.params = params
        self.number = number
        self.shape = _same_shape(shape, shape)
        self.dtype = dtype
        self.hooks: list[Hook] | None = None

    @property
    def edges(self) -> tuple[Any, ...]:
        """The nodes of the operands, None for an operand without gradient."""
        return self.links[: self.vjp.arity]

    def __repr__(self) -> str:
        return f"<{self.vjp.name} backward, output {self.shape}>"


class Output:
    """One differentiable output of a node with several: the edge its Tensor carries."""

    __slots__ = ("__weakref__", "dtype", "hooks", "index", "node", "number", "shape")

    def __init__(self, node: Node, index: int) -> None:
        self.node, self.index = node, index
        self.number = next_number()
        self.shape, self.dtype = node.shape[index], node.dtype[index]
        self.hooks: list[Hook] | None = None

    @property
    def edges(self) -> tuple[Any, ...]:
        """The node this is an output of."""
        return (self.node,)

    def __repr__(self) -> str:
        return f"<output {self.index} of {self.node!r}>"


class Leaf:
    """The end of the graph: a weak reference to the Tensor that gets the gradient.

    ``listener``, when set, is told when the gradient is complete and when the walk ends.
    ``slot``, when set, is the memory (of a bucket) that a first gradient is written to.
    """

    __slots__ = ("__weakref__", "dtype", "hooks", "listener", "number", "owner", "shape",
                 "slot")

    edges: tuple[Any, ...] = ()

    def __init__(self, owner: Any) -> None:
        self.owner = weakref.ref(owner)
        self.shape, self.dtype = owner.array.shape, owner.array.dtype
        self.number = next_number()
        self.hooks: list[Hook] | None = None
        self.listener: Any = None
        self.slot: Any = None

    def __repr__(self) -> str:
        return f"<leaf {self.shape}>"
