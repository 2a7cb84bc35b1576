"""The difference of a result as a text in which a person writes comments below lines, and what was written. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from supervisor.core.errors import UsageError, one_line
from supervisor.core.file_diffs import FileDiff

_FILE, _NUMBERED = re.compile(r"= (\d{1,7}) "), re.compile(r" {0,6}(\d{1,7}) [-+ ] ")
_HEAD = (
    "# Write comments below the lines that they are about; each of their lines begins with a #.",
    "# Lines that went have no number: write below one that has. Save and leave; without a comment nothing happens.",
)


def sheet(diffs: Sequence[FileDiff]) -> str:
    """Every file with its hunks; no line of it begins with a # but those of the head."""
    return "\n".join([*_HEAD, *(row for number, one in enumerate(diffs) for row in _file(number, one)), ""])


def _file(number: int, one: FileDiff) -> Iterator[str]:
    yield ""
    yield f"= {number} {one_line(one.path)}"
    end = "\r" if one.crlf else ""
    for hunk in one.hunks:
        yield "  ..."
        for _, new, sign, text in hunk.numbered():
            yield f"{new or '':>6} {sign} {one_line(text.removesuffix(end).expandtabs(4))}"


def written(text: str, diffs: Sequence[FileDiff]) -> list[tuple[str, int, str]]:
    """The file, the line and the words of each comment. Raises UsageError for one that stands below no line."""
    return list(_comments([row for row in text.splitlines() if row.rstrip() not in _HEAD], diffs))


def _comments(rows: Sequence[str], diffs: Sequence[FileDiff]) -> Iterator[tuple[str, int, str]]:
    path, line, words = "", 0, list[str]()
    for row in [*rows, ""]:
        if row.startswith("#"):
            words.append(row.removeprefix("#").removeprefix(" ").rstrip())
            continue
        if any(words):
            if not path or not line:
                first = next(filter(None, words))
                raise UsageError("a comment stands below no line", on=first, why="each is about the numbered line above it")
            yield path, line, "\n".join(words)
        words = []
        if file := _FILE.match(row):
            path, line = diffs[int(file.group(1))].path if int(file.group(1)) < len(diffs) else "", 0
        elif numbered := _NUMBERED.match(row):
            line = int(numbered.group(1))
