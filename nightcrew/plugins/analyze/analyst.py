"""Run one analyst: read its files, look at them, and print one line of JSON."""

from __future__ import annotations

import ast
import fnmatch
import json
import math
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from radon.visitors import ComplexityVisitor  # type: ignore[import-untyped]

from nightcrew.plugins.analyze import sources
from nightcrew.plugins.analyze.sources import (
    MAX_BYTES,
    Command,
    Module,
    Source,
    Unparsable,
    content,
    deep,
    lines,
    parse,
    run,
    without_cycles,
)
from supervisor.host.clock import Clock
from supervisor.kernel.errors import ToolFailed, UsageError
from supervisor.results.findings import REPOSITORY, Facts, Finding, Perspective, Severity, Shard, merge

# Definitions
# -----------
# The functions and classes of a tree, with the names that people know them by.


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


# Facts
# -----
# What is seen in files, in the types of `core.analysis`.


@dataclass(frozen=True, slots=True)
class Seen:
    """What one perspective sees in some files."""

    counts: Mapping[str, int] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    files: int = 1
    lines: int = 0
    unparsable: int = 0


def total(perspective: Perspective, shard: Shard, parts: Sequence[Seen]) -> Facts:
    """All of it as one, by the rules by which shards become one."""
    every = [_facts(perspective, Shard(index, len(parts)), seen) for index, seen in enumerate(parts, 1)]
    return replace(merge(every).get(perspective, Facts(perspective)), shard=shard)


def _facts(perspective: Perspective, part: Shard, seen: Seen) -> Facts:
    return Facts(
        perspective=perspective,
        shard=part,
        files=seen.files,
        lines=seen.lines,
        unparsable=seen.unparsable,
        counts=seen.counts,
        severities=Counter(finding.severity for finding in seen.findings),
        findings=tuple(seen.findings),
        hot=_hot(seen.findings),
    )


def _hot(findings: Iterable[Finding]) -> dict[str, tuple[int, int, int]]:
    by_file: defaultdict[str, Counter[Severity]] = defaultdict(Counter)
    for finding in findings:
        if finding.file != REPOSITORY:
            by_file[finding.file][finding.severity] += 1
    return {file: (counts[Severity.HIGH], counts[Severity.MEDIUM], counts[Severity.LOW]) for file, counts in by_file.items()}


# Complexity
# ----------
# Cyclomatic complexity by radon, for every function and method, inner ones and those of local classes included.
#
# In test files an `assert` counts no branch, as radon can do it: a test that checks six things is not complicated.


OVER = 5
"""The end of radon's rank A, "low risk - simple block"."""
FROM = ((40, Severity.HIGH), (20, Severity.MEDIUM), (10, Severity.LOW))
"""Above each a finding: radon's ranks F, D and E, C."""


def look_complexity(module: Module) -> Seen:
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


# Docstrings
# ----------
# Which public objects say what they are: modules with code in them, and the public classes, functions and methods.
#
# What is private by its name, or by the name of its module or package (`_x.py`), promises nothing and is not counted, nor are test
# files. Nor is what takes its docstring from elsewhere: overloads, overrides, and the setter and deleter of a property.


MANY = 10
"""Public objects from which on a file without any docstring is a medium finding."""
_NAMED = 3
_PRIVATE = re.compile(r"(^|/)_(?!_)")
_ELSEWHERE = frozenset({"overload", "override", "setter", "deleter"})


def look_docstrings(module: Module) -> Seen:
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


# Security
# --------
# What bandit says, by its command line: a child process for some files at a time, so that one which hangs or dies can be stopped.
#
# Files are named one by one: bandit looks for a configuration (`.bandit`) only in directories that it is given. Its plugins are
# those of our own environment. Comments `# nosec` count, as bandit means them.


# The empty -x: bandit's own exclusions are pieces of text, and `.git` in it would leave out all of `.github` and `my.gitstuff`.
BANDIT = (sys.executable, "-I", "-W", "ignore", "-m", "bandit", "--quiet", "--format", "json", "--number", "1", "-x", "")
CHUNK_FILES = 150
"""Files a child: its start costs 0.2 s, 150 average files of Django 3 s, and progress is told after each."""
CHUNK_BYTES = 2_000_000

_FOUND = (0, 1)  # 1: there are findings


