"""Commits of a confined agent arrive on its branch while it works; what a person does to that branch meanwhile is theirs."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from worktrees import collect_work
from worktrees.collect_work import publish, secure
from worktrees.environments import Environment, release
from worktrees.removal import remove

if TYPE_CHECKING:
    from tests.worktrees.conftest import World

Alive = Callable[[Path], Sequence[int]]


@pytest.fixture
def world(confined: World) -> World:
    return confined


@pytest.fixture
def env(world: World) -> Environment:
    return world.env(world.repo())


def by_hand(where: Path, *argv: str) -> str:
    """A person's git, also in the worktree of an agent."""
    return subprocess.run(["git", *argv], cwd=where, capture_output=True, text=True, check=True).stdout.removesuffix("\n")


def branch(env: Environment) -> str:
    return by_hand(env.repo.root, "for-each-ref", "--format=%(objectname)", env.branch_ref)


def retried(world: World, env: Environment, alive: Alive, made: Sequence[str]) -> None:
    """After `secure` every commit of `made` is on a rescue ref; a retry begins at the base and ends; nothing is lost by `clean`."""
    secure(env, "leftover work", always=True)
    assert set(made) <= world.kept(env)
    release(env)
    remove(env, alive, discard=True)
    by_hand(env.repo.root, "gc", "-q", "--prune=now")
    assert set(made) <= world.kept(env)
    assert by_hand(env.repo.root, "fsck", "--no-dangling") == ""


def test_it_follows_and_git_by_hand_is_true_in_the_worktree(world: World, env: Environment, nobody_alive: Alive) -> None:
    assert publish(env) == env.base
    first = world.commit(env.path, "a.txt")
    assert branch(env) == env.base
    assert publish(env) == first == branch(env)
    (env.path / "f0.txt").unlink()
    second = world.commit(env.path, "deep/b.txt")
    (env.path / "f1.txt").write_text("not committed\n")
    (env.path / "new.txt").write_text("new\n")
    assert publish(env) == second == branch(env)
    assert by_hand(env.path, "status", "--porcelain") == world.sh(env.path, "status", "--porcelain") == " M f1.txt\n?? new.txt"
    assert by_hand(env.path, "log", "--format=%H") == world.sh(env.path, "log", "--format=%H")
    assert by_hand(env.path, "rev-parse", "--abbrev-ref", "HEAD") == env.branch
    assert publish(env) == second
    retried(world, env, nobody_alive, [first, second])


def test_what_it_amended_is_beside_the_rescue_ref(world: World, env: Environment, nobody_alive: Alive) -> None:
    made = []
    for number in range(4):
        world.sh(env.path, "commit", "-q", "--allow-empty", *(("--amend",) if number else ()), "-m", f"try {number}")
        made.append(world.sh(env.path, "rev-parse", "HEAD"))
        assert publish(env) == made[-1] == branch(env)
    assert set(made[:-1]) <= set(by_hand(env.repo.root, "rev-list", env.tips_ref).split())
    assert by_hand(env.repo.root, "for-each-ref", env.rescue_ref) == ""
    done = secure(env, "leftover work")
    assert done.tip == done.rescue == made[-1] and made[0] not in by_hand(env.repo.root, "rev-list", env.rescue_ref).split()
    retried(world, env, nobody_alive, made)


def test_a_branch_that_went_back_is_followed_back(world: World, env: Environment, nobody_alive: Alive) -> None:
    made = [world.commit(env.path, "a.txt"), world.commit(env.path, "b.txt")]
    publish(env)
    world.sh(env.path, "reset", "-q", "--hard", made[0])
    assert publish(env) == made[0] == branch(env)
    assert by_hand(env.path, "status", "--porcelain") == ""
    world.sh(env.path, "reset", "-q", "--hard", env.base)
    assert publish(env) == env.base == branch(env)
    retried(world, env, nobody_alive, made)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["delete", "rename", "detach", "pack", "symbolic", "garbage"])
def test_whatever_the_agent_does_to_its_branch(world: World, env: Environment, nobody_alive: Alive, how: str) -> None:
    made = [world.commit(env.path, "a.txt")]
    assert publish(env) == made[0]
    match how:
        case "delete":
            world.sh(env.path, "switch", "-q", "--detach")
            world.sh(env.path, "branch", "-qD", env.branch)
        case "rename":
            world.sh(env.path, "branch", "-m", "mine")
        case "detach":
            world.sh(env.path, "switch", "-q", "--detach")
        case "pack":
            world.sh(env.path, "pack-refs", "--all")
        case "symbolic":
            world.sh(env.path, "switch", "-q", "-c", "mine")
            world.sh(env.path, "symbolic-ref", env.branch_ref, "refs/heads/mine")
        case _:
            world.sh(env.path, "switch", "-q", "--detach")
            world.own(env, env.repo.common_dir / env.branch_ref).write_text("garbage\n")
    made.append(world.commit(env.path, "b.txt"))
    assert publish(env) == branch(env) == made[how in ("pack", "symbolic")]
    retried(world, env, nobody_alive, made)


