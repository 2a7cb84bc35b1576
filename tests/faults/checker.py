"""The checker that runs after every fault: what must hold whatever was killed. Starts and commits are counted by lines that the agents
themselves wrote, not by our own books."""

from __future__ import annotations

import collections
import hashlib
from dataclasses import dataclass
from pathlib import Path

from supervisor.kernel.states import FINAL
from supervisor.store import journal, queries, sqlite
from tests.support import House, git, shell_task, wait_until


@dataclass(frozen=True)
class Evidence:
    """Files that the agents append to, and what the repository was before them."""

    house: House
    starts: Path
    commits: Path
    before: str

    @classmethod
    def begin(cls, house: House) -> Evidence:
        """Look at the repository before anything runs."""
        root = house.home.root.parent
        return cls(house, root / "starts", root / "commits", untouched(house.repo))

    def task(self, name: str, work: str = "", **keys: object) -> str:
        """A task whose agent says that it started, commits, says what it committed, and does `work`. One in a sandbox writes into `out`."""
        script = (
            'echo "$NIGHTCREW_TASK $NIGHTCREW_EPOCH" >> "${STARTS:-$NIGHTCREW_OUT/starts}"\n'
            f"{work}\n"
            'echo "$NIGHTCREW_EPOCH" > "file-$NAME" && git add -A && git -c user.name=a -c user.email=a@b commit -q -m "$NAME" &&\n'
            'git rev-parse HEAD >> "${COMMITS:-$NIGHTCREW_OUT/commits}"\n'
            'echo leftover > "left-$NAME"\n'
        )
        outside = {} if keys.get("sandbox") else {"STARTS": str(self.starts), "COMMITS": str(self.commits)}
        params = {**outside, "NAME": name}
        return shell_task(name, script, params=params, **keys)

    def started(self) -> list[tuple[str, int]]:
        """(task, epoch) of every start, as the agents wrote them."""
        return [(task, int(epoch)) for task, epoch in (line.split() for line in self._said(self.starts))]

    def _said(self, file: Path) -> list[str]:
        """Lines of all agents, also of those in sandboxes."""
        files = [file, *(self.house.home.root / "runs").glob(f"*/*/*/out/{file.name}")]
        return [line for each in files if each.exists() for line in each.read_text().splitlines()]

    def check(self, acknowledged: int | None = None) -> None:
        """All invariants that this capability has, when every task has ended and a supervisor runs."""
        house = self.house
        wait_until(lambda: not self._unreleased(), "sessions to be released")
        self._check_tasks(acknowledged)
        self._check_starts()
        self._check_refs()
        wait_until(lambda: not house.tagged(), "no tagged process to be left (invariant 6)", 20)
        assert house.sessions() == set(), "sessions differ from unreleased attempts (invariant 7)"
        assert untouched(house.repo) == self.before, "the user's checkout changed (invariant 8)"

    def _unreleased(self) -> list[str]:
        db = sqlite.connect_readonly(self.house.home.ledger)
        try:
            return [f"{row['task']}:{row['epoch']}" for row in db.execute("SELECT task, epoch FROM attempt WHERE state <> 'released'")]
        finally:
            db.close()

    def _check_tasks(self, acknowledged: int | None) -> None:
        views = self.house.tasks()
        assert acknowledged is None or len(views) >= acknowledged, "an acknowledged task is lost"
        assert [view.id for view in views if view.state not in FINAL] == [], "a task did not end (invariant 1)"
        db = sqlite.connect_readonly(self.house.home.ledger)
        try:
            assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            for view in views:
                ends = [entry for entry in journal.journal_of_task(db, view.id) if entry["event"] == "end done"]
                assert len(ends) == (view.state == "done"), f"{view.id} is {view.state} with {len(ends)} ends 'done' (invariant 1)"
        finally:
            db.close()

    def _check_starts(self) -> None:
        twice = [start for start, count in collections.Counter(self.started()).items() if count > 1]
        assert twice == [], "started twice in one epoch (invariant 2)"
        db = sqlite.connect_readonly(self.house.home.ledger)
        try:
            for view in self.house.tasks():
                rows = queries.attempts(db, view.id)
                assert [row["epoch"] for row in rows] == list(range(1, len(rows) + 1)), "epochs have holes"
                assert all(row["cause"] for row in rows[1:]), f"{view.id}: a re-run without a cause (invariant 2)"
                assert {epoch for task, epoch in self.started() if task == view.id} <= {row["epoch"] for row in rows}
        finally:
            db.close()

    def _check_refs(self) -> None:
        reachable = set(git(self.house.repo, "rev-list", "--all").split())
        made = set(self._said(self.commits))
        assert made <= reachable, f"{len(made - reachable)} commits are on no ref (invariant 4)"
        git(self.house.repo, "fsck", "--no-dangling", "--no-progress")
        for view in self.house.tasks():
            if view.state == "done":
                files = git(self.house.repo, "ls-tree", "--name-only", str(view.branch)).split()
                assert f"left-{view.name}" in files, f"{view.id}: the uncommitted file is lost (invariant 4)"


def untouched(repo: Path) -> str:
    """A fingerprint of what is the user's: checkout, HEAD, index content, .git/config and hooks."""
    parts = [git(repo, "rev-parse", "HEAD"), git(repo, "symbolic-ref", "HEAD"), git(repo, "status", "--porcelain", "--ignored")]
    for path in sorted([repo / ".git" / "config", *(repo / ".git" / "hooks").rglob("*")]):
        if path.is_file():
            parts.append(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}")
    return "\n".join(parts)
