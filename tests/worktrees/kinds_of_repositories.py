"""A person's repository of each kind that git knows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.worktrees.conftest import World


def sha256(world: World, path: Path) -> Path:
    world.sh(world.tmp, "init", "-q", "--object-format=sha256", os.fspath(path))
    world.commit(path, "f0.txt")
    return path


def shallow(world: World, path: Path) -> Path:
    origin = world.make("origin")
    for number in range(5):
        world.commit(origin, f"{number}.txt")
    world.sh(world.tmp, "clone", "-q", "--depth=2", origin.as_uri(), os.fspath(path))
    return path


def borrowing(world: World, path: Path) -> Path:
    world.sh(world.tmp, "clone", "-q", "--shared", os.fspath(world.make("lender")), os.fspath(path))
    return path


def borrowing_by_a_relative_path(world: World, path: Path) -> Path:
    borrowing(world, path)
    alternates = path / ".git" / "objects" / "info" / "alternates"
    alternates.write_text(os.path.relpath(world.tmp / "lender" / ".git" / "objects", path / ".git" / "objects") + "\n")
    return path


def including(world: World, path: Path) -> Path:
    world.make(path.name)
    (path / ".git" / "more.config").write_text("[nightcrew-test]\n\tvalue = included\n")
    world.sh(path, "config", "include.path", "more.config")
    (world.tmp / "other.config").write_text("[core]\n\tautocrlf = input\n")
    world.sh(path, "config", "includeIf.gitdir:/.path", os.fspath(world.tmp / "other.config"))
    return path


def with_configured_worktrees(world: World, path: Path) -> Path:
    world.make(path.name)
    world.sh(path, "config", "extensions.worktreeConfig", "true")
    world.sh(path, "config", "--worktree", "user.email", "person@example.com")
    return path


def sparse(world: World, path: Path) -> Path:
    world.make(path.name)
    world.commit(path, "docs/a.txt")
    world.sh(path, "sparse-checkout", "set", "docs")
    return path


def for_a_group(world: World, path: Path) -> Path:
    world.sh(world.tmp, "init", "-q", "--shared=group", os.fspath(path))
    world.commit(path, "f0.txt")
    return path


def behind_a_link(world: World, path: Path) -> Path:
    world.make(path.name)
    (path / ".git").rename(world.tmp / "elsewhere.git")
    (path / ".git").symlink_to(world.tmp / "elsewhere.git")
    return path


def with_its_directory_elsewhere(world: World, path: Path) -> Path:
    world.sh(world.tmp, "init", "-q", f"--separate-git-dir={world.tmp / 'elsewhere.git'}", os.fspath(path))
    world.commit(path, "f0.txt")
    return path


def a_worktree(world: World, path: Path) -> Path:
    world.sh(world.make("first"), "worktree", "add", "-q", "-b", "side", os.fspath(path))
    return path


def a_clone_of_a_bundle(world: World, path: Path) -> Path:
    origin = world.make("origin")
    world.sh(origin, "bundle", "create", "-q", os.fspath(world.tmp / "bundle"), "--all")
    world.sh(world.tmp, "clone", "-q", os.fspath(world.tmp / "bundle"), os.fspath(path))
    return path


def without_hooks_and_info(world: World, path: Path) -> Path:
    world.sh(world.tmp, "init", "-q", "--template=", os.fspath(path))
    world.commit(path, "f0.txt")
    return path


PEOPLES = [
    sha256, shallow, borrowing, borrowing_by_a_relative_path, including, with_configured_worktrees, sparse, for_a_group, behind_a_link,
    with_its_directory_elsewhere, a_worktree, a_clone_of_a_bundle, without_hooks_and_info,
]  # fmt: skip
