"""A checkout that nobody touched is known without git, and whatever is done to it is noticed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from worktrees import environments
from worktrees.collect_work import secure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.worktrees.conftest import World
    from worktrees.environments import Environment


@pytest.fixture
def env(world: World) -> Environment:
    env = world.env(world.repo())
    assert environments.is_untouched(env)
    return env


def _edit(env: Environment) -> None:
    """The same size, and the same time of change as before: its ctime tells."""
    file = env.path / "f0.txt"
    before = file.stat()
    with file.open("r+b") as text:
        text.write(b"X")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _put_in_place(env: Environment) -> None:
    (env.path / "other").write_bytes((env.path / "f0.txt").read_bytes())
    (env.path / "other").replace(env.path / "f0.txt")


def _make_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


CHANGES: dict[str, Callable[[World, Environment], object]] = {
    "edited": lambda _, env: _edit(env),
    "replaced": lambda _, env: _put_in_place(env),
    "removed": lambda _, env: (env.path / "f0.txt").unlink(),
    "mode": lambda _, env: (env.path / "f0.txt").chmod(0o755),
    "new": lambda _, env: (env.path / "new").touch(),
    "ignored": lambda _, env: (env.path / ".gitignore").write_text("*"),
    "a link": lambda _, env: (env.path / "link").symlink_to("/"),
    "a pipe": lambda _, env: os.mkfifo(env.path / "pipe"),
    "a repository": lambda world, env: world.sh(env.path, "init", "-q", "inner"),
    "a directory for a file": lambda _, env: _make_directory(env.path / "f0.txt"),
    "staged": lambda world, env: world.sh(env.path, "rm", "-q", "--cached", "f0.txt"),
    "hidden": lambda world, env: world.sh(env.path, "update-index", "--assume-unchanged", "f0.txt"),
    "committed": lambda world, env: world.sh(env.path, "commit", "-q", "--allow-empty", "-m", "more"),
    "detached": lambda world, env: world.sh(env.path, "switch", "-q", "--detach"),
    "another branch": lambda world, env: world.sh(env.path, "switch", "-q", "-c", "other"),
    "no index": lambda _, env: (env.admin_dir / "index").unlink(),
    "HEAD is a link": lambda _, env: (env.admin_dir / "HEAD").symlink_to((env.admin_dir / "HEAD").rename(env.path / "HEAD")),
}  # fmt: skip


UNLIKE = ("ignored", "a repository", "HEAD is a link")
"""What is secured is not the list of files."""


@pytest.mark.parametrize("how", CHANGES)
def test_each_change_is_noticed_and_secured(world: World, env: Environment, how: str) -> None:
    CHANGES[how](world, env)
    tip = world.sh(env.repo.root, "rev-parse", env.branch)
    assert not environments.is_untouched(env) or tip != env.base, how
    secured = secure(env, "left", always=True)
    kept = world.sh(env.repo.root, "ls-tree", "-r", "--name-only", secured.rescue or "").splitlines()
    there = [path for path in env.path.rglob("*") if path.is_symlink() or path.is_file()]
    assert how in UNLIKE or kept == sorted(path.name for path in there if path != env.path / ".git")


def test_a_branch_that_is_gone_is_not_taken_for_untouched(world: World, env: Environment) -> None:
    world.sh(env.repo.root, "update-ref", "-d", env.branch_ref)
    assert secure(env, "left", always=True).notes


def test_an_agent_that_began_too_soon_after_the_checkout_is_looked_at_by_git(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = max(path.stat().st_ctime_ns for path in env.path.iterdir())
    monkeypatch.setattr(time, "time_ns", lambda: newest + environments.TICK_NS)
    environments.begin(env)
    assert environments.is_untouched(env)
    monkeypatch.setattr(time, "time_ns", lambda: newest + environments.TICK_NS - 1)
    environments.begin(env)
    assert not environments.is_untouched(env)
