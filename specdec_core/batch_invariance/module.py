"""Modules that replace others in a model and keep their rows independent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeGuard, TypeVar

from torch import nn

Plain = TypeVar("Plain", bound=nn.Module)


class ExactModule(nn.Module):
    """Computes the same as `plain`, with the same bits for a row in any batch."""

    plain: nn.Module

    def __init__(self, plain: nn.Module) -> None:
        super().__init__()
        self.plain = plain

    def __str__(self) -> str:
        return type(self.plain).__name__


def plain_modules(
    module: nn.Module, is_wanted: Callable[[nn.Module], TypeGuard[Plain]], name: str = ""
) -> Iterator[tuple[str, Plain]]:
    """Yield the wanted modules that are not replaced yet, with names as in `named_modules`."""
    if is_wanted(module):
        yield name, module
    elif not isinstance(module, ExactModule):
        for child_name, child in module.named_children():
            yield from plain_modules(child, is_wanted, f"{name}.{child_name}".strip("."))


def undo_exact(model: nn.Module) -> list[tuple[str, ExactModule]]:
    """Restore the plain modules. Return the modules that replaced them, by name."""
    exact = [(n, m) for n, m in model.named_modules() if isinstance(m, ExactModule)]
    for name, module in exact:
        model.set_submodule(name, module.plain)
    return exact
