"""Worktrees that an agent adds inside its own go with it, so their commits and files must be on a rescue ref of its task first."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from supervisor.kernel.errors import Refused
from supervisor.server.attempts.cleaning import Cleaning
from tests.worktrees.conftest import World
from worktrees.collect_work import Why
from worktrees.environments import Environment, release
from worktrees.removal import Keep, inspect, remove

Alive = Callable[[Path], Sequence[int]]


@pytest.fixture
def env(both: World) -> Environment:
    path = both.make()
    (path / ".gitignore").write_text("build/\n")
    both.commit(path, "seen.txt")
    made = both.env(both.repo_at(path))
    release(made)
    return made


def add(world: World, env: Environment, where: str, *options: str) -> Path:
    world.sh(env.path, "worktree", "add", "-q", *options, where)
    return env.path / where


@pytest.mark.parametrize("place", ["sub", "build/sub"])
def test_detached_commits_are_on_a_rescue_ref(both: World, env: Environment, nobody_alive: Alive, place: str) -> None:
    inner = add(both, env, place, "--detach")
    first = both.commit(inner, "one.txt")
    both.sh(inner, "reset", "-q", "--hard", env.base)
    second = both.commit(inner, "two.txt")
    remove(env, nobody_alive, discard=True)
    assert not env.path.exists()
    both.sh(env.repo.root, "worktree", "prune")
    assert both.kept(env) >= {first, second}


@pytest.mark.parametrize("place", ["sub", "build/sub"])
def test_uncommitted_files_are_on_the_rescue_ref(both: World, env: Environment, nobody_alive: Alive, place: str) -> None:
    (add(both, env, place, "-b", "side") / "new.txt").write_text("new\n")
    verdict = inspect(env, nobody_alive)
    assert isinstance(verdict, Keep) and Why.NESTED in {reason.why for reason in verdict.reasons}
    assert not Cleaning(remove=True, ignored=True, discard=False).overrules(verdict), "ignored files are not all that would go"
    remove(env, nobody_alive, discard=True)
    assert both.blobs(env.repo, env.rescue_ref)[f"{place}/new.txt"] == "new"


def test_worktree_with_a_relative_link_is_found(both: World, env: Environment, nobody_alive: Alive) -> None:
    inner = add(both, env, "build/sub", "--detach")
    commit = both.commit(inner, "one.txt")
    admin = both.own(env, env.repo.common_dir / "worktrees" / "sub")
    (admin / "gitdir").write_text("../../../../../" * 8 + str(inner / ".git").lstrip("/") + "\n")
    remove(env, nobody_alive, discard=True)
    assert commit in both.kept(env)


def test_worktree_elsewhere_is_not_its_own(both: World, env: Environment, nobody_alive: Alive) -> None:
    both.sh(env.repo.root, "worktree", "add", "-q", "--detach", str(both.tmp / "mine"))
    commit = both.commit(both.tmp / "mine")
    remove(env, nobody_alive)
    assert commit not in both.kept(env)


def test_removed_link_is_written_again(world: World, nobody_alive: Alive) -> None:
    """Without a sandbox: in one, the link is read-only."""
    env = world.env(world.repo())
    release(env)
    (env.path / "left.txt").write_text("left\n")
    (env.path / ".git").unlink()
    verdict = inspect(env, nobody_alive)
    assert isinstance(verdict, Keep) and [reason.why for reason in verdict.reasons] == [Why.UNTRACKED]
    remove(env, nobody_alive, discard=True)
    assert not env.path.exists() and world.blobs(env.repo, env.rescue_ref)["left.txt"] == "left"


def test_repository_in_place_of_the_link_is_kept_and_moving_it_lets_the_worktree_go(world: World, nobody_alive: Alive) -> None:
    env = world.env(world.repo())
    release(env)
    (env.path / ".git").unlink()
    world.sh(env.path, "init", "-q")
    world.commit(env.path, "own.txt")
    with pytest.raises(Refused, match=f"next: mv {env.path}/.git ") as caught:
        remove(env, nobody_alive, discard=True)
    assert "discard" not in caught.value.hint
    shutil.move(env.path / ".git", env.path / "git-of-its-agent")
    remove(env, nobody_alive, discard=True)
    assert "git-of-its-agent/HEAD" in world.names(env.repo, env.rescue_ref)
