"""A world of one person: a home with a git identity, a state directory, repositories made by plain git."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from supervisor.sandbox import executors
from supervisor.sandbox.executors import Executor
from tests.support import copied, wait_until
from worktrees import collect_work
from worktrees.environments import Confined, Environment, create
from worktrees.git import Git
from worktrees.repository import Repository, discover

IDENTITY = "[user]\n\tname = Ada Person\n\temail = ada@example.com\n[init]\n\tdefaultBranch = main\n[maintenance]\n\tauto = false\n"


@dataclass
class World:
    """Everything a test needs; `sh` is the person's (or the agent's) own plain git."""

    git: Git
    tmp: Path
    confined: bool = False
    """Its agents work in a sandbox, each with a repository of its own."""
    _agents: dict[Path, Environment] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.tmp / "state" / "work"

    def sh(self, where: Path, *argv: str, ok: bool = True) -> str:
        """git, as the person's; in the worktree of a confined agent as that agent's, in its sandbox."""
        return self.run(where, "git", *argv, ok=ok)

    def run(self, where: Path, *argv: str, ok: bool = True) -> str:
        """Any program, as `sh` runs git; what it wrote to stdout."""
        done = subprocess.run([*self.sandbox(where), *argv], cwd=where, capture_output=True, check=False)
        assert done.returncode == 0 or not ok, f"{argv}: {os.fsdecode(done.stderr)}"
        return os.fsdecode(done.stdout).removesuffix("\n")

    def commit(self, where: Path, name: str = "file.txt", text: str = "one\n") -> str:
        file = where / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        at_once = 'git add -A && git commit -q -m "$0" && git rev-parse HEAD'  # a sandbox costs more than three gits
        return self.run(where, "sh", "-c", at_once, f"change {name}")

    def make(self, name: str = "repo", files: int = 3) -> Path:
        """A repository of that many files and one commit."""

        def make(place: Path) -> None:
            place.mkdir()
            self.sh(place, "init", "-q")
            for number in range(files):
                (place / f"f{number}.txt").write_text(f"{number}\n" * 5)
            self.sh(place, "add", "-A")
            self.sh(place, "commit", "-q", "-m", "start")

        return copied(f"{files} of a world", make, self.tmp / name)

    def repo(self, name: str = "repo", files: int = 3) -> Repository:
        return self.repo_at(self.make(name, files))

    def repo_at(self, path: Path) -> Repository:
        return discover(self.git, path)

    def env(self, repo: Repository, task: str = "r1/fix", epoch: int = 1, base: str = "") -> Environment:
        made = create(repo, task, epoch, base or repo.head, self.root, confined=Confined() if self.confined else None)
        self._agents[made.path] = made
        return made

    def sandbox(self, where: Path) -> tuple[str, ...]:
        """What runs a command as the agent of the worktree at `where`."""
        env = next((env for path, env in self._agents.items() if where.is_relative_to(path)), None)
        if env is None or env.private is None:
            return ()
        policy, executor = collect_work._sandbox(env, {"verb": "secure"}, "")
        return executors.argv(replace(policy, hidden=()), executor)  # the person's home lies below what is hidden

    def own(self, env: Environment, path: Path) -> Path:
        """Where a file of git's lies that the agent of `env` writes."""
        return path if env.private is None else env.private / path.relative_to(env.repo.common_dir)

    def published(self, env: Environment) -> Environment:
        """What its agent committed so far has arrived on its branch, as it does every few seconds."""
        if env.private is not None:
            collect_work.publish(env)
        return env

    def kept(self, env: Environment) -> set[str]:
        """Every commit that a rescue ref of the task reaches, of any attempt."""
        return set(self.sh(env.repo.root, "rev-list", f"--glob=refs/nightcrew/rescue/{env.task}").split())

    def reachable(self, repo: Repository, oid: str) -> bool:
        return bool(self.sh(repo.root, "for-each-ref", "--contains", oid))

    def blobs(self, repo: Repository, rev: str) -> dict[str, str]:
        """Path -> content (links: their target) of every file in a commit."""
        names = [os.fsencode(name) for name in self.names(repo, rev)]
        asked = b"".join(b"%s:%s\0" % (rev.encode(), name) for name in names)
        argv = ["git", "cat-file", "--batch", "-z"]
        said = subprocess.run(argv, cwd=repo.root, input=asked, capture_output=True, check=True).stdout
        found = {}
        for name in names:
            head, _, said = said.partition(b"\n")
            size = int(head.rpartition(b" ")[2])
            found[os.fsdecode(name)], said = os.fsdecode(said[:size].removesuffix(b"\n")), said[size + 1 :]
        return found

    def names(self, repo: Repository, rev: str) -> list[str]:
        """Of every file in a commit."""
        return self.sh(repo.root, "ls-tree", "-r", "-z", "--name-only", rev).split("\0")[:-1]

    def leftovers(self, repo: Repository) -> list[str]:
        """What a failed or removed worktree must not leave: branches, administration, directories."""
        found = self.sh(repo.root, "for-each-ref", "--format=%(refname)", "refs/heads/nightcrew").split()
        found += [str(path) for path in (repo.common_dir / "worktrees").glob("*")]
        return found + [str(path) for path in self.root.rglob("*")]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


def make_world(directory: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    home = directory / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(IDENTITY)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    return World(Git(directory / "state"), directory)


@pytest.fixture(params=["shared", "confined"])
def both(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose agents have no sandbox, and one whose agents have one."""
    made = make_world(tmp_path, monkeypatch)
    made.confined = request.param == "confined"
    if made.confined and not executors.known().works[Executor.NAMESPACES]:
        pytest.skip("no sandbox of our own works here")
    return made


@pytest.fixture
def confined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose agents have a sandbox."""
    if not executors.known().works[Executor.NAMESPACES]:
        pytest.skip("no sandbox of our own works here")
    made = make_world(tmp_path, monkeypatch)
    made.confined = True
    return made


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    def wait(condition: Callable[[], bool], deadline_s: float = 60.0) -> None:
        wait_until(condition, "the condition to come true", deadline_s, every_s=0.005)

    return wait


@pytest.fixture
def nobody_alive() -> Callable[[Path], Sequence[int]]:
    return lambda _path: ()
