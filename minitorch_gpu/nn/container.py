"""Modules that hold modules: in a row, in a list, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from minitorch_gpu.nn.module import Module


class ModuleList(Module):
    """Modules in a list that ``parameters`` and ``state_dict`` know of."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def append(self, module: Module) -> ModuleList:
        """Add a module at the end."""
        self.register_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add several modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Put a module in at ``index``; those behind move up."""
        modules = list(self)
        modules.insert(index, module)
        self._renew(modules)

    def _renew(self, modules: list[Module]) -> None:
        for name in list(self._modules):
            delattr(self, name)
        for place, module in enumerate(modules):
            self.register_module(str(place), module)

    def _place(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} modules")
        return index % len(self)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._modules.values()))

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)._of(list(self)[index])
        return list(self)[self._place(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self._modules)[self._place(index)], module)

    def __delitem__(self, index: int) -> None:
        modules = list(self)
        del modules[self._place(index)]
        self._renew(modules)

    @classmethod
    def _of(cls, modules: list[Module]) -> ModuleList:
        return cls(modules)


class Sequential(ModuleList):
    """Modules applied one after another: ``Sequential(a, b)(x)`` is ``b(a(x))``.

    Takes modules, or one dict of names to modules.
    """

    def __init__(self, *modules: Any) -> None:
        Module.__init__(self)
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.register_module(name, module)
        else:
            self.extend(modules)

    @classmethod
    def _of(cls, modules: list[Module]) -> Sequential:
        return cls(*modules)

    def forward(self, x: Any) -> Any:
        """Apply the modules in order."""
        for module in self._modules.values():
            x = module(x)
        return x


class ModuleDict(Module):
    """Modules by name that ``parameters`` and ``state_dict`` know of."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        for name, module in (modules or {}).items():
            self[name] = module

    def __getitem__(self, name: str) -> Any:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.register_module(name, module)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Pairs of name and module."""
        return iter(list(self._modules.items()))

    def keys(self) -> Iterator[str]:
        """The names."""
        return iter(list(self._modules))

    def values(self) -> Iterator[Any]:
        """The modules."""
        return iter(list(self._modules.values()))
