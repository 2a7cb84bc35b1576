"""Which public objects say what they are: modules with code in them, and the public classes, functions and methods.

What is private by its name, or by the name of its module or package (`_x.py`), promises nothing and is not counted, nor are test files.
Nor is what takes its docstring from elsewhere: overloads, overrides, and the setter and deleter of a property.
"""

from __future__ import annotations

import ast
import re

from agents.analysts.definitions import Definition, definitions
from agents.analysts.facts import Seen
from agents.analysts.parsing import Module
from supervisor.core.analysis.types import Finding, Perspective, Severity

MANY = 10
"""Public objects from which on a file without any docstring is a medium finding."""
_NAMED = 3
_PRIVATE = re.compile(r"(^|/)_(?!_)")
_ELSEWHERE = frozenset({"overload", "override", "setter", "deleter"})


def look(module: Module) -> Seen:
    """One finding a file at most, at its first object without a docstring."""
    objects = [] if module.is_test or _PRIVATE.search(module.file) else _objects(module.tree)
    missing = [(name, line) for name, line, documented in objects if not documented]
    counts = {"objects": len(objects), "documented": len(objects) - len(missing)}
    if not missing:
        return Seen(counts)
    severity = Severity.MEDIUM if len(missing) == len(objects) >= MANY else Severity.LOW
    names = ", ".join(name for name, _ in missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
    message = f"no docstring for {len(missing)} of {len(objects)} public objects: {names}"
    return Seen(counts, [Finding(Perspective.DOCSTRINGS, severity, module.file, missing[0][1], "missing-docstring", message, len(missing))])


def _objects(tree: ast.Module) -> list[tuple[str, int, bool]]:
    """(name, line, documented) of each."""
    whole = [("the module", 1, _documented(tree))] if tree.body else []
    counted = (item for item in definitions(tree) if item.is_public and not _documented_elsewhere(item))
    return whole + [(f"`{item.name}`", item.node.lineno, _documented(item.node)) for item in counted]


def _documented(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool((ast.get_docstring(node, clean=False) or "").strip())


def _documented_elsewhere(item: Definition) -> bool:
    """`@overload`, `@typing.override`, `@name.setter`."""
    names = (getattr(mark, "attr", getattr(mark, "id", "")) for mark in item.node.decorator_list)
    return any(name in _ELSEWHERE for name in names)
