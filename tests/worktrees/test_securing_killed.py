"""kill -9 at each step of securing a confined attempt, of us and of each process of the helper: then once more, and nothing is lost,
doubled or left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import NightcrewError
from tests.failpoints import FAILPOINTS
from worktrees import collect_work
from worktrees.collect_work import publish, secure
from worktrees.environments import Environment
from worktrees.private_repository import beside

if TYPE_CHECKING:
    from tests.worktrees.conftest import World
    from worktrees.collect_work import Helper

Until = Callable[[Callable[[], bool]], None]

SECURER = """
import sys
from pathlib import Path
from worktrees import collect_work, environments
from worktrees.git import Git
from worktrees.repository import discover
state, root, base, work = sys.argv[1:]
env = environments.left(discover(Git(Path(state)), Path(root)), "r1/fix", 1, base, Path(work))
collect_work.secure(env, "leftover work", always=True)
"""


@pytest.fixture
def world(confined: World) -> World:
    return confined


class Attempt:
    """One with a commit, an amended one, a stash, and `files` leftover files."""

    def __init__(self, world: World, files: int) -> None:
        self.world = world
        self.env = world.env(world.repo())
        self.made = [world.commit(self.env.path, "a.txt")]
        publish(self.env)
        world.sh(self.env.path, "commit", "-q", "--amend", "-m", "better")
        self.made.append(world.sh(self.env.path, "rev-parse", "HEAD"))
        (self.env.path / "f0.txt").write_text("stashed\n")
        world.sh(self.env.path, "stash", "-q")
        self.made.append(world.sh(self.env.path, "rev-parse", "stash"))
        for number in range(files):
            (self.env.path / f"left{number}.bin").write_bytes(os.urandom(1000))
        self.files = files

    def ends_well(self) -> None:
        """Secure it again: everything is there, once, and nothing of the trial is left."""
        env, world = self.env, self.world
        done = secure(env, "leftover work", always=True)
        assert set(self.made) <= world.kept(env)
        assert done.tip == world.sh(env.repo.root, "rev-parse", env.branch)
        assert len([name for name in world.names(env.repo, done.tip) if name.startswith("left")]) == self.files
        assert done.commits == 2 and world.sh(env.repo.root, "rev-list", "--count", f"{env.base}..{env.branch}") == "2"
        assert secure(env, "leftover work", always=True) == done
        assert world.sh(env.repo.root, "fsck", "--no-dangling") == ""
        assert world.sh(env.path, "fsck", "--no-dangling") == "" and world.sh(env.path, "status", "--porcelain") == ""
        assert sorted(os.listdir(beside(env.path))) == ["git", "packed-refs.sha256"]
        other = world.env(env.repo, task="r1/next")  # the next work that is taken clears the repository of what was left
        assert world.commit(other.path, "b.txt") == publish(other)
        objects = env.repo.common_dir / "objects"
        assert not list(objects.glob("tmp_*")) and not list((objects / "pack").glob("*.keep"))


def processes(mark: str) -> list[int]:
    """Those that live and have `mark` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.mark.one_in(5)
@pytest.mark.parametrize("files", [3, 300], ids=["loose", "pack"])
@pytest.mark.parametrize("label", [name for name in FAILPOINTS if name.startswith(("securing.", "intake."))])
def test_killed_ourselves(world: World, until: Until, label: str, files: int) -> None:
    attempt = Attempt(world, files)
    env, mark = attempt.env, f"/mark-{uuid.uuid4().hex}"
    argv = [sys.executable, "-c", SECURER, str(world.tmp / "state"), str(env.repo.root), env.base, str(world.root)]
    marked = {**os.environ, "NIGHTCREW_DIE_AT": label, "PATH": f"{os.environ['PATH']}:{mark}"}
    killed = subprocess.run(argv, env=marked, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    until(lambda: processes(mark) == [])
    attempt.ends_well()


def children(pid: int) -> list[int]:
    return [int(word) for file in Path(f"/proc/{pid}/task").glob("*/children") for word in file.read_text().split()]


def victims(helper: Helper, which: str) -> list[int]:
    """The process of that name, when it lives at this moment."""
    with contextlib.suppress(OSError):
        outer = helper.pid
        inner = children(outer)
        if which == "fork server":
            return [collect_work._forks._process.pid] if collect_work._forks._process is not None else []
        return {"outer": [outer], "inner": inner, "git": [pid for each in inner for pid in children(each)]}[which]
    return []


@contextlib.contextmanager
def killing(world: World, which: str, when: Callable[[], bool]) -> Iterator[list[int]]:
    """Kill that process of the next helper, once it is there and `when` holds."""
    killed: list[int] = []
    real, stop = collect_work._write, threading.Event()

    def written(helper: Helper, body: bytes) -> None:
        def kill() -> None:
            while not stop.is_set():
                if when() and (found := victims(helper, which)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(found[0], signal.SIGKILL)
                        killed.append(found[0])
                        return

        real(helper, body)
        if not killers:
            killers.append(threading.Thread(target=kill))
            killers[0].start()

    killers: list[threading.Thread] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collect_work, "_write", written)
        try:
            yield killed
        finally:
            stop.set()
            for killer in killers:
                killer.join()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("moment", ["at once", "while it stores files"])
@pytest.mark.parametrize("which", ["outer", "inner", "git", "fork server"])
def test_a_process_of_the_helper_killed(world: World, which: str, moment: str) -> None:
    attempt = Attempt(world, 1000)
    objects = world.own(attempt.env, attempt.env.repo.common_dir / "objects")
    before = len(list(objects.iterdir()))
    with (
        killing(world, which, lambda: moment == "at once" or len(list(objects.iterdir())) > before) as killed,
        contextlib.suppress(NightcrewError),
    ):
        secure(attempt.env, "leftover work", always=True)
    assert killed, "nothing was killed"
    attempt.ends_well()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("which", ["outer", "inner", "git"])
def test_killed_while_it_hands_over(world: World, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its answer, with more of a pack to come than a pipe holds. One that had sent nothing of it yet is asked again at once."""
    attempt = Attempt(world, 300)
    real = collect_work._said
    killed: list[int] = []

    def said(env: Environment, helper: Helper, until: float) -> dict[str, object]:
        answer = real(env, helper, until)
        while not killed:
            for pid in victims(helper, which)[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        return answer

    monkeypatch.setattr(collect_work, "_said", said)
    with contextlib.suppress(NightcrewError):
        secure(attempt.env, "leftover work", always=True)
    assert killed
    monkeypatch.undo()
    attempt.ends_well()
