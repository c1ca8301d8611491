"""Which Tensors show the same memory, and how each view was taken."""

from __future__ import annotations

import weakref
from typing import Any

from minitorch_gpu.engine import Leaf
from minitorch_gpu.engine.writes import owner_of
from minitorch_gpu.registry.scalar import OPS

Tensor = Any  # the layer above


def track_view(
    result: Tensor, base: Tensor, op: Any, params: dict[str, Any], place: Any
) -> None:
    """Remember that ``result`` shows a part of ``base``, and how it was taken.

    An in-place write on one of them that has to be recorded rebinds both through this path.
    """
    memory, array = result.array.base, base.array
    if memory is not array and (memory is None or memory is not array.base) and (
        owner_of(result.array) is not owner_of(array)
    ):
        return  # a reshape that had to copy
    root, path = getattr(base, "_view", None) or (base, ())
    result._view = (root, (*path, (op.name, params, place)))
    views = getattr(root, "_views", None)
    if views is None:
        views = root._views = []
    elif len(views) > 16:
        views[:] = [ref for ref in views if ref() is not None]
    views.append(weakref.ref(result))


def retake_views(root: Tensor) -> None:
    """Take every live view of a tensor that got another edge again, the way it was.

    Views that are leaves of their own stay what they are.
    """
    views, root._views = getattr(root, "_views", ()), []
    for view in [ref() for ref in views]:
        if view is None or view.edge.__class__ is Leaf:
            continue
        taken = root
        for op_name, params, place in view._view[1]:
            taken = OPS[op_name](taken, **params)
            taken = taken if place is None else taken[place]
        view.array, view.edge = taken.array, taken.edge
        root._views.append(weakref.ref(view))
