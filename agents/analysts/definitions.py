"""The functions and classes of a tree, with the names that people know them by."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef

_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, a method or a class."""

    name: str
    """With its owners: `Class.method`, `function.inner`."""
    node: Function | ast.ClassDef
    owner: Definition | None

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_public(self) -> bool:
        """Whether others can reach it and its name says that they may: not inside a function, no underscore in front."""
        if self.node.name.startswith("_"):
            return False
        return self.owner is None or (self.owner.is_class and self.owner.is_public)


def definitions(tree: ast.Module) -> Iterator[Definition]:
    """Every one of them, in the order of the text, wherever it stands. Not recursive: a long `elif` chain is a deep tree."""
    todo: list[tuple[ast.AST, Definition | None]] = [(node, None) for node in reversed(tree.body)]
    while todo:
        node, owner = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            owner = Definition(f"{owner.name}.{node.name}" if owner else node.name, node, owner)
            yield owner
        todo.extend((child, owner) for child in reversed(_children(node)))


def _children(node: ast.AST) -> list[ast.AST]:
    """Only statements: no expression holds a definition."""
    return [child for block in _BLOCKS for child in getattr(node, block, ())]
