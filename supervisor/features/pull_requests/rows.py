"""Pull requests, consents to push and what came back, in the ledger."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from typing import Any

from supervisor.contract import Tables
from supervisor.features.pull_requests.rules import PullRequest
from supervisor.kernel import codec
from supervisor.kernel.conversations import Remarks
from supervisor.kernel.errors import Refused
from supervisor.kernel.spec import Submission
from supervisor.store.sqlite import WriteAccess

_FACTS = ("tool", "number", "link", "state", "draft", "base")


class PullRequests(Tables):
    """The writer's door to them; `Ledger.pulls`."""

    def submitted(self, run: str, submission: Submission, first: str) -> None:  # noqa: ARG002 - the shape of `Tables`
        """Write that the agent of the first task gets the remarks of a pull request, which is that task's from now on. Raises Refused when
        an agent has one of them by now."""
        if submission.pull:
            _given(self._desk, submission.pull, submission.remarks, first)

    def text_kept(self, task: str, delivery: int, comments: Collection[int] | None, remarks: Remarks | None) -> None:  # noqa: ARG002
        """Write that the agent gets these remarks. Raises Refused when an agent has one of them by now."""
        if remarks is not None:
            _given(self._desk, remarks.pull, remarks.keys, task, delivery)

    def text_dropped(self, task: str, delivery: int) -> None:  # noqa: ARG002 - the shape of `Tables`
        """Let the remarks that the text held be new again."""
        self._desk.db.execute("DELETE FROM pull_remark WHERE delivery = ?", (delivery,))

    def consent(self, project: str, remote: str) -> None:
        """Commit that the person lets us push to this URL. Idempotent."""
        with self._desk.writing():
            self._desk.db.execute("INSERT OR IGNORE INTO push_consent VALUES (?, ?, ?)", (project, remote, self._desk.wall()))
            self._desk.journal(None, None, "push consent", {"project": project, "remote": remote})

    def intend(self, task: str, epoch: int, facts: Mapping[str, str]) -> int:
        """Commit that a commit is about to be pushed, or with an empty one that it is there; the id of the pull request. `facts`:
        `project remote branch base commit`."""
        with self._desk.writing():
            row = self._desk.db.execute(
                """INSERT INTO pull_request (task, project, remote, branch, base, intent, changed)
                   VALUES (:task, :project, :remote, :branch, :base, :commit, :now)
                   ON CONFLICT (remote, branch) DO UPDATE SET base = :base, changed = :now,
                       task = CASE :commit WHEN '' THEN task ELSE :task END,
                       intent = CASE :commit WHEN '' THEN intent ELSE :commit END
                   RETURNING id""",
                {**facts, "task": task, "now": self._desk.wall()},
            ).fetchone()
            self._desk.db.execute("INSERT OR IGNORE INTO pull_task VALUES (?, ?)", (task, row[0]))
            shown = {name: facts[name] for name in ("remote", "branch", "commit")}
            if facts["commit"]:
                self._desk.journal(task, epoch, "push begun", shown)
        return int(row[0])

    def pushed(self, pull: int, task: str, epoch: int, commit: str) -> None:
        """Commit that the branch is at this commit, by us."""
        with self._desk.writing():
            self._desk.db.execute("UPDATE pull_request SET pushed = ?, changed = ? WHERE id = ?", (commit, self._desk.wall(), pull))
            self._desk.journal(task, epoch, "pushed", {"commit": commit})

    def noted(self, pull: int, task: str, epoch: int, facts: Mapping[str, Any]) -> None:
        """Commit what its host says of it: `tool number link state draft base`."""
        with self._desk.writing():
            self._desk.db.execute(
                f"UPDATE pull_request SET {', '.join(f'{name} = :{name}' for name in _FACTS)}, changed = :now WHERE id = :id",  # noqa: S608
                {**{name: facts[name] for name in _FACTS}, "now": self._desk.wall(), "id": pull},
            )
            self._desk.journal(task, epoch, "pull request", {"link": facts["link"], "state": facts["state"] or "none"})


def _given(desk: WriteAccess, pull: int, keys: Collection[str], to: str, delivery: int | None = None) -> None:
    now = desk.wall()
    made = desk.db.execute(
        "INSERT OR IGNORE INTO pull_remark SELECT ?, value, ?, ?, ? FROM json_each(?)", (pull, to, now, delivery, json.dumps(list(keys)))
    )
    if made.rowcount != len(keys):
        raise Refused(
            "not sent", on=to, why="an agent was given one of the remarks meanwhile", kept="all of them", hint="nightcrew pr sync again"
        )
    desk.db.execute("INSERT OR IGNORE INTO pull_task VALUES (?, ?)", (to, pull))
    desk.db.execute("UPDATE pull_request SET task = ?, rounds = rounds + 1, changed = ? WHERE id = ?", (to, now, pull))
    desk.journal(to, None, "pull request answered", {"remarks": made.rowcount})


def may_push(db: sqlite3.Connection, project: str, remote: str) -> bool:
    """Whether the person has agreed to pushes to this URL from this repository."""
    return db.execute("SELECT 1 FROM push_consent WHERE project = ? AND remote = ?", (project, remote)).fetchone() is not None


def of_task(db: sqlite3.Connection, task: str) -> PullRequest | None:
    """The newest pull request that holds its work, or held it before another task went on with that."""
    row = db.execute("SELECT * FROM pull_request WHERE id = (SELECT max(pull) FROM pull_task WHERE task = ?)", (task,)).fetchone()
    return None if row is None else _pull(row)


def at(db: sqlite3.Connection, remote: str, branch: str) -> PullRequest | None:
    """That of a branch of a remote."""
    row = db.execute("SELECT * FROM pull_request WHERE remote = ? AND branch = ?", (remote, branch)).fetchone()
    return None if row is None else _pull(row)


def of_project(db: sqlite3.Connection, project: str, limit: int) -> list[PullRequest]:
    """The newest first."""
    return [_pull(row) for row in db.execute("SELECT * FROM pull_request WHERE project = ? ORDER BY id DESC LIMIT ?", (project, limit))]


def known_remarks(db: sqlite3.Connection, pull: int) -> frozenset[str]:
    """Those that an agent has got."""
    return frozenset(row[0] for row in db.execute("SELECT key FROM pull_remark WHERE pull = ?", (pull,)))


def _pull(row: sqlite3.Row) -> PullRequest:
    return codec.load(PullRequest, dict(row))
