"""How an op is declared: a signature, a body, one rule per differentiable argument."""

from minitorch_gpu.registry.declare import (
    Ints,
    Op,
    Vjp,
    composite,
    connect,
    elementwise,
    primitive,
)
from minitorch_gpu.registry.scalar import OPS, Expr

__all__ = ["OPS", "Expr", "Ints", "Op", "Vjp", "composite", "connect", "elementwise",
           "primitive"]
