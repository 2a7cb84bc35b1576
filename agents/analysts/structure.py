"""How the code is cut into pieces: functions, classes, files. Tests may be long lists and are only measured as files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from agents.analysts.definitions import Definition, definitions
from agents.analysts.facts import Seen
from agents.analysts.parsing import Module, Unparsable
from agents.analysts.sources import MAX_BYTES, Source
from supervisor.core.analysis.types import Finding, Perspective, Severity

FUNCTION_LINES = ((300, Severity.MEDIUM), (100, Severity.LOW))
FILE_LINES = ((3000, Severity.MEDIUM), (1000, Severity.LOW))
METHODS = 40
"""Above these numbers a finding. Judgements: few enough to be read, large enough to be agreed with."""


def look(module: Module) -> Seen:
    found = list(definitions(module.tree))
    classes = sum(item.is_class for item in found)
    pieces = [] if module.is_test else [*_long_functions(module.file, found), *_large_classes(module.file, found)]
    return Seen({"functions": len(found) - classes, "classes": classes}, [*_long_file(module), *pieces])


def unparsable(source: Source, problem: Unparsable) -> Finding:
    """Every analyst counts such a file, but only this one reports it."""
    message = f"it cannot be parsed: {problem.why}"
    return Finding(Perspective.STRUCTURE, Severity.MEDIUM, source.shown, problem.line, "syntax-error", message)


def too_large(source: Source) -> Finding:
    """The same holds here."""
    message = f"it has {source.size:,} bytes and was not looked at: the limit is {MAX_BYTES:,}"
    return Finding(Perspective.STRUCTURE, Severity.LOW, source.shown, 0, "too-large", message)


def _long_file(module: Module) -> Iterator[Finding]:
    if severity := _above(module.lines, FILE_LINES):
        yield Finding(Perspective.STRUCTURE, severity, module.file, 0, "long-file", f"the file has {module.lines:,} lines", module.lines)


def _long_functions(file: str, found: list[Definition]) -> Iterator[Finding]:
    for item in found:
        lines = (item.node.end_lineno or item.node.lineno) - item.node.lineno + 1
        if not item.is_class and (severity := _above(lines, FUNCTION_LINES)):
            yield Finding(
                Perspective.STRUCTURE, severity, file, item.node.lineno, "long-function", f"`{item.name}` is {lines:,} lines long", lines
            )


def _large_classes(file: str, found: list[Definition]) -> Iterator[Finding]:
    methods: defaultdict[int, set[str]] = defaultdict(set)
    for item in found:
        if item.owner and not item.is_class:
            methods[id(item.owner)].add(item.node.name)  # the three functions of a property are one
    for item in found:
        if item.is_class and (count := len(methods[id(item)])) > METHODS:
            message = f"`{item.name}` has {count} methods"
            yield Finding(Perspective.STRUCTURE, Severity.LOW, file, item.node.lineno, "many-methods", message, count)


def _above(number: int, limits: tuple[tuple[int, Severity], ...]) -> Severity | None:
    return next((severity for limit, severity in limits if number > limit), None)
