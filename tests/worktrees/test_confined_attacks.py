"""What a confined agent can leave in its own repository and worktree against those who collect its work (battery X05, X08, X13).

Each thing is planted as the agent could have written it, and then the attempt lives on as any other: its commits are handed out, its work
is secured, both are looked at, the worktree is removed. No program of the agent's runs, no file of the person's changes, the next attempt's
work comes out, and the work is on refs or the reason says why it is not.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from supervisor.core.errors import NightcrewError
from supervisor.host.sandbox import probing
from supervisor.host.sandbox.executors import Executor
from tests.worktrees.conftest import World, make_world
from worktrees.environments import Environment, release
from worktrees.merge import diff
from worktrees.removal import remove
from worktrees.rescue import Secured
from worktrees.securing import publish, secure

pytestmark = pytest.mark.timeout(200)

Alive = Callable[[Path], Sequence[int]]
SLOWEST_S = 60.0
"""Only ends a test that is broken: git waits for a pipe for ever."""


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
        refs = self.world.sh(self.repo.root, "for-each-ref", "--format=%(refname)", "refs/nightcrew", "refs/heads/nightcrew").split()
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
    if not probing.known().works[Executor.NAMESPACES]:
        pytest.skip("no sandbox of our own works here")
    world = make_world(tmp_path, monkeypatch)
    world.confined = True
    return Attempt(world)


# Things that are no files, wherever git opens one ----------------------------------------------------------------------------------------

OBJECT = f"objects/ab/{'c' * 38}"
COMMON = [
    "HEAD", "config", "packed-refs", "index", "shallow", "commondir", "gitdir", "FETCH_HEAD", "config.worktree", "packed-refs.lock",
    OBJECT, "objects/ab", "objects/info/alternates", "objects/info/packs", "objects/info/commit-graph",
    "objects/info/commit-graphs/commit-graph-chain", "objects/pack/multi-pack-index", f"objects/pack/pack-{'a' * 40}.idx",
    f"objects/pack/pack-{'a' * 40}.pack", "refs", "refs/heads", "refs/heads/main", "refs/heads/new", "refs/stash", "refs/tags/new",
    "refs/notes/commits", "refs/remotes/origin/HEAD", f"refs/replace/{'d' * 40}", "logs/HEAD", "logs/refs/stash", "logs/refs/heads/new",
    "modules/x/HEAD", "modules/x/config", "worktrees/other/HEAD", "worktrees/other/gitdir", "worktrees/other/commondir",
    "worktrees/other/logs/HEAD",
]  # fmt: skip
ADMIN = [
    "HEAD", "index", "config.worktree", "ORIG_HEAD", "MERGE_HEAD", "FETCH_HEAD", "logs/HEAD", "rebase-merge/head-name", "refs/bisect/bad",
    "info/sparse-checkout", "index.lock", "HEAD.lock",
]  # fmt: skip
TREE = [".gitignore", "deep/.gitattributes", ".gitmodules", "sub/.git", "sub/.git/HEAD", "sub/.git/config"]
OWN = ["its ref", "its log"]
PLACES = [*(f"common/{name}" for name in COMMON), *(f"admin/{name}" for name in ADMIN), *(f"tree/{name}" for name in TREE), *OWN]


def place(attempt: Attempt, name: str) -> Path:
    if name in OWN:
        return attempt.ref if name == "its ref" else attempt.top / "logs" / attempt.env.branch_ref
    top, _, below = name.partition("/")
    return {"common": attempt.top, "admin": attempt.admin, "tree": attempt.tree}[top] / below


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        handle = os.open(path.parent, os.O_PATH)
        door.bind(f"/proc/self/fd/{handle}/{path.name}")
        os.close(handle)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def standard_input(path: Path) -> None:
    path.symlink_to("/proc/self/fd/0")


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 100 * 2**30)


def directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("kind", [pipe, bound_socket, endless, loop, standard_input, sparse, directory], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", PLACES)
def test_what_is_no_file(attempt: Attempt, nobody_alive: Alive, name: str, kind: Callable[[Path], None]) -> None:
    path = place(attempt, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    kind(path)
    attempt.live_on(nobody_alive)
