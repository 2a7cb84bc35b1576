"""How much of the code is tests, by the names of files and functions; nothing is run, and nothing is said about coverage."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from agents.analysts.definitions import Definition, definitions
from agents.analysts.facts import Seen
from agents.analysts.parsing import Module
from agents.analysts.sources import Source
from supervisor.core.analysis.types import REPOSITORY, Finding, Perspective, Severity


def look(module: Module) -> Seen:
    """A file named as a test that holds none is a finding; helpers and fixtures beside the tests are not."""
    if not module.is_test:
        return Seen({"test_files": 0, "test_functions": 0})
    found = list(definitions(module.tree))
    functions = sum(_is_test_function(item) for item in found)
    counts = {"test_files": 1, "test_functions": functions}
    if functions or not _is_named(module.file) or _borrows(module.tree, found):
        return Seen(counts)
    message = "it is named as a test but has no test function"
    return Seen(counts, [Finding(Perspective.TESTS, Severity.LOW, module.file, 0, "no-test-function", message)])


def repository(sources: Sequence[Source]) -> list[Finding]:
    """What is to be said of all files together."""
    if not sources or any(source.is_test for source in sources):
        return []
    files = "1 Python file" if len(sources) == 1 else f"{len(sources):,} Python files"
    return [Finding(Perspective.TESTS, Severity.HIGH, REPOSITORY, 0, "no-tests", f"there is no test file beside {files}")]


def _is_test_function(item: Definition) -> bool:
    """By name, as pytest and unittest collect them; one inside a function is never collected."""
    named = not item.is_class and item.node.name.startswith("test")
    return named and (item.owner is None or item.owner.is_class)


def _is_named(file: str) -> bool:
    name = file.rpartition("/")[2]
    return name.startswith("test_") or name.endswith("_test.py")


def _borrows(tree: ast.Module, found: list[Definition]) -> bool:
    """Whether its tests may come from elsewhere: a base class, `import *`, a `load_tests` hook, `TestX = machine.TestCase`."""
    given = (
        isinstance(node, ast.Assign) and any(isinstance(name, ast.Name) and name.id.startswith("Test") for name in node.targets)
        for node in tree.body
    )
    stars = (node.names[0].name == "*" for node in tree.body if isinstance(node, ast.ImportFrom))
    bases = (isinstance(item.node, ast.ClassDef) and item.node.bases for item in found)
    return any(stars) or any(bases) or any(given) or any(item.name == "load_tests" for item in found)
