"""What tests of snapshots share: a repository that has dependencies to make, and a look at what is left behind."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from supervisor.kernel.snapshots import Snapshot
from supervisor.snapshots import rows as snapshots_rows
from supervisor.store import sqlite
from tests.support import House, git, mounted_below, wait_until

SETUP = "mkdir -p .venv && echo dependency > .venv/module && echo made the dependencies"
VERIFY = "test -f .venv/module"
SHOW = "cat .venv/module; git status --porcelain"


def with_dependencies(house: House) -> House:
    """Its repository gets a lock file, and ignores what set-up makes."""
    (house.repo / ".gitignore").write_text(".venv/\n.env.local\nsecrets/\n")
    commit(house, "uv.lock", "version 1\n")
    return house


def commit(house: House, name: str, text: str) -> str:
    """A file on the person's branch; the commit."""
    (house.repo / name).write_text(text)
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-q", "-m", f"change {name}")
    return git(house.repo, "rev-parse", "HEAD")


def create(house: House, name: str = "deps", *more: str) -> str:
    """`nightcrew snapshot create` with a set-up that works; its id without the project."""
    return house.ok("snapshot", "create", name, "--setup", SETUP, "--verify", VERIFY, *more).strip()


def run(house: House, command: str, *words: str, name: str = "agent") -> str:
    """A task that starts from `deps`, to its end; what it printed."""
    house.ok("add", "-f", "--snapshot", "deps", "--id", name, *words, command)
    return house.ok("logs", name)


def rows(house: House) -> list[Snapshot]:
    """What the ledger holds, by name, the newest of a name first."""
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        return list(snapshots_rows.every(db))


def states(house: House, name: str = "deps") -> list[str]:
    """The states of all of that name, the newest first; nothing before there is a ledger."""
    return [str(row.state) for row in rows(house) if row.spec.name == name] if house.home.ledger.exists() else []


def place(house: House, row: Snapshot) -> Path:
    """Where its files are."""
    return house.home.root / "projects" / row.project / "snapshots" / row.id.partition("/")[2]


def files_of_snapshots(house: House) -> list[str]:
    """What lies beside the logs where snapshots lie."""
    return [path.name for path in house.home.root.glob("projects/*/snapshots/*") if path.suffix != ".log"]


def assert_nothing_left(house: House) -> None:
    """No worktree, no record of one, no branch, no files of a snapshot, no process, no mount."""
    assert git(house.repo, "worktree", "list", "--porcelain").count("worktree ") == 1
    assert list((house.repo / ".git").glob("worktrees/*")) == []
    assert git(house.repo, "for-each-ref", "--format=%(refname)", "refs/heads").split() == ["refs/heads/main"]
    assert git(house.repo, "status", "--porcelain") == ""
    assert files_of_snapshots(house) == []
    wait_until(lambda: not house.tagged(), "what set-up started to be ended")
    assert mounted_below(house.home.root) == []


def unmounted(house: House) -> None:
    """Every mount of the house gone, as after a reboot."""
    for path in mounted_below(house.home.root):
        subprocess.run(["umount", "-l", path], check=True)
    assert mounted_below(house.home.root) == []
