"""What a person says of a result: comments to its lines, which its agent gets as its next prompt, and a verdict. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from supervisor.kernel.errors import UsageError, one_line

TEXT_MAX = 16 * 2**10
"""Bytes of one comment."""
COMMENTS_MAX = 200
"""That wait to be sent, of one task."""
QUOTED_MAX = 40
"""Lines of the file that a comment quotes."""
QUOTED_WIDE = 1000
"""Characters of each."""
_PLACE = re.compile(r"(.+):(\d{1,7})(?:-(\d{1,7}))?$", re.DOTALL)


class Verdict(StrEnum):
    """What a person decided."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict on one task's result. It holds for the commit that was looked at."""

    task: str
    verdict: Verdict
    tip: str
    why: str = ""
    ref: str = ""
    """What keeps a rejected result."""
    decided: float = 0.0
    """Seconds since 1970."""

    def holds(self, tip: str) -> bool:
        """Whether it was said of this commit."""
        return self.tip == tip

    def rejects(self, tip: str) -> bool:
        """Whether this commit is not to be merged."""
        return self.verdict is Verdict.REJECTED and self.holds(tip)


@dataclass(frozen=True, slots=True)
class Claims:
    """What else speaks of a result when its worktree may be removed."""

    unwanted: str = ""
    """The commit of it that need not be merged: a person rejected it, or another candidate was chosen."""
    why: str = ""
    """Why it need not."""
    ref: str = ""
    """What keeps that commit."""
    held: str = ""
    """Why it stays, whatever git says; empty: no reason."""


NO_CLAIMS = Claims()


@dataclass(frozen=True, slots=True)
class Comment:
    """Words about lines of one file."""

    number: int
    task: str
    tip: str
    path: str
    first: int
    last: int
    quoted: str
    text: str
    written: float = 0.0
    sent: float | None = None
    sent_to: str = ""
    delivery: int | None = None
    """The text that holds it, where its agent was at work as it was sent."""

    @property
    def place(self) -> str:
        """`src/a.py:12-15`."""
        return f"{self.path}:{self.first}" + (f"-{self.last}" if self.last != self.first else "")


def named(path: str) -> str:
    """A name of a file, `os.fsdecode` text, as a comment keeps it: bytes that are no UTF-8 are escapes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def place(text: str) -> tuple[str, int, int]:
    """File, first and last line of `FILE:LINE` or `FILE:LINE-LINE`. Raises UsageError."""
    match = _PLACE.match(text)
    first = int(match.group(2)) if match else 0
    last = int(match.group(3) or first) if match else 0
    if match is None or not 1 <= first <= last:
        raise UsageError("not a place", on=text, why="FILE:LINE or FILE:LINE-LINE is", hint="nightcrew review NAME shows the numbers")
    return match.group(1), first, last


def checked(text: str) -> str:
    """The words of a comment, without what is around them. Raises UsageError."""
    words = text.encode("utf-8", "replace").decode().strip()
    if not words or "\0" in words:
        raise UsageError("there is no comment", why="it is empty" if not words else "it holds a NUL character")
    if len(words.encode()) > TEXT_MAX:
        raise UsageError("the comment is too long", why=f"at most {TEXT_MAX} bytes")
    return words


def quoted(lines: Sequence[str], first: int, last: int) -> str:
    """These lines of a file, at most QUOTED_MAX of them and QUOTED_WIDE of each, with what drives a terminal as escapes. Raises UsageError
    when the file has no such lines."""
    if last > len(lines):
        raise UsageError("no such line", on=str(last), why=f"the file has {len(lines)}")
    shown = (line.removesuffix("\r")[:QUOTED_WIDE].split("\t") for line in lines[first - 1 : last][:QUOTED_MAX])
    return "\n".join("\t".join(map(one_line, parts)) for parts in shown)


def prompt(task: str, comments: Sequence[Comment], more: str) -> str:
    """What the agent is told: every comment with its place and the lines that it is about."""
    head = f"[nightcrew] A person has looked at your work on {task}"
    parts = [f"{head} and asks for more:" if not comments else f"{head} and has {_count(len(comments))}:"]
    for number, comment in enumerate(comments, start=1):
        shown = "\n".join(f"    > {line}" for line in comment.quoted.split("\n"))
        parts.append(f"{number}. {one_line(comment.path)}, {_lines(comment)}:\n{shown}\n{comment.text}")
    if more.strip():
        parts.append(more.strip())
    if comments:
        parts.append("Line numbers are those of the files as you left them. Change what is asked for, run the tests, and commit.")
    return "\n\n".join(parts)


def _count(number: int) -> str:
    return "a comment" if number == 1 else f"{number} comments"


def _lines(comment: Comment) -> str:
    return f"line {comment.first}" if comment.first == comment.last else f"lines {comment.first} to {comment.last}"


def key(task: str, text: str) -> str:
    """Of the submission by which an agent that has ended gets it: the same words to the same task are one."""
    words = "\0".join((task, text)).encode("utf-8", "replace")
    return f"review/{hashlib.sha256(words).hexdigest()[:32]}"
