"""What bandit says, by its command line: a child process for some files at a time, so that one which hangs or dies can be stopped.

Files are named one by one: bandit looks for a configuration (`.bandit`) only in directories that it is given. Its plugins are those of our
own environment. Comments `# nosec` count, as bandit means them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.analysts.commands import Command, run
from agents.analysts.facts import Seen
from agents.analysts.parsing import Unparsable, parse
from agents.analysts.sources import Source, content, lines
from supervisor.core.analysis.types import Finding, Perspective, Severity
from supervisor.core.errors import ToolFailed

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


def survey(bandit: Bandit, sources: Sequence[Source], done: Callable[[int], None]) -> list[Seen]:
    """What bandit sees in `sources`, calling `done` with the number of files so far. Raises ToolFailed or ToolMissing."""
    parts, count = [], 0
    for chunk in chunks(sources):
        parts.append(_look(bandit, chunk))
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


def _look(bandit: Bandit, chunk: Sequence[Source]) -> Seen:
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
    return read(run(command, bandit.root), {os.path.normpath(path): source for path, source in by_argument.items()})


def read(answer: bytes, by_path: Mapping[str, Source]) -> Report:
    """bandit's JSON, for the files that were given to it. Raises ToolFailed when it is something else."""
    try:
        shape = json.loads(answer)
        issues = [(by_path[os.path.normpath(issue["filename"])], issue) for issue in shape["results"]]
        return Report(
            findings=[(_finding(source, issue), source.is_test) for source, issue in issues],
            failed=[by_path[os.path.normpath(error["filename"])] for error in shape["errors"]],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ToolFailed("bandit's answer was not understood", why=f"{type(error).__name__}: {error}") from error


def _finding(source: Source, issue: Mapping[str, Any]) -> Finding:
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
