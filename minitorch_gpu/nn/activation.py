"""Activations and dropout as layers, from a table of functions and their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minitorch_gpu.nn import functional as F
from minitorch_gpu.nn.module import Module
from minitorch_gpu.ops.creation import full
from minitorch_gpu.registry.promotion import DEFAULT
from minitorch_gpu.tensor import Parameter, Tensor

REQUIRED: Any = object()  # stands for the default of an option that has none


class _Activation(Module):
    """A function of one tensor with options fixed at construction."""

    function: Callable[..., Tensor]
    options: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        values = {**self.options, **dict(zip(self.options, args)), **kwargs}
        unknown = set(values) - set(self.options)
        twice = set(list(self.options)[:len(args)]) & set(kwargs)
        missing = [name for name, value in values.items() if value is REQUIRED]
        if unknown or len(args) > len(self.options):
            raise TypeError(f"{type(self).__name__} takes {list(self.options) or 'nothing'}, "
                            f"got {sorted(unknown) or args}")
        if missing or twice:
            raise TypeError(f"{type(self).__name__} needs {', '.join(missing or twice)}"
                            f"{' once' if twice else ''}")
        for name, value in values.items():
            setattr(self, name, value)

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise, or along ``dim``."""
        options = {name: getattr(self, name) for name in self.options}
        return type(self).function(input, **options)

    def extra_repr(self) -> str:
        """The options."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.options
                         if name != "inplace" or self.inplace)


class ReLU(_Activation):
    """``max(x, 0)``; ``inplace=True`` writes to (or rebinds) the input."""

    function, options = staticmethod(F.relu), {"inplace": False}


class LeakyReLU(_Activation):
    """x where positive, else ``negative_slope * x``."""

    function, options = staticmethod(F.leaky_relu), {"negative_slope": 0.01, "inplace": False}


class GELU(_Activation):
    """``x * P(Z <= x)`` for a standard normal Z; ``approximate="tanh"`` is the tanh form."""

    function, options = staticmethod(F.gelu), {"approximate": "none"}


class SiLU(_Activation):
    """``x * sigmoid(x)``."""

    function, options = staticmethod(F.silu), {"inplace": False}


class Softplus(_Activation):
    """``log(1 + exp(beta x)) / beta``."""

    function, options = staticmethod(F.softplus), {"beta": 1.0}


class Tanh(_Activation):
    """Hyperbolic tangent."""

    function, options = staticmethod(F.tanh), {}


class Sigmoid(_Activation):
    """``1 / (1 + exp(-x))``."""

    function, options = staticmethod(F.sigmoid), {}


class Softmax(_Activation):
    """``exp(x)`` normalised to sum 1 along ``dim``."""

    function, options = staticmethod(F.softmax), {"dim": REQUIRED}


class LogSoftmax(_Activation):
    """The logarithm of softmax along ``dim``."""

    function, options = staticmethod(F.log_softmax), {"dim": REQUIRED}


class ReLU6(_Activation):
    """x limited to [0, 6]."""

    function, options = staticmethod(F.relu6), {"inplace": False}


class ELU(_Activation):
    """x where positive, else ``alpha * (exp(x) - 1)``."""

    function, options = staticmethod(F.elu), {"alpha": 1.0, "inplace": False}


class SELU(_Activation):
    """ELU scaled to keep mean 0 and variance 1."""

    function, options = staticmethod(F.selu), {"inplace": False}


class CELU(_Activation):
    """x where positive, else ``alpha * (exp(x / alpha) - 1)``."""

    function, options = staticmethod(F.celu), {"alpha": 1.0, "inplace": False}


class Mish(_Activation):
    """``x * tanh(softplus(x))``."""

    function, options = staticmethod(F.mish), {"inplace": False}


class Hardtanh(_Activation):
    """x limited to [min_val, max_val]."""

    function, options = staticmethod(F.hardtanh), {
        "min_val": -1.0, "max_val": 1.0, "inplace": False}


class Hardsigmoid(_Activation):
    """``(x + 3) / 6`` limited to [0, 1]."""

    function, options = staticmethod(F.hardsigmoid), {"inplace": False}


class Hardswish(_Activation):
    """``x * hardsigmoid(x)``."""

    function, options = staticmethod(F.hardswish), {"inplace": False}


class Softsign(_Activation):
    """``x / (1 + |x|)``."""

    function, options = staticmethod(F.softsign), {}


class Tanhshrink(_Activation):
    """``x - tanh(x)``."""

    function, options = staticmethod(F.tanhshrink), {}


class Hardshrink(_Activation):
    """0 for x in [-lambd, lambd], else x."""

    function, options = staticmethod(F.hardshrink), {"lambd": 0.5}


class Softshrink(_Activation):
    """x moved towards 0 by ``lambd``, 0 for what is nearer."""

    function, options = staticmethod(F.softshrink), {"lambd": 0.5}


class LogSigmoid(_Activation):
    """``log(sigmoid(x))``."""

    function, options = staticmethod(F.logsigmoid), {}


class Threshold(_Activation):
    """x where above ``threshold``, else ``value``."""

    function, options = staticmethod(F.threshold), {
        "threshold": REQUIRED, "value": REQUIRED, "inplace": False}


class GLU(_Activation):
    """The first half along ``dim`` times the sigmoid of the second."""

    function, options = staticmethod(F.glu), {"dim": -1}


class PReLU(Module):
    """x where positive, else ``weight * x``; ``weight`` (num_parameters) is learned."""

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = "cpu",
        dtype: Any = DEFAULT,
    ) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(full((num_parameters,), init, dtype=dtype, device=device))

    def forward(self, input: Tensor) -> Tensor:
        """Any shape; with several parameters dim 1 has as many channels."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """The number of parameters."""
        return f"num_parameters={self.num_parameters}"


class Dropout(Module):
    """In training, zeros with probability p, the rest divided by 1 - p (Hinton et al. 2012)."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"dropout probability is {p}; it must lie in [0, 1]")
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        """The same shape; in evaluation mode the input itself."""
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"
