"""Whether a branch holds the work of another: on real repositories, however it arrived, and with what only looks like it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import Refused
from worktrees import tree_merge
from worktrees.collect_work import Why
from worktrees.environments import Environment, release
from worktrees.removal import Keep, Removable, inspect, remove
from worktrees.tree_merge import Standing, State

if TYPE_CHECKING:
    from tests.worktrees.conftest import World

Alive = Callable[[Path], Sequence[int]]
LINES = [f"line {number}\n" for number in range(12)]


@pytest.fixture
def env(world: World) -> Environment:
    repo = world.repo()
    world.commit(repo.root, "long.txt", "".join(LINES))
    made = world.env(repo, base=world.sh(repo.root, "rev-parse", "HEAD"))
    release(made)
    world.commit(repo.root, "meanwhile.txt")
    return made


def changed(at: int, text: str) -> str:
    return "".join([*LINES[:at], text, *LINES[at + 1 :]])


def judged(world: World, env: Environment) -> Standing:
    target, tip = (world.sh(env.repo.root, "rev-parse", name) for name in ("main", env.branch))
    return tree_merge.judge(env.repo, target, tip)


def states(standing: Standing) -> list[State]:
    return [commit.state for commit in standing.commits]


def test_what_was_reverted_later_is_kept_and_said(world: World, env: Environment, nobody_alive: Alive) -> None:
    main = env.repo.root
    world.commit(env.path, "long.txt", changed(3, "mine\n"))
    world.sh(main, "cherry-pick", env.branch)
    assert judged(world, env).held
    world.sh(main, "revert", "--no-edit", "HEAD")
    undone = world.sh(main, "rev-parse", "HEAD")
    verdict = inspect(env, nobody_alive)
    assert isinstance(verdict, Keep)
    assert f"{undone[:12]} took it back" in str(verdict)
    assert [(each.state, each.by) for each in verdict.commits] == [(State.REVERTED.value, undone)]
    world.commit(main, "long.txt", changed(3, "theirs\n"))
    assert not judged(world, env).held, "what came after the revert is not what became of the work"
    world.sh(main, "reset", "-q", "--hard", "HEAD~1")
    world.sh(main, "revert", "--no-edit", "HEAD")
    assert judged(world, env).held


def test_what_was_taken_back_by_hand_is_kept_where_other_lines_went_on(world: World, env: Environment) -> None:
    main = env.repo.root
    world.commit(env.path, "long.txt", "".join([LINES[0], "mine\n", *LINES[2:9], "also mine\n", *LINES[10:]]))
    world.sh(main, "cherry-pick", env.branch)
    world.commit(main, "long.txt", "".join([LINES[0], "went on\n", *LINES[2:9], "also mine\n", *LINES[10:]]))
    assert judged(world, env).held, "the same lines changed again"
    world.commit(main, "long.txt", "".join([LINES[0], "went on\n", *LINES[2:]]))
    seen = judged(world, env)
    assert not seen.held
    assert seen.why.endswith("the effect is gone: long.txt")


def test_a_part_that_arrived_does_not_carry_the_rest(world: World, env: Environment, nobody_alive: Alive) -> None:
    main = env.repo.root
    for name in ("a.txt", "b.txt", "c.txt"):
        world.commit(env.path, name)
    world.sh(main, "cherry-pick", "--no-commit", f"{env.base}..{env.branch}~1")
    world.sh(main, "commit", "-q", "-m", "two of them")
    assert states(judged(world, env)) == [State.MISSING] * 3
    world.sh(main, "reset", "-q", "--hard", "HEAD~1")
    world.sh(main, "cherry-pick", f"{env.branch}~2", env.branch)
    verdict = inspect(env, nobody_alive)
    assert isinstance(verdict, Keep)
    assert "2 of its 3 commits" in str(verdict)
    assert [each.subject for each in verdict.commits if each.state == State.MISSING.value] == ["change b.txt"]


def test_an_empty_commit_holds_nothing(world: World, env: Environment) -> None:
    main = env.repo.root
    world.commit(env.path, "long.txt", changed(3, "mine\n"))
    world.sh(env.path, "commit", "-q", "--allow-empty", "-m", "nothing")
    world.sh(main, "cherry-pick", f"{env.branch}~1")
    world.commit(main, "long.txt", changed(3, "theirs\n"))
    seen = judged(world, env)
    assert (seen.held, states(seen)) == (True, [State.SAME, State.EMPTY])


def _binary(top: Path, mine: bool) -> None:
    (top / "blob.bin").write_bytes(b"\0\1" + (b"mine" if mine else b"base"))


def _space(top: Path, mine: bool) -> None:
    (top / "long.txt").write_text(changed(4, "    line 4\n" if mine else " line 4\n"))


def _mode(top: Path, mine: bool) -> None:
    (top / "run.sh").write_text("true\n")
    (top / "run.sh").chmod(0o755 if mine else 0o644)


def _rename(top: Path, mine: bool) -> None:
    (top / "long.txt").rename(top / "moved.txt")
    (top / "moved.txt").write_text(changed(4, "mine\n") if mine else "".join(LINES))


def _link(top: Path, mine: bool) -> None:
    name = top / "there"
    os.symlink("f0.txt", name) if mine else name.write_text("f0.txt")


@pytest.mark.parametrize("make", [_binary, _space, _mode, _rename, _link])
def test_what_only_looks_the_same_is_kept(world: World, env: Environment, make: Callable[[Path, bool], None]) -> None:
    """And with the same content it counts, though the base went on."""
    for top, mine in ((env.path, True), (env.repo.root, False)):
        make(top, mine)
        world.sh(top, "add", "-A")
        world.sh(top, "commit", "-q", "-m", "change")
    assert not judged(world, env).held
    world.sh(env.repo.root, "reset", "-q", "--hard", "HEAD~1")
    make(env.repo.root, True)
    world.commit(env.repo.root, "f1.txt", "went on\n")
    assert judged(world, env).held


def test_beyond_the_bounds_it_is_kept_and_said(world: World, env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    main = env.repo.root
    world.commit(env.path, "long.txt", changed(3, "mine\n"))
    world.commit(env.path, "long.txt", changed(3, "mine again\n"))
    world.sh(main, "cherry-pick", f"{env.base}..{env.branch}")
    for text in ("theirs\n", "theirs again\n"):
        world.commit(main, "long.txt", changed(3, text))
    assert judged(world, env).held
    for bound, said in (
        ("HISTORY", "newest 2 commits were"),
        ("CANDIDATES", "newest 2 commits that touch"),
        ("OWN_MAX", "more than 1 commits"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(tree_merge, bound, 1 if bound == "OWN_MAX" else 2)
            seen = judged(world, env)
        assert not seen.held
        assert said in seen.why


def test_nothing_of_the_repository_runs(world: World, env: Environment) -> None:
    main, proof = env.repo.root, world.tmp / "ran"
    world.commit(env.path, "long.txt", changed(3, "mine\n"))
    world.sh(main, "cherry-pick", env.branch)
    world.commit(main, "long.txt", changed(3, "theirs\n"))
    attributes = env.repo.common_dir / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("* diff=evil merge=evil filter=evil\n")
    script = f"sh -c 'touch {proof}; cat \"$1\"' -"
    for key in ("diff.evil.command", "diff.evil.textconv", "merge.evil.driver", "filter.evil.smudge", "filter.evil.clean", "diff.external"):
        world.sh(main, "config", key, script)
    judged(world, env)
    assert not proof.exists()


def test_a_branch_that_moved_while_the_work_was_secured_is_asked_again(world: World, env: Environment, nobody_alive: Alive) -> None:
    world.commit(env.path, "long.txt", changed(3, "mine\n"))
    world.sh(env.repo.root, "merge", "-q", "--squash", env.branch)
    world.sh(env.repo.root, "commit", "-q", "-m", "squashed")
    verdict = inspect(env, nobody_alive)
    assert isinstance(verdict, Removable)
    assert verdict.why == "on main: merging it would change nothing"
    world.sh(env.repo.root, "reset", "-q", "--hard", "HEAD~1")
    with pytest.raises(Refused, match=Why.UNMERGED.value):
        remove(env, nobody_alive, verdict=verdict)
    assert env.path.is_dir()
    assert world.sh(env.repo.root, "rev-parse", env.branch)
