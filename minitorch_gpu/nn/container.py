"""Modules that hold modules: in a row, in a list, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count, groupby
from typing import Any

from minitorch_gpu.nn.module import Module


class ModuleList(Module):
    """Modules in a list that ``parameters`` and ``state_dict`` know of."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def append(self, module: Module) -> ModuleList:
        """Add a module at the end."""
        free = (str(n) for n in count(len(self)) if str(n) not in self._modules)
        self.register_module(next(free), module)  # a slice of a Sequential kept its names
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
            return self._part(index)
        return list(self)[self._place(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self._modules)[self._place(index)], module)

    def __delitem__(self, index: int | slice) -> None:
        modules = list(self)
        del modules[index if isinstance(index, slice) else self._place(index)]
        self._renew(modules)

    def pop(self, index: int = -1) -> Any:
        """Take a module out and return it; those behind move up."""
        module = self[self._place(index)]
        del self[index]
        return module

    def _shown_children(self) -> list[tuple[str, str]]:
        """Neighbours that look the same on one line: ``(0-2): 3 x ReLU()``."""
        shown = []
        for text, run in groupby(super()._shown_children(), key=lambda item: item[1]):
            first, *rest = [name for name, _ in run]
            shown.append((f"{first}-{rest[-1]}", f"{len(rest) + 1} x {text}") if rest
                         else (first, text))
        return shown

    def _part(self, index: slice) -> ModuleList:
        return ModuleList(list(self)[index])


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

    _shown_children = Module._shown_children

    def _part(self, index: slice) -> Sequential:
        return Sequential(dict(list(self._modules.items())[index]))  # each keeps its name

    def forward(self, x: Any) -> Any:
        """Apply the modules in order."""
        for module in self._modules.values():
            x = module(x)
        return x


class ModuleDict(Module):
    """Modules by name that ``parameters`` and ``state_dict`` know of."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, name: str) -> Any:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.register_module(name, module)

    def __delitem__(self, name: str) -> None:
        if name not in self._modules:
            raise KeyError(name)
        delattr(self, name)

    def pop(self, name: str) -> Any:
        """Take a module out and return it."""
        module = self[name]
        del self[name]
        return module

    def update(self, modules: Mapping[str, Module]) -> None:
        """Add or replace several modules."""
        for name, module in modules.items():
            self[name] = module

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