@pytest.mark.parametrize("count", [40, pytest.param(110, marks=pytest.mark.soak)])
def test_so_many_commits_at_once_that_they_come_as_a_pack(world: World, env: Environment, nobody_alive: Alive, count: int) -> None:
    made = []
    for _ in range(2):
        script = f"for n in $(seq {count}); do echo $n >>a.txt; git add a.txt; git commit -qm $n; git rev-parse HEAD; done"
        made += world.run(env.path, "sh", "-euc", script).split()
        assert publish(env) == made[-1] == branch(env)
    assert not list((env.repo.common_dir / "objects" / "pack").glob("*.keep"))
    retried(world, env, nobody_alive, made)


def test_while_it_commits(world: World, env: Environment, nobody_alive: Alive) -> None:
    """Whatever arrives is a whole commit of its branch, each a child of the one before."""
    script = "for n in $(seq 25); do echo $n >>a.txt; git commit -qam $n || git add a.txt; done"
    agent = threading.Thread(target=lambda: world.run(env.path, "sh", "-uc", script))
    agent.start()
    seen = [env.base]
    while agent.is_alive():
        tip = publish(env)
        assert tip is not None and tip == branch(env)
        assert subprocess.run(["git", "merge-base", "--is-ancestor", seen[-1], tip], cwd=env.repo.root, check=False).returncode == 0
        seen.append(tip)
    agent.join()
    assert publish(env) == world.sh(env.path, "rev-parse", "HEAD") == branch(env)
    assert by_hand(env.path, "status", "--porcelain") == ""
    retried(world, env, nobody_alive, world.sh(env.path, "rev-list", f"{env.base}..HEAD").split())


def rename(env: Environment) -> None:
    by_hand(env.repo.root, "branch", "-m", env.branch, "kept/mine")


def delete(env: Environment) -> None:
    by_hand(env.repo.root, "update-ref", "-d", env.branch_ref)


def move_on(env: Environment) -> None:
    tree = by_hand(env.repo.root, "rev-parse", f"{env.branch}^{{tree}}")
    made = by_hand(env.repo.root, "commit-tree", tree, "-p", env.branch, "-m", "a person's")
    by_hand(env.repo.root, "update-ref", env.branch_ref, made)


def move_to_main(env: Environment) -> None:
    (env.repo.root / "more.txt").write_text("more\n")
    by_hand(env.repo.root, "add", "-A")
    by_hand(env.repo.root, "commit", "-q", "-m", "more")
    by_hand(env.repo.root, "update-ref", env.branch_ref, "refs/heads/main")


@pytest.mark.one_in(5)
@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
@pytest.mark.parametrize("published", [False, True], ids=["not published", "published"])
@pytest.mark.parametrize("meddle", [rename, delete, move_on, move_to_main])
def test_a_branch_that_a_person_took_is_left_to_them(
    world: World, env: Environment, nobody_alive: Alive, meddle: Callable[[Environment], None], published: bool, packed: bool
) -> None:
    made = [world.commit(env.path, "a.txt")]
    if published:
        publish(env)
    meddle(env)
    if packed:
        by_hand(env.repo.root, "pack-refs", "--all")
    theirs = by_hand(env.repo.root, "for-each-ref", "refs/heads")
    made.append(world.commit(env.path, "b.txt"))
    assert publish(env) is None
    (env.path / "left.txt").write_text("left\n")
    done = secure(env, "leftover work", always=True)
    assert by_hand(env.repo.root, "for-each-ref", "refs/heads") == theirs
    assert any(env.rescue_ref in note for note in done.notes), done.notes
    assert done.rescue is not None and world.blobs(env.repo, done.rescue)["left.txt"] == "left"
    assert secure(env, "leftover work", always=True).rescue == done.rescue
    assert set(made) <= world.kept(env)


def test_a_later_attempt_has_the_branch(world: World, env: Environment) -> None:
    world.commit(env.path, "a.txt")
    secure(env, "leftover work", always=True)
    release(env)
    second = world.env(env.repo, epoch=2)
    late = world.commit(env.path, "late.txt")
    assert publish(env) is None and branch(env) == env.base
    later = world.commit(second.path, "b.txt")
    assert publish(second) == later == branch(env)
    secure(env, "leftover work", always=True)
    assert late in world.kept(env) and branch(env) == later


def test_a_lock_that_a_persons_editor_has_for_a_moment_is_waited_for(
    world: World, env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, waited = env.admin_dir / "index.lock", []
    lock.write_text("")

    def pause(seconds: float) -> None:
        waited.append(seconds)
        lock.unlink(missing_ok=True)

    monkeypatch.setattr(collect_work, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
    made = world.commit(env.path, "a.txt")
    assert publish(env) == made and waited
    assert by_hand(env.path, "status", "--porcelain") == ""


def test_a_lock_of_the_persons_git_in_the_registration_stops_nothing(world: World, env: Environment) -> None:
    (env.admin_dir / "index.lock").write_text("")
    made = world.commit(env.path, "a.txt")
    assert publish(env) == made == branch(env)
    (env.admin_dir / "index.lock").unlink()
    made = world.commit(env.path, "b.txt")
    assert publish(env) == made
    assert by_hand(env.path, "status", "--porcelain") == ""
