"""Module: parameters, buffers and submodules by name; the base of every layer."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from minitorch_gpu import random
from minitorch_gpu.device import Device
from minitorch_gpu.engine import RemovableHandle
from minitorch_gpu.nn.hooks import with_backward_hooks
from minitorch_gpu.nn.state import IncompatibleKeys, load
from minitorch_gpu.registry.promotion import is_floating
from minitorch_gpu.tensor import Parameter, Tensor

Hook = Callable[..., Any]


class Module:
    """Base of all layers and models: assign parameters and submodules, write ``forward``.

    Parameters, buffers and submodules are ordinary attributes, and entries of three registries
    that ``state_dict``, ``parameters`` and the rest walk through.
    """

    training: bool

    def __init__(self) -> None:
        put = object.__setattr__
        for name in ("_parameters", "_buffers", "_modules"):
            put(self, name, {})
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"):
            put(self, name, [])
        put(self, "_transient", set())  # buffers that state_dict leaves out
        put(self, "training", True)

    # ---------------------------------------------------------------- calling
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """``forward``, with its hooks, on the call path of random draws."""
        frame = random.enter_module(self)
        try:
            if self._forward_pre_hooks or self._forward_hooks or self._backward_hooks:
                return self._hooked(args, kwargs)
            return self.forward(*args, **kwargs)
        finally:
            random.leave_module(frame)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; subclasses write it."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")

    def _hooked(self, args: Any, kwargs: Any) -> Any:
        for hook in list(self._forward_pre_hooks):
            answer = hook(self, args)
            if answer is not None:
                args = answer if isinstance(answer, tuple) else (answer,)
        if self._backward_hooks:
            result = with_backward_hooks(self, self._backward_hooks, args, kwargs)
        else:
            result = self.forward(*args, **kwargs)
        for hook in list(self._forward_hooks):
            answer = hook(self, args, result)
            result = result if answer is None else answer
        return result

    def register_forward_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, args)`` before forward; what it returns replaces the args."""
        return RemovableHandle(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after forward; a result replaces the output."""
        return RemovableHandle(self._forward_hooks, hook)

    def register_full_backward_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when the inputs' gradients are known.

        A tuple it returns takes the place of ``grad_input``.
        """
        return RemovableHandle(self._backward_hooks, hook)

    # ---------------------------------------------------------------- attributes
    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (Parameter, Module)):
            self._enter(name, value)
        elif "_modules" in self.__dict__:
            self._keep(name, value)
        object.__setattr__(self, name, value)

    def _enter(self, name: str, value: Parameter | Module) -> None:
        """Put a parameter or submodule in its registry, out of any other."""
        if "_modules" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__}: call super().__init__() before "
                                 f"assigning {name!r}")
        _check_spelling(name)
        home = self._parameters if isinstance(value, Parameter) else self._modules
        for registry in self._registries():
            if registry is not home:
                registry.pop(name, None)
        home[name] = value

    def _keep(self, name: str, value: Any) -> None:
        """Tell the registry that holds ``name`` its new value, which must be of its kind."""
        for registry, kind in zip(self._registries(), (Parameter, Tensor, Module)):
            if name not in registry:
                continue
            if value is not None and not isinstance(value, kind):
                raise TypeError(
                    f"{name!r} holds a {kind.__name__}, which a {type(value).__name__} cannot "
                    "replace: assign one or None, write its memory inside no_grad(), or del it")
            registry[name] = value

    def _registries(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return self._parameters, self._buffers, self._modules

    def __delattr__(self, name: str) -> None:
        for registry in self._registries():
            registry.pop(name, None)
        object.__delattr__(self, name)

    def __getattr__(self, name: str) -> Any:
        """Only reached for a name that does not exist: say which come close."""
        if hasattr(type(self), name):  # a property that failed: let its own error be seen
            return object.__getattribute__(self, name)
        if "_modules" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}: was "
                                 "super().__init__() called first?")
        close = difflib.get_close_matches(name, dir(self), 3)
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Add a parameter, or None as a place for one that this instance lacks."""
        if parameter is not None and not isinstance(parameter, Parameter):
            raise TypeError(f"{name!r}: expected a Parameter, got {type(parameter).__name__}")
        self._check_name(name, self._parameters)
        self._parameters[name] = parameter
        object.__setattr__(self, name, parameter)

    def register_buffer(
        self, name: str, tensor: Tensor | None, persistent: bool = True
    ) -> None:
        """Add state that is not trained; ``persistent=False`` keeps it out of state_dict."""
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"{name!r}: expected a Tensor, got {type(tensor).__name__}")
        self._check_name(name, self._buffers)
        self._buffers[name] = tensor
        (self._transient.discard if persistent else self._transient.add)(name)
        object.__setattr__(self, name, tensor)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under a name that need not be a Python identifier."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{name!r}: expected a Module, got {type(module).__name__}")
        self._check_name(name, self._modules)
        self._modules[name] = module
        object.__setattr__(self, name, module)

    add_module = register_module

    def _check_name(self, name: str, registry: Mapping[str, Any]) -> None:
        _check_spelling(name)
        if hasattr(type(self), name) or (name in self.__dict__ and name not in registry):
            raise KeyError(f"{name!r} is an attribute of {type(self).__name__} already")

    # ---------------------------------------------------------------- walking
    def named_modules(
        self, prefix: str = "", *, remove_duplicate: bool = True, _seen: set[int] | None = None
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with dotted names, each object once."""
        seen = set[int]() if _seen is None else _seen
        if remove_duplicate and id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(
                    f"{prefix}.{name}" if prefix else name,
                    remove_duplicate=remove_duplicate, _seen=seen)

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The submodules directly below, each object once."""
        seen = set[Module]()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The submodules directly below, without names."""
        return (module for _, module in self.named_children())

    def _named(
        self, registry: str, prefix: str, recurse: bool, unique: bool
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = self.named_modules(prefix, remove_duplicate=unique) if recurse else [
            (prefix, self)]
        for path, module in modules:
            for name, value in getattr(module, registry).items():
                if value is None or (unique and id(value) in seen):
                    continue
                seen.add(id(value))
                yield f"{path}.{name}" if path else name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with dotted names; a tied one once, unless duplicates are asked for."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters, each stamped with its name for the optimizer's state."""
        for name, parameter in self.named_parameters(recurse=recurse):
            parameter.name = name
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with dotted names."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Buffers, without names."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name; "" is this one."""
        module: Module = self
        for name in target.split(".") if target else ():
            if module._modules.get(name) is None:
                raise AttributeError(f"{type(module).__name__} has no submodule {name!r}")
            module = module._modules[name]
        return module

    def apply(self, function: Callable[[Module], Any]) -> Module:
        """Call ``function`` on every module below and then on this one."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    # ---------------------------------------------------------------- state
    def state_dict(self, *, prefix: str = "") -> dict[str, Tensor]:
        """Name -> Tensor sharing memory, of all parameters and persistent buffers."""
        return {prefix + name: value.detach() for name, value in self._state_items()}

    def _state_items(self) -> Iterator[tuple[str, Tensor]]:
        """Everything that state_dict holds; what is tied comes under each of its names."""
        for path, module in self.named_modules(remove_duplicate=False):
            dot = f"{path}." if path else ""
            for name, value in module._parameters.items():
                if value is not None:
                    yield dot + name, value
            for name, value in module._buffers.items():
                if value is not None and name not in module._transient:
                    yield dot + name, value

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> IncompatibleKeys:
        """Copy values into parameters and buffers, which stay the objects they are.

        Args:
            state_dict: name -> Tensor or array of the same shape; dtypes are converted.
            strict: names missing from it, or unknown to this module, are errors.

        Raises:
            ValueError: with all that does not fit; nothing is then written.
        """
        return load(dict(self._state_items()), state_dict, strict, type(self).__name__)

    # ---------------------------------------------------------------- modes and moves
    def train(self, mode: bool = True) -> Module:
        """Training mode for this module and all below it."""
        self.training = bool(mode)
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Module:
        """Evaluation mode: dropout off, running statistics used."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Let all parameters collect gradients, or freeze them."""
        for _, parameter in self.named_parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or set them to zero in place."""
        for _, parameter in self.named_parameters():
            grad = parameter.grad
            if set_to_none:
                parameter.grad = None
            elif grad is not None:
                if grad.requires_grad:
                    grad = parameter.grad = grad.detach()
                grad.zero_()

    def _convert(self, convert: Callable[[Tensor], Tensor]) -> Module:
        for _, value in [*self.named_parameters(), *self.named_buffers()]:
            grad = value.grad
            value.data = convert(value.detach())
            if grad is not None:
                value.grad = convert(grad.detach())
        return self

    def to(
        self, *args: Any, dtype: Any = None, device: str | Device | None = None,
        non_blocking: bool = False,
    ) -> Module:
        """Move and convert in place, by device, dtype, both, or a Tensor to be like.

        Only floats change dtype. Parameters keep their identity, so optimizers and ties stay
        right. ``non_blocking`` is PyTorch's hint; copies are always in order here.

        Raises:
            TypeError: the dtype is no float.
        """
        for arg in args:
            if isinstance(arg, Tensor):
                device, dtype = arg.device, arg.dtype
            elif isinstance(arg, (str, Device)):
                device = arg
            else:
                dtype = arg
        if dtype is not None and not is_floating(np.dtype(dtype)):
            raise TypeError(f"a module cannot be converted to {np.dtype(dtype)}: its weights "
                            "need a floating dtype")
        return self._convert(lambda t: t.to(
            dtype=dtype if is_floating(t.dtype) else None, device=device))

    def float(self) -> Module:
        """Floating parameters and buffers as float32."""
        return self.to(np.dtype("float32"))

    def double(self) -> Module:
        """Floating parameters and buffers as float64."""
        return self.to(np.dtype("float64"))

    def half(self) -> Module:
        """Floating parameters and buffers as float16."""
        return self.to(np.dtype("float16"))

    def bfloat16(self) -> Module:
        """Floating parameters and buffers as bfloat16."""
        return self._convert(lambda t: t.bfloat16() if is_floating(t.dtype) else t)

    def cpu(self) -> Module:
        """Everything in host memory."""
        return self.to("cpu")

    def cuda(self, device: int | str | Device | None = None) -> Module:
        """Everything on a GPU, by number or name; the current one by default."""
        if isinstance(device, int):
            device = f"cuda:{device}"
        return self.to("cuda" if device is None else device)

    # ---------------------------------------------------------------- showing
    def extra_repr(self) -> str:
        """What stands in the parentheses of a layer's repr."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): {text}" for name, text in self._shown_children()]
        extra, name = self.extra_repr(), type(self).__name__
        if not lines and "\n" not in extra:
            return f"{name}({extra})"
        text = _indented("\n".join(([extra] if extra else []) + lines))
        return f"{name}(\n  {text}\n)"

    def _shown_children(self) -> list[tuple[str, str]]:
        return [(name, repr(child)) for name, child in self._modules.items()]


def _check_spelling(name: str) -> None:
    if not name or "." in name:
        raise KeyError(f"{name!r} cannot be a name: it is empty or holds a dot")


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")