@dataclass(frozen=True, slots=True)
class Bandit:
    """How to run it in a checkout."""

    root: Path
    timeout_s: float
    argv: Sequence[str] = BANDIT


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file that bandit is to see."""

    source: Source
    lines: int


def survey_security(bandit: Bandit, sources: Sequence[Source], done: Callable[[int], None]) -> list[Seen]:
    """What bandit sees in `sources`, calling `done` with the number of files so far. Raises ToolFailed or ToolMissing."""
    parts, count = [], 0
    for chunk in chunks(sources):
        parts.append(_look_security(bandit, chunk))
        count += len(chunk)
        done(count)
    return parts


def chunks(sources: Sequence[Source]) -> Iterator[list[Source]]:
    """`sources` in order, cut so that no child has more than CHUNK_FILES or, but for a single file, CHUNK_BYTES."""
    chunk: list[Source] = []
    size = 0
    for source in sources:
        if chunk and (len(chunk) == CHUNK_FILES or size + source.size > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(source)
        size += source.size
    if chunk:
        yield chunk


def _look_security(bandit: Bandit, chunk: Sequence[Source]) -> Seen:
    large = sum(source.too_large for source in chunk)
    loaded = [file for source in chunk if not source.too_large and (file := _load(bandit.root, source))]
    report = _report(bandit, [file.source for file in loaded]) if loaded else Report()
    kept = [finding for finding, is_test in report.findings if not (is_test and finding.severity is Severity.LOW)]
    blind = [_not_scanned(source) for source in report.failed if _parses(bandit.root, source)]
    return Seen(
        counts={"issues": len(kept), "ignored": len(report.findings) - len(kept)},
        findings=[*kept, *blind],
        files=len(loaded) + large,
        lines=sum(file.lines for file in loaded),
        unparsable=len(report.failed) + large,
    )


def _load(root: Path, source: Source) -> Loaded | None:
    data = content(root, source)
    return None if data is None else Loaded(source, lines(data))


@dataclass(frozen=True, slots=True)
class Report:
    """bandit's answer: findings, each with whether it is in a test file, and files that it could not look at."""

    findings: Sequence[tuple[Finding, bool]] = ()
    failed: Sequence[Source] = ()


def _report(bandit: Bandit, sources: Sequence[Source]) -> Report:
    by_argument = {f"./{os.fsdecode(source.name)}": source for source in sources}  # `./`: no name is an option
    command = Command("bandit", [*bandit.argv, *by_argument], bandit.timeout_s, codes=_FOUND)
    return read_security(run(command, bandit.root), {os.path.normpath(path): source for path, source in by_argument.items()})


