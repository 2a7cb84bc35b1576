"""What an agent does to the commits that it made: each history, by plain git."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from worktrees.environments import Environment

if TYPE_CHECKING:
    from tests.worktrees.conftest import World


class Agent:
    """Works by plain git and writes down every commit that it ever made."""

    def __init__(self, world: World, env: Environment) -> None:
        self.world = world
        self.env = env
        self.tips: list[str] = []

    def git(self, *argv: str, ok: bool = True) -> None:
        self.world.sh(self.env.path, *argv, ok=ok)
        self.tips.append(self.world.sh(self.env.path, "rev-parse", "HEAD"))

    def commit(self, name: str, text: str = "one\n") -> str:
        self.tips.append(self.world.commit(self.env.path, name, text))
        return self.tips[-1]

    def own(self, path: Path) -> Path:
        return self.world.own(self.env, path)

    def script(self, name: str, text: str) -> str:
        file = self.world.tmp / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return str(file)


def amend(agent: Agent) -> None:
    agent.commit("a.txt")
    agent.git("commit", "-q", "--amend", "-m", "better")


def amend_twice(agent: Agent) -> None:
    amend(agent)
    agent.git("commit", "-q", "--amend", "-m", "better still")


def reset(agent: Agent) -> None:
    agent.commit("a.txt")
    agent.commit("b.txt")
    agent.git("reset", "-q", "--hard", "HEAD~1")


def reset_to_the_base(agent: Agent) -> None:
    agent.commit("a.txt")
    agent.git("reset", "-q", "--hard", "HEAD~1")


def rebase(agent: Agent) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        agent.commit(name)
    editor = agent.script("editor", "sed -i -e 2d -e 's/^pick/reword/' \"$1\"")
    agent.git("-c", f"sequence.editor={editor}", "-c", "core.editor=true", "rebase", "-q", "-i", agent.env.base)


def rebase_that_stopped(agent: Agent) -> None:
    for text in ("one\n", "two\n", "three\n"):
        agent.commit("a.txt", text)
    editor = agent.script("editor", 'sed -i 2d "$1"')
    agent.git("-c", f"sequence.editor={editor}", "rebase", "-q", "-i", agent.env.base, ok=False)
    assert agent.own(agent.env.admin_dir / "rebase-merge").is_dir()


def rebase_that_holds_unsaved_work(agent: Agent) -> None:
    """git keeps it in a commit that only a file of the rebase names."""
    rebase_that = agent.script("editor", "sed -i '1i break' \"$1\"")
    agent.commit("a.txt")
    (agent.env.path / "f0.txt").write_text("not committed\n")
    agent.git("-c", f"sequence.editor={rebase_that}", "rebase", "-q", "-i", "--autostash", agent.env.base)
    agent.tips.append(agent.own(agent.env.admin_dir / "rebase-merge" / "autostash").read_text().strip())


def branch_by_force(agent: Agent) -> None:
    agent.commit("a.txt")
    agent.git("switch", "-q", "--detach", agent.env.base)
    agent.commit("b.txt")
    agent.git("branch", "-qf", agent.env.branch, "HEAD")
    agent.commit("c.txt")
    agent.git("branch", "-qf", agent.env.branch, agent.env.base)


def another_branch(agent: Agent) -> None:
    agent.commit("a.txt")
    agent.git("switch", "-q", "-c", "theirs", agent.env.base)
    agent.commit("b.txt")
    agent.git("commit", "-q", "--amend", "-m", "better")


def renamed(agent: Agent) -> None:
    agent.commit("a.txt")
    agent.git("branch", "-qm", "theirs")
    agent.git("commit", "-q", "--amend", "-m", "better")


def detached(agent: Agent) -> None:
    agent.commit("a.txt")
    agent.git("switch", "-q", "--detach")
    agent.commit("b.txt")
    agent.git("commit", "-q", "--amend", "-m", "better")


def detached_before_its_work(agent: Agent) -> None:
    agent.commit("a.txt")
    agent.git("switch", "-q", "--detach", agent.env.base)


def deleted(agent: Agent) -> None:
    agent.commit("a.txt")
    agent.git("switch", "-q", "--detach", agent.env.base)
    agent.git("branch", "-qD", agent.env.branch)


def refs_of_the_worktree(agent: Agent) -> None:
    """`git worktree remove` deletes them."""
    agent.commit("a.txt")
    agent.git("update-ref", "refs/worktree/mine", "HEAD")
    agent.git("update-ref", "refs/bisect/deep/bad", "HEAD")
    agent.git("reset", "-q", "--hard", "HEAD~1")
    agent.own(agent.env.admin_dir / "logs" / "HEAD").unlink()
    agent.own(agent.env.repo.common_dir / "logs" / agent.env.branch_ref).unlink()
    agent.git("update-ref", "-d", "ORIG_HEAD")


HISTORIES = [
    amend, amend_twice, reset, reset_to_the_base, rebase, rebase_that_stopped, rebase_that_holds_unsaved_work, branch_by_force,
    another_branch, renamed, detached, detached_before_its_work, deleted, refs_of_the_worktree,
]  # fmt: skip
