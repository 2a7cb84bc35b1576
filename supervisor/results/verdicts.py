"""What a person says of a result: comments to its lines, which its agent gets as its next prompt, and a verdict; both in the ledger."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from supervisor.contract import Tables
from supervisor.kernel import codec
from supervisor.kernel.conversations import Remarks
from supervisor.kernel.errors import Refused, UsageError, one_line
from supervisor.kernel.names import rescue_ref
from supervisor.kernel.spec import Submission
from supervisor.results import candidates
from supervisor.store.sqlite import WriteAccess

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


# In the ledger
# -------------


_SAID = ("task", "tip", "path", "first", "last", "quoted", "text")
"""Columns of what a person said, and of what."""


class Reviews(Tables):
    """The writer's door to them; `Ledger.reviews`."""

    def submitted(self, run: str, submission: Submission, first: str) -> None:  # noqa: ARG002 - the shape of `Tables`
        """Write that the agent of the first task gets the comments to the result that it goes on with. Raises Refused when one of them was
        sent or removed since it was read."""
        if submission.reviewed:
            _sent(self._desk, submission.reviewed, submission.comments, first)

    def text_kept(self, task: str, delivery: int, comments: Collection[int] | None, remarks: Remarks | None) -> None:  # noqa: ARG002
        """Write that the agent gets these comments to its result. Raises Refused when one of them was sent or removed since it was read."""
        if comments is not None:
            _sent(self._desk, task, comments, task, delivery)

    def text_dropped(self, task: str, delivery: int) -> None:
        """Let the comments that the text held wait again."""
        back = "UPDATE review_comment SET sent = NULL, sent_to = '', delivery = NULL WHERE task = ? AND delivery = ?"
        self._desk.db.execute(back, (task, delivery))

    def comment(self, comments: Sequence[Comment]) -> list[int]:
        """Commit comments to one task's result, all of them or none; their numbers. One that waits already, word for word, is not kept
        twice. Raises Refused when more than COMMENTS_MAX would wait."""
        with self._desk.writing():
            numbers = [self._kept(one) for one in comments]
            if comments and len(unsent(self._desk.db, comments[0].task)) > COMMENTS_MAX:
                hint = f"nightcrew review {comments[0].task} --send"
                raise Refused("not kept", on=comments[0].place, why=f"{COMMENTS_MAX} comments wait", kept="those", hint=hint)
        return numbers

    def _kept(self, comment: Comment) -> int:
        values = [getattr(comment, name) for name in _SAID]
        same = " AND ".join(f"{name} = ?" for name in _SAID)
        known = self._desk.db.execute(f"SELECT number FROM review_comment WHERE sent IS NULL AND {same}", values).fetchone()  # noqa: S608 - ours
        if known is not None:
            return int(known["number"])
        marks = ", ".join("?" * len(values))
        made = self._desk.db.execute(
            f"INSERT INTO review_comment ({', '.join(_SAID)}, written) VALUES ({marks}, ?)",  # noqa: S608 - our own columns
            [*values, self._desk.wall()],
        )
        return int(made.lastrowid or 0)

    def drop(self, task: str, number: int) -> bool:
        """Remove a comment that was not sent; whether there was one."""
        with self._desk.writing():
            gone = self._desk.db.execute("DELETE FROM review_comment WHERE task = ? AND number = ? AND sent IS NULL", (task, number))
        return gone.rowcount > 0

    def claims(self, tasks: Collection[str]) -> dict[str, Claims]:
        """As the function."""
        return claims(self._desk.db, tasks)

    def decide(self, decision: Decision, epoch: int) -> None:
        """Commit a verdict, in the place of an older one."""
        with self._desk.writing():
            self._desk.db.execute(
                "INSERT OR REPLACE INTO verdict (task, verdict, tip, why, ref, decided) VALUES (?, ?, ?, ?, ?, ?)",
                (decision.task, decision.verdict, decision.tip, decision.why, decision.ref, self._desk.wall()),
            )
            data = {"commit": decision.tip, "why": decision.why, **({"ref": decision.ref} if decision.ref else {})}
            self._desk.journal(decision.task, epoch, f"review {decision.verdict}", data)

    def undo(self, task: str, epoch: int) -> bool:
        """Take a verdict back; whether there was one."""
        with self._desk.writing():
            gone = self._desk.db.execute("DELETE FROM verdict WHERE task = ?", (task,)).rowcount > 0
            if gone:
                self._desk.journal(task, epoch, "review taken back", {})
        return gone


def _sent(desk: WriteAccess, task: str, numbers: Collection[int], to: str, delivery: int | None = None) -> None:
    changed = desk.db.execute(
        """UPDATE review_comment SET sent = ?, sent_to = ?, delivery = ?
           WHERE task = ? AND sent IS NULL AND number IN (SELECT value FROM json_each(?))""",
        (desk.wall(), to, delivery, task, json.dumps(list(numbers))),
    )
    if changed.rowcount != len(numbers):
        why = "a comment was sent or removed meanwhile"
        raise Refused("not sent", on=task, why=why, kept="the comments that wait", hint=f"nightcrew review {task}")
    desk.journal(task, None, "reviewed", {"comments": len(numbers), "to": to})


def decision(db: sqlite3.Connection, task: str) -> Decision | None:
    """The verdict on a task's result, if any."""
    row = db.execute("SELECT * FROM verdict WHERE task = ?", (task,)).fetchone()
    return None if row is None else _decision(row)


def decisions(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, Decision]:
    """Those on these tasks."""
    asked = json.dumps(list(tasks))
    rows = db.execute("SELECT v.* FROM json_each(?) j JOIN verdict v ON v.task = j.value", (asked,)).fetchall()
    return {row["task"]: _decision(row) for row in rows}


def claims(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, Claims]:
    """What speaks of these tasks' results when their worktrees may be removed; only those of which something does."""
    found = {
        task: Claims(tip, "another candidate was chosen, or none", rescue_ref(task, epoch))
        for task, (epoch, tip) in candidates.lost(db, tasks).items()
    }
    for task, one in decisions(db, tasks).items():
        if one.verdict is Verdict.REJECTED:
            found[task] = Claims(one.tip, "you rejected it", one.ref)
    for task, why in _held(db, tasks).items():
        found[task] = replace(found.get(task, NO_CLAIMS), held=why)
    return found


def _held(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, str]:
    sql = """SELECT j.value AS task, 'it is in the train ' || t.id AS why FROM json_each(?1) j
               JOIN train_entry e ON e.task = j.value JOIN train t ON t.id = e.train WHERE t.state IN ('running', 'moving')
             UNION SELECT j.value, 'it has an open pull request: ' || p.link FROM json_each(?1) j
               JOIN pull_task k ON k.task = j.value JOIN pull_request p ON p.id = k.pull WHERE p.state = 'open'"""
    return {row["task"]: str(row["why"]) for row in db.execute(sql, (json.dumps(list(tasks)),))}


def comments(db: sqlite3.Connection, task: str) -> list[Comment]:
    """All comments to a task's result, oldest first."""
    rows = db.execute("SELECT * FROM review_comment WHERE task = ? ORDER BY number", (task,)).fetchall()
    return [Comment(**dict(row)) for row in rows]


def unsent(db: sqlite3.Connection, task: str) -> list[Comment]:
    """Those that its agent has not got."""
    return [one for one in comments(db, task) if one.sent is None]


def _decision(row: sqlite3.Row) -> Decision:
    return codec.load(Decision, dict(row))
