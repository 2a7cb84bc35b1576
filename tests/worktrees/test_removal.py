"""S11, S14-S17: removed only when nothing could be lost, and never by our own hands."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import Refused, ToolFailed
from tests.worktrees.killing import died_at
from worktrees import collect_work, environments, removal
from worktrees.collect_work import Why
from worktrees.environments import Environment, release
from worktrees.removal import Keep, Removable, finish, forget, inspect, is_gone, remove

if TYPE_CHECKING:
    from tests.worktrees.conftest import World

Alive = Callable[[Path], Sequence[int]]
pytestmark = pytest.mark.in_turns


@pytest.fixture
def world(both: World) -> World:
    return both


@pytest.fixture
def env(world: World) -> Environment:
    env = world.env(world.repo())
    release(env)
    return env


def reasons(env: Environment, alive: Alive) -> list[Why]:
    verdict = inspect(env, alive)
    return [reason.why for reason in verdict.reasons] if isinstance(verdict, Keep) else []


def rescued(world: World, env: Environment) -> str:
    return world.sh(env.repo.root, "rev-parse", env.rescue_ref)


def test_clean_and_nothing_new_is_removed_with_its_branch(world: World, env: Environment, nobody_alive: Alive) -> None:
    assert inspect(env, nobody_alive) == Removable(env.base)
    secured = remove(env, nobody_alive)
    assert secured.rescue == env.base == rescued(world, env)
    assert not env.path.exists()
    assert not env.admin_dir.exists()
    assert world.sh(env.repo.root, "for-each-ref", "refs/heads/nightcrew") == ""


def _dirty(path: Path) -> None:
    (path / "f0.txt").write_text("changed")


def _deleted(path: Path) -> None:
    (path / "f0.txt").unlink()


def _untracked(path: Path) -> None:
    for number in range(30):
        (path / f"new{number}.txt").write_text("x")


def _ignored(path: Path) -> None:
    (path.parent.parent.parent.parent / "repo" / ".git" / "info" / "exclude").write_text(".env\nnode_modules/\n")
    (path / ".env").write_text("KEY")
    (path / "node_modules").mkdir()
    (path / "node_modules" / "x").write_text("x")


@pytest.mark.parametrize(
    ("spoil", "why"), [(_dirty, Why.DIRTY), (_deleted, Why.DIRTY), (_untracked, Why.UNTRACKED), (_ignored, Why.IGNORED)]
)
def test_files_are_listed_and_kept(world: World, env: Environment, nobody_alive: Alive, spoil: Callable[[Path], None], why: Why) -> None:
    spoil(env.path)
    assert reasons(env, nobody_alive) == [why]
    before = sorted(path.name for path in env.path.rglob("*"))
    with pytest.raises(Refused) as caught:
        remove(env, nobody_alive)
    assert why.value in caught.value.why
    assert caught.value.why.count(", ") <= 10
    assert "clean --yes --discard" in caught.value.hint
    assert sorted(path.name for path in env.path.rglob("*")) == before
    assert rescued(world, env)
    remove(env, nobody_alive, discard=True)
    assert not env.path.exists()
    if why is Why.UNTRACKED:
        assert "new29.txt" in world.blobs(env.repo, env.rescue_ref)


def test_unmerged_commits_are_kept_until_merged(world: World, env: Environment, nobody_alive: Alive) -> None:
    world.commit(env.path, "a.txt")
    tip = world.commit(env.path, "b.txt")
    world.published(env)
    verdict = inspect(env, nobody_alive)
    assert isinstance(verdict, Keep)
    assert "2 of them" in str(verdict)
    with pytest.raises(Refused):
        remove(env, nobody_alive)
    world.sh(env.repo.root, "merge", "-q", env.branch)
    assert remove(env, nobody_alive).tip == tip


@pytest.mark.in_turns
@pytest.mark.parametrize("later", ["nothing", "other files", "the same lines"])
@pytest.mark.parametrize("how", ["squash", "cherry-pick"])
def test_squashed_and_cherry_picked_branches_count_as_merged(
    world: World, env: Environment, nobody_alive: Alive, how: str, later: str
) -> None:
    world.commit(env.path, "f0.txt", "a\n")
    world.commit(env.path, "f0.txt", "b\n")
    world.published(env)
    main = env.repo.root
    world.commit(main, "meanwhile.txt")
    if how == "squash":
        world.sh(main, "merge", "-q", "--squash", env.branch)
        world.sh(main, "commit", "-q", "-m", "squashed")
    else:
        world.sh(main, "cherry-pick", f"{env.base}..{env.branch}")
    if later != "nothing":
        world.commit(main, "z.txt" if later == "other files" else "f0.txt", "later\n")
    assert reasons(env, nobody_alive) == []
    remove(env, nobody_alive)
    assert not env.path.exists()


def test_a_squash_that_was_reverted_is_kept_only_by_the_rescue_ref_and_a_partial_one_stays(
    world: World, env: Environment, nobody_alive: Alive
) -> None:
    world.commit(env.path, "a.txt")
    world.commit(env.path, "b.txt")
    world.published(env)
    world.sh(env.repo.root, "cherry-pick", f"{env.branch}~1")
    assert reasons(env, nobody_alive) == [Why.UNMERGED]


def test_work_that_arrived_in_other_pieces_is_merged(world: World, env: Environment, nobody_alive: Alive) -> None:
    """Neither one squashed patch nor the same commits: but merging would change nothing any more."""
    world.commit(env.path, "f0.txt", "a\n")
    world.commit(env.path, "f1.txt", "b\n")
    world.commit(env.path, "f0.txt", "a, better\n")
    world.published(env)
    for name in ("f0.txt", "f1.txt"):
        world.commit(env.repo.root, name, (env.path / name).read_text())
    assert reasons(env, nobody_alive) == []


def test_a_merge_commit_with_changes_of_its_own_is_not_merged(world: World, env: Environment, nobody_alive: Alive) -> None:
    main = env.repo.root
    world.commit(env.path, "a.txt")
    world.published(env)
    world.sh(main, "switch", "-q", "-c", "side")
    side = world.commit(main, "c.txt")
    world.sh(main, "switch", "-q", "main")
    world.commit(main, "b.txt")
    world.sh(main, "cherry-pick", env.branch, "side")
    world.sh(env.path, "merge", "-q", "--no-commit", side)
    (env.path / "f0.txt").write_text("only in the merge\n")
    world.sh(env.path, "commit", "-q", "-a", "-m", "merge and more")
    world.published(env)
    assert reasons(env, nobody_alive) == [Why.UNMERGED]


def test_live_processes_locks_and_discard(world: World, env: Environment, nobody_alive: Alive) -> None:
    with pytest.raises(Refused, match="4711"):
        remove(env, lambda _path: (4711,), discard=True)
    world.sh(env.repo.root, "worktree", "lock", str(env.path))
    assert reasons(env, nobody_alive) == [Why.LOCKED]
    with pytest.raises(Refused, match="locked"):
        remove(env, nobody_alive, discard=True)
    assert (env.path / "f0.txt").exists()


def test_a_process_that_comes_while_the_work_is_being_secured(env: Environment) -> None:
    answers = iter([(), (4712,)])
    with pytest.raises(Refused, match="4712"):
        remove(env, lambda _path: next(answers))
    assert (env.path / "f0.txt").exists()


def test_a_worktree_of_somebody_else_is_never_touched(world: World, env: Environment, nobody_alive: Alive) -> None:
    shutil.rmtree(env.path)
    world.sh(env.repo.root, "worktree", "prune")
    world.sh(env.repo.root, "worktree", "add", "-q", "-b", "mine", str(env.path))
    admin = next((env.repo.common_dir / "worktrees").iterdir())
    admin.rename(admin.with_name("mine"))  # theirs, at our path, under another name
    (env.path / ".git").write_text(f"gitdir: {admin.with_name('mine')}\n")
    assert reasons(env, nobody_alive) == [Why.MISSING]
    with pytest.raises(Refused):
        remove(env, nobody_alive, discard=True)
    assert (env.path / "f0.txt").exists()


def test_tampered_links_keep_it(world: World, env: Environment, nobody_alive: Alive) -> None:
    (env.path / ".git").write_text(f"gitdir: {env.repo.common_dir}\n")
    assert reasons(env, nobody_alive) == [Why.FOREIGN]
    with pytest.raises(Refused):
        remove(env, nobody_alive, discard=True)
    assert (env.repo.root / "f0.txt").exists()
    assert (env.path / "f0.txt").exists()


def test_commits_that_nobody_took_out_of_its_own_repository_keep_it(world: World, env: Environment, nobody_alive: Alive) -> None:
    """On the branch, whether HEAD is there or not."""
    world.commit(env.path, "a.txt")
    assert reasons(env, nobody_alive) == [Why.UNMERGED]
    world.sh(env.path, "switch", "-q", "--detach", env.base)
    assert reasons(env, nobody_alive) == [Why.UNMERGED]
    with pytest.raises(Refused):
        remove(env, nobody_alive)
    assert env.path.is_dir()


def test_what_cannot_be_inspected_is_kept(world: World, env: Environment, nobody_alive: Alive) -> None:
    world.own(env, env.admin_dir / "index").write_bytes(b"garbage")
    assert reasons(env, nobody_alive) == [Why.UNKNOWN]
    with pytest.raises(Refused):
        remove(env, nobody_alive, discard=True)
    assert env.path.is_dir()


def test_repositories_inside_keep_it(world: World, env: Environment, nobody_alive: Alive) -> None:
    world.sh(env.path, "init", "-q", "sub")
    world.commit(env.path / "sub")
    assert reasons(env, nobody_alive) == [Why.NESTED]
    remove(env, nobody_alive, discard=True)
    assert "sub/file.txt" in world.blobs(env.repo, env.rescue_ref)


def test_removed_by_hand_only_that_entry_is_forgotten(world: World, env: Environment, nobody_alive: Alive) -> None:
    other = world.env(env.repo, "r1/other")
    world.sh(env.repo.root, "worktree", "add", "-q", "-b", "mine", str(world.tmp / "mine"))
    commit = world.commit(env.path, "a.txt")
    shutil.rmtree(env.path)
    shutil.rmtree(world.tmp / "mine")  # a person's, on a disk that is not there now
    assert reasons(env, nobody_alive) == [Why.MISSING]
    forget(env)
    assert not env.admin_dir.exists()
    assert other.admin_dir.exists()
    assert (env.repo.common_dir / "worktrees" / "mine").exists()
    assert world.sh(env.repo.root, "rev-parse", env.branch) == commit
    with pytest.raises(Refused):
        forget(other)


def cut_off(env: Environment, alive: Alive, monkeypatch: pytest.MonkeyPatch, *, discard: bool = False) -> None:
    """Its removal, up to the branch."""

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(removal, "_delete_branch", dies)
        with pytest.raises(KeyboardInterrupt):
            remove(env, alive, discard=discard)
    assert is_gone(env)


def test_a_removal_that_was_cut_off_is_finished(
    world: World, env: Environment, nobody_alive: Alive, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(env, nobody_alive, monkeypatch)
    forget(env)
    finish(env)
    assert world.sh(env.repo.root, "for-each-ref", "refs/heads/nightcrew") == ""
    other = world.env(env.repo, "r1/other")
    release(other)
    commit = world.commit(other.path, "a.txt")
    cut_off(other, nobody_alive, monkeypatch, discard=True)
    finish(other)
    assert world.sh(env.repo.root, "rev-parse", other.branch) == commit, "nobody said that it may go"
    finish(other, discard=True)
    assert world.sh(env.repo.root, "for-each-ref", "refs/heads/nightcrew") == "" and rescued(world, other) == commit


def test_a_branch_that_no_rescue_ref_keeps_stays_when_its_worktree_was_removed_by_hand(world: World, env: Environment) -> None:
    world.sh(env.repo.root, "worktree", "remove", "--force", str(env.path))
    commit = world.sh(env.repo.root, "commit-tree", f"{env.base}^{{tree}}", "-p", env.base, "-m", "holds nothing that is not there")
    world.sh(env.repo.root, "update-ref", env.branch_ref, commit)
    finish(env)
    finish(env, discard=True)
    assert world.sh(env.repo.root, "rev-parse", env.branch) == commit, "its commit is on no other ref"


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_killed_anywhere_and_done_again_nothing_of_it_is_left(world: World, nobody_alive: Alive, stride: int) -> None:
    repo = world.repo()
    for number in itertools.count(1, stride):
        env = world.env(repo, f"r1/t{number}")
        release(env)
        ended = died_at(number, lambda env=env: remove(env, nobody_alive))  # type: ignore[misc]  # bound in the loop
        if is_gone(env):
            forget(env)
            finish(env)
        else:  # a confined one may have lost some of its files: to `clean` that is a change, until a person says that it may go
            remove(env, nobody_alive, discard=env.private is not None)
        assert world.sh(repo.root, "for-each-ref", "refs/heads/nightcrew") == "", number
        assert is_gone(env) and not env.admin_dir.exists(), number
        if ended:
            break


def test_the_branch_of_a_later_attempt_stays(world: World, env: Environment, nobody_alive: Alive) -> None:
    later = world.env(env.repo, epoch=2)
    remove(env, nobody_alive)
    assert world.sh(later.path, "rev-parse", "HEAD") == env.base
    assert world.sh(later.path, "status", "--porcelain") == ""


def _one_commit(world: World, env: Environment) -> None:
    world.commit(env.path, "a.txt")


def _merged(world: World, env: Environment) -> None:
    _one_commit(world, env)
    world.published(env)
    world.sh(env.repo.root, "merge", "-q", env.branch)


def _detached(world: World, env: Environment) -> None:
    world.sh(env.path, "checkout", "-q", "--detach")


@pytest.mark.parametrize(
    ("work", "more"),
    [
        (lambda _, __: None, []),
        (_merged, []),
        (_detached, []),
        (_one_commit, ["status"]),
    ],
    ids=["nothing", "merged", "detached", "a commit that is nowhere else"],
)
def test_removal_of_secured_work_asks_git_no_more_than_it_must(
    world: World, env: Environment, nobody_alive: Alive, monkeypatch: pytest.MonkeyPatch,
    work: Callable[[World, Environment], None], more: list[str],
) -> None:  # fmt: skip
    """Each git costs more than all that we do ourselves. git looks itself, as it removes the worktree."""
    work(world, env)
    world.published(env)
    collect_work.secure(env, "nightcrew: work left", always=True)
    environments.forget(env)  # as after a restart of the supervisor: only git can tell whether a file was changed
    verdict = inspect(env, nobody_alive)
    log, place = world.tmp / "gits", world.tmp / "shim"
    place.mkdir()
    (place / "git").write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {shutil.which("git")} "$@"\n')
    (place / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    remove(env, nobody_alive, discard=True, verdict=verdict)
    verbs = [line.partition(f"-C {env.repo.root}")[2] or line for line in log.read_text().splitlines()]
    asked = ("rev-parse", "status", "diff-tree", "--count", "worktree remove", "update-ref")
    said = [verb for line in verbs for verb in asked if f" {verb} " in f"{line} "]
    assert said == [*([] if world.confined else more), "worktree remove", "update-ref"], verbs


@pytest.mark.parametrize("late", [_dirty, _untracked], ids=["changed", "new"])
def test_a_file_that_comes_after_the_look_stays(env: Environment, nobody_alive: Alive, late: Callable[[Path], None]) -> None:
    """Nothing was left that the work be secured for: git's own look, as it removes the worktree, finds the file, or it is secured first."""
    collect_work.secure(env, "nightcrew: work left", always=True)
    verdict = inspect(env, nobody_alive)
    assert isinstance(verdict, Removable)
    late(env.path)
    try:
        remove(env, nobody_alive, verdict=verdict)
    except (Refused, ToolFailed):
        assert env.path.exists()
    assert env.path.exists() or env.repo.git.run(env.repo.store, "diff", "--quiet", env.base, env.rescue_ref, accept=(0, 1)).code == 1


def test_a_commit_that_comes_after_the_look_is_kept(world: World, env: Environment, nobody_alive: Alive) -> None:
    collect_work.secure(env, "nightcrew: work left", always=True)
    verdict = inspect(env, nobody_alive)
    world.commit(env.path, "late.txt")
    world.published(env)
    with pytest.raises(Refused):
        remove(env, nobody_alive, verdict=verdict)
    assert env.path.exists() and world.sh(env.repo.root, "log", "--format=%s", f"{env.base}..{env.rescue_ref}") != ""
