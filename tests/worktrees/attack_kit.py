"""An attempt that turns against those who collect its work, lives on as any other, and what must be true afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from supervisor.kernel.errors import NightcrewError
from supervisor.sandbox import executors
from supervisor.sandbox.executors import Executor
from tests.worktrees.conftest import World, make_world
from worktrees.collect_work import publish, secure
from worktrees.commit_work import Secured
from worktrees.environments import Environment, release
from worktrees.merge import diff
from worktrees.removal import remove

Alive = Callable[[Path], Sequence[int]]
KEPT = ["done.txt", "left.txt"]


class Attempt:
    """A person's repository, an attempt in it with a commit and a leftover file, and a canary that sings outside when anything runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.repo = world.repo()
        self.env = world.env(self.repo)
        assert self.env.private is not None
        self.top, self.tree = self.env.private, self.env.path
        self.admin = self.top / "worktrees" / self.env.admin_dir.name
        self.ref, self.branch = self.top / self.env.branch_ref, self.env.branch
        self.done = world.commit(self.tree, "done.txt")
        (self.tree / "left.txt").write_text("left\n")
        self.canary = world.tmp / "CANARY"
        self.program = self.tree / "program.sh"
        self.program.write_text(f"#!/bin/sh\ntouch {self.canary} {self.tree}/RAN\nexec cat\n")
        self.program.chmod(0o755)
        self.before = self.theirs()

    def git(self, *argv: str, stdin: bytes = b"") -> str:
        """The agent's git, in its sandbox."""
        done = subprocess.run([*self.world.sandbox(self.tree), "git", *argv], cwd=self.tree, input=stdin, capture_output=True, check=True)
        return os.fsdecode(done.stdout).strip()

    def theirs(self) -> dict[str, str]:
        """Each file of the person's that no attempt moves, and its content."""
        common, ours = self.repo.common_dir, ("objects/", "refs/nightcrew/", "refs/heads/nightcrew/", "logs/refs/")
        names = [path for path in common.rglob("*") if path.is_file() and not path.is_relative_to(self.env.admin_dir)]
        found = {str(path.relative_to(common)): path for path in names}
        kept = {name: path for name, path in found.items() if not name.startswith(ours)}
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in kept.items()}

    def secure(self, env: Environment) -> Secured:
        return secure(env, "leftover work", always=True)

    def kept(self) -> list[str]:
        """Which of the commit and the leftover file are on a ref of the person's repository."""
        refs = self.world.sh(
            self.repo.root, "for-each-ref", "--format=%(refname)", "refs/nightcrew/rescue/r1/fix", "refs/heads/nightcrew/r1/fix"
        ).split()
        names = {name for ref in refs for name in self.world.sh(self.repo.root, "ls-tree", "-r", "-z", "--name-only", ref).split("\0")}
        return sorted(names & {"done.txt", "left.txt"})

    def unharmed(self) -> None:
        assert not self.canary.exists(), "a program of the agent's ran outside"
        assert self.theirs() == self.before
        self.world.sh(self.repo.root, "fsck", "--strict", "--no-dangling")
        for argv in (["branch"], ["status"], ["worktree", "list"], ["log", "--oneline", "--all"]):
            subprocess.run(["git", *argv], cwd=self.repo.root, check=True, capture_output=True, timeout=20)

    def live_on(self, nobody_alive: Alive) -> Secured | NightcrewError:
        """What came of securing it. Everything else must do."""
        with contextlib.suppress(NightcrewError), timed("publish"):
            publish(self.env)
        done: Secured | NightcrewError
        try:
            with timed("secure"):
                done = self.secure(self.env)
        except NightcrewError as error:
            done = error
            print("reason:", error.line())
        else:
            print("notes:", *done.notes, sep="\n  ")
            diff(self.repo, self.env.base, done.tip)
            assert all(note.isprintable() for note in done.notes)
        self.unharmed()
        with contextlib.suppress(NightcrewError), timed("remove"):
            release(self.env)
            remove(self.env, nobody_alive, discard=True)
        print("kept:", self.kept())
        self.unharmed()
        other = self.world.env(self.repo, task="r1/next")
        (other.path / "left.txt").write_text("left\n")
        assert self.secure(other).files == 1
        return done


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        print(f"{what}: {time.monotonic() - began:.2f} s")


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    if not executors.known().works[Executor.NAMESPACES]:
        pytest.skip("no sandbox of our own works here")
    world = make_world(tmp_path, monkeypatch)
    world.confined = True
    return Attempt(world)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 100 * 2**30)


Plant = Callable[[Attempt], None]