def read_security(answer: bytes, by_path: Mapping[str, Source]) -> Report:
    """bandit's JSON, for the files that were given to it. Raises ToolFailed when it is something else."""
    try:
        shape = json.loads(answer)
        issues = [(by_path[os.path.normpath(issue["filename"])], issue) for issue in shape["results"]]
        return Report(
            findings=[(_finding_security(source, issue), source.is_test) for source, issue in issues],
            failed=[by_path[os.path.normpath(error["filename"])] for error in shape["errors"]],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ToolFailed("bandit's answer was not understood", why=f"{type(error).__name__}: {error}") from error


def _finding_security(source: Source, issue: Mapping[str, Any]) -> Finding:
    known = {"HIGH": Severity.HIGH, "MEDIUM": Severity.MEDIUM}
    severity = known.get(issue["issue_severity"], Severity.LOW)
    line = max(0, int(issue["line_number"]))
    return Finding(Perspective.SECURITY, severity, source.shown, line, str(issue["test_id"]), str(issue["issue_text"]))


def _parses(root: Path, source: Source) -> bool:
    data = content(root, source)
    return data is not None and not isinstance(parse(data), Unparsable)


def _not_scanned(source: Source) -> Finding:
    """A file that others can parse and bandit cannot: a blind spot, which a person should know of."""
    return Finding(Perspective.SECURITY, Severity.MEDIUM, source.shown, 0, "not-scanned", "bandit could not look at this file")


# Structure
# ---------
# How the code is cut into pieces: functions, classes, files. Tests may be long lists and are only measured as files.


FUNCTION_LINES = ((300, Severity.MEDIUM), (100, Severity.LOW))
FILE_LINES = ((3000, Severity.MEDIUM), (1000, Severity.LOW))
METHODS = 40
"""Above these numbers a finding. Judgements: few enough to be read, large enough to be agreed with."""


def look_structure(module: Module) -> Seen:
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


# Tests
# -----
# How much of the code is tests, by the names of files and functions; nothing is run, and nothing is said about coverage.


def look_tests(module: Module) -> Seen:
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


# Parameters
# ----------
# What an analyst is asked to do, from its environment.
#
# ANALYST           the perspective: security, complexity, docstrings, tests or structure ANALYST_SHARD     which part of the files,
# `2/3`; default `1/1` ANALYST_TIMEOUT   seconds that each command it runs may take; default 300 ANALYST_EXCLUDE   patterns of files
# to leave out, one a line: see `Excluded`


DEFAULT_TIMEOUT_S = 300.0


class Excluded:
    """Whether a file is left out.

    A pattern is a shell pattern for the path from the top of the repository. `*` and `?` match a `/` as well, and a pattern that
    matches a directory takes everything below it: `vendor`, `*/migrations`, `docs/*.py`.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._forms = [
            re.compile(fnmatch.translate(stem)) for pattern in patterns if (stem := pattern.strip().removeprefix("./").rstrip("/"))
        ]

    def __call__(self, path: str) -> bool:
        if not self._forms:
            return False
        steps = path.split("/")
        places = ["/".join(steps[:depth]) for depth in range(1, len(steps) + 1)]
        return any(form.match(place) for form in self._forms for place in places)


@dataclass(frozen=True, slots=True)
class Parameters:
    """One analyst's job."""

    perspective: Perspective
    shard: Shard
    timeout_s: float
    excluded: Excluded


def read_parameters(environ: Mapping[str, str]) -> Parameters:
    """Raises UsageError, which names the variable."""
    return Parameters(
        perspective=_perspective(environ.get("ANALYST", "")),
        shard=_shard(environ.get("ANALYST_SHARD") or "1/1"),
        timeout_s=_timeout(environ.get("ANALYST_TIMEOUT") or str(DEFAULT_TIMEOUT_S)),
        excluded=Excluded(environ.get("ANALYST_EXCLUDE", "").split("\n")),
    )


def _perspective(text: str) -> Perspective:
    try:
        return Perspective(text)
    except ValueError:
        raise _off("ANALYST", text, f"it is one of {', '.join(Perspective)}") from None


def _shard(text: str) -> Shard:
    found = re.fullmatch(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", text)
    if not found or int(found[1]) > int(found[2]):
        raise _off("ANALYST_SHARD", text, "it is a part and a number of parts, such as 2/3")
    return Shard(int(found[1]), int(found[2]))


def _timeout(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise _off("ANALYST_TIMEOUT", text, "it is a number of seconds above 0")
    return seconds


def _off(name: str, text: str, why: str) -> UsageError:
    return UsageError(f"{name} is off", on=repr(text[:80]), why=why)


# Progress
# --------
# How far an analyst is, for who watches: short lines, since the last one is shown live.


EVERY_S = 0.5


class Progress:
    """Says `security: 300 of 2,800 files`, at most every EVERY_S seconds, and once more at the end."""

    def __init__(self, name: str, clock: Clock, out: TextIO) -> None:
        self._name, self._clock, self._out = name, clock, out
        self._next = clock.monotonic() + EVERY_S

    def at(self, done: int, total: int) -> None:
        """`done` of `total` files are looked at."""
        now = self._clock.monotonic()
        if done < total and now < self._next:
            return
        self._next = now + EVERY_S
        self.say(f"{done:,} of {total:,} files")

    def say(self, text: str) -> None:
        """One more line, whenever it is."""
        print(f"{self._name}: {text}", file=self._out, flush=True)


# Survey
# ------
# One analyst's work from beginning to end.


Look = Callable[[Module], Seen]
LOOKS: Mapping[Perspective, Look] = {
    Perspective.COMPLEXITY: look_complexity,
    Perspective.DOCSTRINGS: look_docstrings,
    Perspective.TESTS: look_tests,
    Perspective.STRUCTURE: look_structure,
}
"""The perspectives that look at one tree after the other; security leaves that to bandit."""


def survey(job: Parameters, root: Path, progress: Progress) -> Facts:
    """What `job` asks for, of the checkout at `root`. Raises ToolMissing or ToolFailed."""
    every = [source for source in sources.find(root, job.timeout_s) if not job.excluded(source.shown)]
    mine = sources.shard(every, job.shard)
    if job.perspective is Perspective.SECURITY:
        progress.say(f"0 of {len(mine):,} files")  # the first piece takes seconds
        bandit = Bandit(root, job.timeout_s)
        parts = survey_security(bandit, mine, lambda done: progress.at(done, len(mine)))
    else:
        parts = _look_at_each(job.perspective, root, mine, progress)
    if job.perspective is Perspective.TESTS and job.shard.index == 1:  # every shard knows all names; one says it
        parts = [*parts, Seen(findings=repository(every), files=0)]
    if skipped := len(mine) - sum(part.files for part in parts):
        progress.say(f"{skipped:,} listed files are not plain files of this checkout and were left out")
    return total(job.perspective, job.shard, parts)


def _look_at_each(perspective: Perspective, root: Path, mine: Sequence[Source], progress: Progress) -> list[Seen]:
    parts = []
    with without_cycles():
        for done, source in enumerate(mine, 1):
            if seen := _look(perspective, root, source):
                parts.append(seen)
            progress.at(done, len(mine))
    return parts


def _look(perspective: Perspective, root: Path, source: Source) -> Seen | None:
    reports = perspective is Perspective.STRUCTURE
    if source.too_large:
        return Seen(unparsable=1, findings=[too_large(source)] if reports else [])
    data = sources.content(root, source)
    if data is None:
        return None
    lines = sources.lines(data)
    tree = parse(data)
    if isinstance(tree, Unparsable):
        return Seen(lines=lines, unparsable=1, findings=[unparsable(source, tree)] if reports else [])
    try:
        return replace(LOOKS[perspective](Module(source.shown, lines, source.is_test, tree)), lines=lines)
    except RecursionError:
        return Seen(lines=lines, unparsable=1)
