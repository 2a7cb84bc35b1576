"""What a train brought onto a branch is safe to remove, by whichever method; what it did not is kept, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.train_orders import GeneratedRule, Method, Person, Terms
from worktrees import landing, tree_merge
from worktrees.environments import Environment, release
from worktrees.landing import Contained, Result, Staged
from worktrees.removal import Keep, Removable, inspect
from worktrees.repository import discover
from worktrees.tree_merge import State

if TYPE_CHECKING:
    from tests.worktrees.conftest import World

Alive = Callable[[Path], Sequence[int]]
LINES = [f"line {number}\n" for number in range(12)]
LOCK = GeneratedRule(("deps.lock", "gen/**"), "make lock")
TERMS = Terms("t1", Person("Ada Person", "ada@example.com"), 1_700_000_000.0, into="main")


def changed(at: int, text: str) -> str:
    return "".join([*LINES[:at], text, *LINES[at + 1 :]])


@pytest.fixture
def env(world: World) -> Environment:
    """A worktree whose base has gone on."""
    root = world.make()
    (root / "nightcrew.toml").write_text('[[generated]]\npaths = ["deps.lock", "gen/"]\ncommand = "make lock"\n')
    (root / "deps.lock").write_text("none\n")
    world.commit(root, "long.txt", "".join(LINES))
    made = world.env(discover(world.git, root))
    release(made)
    world.commit(root, "meanwhile.txt")
    return made


def landed(world: World, env: Environment, method: Method, lock: str = "") -> Staged | Contained:
    """By the steps of a train; with `lock` its generated file is made anew with these words."""
    repo = discover(world.git, env.repo.root)
    terms = replace(TERMS, method=method, generated=(LOCK,))
    tip = world.sh(repo.root, "rev-parse", env.branch)
    done = landing.stage(repo, repo.head, Result(env.task, tip, "Title"), terms)
    assert not isinstance(done, landing.LeftOut), done
    if isinstance(done, Contained):
        return done
    assert bool(done.regenerate) == bool(lock)
    if lock:
        top = world.tmp / "task"
        world.sh(repo.root, "worktree", "add", "-q", "--detach", str(top), done.commit)
        made = landing.finish(repo, done.commit, world.commit(top, "deps.lock", lock), terms)
        world.sh(repo.root, "worktree", "remove", "--force", str(top))
        assert isinstance(made, Staged)
        done = made
    assert isinstance(landing.move(repo, "main", repo.head, done.commit), landing.Moved)
    return done


def work(world: World, env: Environment) -> None:
    """Two commits: a changed file, one that was moved, and a program."""
    world.commit(env.path, "long.txt", changed(3, "mine\n"))
    (env.path / "long.txt").rename(env.path / "moved.txt")
    (env.path / "run.sh").write_text("true\n")
    (env.path / "run.sh").chmod(0o755)
    world.commit(env.path, "mine.txt")


@pytest.mark.in_turns
@pytest.mark.parametrize("method", Method)
def test_what_has_landed_can_go_also_after_the_branch_went_on(world: World, env: Environment, nobody_alive: Alive, method: Method) -> None:
    work(world, env)
    assert isinstance(inspect(env, nobody_alive), Keep)
    landed(world, env, method)
    assert isinstance(inspect(env, nobody_alive), Removable)
    world.commit(env.repo.root, "moved.txt", changed(3, "went on\n"))
    assert isinstance(inspect(env, nobody_alive), Removable)
    assert isinstance(landed(world, env, method), Contained), "landed twice it is there"
    world.sh(env.repo.root, "revert", "--no-edit", *(("-m", "1") if method is Method.MERGE else ()), "HEAD~1", ok=False)
    world.sh(env.repo.root, "checkout", "-q", "-f", "HEAD~1")


@pytest.mark.parametrize("method", [Method.SQUASH, Method.REBASE])
def test_what_was_amended_or_added_after_it_landed_is_kept(world: World, env: Environment, nobody_alive: Alive, method: Method) -> None:
    world.commit(env.path, "long.txt", changed(3, "mine\n"))
    landed(world, env, method)
    world.sh(env.path, "commit", "-q", "--amend", "-m", "other words")
    assert isinstance(inspect(env, nobody_alive), Removable), "the words are not the work"
    world.commit(env.path, "more.txt")
    verdict = inspect(env, nobody_alive)
    assert isinstance(verdict, Keep)
    assert [one.state for one in verdict.commits] == [State.SAME.value, State.MISSING.value]


@pytest.mark.parametrize("method", [Method.SQUASH, Method.REBASE])
def test_what_was_reverted_after_it_landed_is_kept(world: World, env: Environment, nobody_alive: Alive, method: Method) -> None:
    world.commit(env.path, "long.txt", changed(3, "mine\n"))
    landed(world, env, method)
    world.sh(env.repo.root, "revert", "--no-edit", "HEAD")
    verdict = inspect(env, nobody_alive)
    assert isinstance(verdict, Keep) and "took it back" in str(verdict)


@pytest.mark.parametrize("method", [Method.SQUASH, Method.REBASE])
def test_a_result_whose_generated_file_was_made_anew_can_go(world: World, env: Environment, nobody_alive: Alive, method: Method) -> None:
    root = env.repo.root
    world.commit(root, "deps.lock", "ours\n")
    (env.path / "deps.lock").write_text("theirs\n")
    world.commit(env.path, "long.txt", changed(3, "mine\n"))
    landed(world, env, method, lock="both\n")
    verdict = inspect(env, nobody_alive)
    assert isinstance(verdict, Removable) and "nothing but generated files: deps.lock" in verdict.why
    assert isinstance(landed(world, env, method), Contained)
    world.commit(root, "long.txt", changed(3, "went on\n"))
    assert isinstance(inspect(env, nobody_alive), Removable), "the same lines changed again"
    world.commit(env.path, "more.txt")
    assert isinstance(inspect(env, nobody_alive), Keep)
    (root / "nightcrew.toml").write_text("")
    world.sh(env.path, "reset", "-q", "--hard", "HEAD~1")
    assert isinstance(inspect(env, nobody_alive), Keep), "nobody says any more that it is made by a command"


def test_a_result_of_generated_files_alone_is_compared_whole(world: World, env: Environment, nobody_alive: Alive) -> None:
    """That is its work: it did not land because something else did."""
    world.commit(env.repo.root, "deps.lock", "ours\n")
    world.commit(env.path, "deps.lock", "theirs\n")
    assert isinstance(inspect(env, nobody_alive), Keep)
    world.commit(env.repo.root, "deps.lock", "theirs\n")
    assert isinstance(inspect(env, nobody_alive), Removable)


def test_commits_of_generated_files_do_not_stand_for_each_other(world: World, env: Environment) -> None:
    root = env.repo.root
    for name in ("gen/a\n.txt", "gen/é.txt", 'gen/"q".txt'):
        world.commit(env.path, name)
    world.commit(env.path, "mine.txt")
    world.commit(root, "gen/b.txt")
    target, tip = (world.sh(root, "rev-parse", name) for name in ("main", env.branch))
    seen = tree_merge.judge(env.repo, target, tip, (LOCK,))
    assert (seen.held, [one.state for one in seen.commits]) == (False, [State.EMPTY] * 3 + [State.MISSING])
    seen = tree_merge.judge(env.repo, target, tip)
    assert [one.state for one in seen.commits] == [State.MISSING] * 4


def test_a_project_file_that_cannot_be_read_says_nothing(world: World, env: Environment, nobody_alive: Alive) -> None:
    (env.repo.root / "nightcrew.toml").write_text("no = toml = here")
    world.commit(env.path, "long.txt", changed(3, "mine\n"))
    assert isinstance(inspect(env, nobody_alive), Keep)
