"""T05: agents rewrite their history, then fail, lose their runner, or run out of time: the retry starts, and each tip is kept."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from supervisor.kernel import records
from tests.support import House, git, plan_of, shell_task, signal_if_there, wait_until

AGENT = """
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
ours=$(git symbolic-ref --short HEAD) base=$(git rev-parse HEAD)
tip() { git rev-parse HEAD >> tips; }
work() { echo "$1" >> "$1" && git add "$1" && git commit -qm "$NIGHTCREW_TASK $1" && tip; }
test "$NIGHTCREW_EPOCH" = 1 || { echo again > again; exit 0; }
work one; work two; work three
"""
WAYS = {
    "amend": "git commit -q --amend -m better; tip",
    "reset": "git reset -q --hard HEAD~1; tip",
    "rebase": "GIT_SEQUENCE_EDITOR='sed -i 2d' git rebase -q -i $base; tip",
    "stopped": "GIT_SEQUENCE_EDITOR='sed -i 1abreak' git rebase -q -i $base; tip",
    "force": "git switch -q --detach $base; work other; git branch -qf $ours HEAD; work more; git branch -qf $ours $base",
    "branch": "git switch -q -c ${ours%/*}/theirs $base; work other; git commit -q --amend -m better; tip",
    "detached": "git switch -q --detach HEAD~1; work other; git commit -q --amend -m better; tip",
}
ENDS = {"fails": "exit 3", "killed": "sleep 600", "late": "sleep 600"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("end", ENDS)
def test_a_retry_starts_and_every_tip_is_kept(house: House, end: str) -> None:
    house.start_daemon()
    keys: dict[str, object] = {"retries": 1, **({"timeout": "8s"} if end == "late" else {})}
    scripts = {name: f"{AGENT}{way}\necho leftover > left\ntouch ready\n{ENDS[end]}" for name, way in WAYS.items()}
    house.ok("run", "-d", house.plan(plan_of([shell_task(name, text, **keys) for name, text in scripts.items()])))
    if end == "killed":
        kill_each_when_ready(house)
    house.wait_final()
    seen = {name: tips(house, name) for name in WAYS}
    for name in WAYS:
        view = house.task(name)
        assert (view.state, view.epoch) == ("done", 2), f"{name}: {view.reason}"
        assert seen[name] and not seen[name] - kept(house, name), f"{name}: {notes(house, name)}"
        assert git(house.repo, "show", f"{view.branch}:again") == "again"
        assert "again" in house.ok("diff", view.id)
    house.ok("take", house.task("amend").id)
    house.run("clean", "--yes", "--discard", *[house.task(name).id for name in WAYS])
    assert not [path for name in WAYS for path in worktrees(house, name, "*")], "clean removes them all"
    git(house.repo, "reflog", "expire", "--expire=now", "--all")
    git(house.repo, "gc", "-q", "--prune=now")
    for name in WAYS:
        assert not seen[name] - kept(house, name), name


def kill_each_when_ready(house: House) -> None:
    for name in WAYS:
        wait_until(functools.partial(is_ready, house, name), f"{name} to work")
        started = records.parse_started((house.home.attempt(house.task(name).id, 1) / "started.json").read_text())
        assert started is not None
        signal_if_there(started.identity.pid)


def is_ready(house: House, name: str) -> bool:
    return any((path / "ready").exists() for path in worktrees(house, name, "1"))


def worktrees(house: House, name: str, epoch: str) -> list[Path]:
    return list(house.home.worktrees.glob(f"*/*/{name}.{epoch}"))


def tips(house: House, name: str) -> set[str]:
    """What the first attempt wrote down."""
    (worktree,) = worktrees(house, name, "1")
    return set((worktree / "tips").read_text().split())


def kept(house: House, name: str) -> set[str]:
    return set(git(house.repo, "rev-list", f"--glob=refs/nightcrew/rescue/{house.task(name).id}").split())


def notes(house: House, name: str) -> list[str]:
    directory = house.home.attempt(house.task(name).id, 1)
    return list(json.loads((directory / "result.json").read_text())["notes"])
