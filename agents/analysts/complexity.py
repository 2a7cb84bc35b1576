"""Cyclomatic complexity by radon, for every function and method, inner ones and those of local classes included.

In test files an `assert` counts no branch, as radon can do it: a test that checks six things is not complicated.
"""

from __future__ import annotations

import ast

from radon.visitors import ComplexityVisitor  # type: ignore[import-untyped]

from agents.analysts.definitions import Definition, definitions
from agents.analysts.facts import Seen
from agents.analysts.parsing import Module, deep
from supervisor.core.analysis.types import Finding, Perspective, Severity

OVER = 5
"""The end of radon's rank A, "low risk - simple block"."""
FROM = ((40, Severity.HIGH), (20, Severity.MEDIUM), (10, Severity.LOW))
"""Above each a finding: radon's ranks F, D and E, C."""


def look(module: Module) -> Seen:
    """Raises RecursionError for a tree that is deeper than any that a parser makes today."""
    with deep():
        measured = [(item, _complexity(item.node, module.is_test)) for item in definitions(module.tree) if not item.is_class]
    numbers = [number for _, number in measured]
    counts = {"functions": len(numbers), "over": sum(number > OVER for number in numbers), "worst": max(numbers, default=0)}
    return Seen(counts, [found for item, number in measured if (found := _finding(module.file, item, number))])


def _complexity(node: ast.AST, is_test: bool) -> int:
    number: int = ComplexityVisitor.from_ast(node, no_assert=is_test).functions[0].complexity
    return number


def _finding(file: str, item: Definition, number: int) -> Finding | None:
    severity = next((severity for above, severity in FROM if number > above), None)
    if severity is None:
        return None
    message = f"`{item.name}` has cyclomatic complexity {number}"
    return Finding(Perspective.COMPLEXITY, severity, file, item.node.lineno, "complex-function", message, weight=number)
