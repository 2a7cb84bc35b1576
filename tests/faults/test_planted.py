"""T01: an agent plants links, pipes and names of other branches where nightcrew's git works, ends, fails, is tried again, cleaned.

Nothing outside its own files changes, no git of ours has to be stopped, and the next task of the repository runs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.server.snapshot_kit import commit
from tests.support import House, git, shell_task, wait_until

AGENT = r'''
"""Works, plants what it is told to, and fails; the second time it only works."""
import os, subprocess, sys
what, victim = sys.argv[1:]

def git(*words):
    own = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(own, capture_output=True, text=True, check=True).stdout.strip()

admin, common = git("rev-parse", "--absolute-git-dir"), os.path.realpath(git("rev-parse", "--git-common-dir"))
ref = f"{common}/{git('symbolic-ref', 'HEAD')}"
log = ref.replace("/refs/heads/", "/logs/refs/heads/")
first = os.environ["NIGHTCREW_EPOCH"] == "1"
open("done", "a").write("work\n")
git("add", "done")
git("commit", "-qm", "work")
open("left", "a").write("leftover\n")
os.makedirs("deep/down", exist_ok=True)
open("deep/down/left", "a").write("leftover\n")

def put(path, make):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    make(path)

def link(path): os.symlink(victim, path)
def name_main(path): open(path, "w").write("ref: refs/heads/main\n")

beside = os.path.dirname(ref)
links = [f"{beside}/{name}" for name in (".work.new", "nightcrew.lock")]
links += [log, f"{admin}/logs/HEAD", f"{admin}/index", ".gitignore", "deep/.gitattributes"]
pipes = [
    f"{beside}/.work.new", log, f"{beside}/other", f"{admin}/logs/HEAD", f"{admin}/index", f"{admin}/rebase-merge/head-name",
    ".gitignore", ".gitattributes", "deep/down/.gitignore", "deep/.gitattributes",
]
plans = {
    "links": [(path, link) for path in links],
    "pipes": [(path, os.mkfifo) for path in pipes],
    "pipes for refs": [(ref, os.mkfifo), (f"{admin}/HEAD", os.mkfifo)],
    "main": [(ref, name_main)],
    "object": [(f"{common}/objects/{git('rev-parse', 'HEAD')[:2]}/{git('rev-parse', 'HEAD')[2:]}", os.mkfifo)],
}
for path, make in plans[what] if first else []:
    put(path, make)
sys.exit(3 if first else 0)
'''


@pytest.fixture(scope="module")
def works() -> frozenset[Tier]:
    return frozenset({Tier.NONE, *executors.probe().tiers})


class Crew:
    """A house with something to lose."""

    def __init__(self, house: House, tmp_path: Path) -> None:
        self.house = house
        self.victim = tmp_path / "authorized_keys"
        self.victim.write_text("a key of the person's\n")
        commit(house, "agent.py", AGENT)
        git(house.repo, "branch", "other")
        self.before = self.theirs()

    def theirs(self) -> list[str]:
        dot = self.house.repo / ".git"
        files = [dot / name for name in ("config", "HEAD", "refs/heads/main", "refs/heads/other", "logs/refs/heads/main")]
        return [file.read_text() for file in (self.victim, *files)]

    def unharmed(self) -> bool:
        for argv in (["branch"], ["status"], ["log", "--oneline", "--all"], ["worktree", "list"]):
            subprocess.run(["git", *argv], cwd=self.house.repo, check=True, capture_output=True, timeout=30)
        return self.theirs() == self.before

    def run(self, what: str, tier: int, retries: int = 1) -> None:
        command = [sys.executable, "agent.py", what, str(self.victim)]
        self.house.ok("run", "-d", self.house.plan(shell_task("agent", command, sandbox=tier, retries=retries)))

    def notes(self, epoch: int) -> list[str]:
        directory = self.house.home.attempt(self.house.task("agent").id, epoch)
        return list(json.loads((directory / "result.json").read_text())["notes"])


@pytest.fixture
def crew(house: House, tmp_path: Path) -> Crew:
    return Crew(house, tmp_path)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("tier", [0, 1, 2])
@pytest.mark.parametrize("what", ["links", "pipes", "pipes for refs", "main", "object"])
def test_what_an_agent_plants_harms_nobody(crew: Crew, works: frozenset[Tier], what: str, tier: int) -> None:
    if tier not in works:
        pytest.skip("this host cannot")
    house = crew.house
    house.start_daemon()
    crew.run(what, tier)
    house.wait_final()
    view = house.task("agent")
    assert (view.state, view.epoch) == ("done", 2), f"{view.reason}\n{house.daemon_output()}"
    assert crew.notes(1), "it says what was planted"
    assert git(house.repo, "show", f"{view.branch}:left") == "leftover"
    house.ok("add", "-f", "--id", "next", "true")
    assert crew.unharmed()
    house.run("clean", "--yes", "--discard", view.id)
    assert crew.unharmed()
    assert "was stopped" not in house.daemon_output() + json.dumps([crew.notes(1), crew.notes(2)]), "a git of ours waited"


def test_what_makes_git_wait_all_the_same_costs_one_task(crew: Crew, tmp_path: Path) -> None:
    """It fails with its reason, its files lie where they were, and everything else goes on."""
    house = crew.house
    house.start_daemon(env=hanging_git(tmp_path))
    house.run("add", "-f", "--id", "agent", "echo leftover > left")
    view = house.task("agent")
    assert view.state == "failed" and "not secured: git status was stopped" in view.reason, view.reason
    assert view.worktree is not None and Path(view.worktree, "left").read_text() == "leftover\n"
    house.ok("add", "-f", "--id", "next", "true")
    assert crew.unharmed()


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["killed", "told to leave"])
def test_a_git_that_waits_keeps_no_supervisor_out(crew: Crew, tmp_path: Path, how: str) -> None:
    house, hung = crew.house, tmp_path / "hung"
    daemon = house.start_daemon(env=hanging_git(tmp_path))
    house.ok("add", "--id", "agent", "echo leftover > left")
    wait_until(lambda: hung.read_text().strip(), "a git of ours to wait")
    if how == "killed":
        os.kill(daemon.pid, signal.SIGKILL)
    else:
        house.ok("down")
    daemon.wait()
    wait_until(lambda: not Path("/proc", hung.read_text().strip()).exists(), "it to end with who started it")
    house.start_daemon()
    house.wait_final()
    assert house.state("agent") in ({"done"} if how == "killed" else {"done", "failed"}), (
        "failed: it was given up before the supervisor left"
    )


def hanging_git(tmp_path: Path, pattern: str = '"/agent.1 status "') -> dict[str, str]:
    """An environment whose git does nothing, for ever, when the shell's `pattern` is in its command line: by default when it is asked for
    the status of the task `agent`."""
    real, wrapper = shutil.which("git"), tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    hang = f"echo $$ > {tmp_path}/hung.new; mv {tmp_path}/hung.new {tmp_path}/hung; exec sleep 600"
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *{pattern}*) {hang};; esac\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    return {"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
