"""A world with a template and a file backend, and an agent that works in an environment as a real one would: in its own namespace where
the backend asks for that."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.sandbox import exec_step, executors
from tests.worktrees.conftest import World
from worktrees import collect_work, templates
from worktrees.backends import Backend, mounts
from worktrees.environments import Confined, Environment, Warm, create
from worktrees.locks import entered
from worktrees.repository import Repository, discover
from worktrees.templates import Template

FILES = {
    ".gitignore": ".venv/\nnode_modules/\n.env.local\n*.log\n",
    "README": "read me\n",
    "src/app.py": "print('one')\n",
    "src/deep/more.py": "more = 1\n",
    "docs/a.txt": "a\n",
    "docs/b.txt": "b\n",
}


def install(tree: Path) -> None:
    """What a project's set-up leaves: dependencies that git ignores."""
    (tree / ".venv" / "bin").mkdir(parents=True)
    (tree / ".venv" / "bin" / "tool").write_text("#!/bin/sh\necho tool\n")
    (tree / ".venv" / "bin" / "tool").chmod(0o755)
    (tree / "node_modules" / "left").mkdir(parents=True)
    (tree / "node_modules" / "left" / "index.js").write_text("module.exports = 1\n")
    (tree / "node_modules" / "right").symlink_to("left")


@dataclass
class Workshop:
    """One repository, one template, one backend."""

    world: World
    repo: Repository
    template: Template
    backend: Backend

    def env(self, task: str = "r1/fix", epoch: int = 1, base: str = "") -> Environment:
        warm, confined = Warm(self.template, self.backend), Confined() if self.world.confined else None
        return create(self.repo, task, epoch, base or self.repo.head, self.world.root, warm=warm, confined=confined)

    def lower(self) -> str:
        return contents(self.template.files)

    def unmount_everything(self) -> None:
        """As a reboot does."""
        for mount in reversed(mounts(self.world.tmp)):
            exec_step.unmount(mount.path, lazy=True)


def make_workshop(world: World, backend: Backend) -> Workshop:
    path = world.make()
    for name, text in FILES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    world.commit(path, "last.txt")
    (path / ".env.local").write_text("KEY=1\n")
    repo = discover(world.git, path)
    template = templates.build(repo, repo.head, world.tmp / "state" / "templates" / "one", install, [".env.local"])
    return Workshop(world, repo, template, backend)


@dataclass(frozen=True)
class Agent:
    """Someone at work in an environment."""

    env: Environment
    sandbox: tuple[str, ...] = ()

    def run(self, *argv: str, code: int = 0) -> str:
        """Run a program in the worktree; it must end with `code`. Its output, both kinds."""
        door = self.env.inside.command if self.env.inside else self.sandbox
        handles = self.env.inside.handles if self.env.inside else ()
        command = [*door, "sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(self.env.path), *argv]
        done = subprocess.run(command, pass_fds=handles, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{argv} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def git(self, *argv: str) -> str:
        return self.run("git", *argv).rstrip("\n")

    def sh(self, script: str, code: int = 0) -> str:
        return self.run("sh", "-euc", script, code=code)


@contextlib.contextmanager
def at_work(env: Environment) -> Iterator[Agent]:
    """An agent in `env`; where the backend mounts nothing for everybody, it mounts the layers itself, as its sandbox would."""
    if env.private is not None:
        policy, executor = collect_work._sandbox(env, {"verb": "secure"}, "")
        yield Agent(env, executors.argv(replace(policy, hidden=()), executor))
    elif env.layers is not None and env.layers.backend == "overlay-userns":
        with entered(env.path, env.layers.options(user=True), readonly=False) as inside:
            yield Agent(replace(env, inside=inside))
    else:
        yield Agent(env)


def contents(top: Path) -> str:
    """A hash over every name, link, mode and byte below `top`."""
    found = hashlib.sha256()
    for here, folders, names in os.walk(top):
        folders.sort()
        for name in sorted([*names, *folders]):
            path = Path(here) / name
            found.update(f"{path.relative_to(top)} {path.lstat().st_mode & ~0o222:o} ".encode())
            found.update(os.fsencode(path.readlink()) if path.is_symlink() else b"" if path.is_dir() else path.read_bytes())
    return found.hexdigest()
