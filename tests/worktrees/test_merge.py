"""A finished branch comes into the person's checkout whole, or not at all."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import NotFound, Refused
from worktrees.environments import Environment
from worktrees.landing import Moved, take
from worktrees.merge import ByHand, diff
from worktrees.private_repository import changed, config_guard
from worktrees.repository import Repository

if TYPE_CHECKING:
    from tests.worktrees.conftest import World


@pytest.fixture
def repo(world: World) -> Repository:
    return world.repo()


@pytest.fixture
def env(world: World, repo: Repository) -> Environment:
    return world.env(repo)


def state(world: World, root: Path) -> str:
    return world.sh(root, "status", "--porcelain=v2", "--branch") + world.sh(root, "stash", "list") + world.sh(root, "diff")


def test_fast_forward(world: World, repo: Repository, env: Environment) -> None:
    tip = world.commit(env.path, "a.txt")
    assert take(repo, env.branch) == Moved(tip, repo.root)
    assert (repo.root / "a.txt").exists()
    assert state(world, repo.root).count("\n") == 1
    assert take(repo, env.branch) == Moved(tip, repo.root)


def locked(repo: Repository, age_s: float) -> Path:
    """The checkout as a git left it that was killed so many seconds ago."""
    lock = repo.git_dir / "index.lock"
    lock.write_text("")
    os.utime(lock, (time.time() - age_s,) * 2)
    return lock


def test_the_lock_of_a_git_that_was_killed_long_ago_is_removed(world: World, repo: Repository, env: Environment) -> None:  # S18
    tip, lock = world.commit(env.path, "a.txt"), locked(repo, 120)
    assert take(repo, env.branch) == Moved(tip, repo.root, unlocked=True)
    assert not lock.exists() and (repo.root / "a.txt").exists()


@pytest.mark.parametrize("holder", ["it is young", "a process has it open", "a git works in the checkout"])
def test_a_lock_that_may_be_somebodys_stays(world: World, repo: Repository, env: Environment, holder: str) -> None:  # S18
    world.commit(env.path, "a.txt")
    lock, living = locked(repo, 5 if holder == "it is young" else 120), None
    if holder == "a process has it open":
        with lock.open() as file:
            living = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(file.fileno(),))
    elif holder == "a git works in the checkout":
        living = subprocess.Popen(["git", "cat-file", "--batch"], cwd=repo.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if living is not None:
        assert living.stdin is not None and living.stdout is not None
        living.stdin.write(b"HEAD\n")  # an answer: it is there, as the program that it is
        living.stdin.flush()
        assert living.stdout.readline()
    try:
        with pytest.raises(Refused, match=r"index\.lock"):
            take(repo, env.branch)
        assert lock.exists() and not (repo.root / "a.txt").exists()
    finally:
        if living is not None:
            living.communicate()


def test_only_the_commit_that_was_agreed_to_is_merged(world: World, repo: Repository, env: Environment) -> None:
    shown = world.commit(env.path, "a.txt")
    world.commit(env.path, "b.txt")
    before = world.sh(repo.root, "rev-parse", "HEAD")
    with pytest.raises(Refused, match="was agreed to"):
        take(repo, env.branch, only=shown)
    assert world.sh(repo.root, "rev-parse", "HEAD") == before


def test_a_true_merge_by_the_person(world: World, repo: Repository, env: Environment) -> None:
    tip = world.commit(env.path, "a.txt")
    head = world.commit(repo.root, "b.txt")
    (repo.root / "untracked.txt").write_text("stays")
    done = take(repo, env.branch)
    assert isinstance(done, Moved) and done.commit != tip
    assert world.sh(repo.root, "log", "-1", "--format=%an|%ae|%P|%s") == (
        f"Ada Person|ada@example.com|{head} {tip}|Merge branch '{env.branch}' into main"
    )
    assert world.sh(repo.root, "status", "--porcelain") == "?? untracked.txt"


def _dirty(world: World, repo: Repository) -> None:
    (repo.root / "f1.txt").write_text("mine")


def _detached(world: World, repo: Repository) -> None:
    world.sh(repo.root, "switch", "-q", "--detach")


def _rebasing(world: World, repo: Repository) -> None:
    (repo.git_dir / "rebase-merge").mkdir()


def _conflicting(world: World, repo: Repository) -> None:
    world.commit(repo.root, "f0.txt", "mine\n")


def _in_the_way(world: World, repo: Repository) -> None:
    (repo.root / "a.txt").write_text("untracked, and mine")


def _ignored(world: World, repo: Repository) -> None:
    (repo.common_dir / "info" / "exclude").write_text("a.txt\n")
    _in_the_way(world, repo)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_ignored, "a.txt"),
        (_dirty, "f1.txt"),
        (_detached, "detached"),
        (_rebasing, "rebase"),
        (_conflicting, "conflict in f0.txt"),
        (_in_the_way, "a.txt"),
    ],
)
def test_refused_with_the_checkout_untouched(world: World, repo: Repository, env: Environment, spoil: object, why: str) -> None:
    world.commit(env.path, "a.txt")
    world.commit(env.path, "f0.txt", "theirs\n")
    assert callable(spoil)
    spoil(world, repo)
    before = state(world, repo.root)
    with pytest.raises(Refused, match=why) as caught:
        take(repo, env.branch)
    assert caught.value.hint
    assert state(world, repo.root) == before


def test_a_branch_that_is_not_there_is_named(repo: Repository) -> None:
    with pytest.raises(NotFound, match="no such branch"):
        take(repo, "no/such")


def test_without_an_identity_it_says_how_to_set_one(world: World, repo: Repository, env: Environment) -> None:
    world.commit(env.path, "a.txt")
    world.commit(repo.root, "b.txt")
    (world.tmp / "home" / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    with pytest.raises(Refused, match="who you are"):
        take(repo, env.branch)


def test_filters_hooks_and_signing_are_left_to_the_person(world: World, repo: Repository, env: Environment) -> None:
    world.commit(env.path, "a.txt")
    hook = repo.common_dir / "hooks" / "post-merge"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    done = take(repo, env.branch)
    assert isinstance(done, ByHand)
    assert "post-merge" in done.why
    assert done.commands == (f"git -C {repo.root} merge {env.branch}",)
    hook.unlink()
    (repo.common_dir / "info" / "attributes").write_text("a.txt filter=lfs\n")
    done = take(repo, env.branch)
    assert isinstance(done, ByHand)
    assert "filter=lfs" in done.why
    (repo.common_dir / "info" / "attributes").unlink()
    world.commit(repo.root, "b.txt")
    world.sh(repo.root, "config", "--global", "commit.gpgSign", "true")
    done = take(repo, env.branch)
    assert isinstance(done, ByHand)
    assert "sign" in done.why


def test_diff(world: World, repo: Repository, env: Environment) -> None:
    tip = world.commit(env.path, "a.txt", "caf\u00e9\n")
    text = diff(repo, repo.head, tip)
    assert "+++ b/a.txt" in text
    assert "+café" in text
    assert "1 file changed, 1 insertion" in diff(repo, repo.head, tip, stat=True)


def test_the_guard_sees_configuration_and_hooks(world: World, repo: Repository, env: Environment) -> None:
    before = config_guard(repo)
    world.commit(env.path, "a.txt")
    assert changed(before, config_guard(repo)) == ()
    world.sh(env.path, "config", "core.fsmonitor", "evil")
    hook = repo.common_dir / "hooks" / "pre-commit"
    hook.symlink_to("/bin/true")
    assert changed(before, config_guard(repo)) == ("config", "hooks/pre-commit")
