"""The backward walk over recorded nodes; it knows nothing of Tensor."""

from minitorch_gpu.engine.graph import Leaf, Node, Output, next_number
from minitorch_gpu.engine.hooks import RemovableHandle
from minitorch_gpu.engine.walk import Helpers, walk

__all__ = ["Helpers", "Leaf", "Node", "Output", "RemovableHandle", "next_number", "walk"]
