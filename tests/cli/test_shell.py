"""A confined agent's own repository, as a person meets it: commits that arrive while it works, and `nightcrew shell`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import House, git, plan_of, shell_task, wait_until

IDENTITY = "git config user.name a; git config user.email a@b"
HOLD = "while [ ! -e go ]; do sleep 0.05; done"


@pytest.fixture
def working(house: House) -> House:
    """`agent` has committed once, stashed something, made a branch, and waits for a file `go`; tier 1."""
    script = f"{IDENTITY}; echo 1 > one; git add -A; git commit -qm one; echo 2 > two; git stash -qu; git branch mine; touch ready; {HOLD}"
    house.start_daemon()
    task = shell_task("agent", f"{script}; git commit -q --amend -m again; sleep 600", sandbox=1)
    house.ok("run", "-d", house.plan(plan_of([task])))
    wait_until(lambda: house.task("agent").worktree is not None and (worktree(house) / "ready").exists(), "it to have committed")
    return house


def worktree(house: House) -> Path:
    where = house.task("agent").worktree
    assert where is not None
    return Path(where)


def branch(house: House) -> str:
    return f"nightcrew/{house.task('agent').id}/work"


def test_commits_arrive_while_the_agent_works_and_status_by_hand_is_true(working: House) -> None:
    wait_until(lambda: git(working.repo, "log", "-1", "--format=%s", branch(working)) == "one", "its commit to arrive")
    here = worktree(working)
    wait_until(lambda: git(here, "status", "--short") == "?? ready", "the index to follow")
    first = git(working.repo, "rev-parse", branch(working))
    (here / "go").touch()
    wait_until(lambda: git(working.repo, "log", "-1", "--format=%s", branch(working)) == "again", "the amended commit to arrive")
    assert first in git(working.repo, "for-each-ref", "--contains", first, "--format=%(objectname)").split()
    assert "mine" not in git(working.repo, "branch", "--list")
    assert git(working.repo, "fsck") == ""


def test_a_shell_sees_what_the_agent_sees(working: House) -> None:
    where = str(worktree(working))
    said = working.ok(
        "shell", "agent", "--", "sh", "-c", "pwd; git branch --list mine; git stash list; echo $NIGHTCREW_TASK; ls /tmp | wc -l"
    )
    assert said.splitlines()[0] == where and "mine" in said and "stash@{0}" in said and working.task("agent").id in said
    before = (working.repo / "README").read_text()
    working.run("shell", "agent", "--", "sh", "-c", f"echo x >> {working.repo}/README; git config a.b c; git tag mine")
    assert (working.repo / "README").read_text() == before and git(working.repo, "tag", "--list") == ""
    assert working.run("shell", "agent", "--", "sh", "-c", "exit 7").returncode == 7


def test_a_shell_after_the_end_and_where_there_is_none(working: House) -> None:
    working.ok("kill", "agent")
    wait_until(lambda: working.state("agent") == "cancelled", "it to end")
    assert "one" in working.ok("shell", "agent", "--", "git", "log", "--oneline")
    working.ok("clean", "--yes", "--discard", "agent")
    gone = working.run("shell", "agent", "--", "true")
    assert gone.returncode == 4 and "its worktree was removed" in gone.stderr


def test_what_it_stashed_and_branched_is_kept_when_it_ends(working: House) -> None:
    working.ok("kill", "agent")
    wait_until(lambda: working.state("agent") == "cancelled", "it to end")
    result = json.loads(working.ok("status", "--json", "agent"))["tasks"][0]["result"]
    kept = git(working.repo, "log", "--format=%s", "--all").splitlines()
    assert any(line.startswith("WIP on") for line in kept) and result["rescue"] is not None


def test_an_agent_sees_the_branches_of_the_tasks_it_comes_after_and_no_other_of_ours(house: House) -> None:
    house.start_daemon()
    first = shell_task("first", f"{IDENTITY}; echo 1 > one; git add -A; git commit -qm one", sandbox=1)
    script = "git merge -q nightcrew/$NIGHTCREW_RUN/first/work && git branch --format='%(refname:short)' && test -e one"
    after = shell_task("after", script, after=["first"], sandbox=1)
    house.ok("run", house.plan(plan_of([first, shell_task("other", "true", sandbox=1), after])))
    run = house.task("after").run
    assert house.ok("logs", "after").split() == ["main", f"nightcrew/{run}/after/work", f"nightcrew/{run}/first/work"]
