"""A branch of the person's moves forward: as compare and swap, with the checkout that is on it, or not at all."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import NotFound, Refused
from tests.worktrees import kinds_of_repositories
from tests.worktrees.killing import died_at
from tests.worktrees.moving_kit import Branch
from worktrees import landing
from worktrees.landing import Moved
from worktrees.repository import Repository, discover

if TYPE_CHECKING:
    from tests.worktrees.conftest import World


@pytest.fixture
def branch(world: World) -> Branch:
    return Branch(world)


def test_with_its_checkout_and_done_twice_it_is_done(world: World, branch: Branch) -> None:
    assert not landing.readiness(branch.repo, "main")
    branch.assert_moved(branch.move())
    before = branch.state()
    branch.assert_moved(branch.move())
    assert branch.state() == before and branch.stands() == branch.new


def test_without_a_checkout(world: World, branch: Branch) -> None:
    world.sh(branch.root, "switch", "-q", "-c", "other")
    before = branch.state()[1:]
    assert branch.move() == Moved(branch.new, None)
    assert (branch.stands(), branch.state()[1:]) == (branch.new, before)
    assert "nightcrew land" in world.sh(branch.root, "reflog", "-1", "main")


@pytest.mark.parametrize("name", ["-x", "--help", "a'b", "$(id)", "é/ü", "heads/main", "a.b/c-d", "HEAD"])
def test_whatever_it_is_called(world: World, branch: Branch, name: str) -> None:
    world.sh(branch.root, "update-ref", f"refs/heads/{name}", branch.old)
    assert branch.move(name) == Moved(branch.new, None)
    assert (branch.stands(name), branch.stands()) == (branch.new, branch.old)
    world.sh(branch.root, "update-ref", f"refs/heads/{name}", branch.old)
    world.sh(branch.root, "symbolic-ref", "HEAD", f"refs/heads/{name}")
    branch.assert_moved(branch.move(name))


def test_one_that_is_checked_out_in_another_worktree(world: World, branch: Branch) -> None:
    other = world.tmp / "other\nworktree"
    world.sh(branch.root, "switch", "-q", "--detach")
    world.sh(branch.root, "worktree", "add", "-q", os.fspath(other), "main")
    before = branch.state()[1:]
    branch.assert_moved(branch.move(), other)
    assert branch.state()[1:] == before
    assert branch.move() == Moved(branch.new, other)


def test_packed_refs_and_a_branch_below_another(world: World, branch: Branch) -> None:
    world.sh(branch.root, "branch", "main2/deep", branch.old)
    world.sh(branch.root, "pack-refs", "--all")
    branch.assert_moved(branch.move())
    assert branch.move("main2/deep") == Moved(branch.new, None)


def test_a_part_of_the_tree_stays_a_part(world: World, branch: Branch) -> None:
    world.sh(branch.root, "sparse-checkout", "set", "docs")
    done = branch.move()
    assert isinstance(done, Moved) and branch.stands() == branch.new
    assert (branch.root / "f0.txt").read_text() == "new\n" and not (branch.root / "new").exists()
    assert not world.sh(branch.root, "status", "--porcelain")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", [kind for kind in kinds_of_repositories.PEOPLES if kind is not kinds_of_repositories.sparse])
def test_in_any_repository(world: World, kind: Callable[[World, Path], Path]) -> None:
    branch = Branch(world, kind(world, world.tmp / "repo"))
    name = branch.repo.branch
    assert name
    done = branch.move(name)
    assert isinstance(done, Moved) and done.checkout == branch.root
    assert not world.sh(branch.root, "status", "--porcelain", "--untracked-files=no")
    assert branch.stands(name) == branch.new


def test_a_worktree_of_a_bare_repository(world: World, branch: Branch) -> None:
    bare, top = world.tmp / "bare.git", world.tmp / "top"
    world.sh(world.tmp, "clone", "-q", "--bare", os.fspath(branch.root), os.fspath(bare))
    world.sh(bare, "fetch", "-q", os.fspath(branch.root), branch.new)
    world.sh(bare, "worktree", "add", "-q", "-b", "side", os.fspath(top), "main")
    branch.repo = discover(world.git, top)
    assert branch.move() == Moved(branch.new, None)
    assert isinstance(done := branch.move("side"), Moved) and done.checkout == top


# Refused --------------------------------------------------------------------------------------------------------------------------------


def _moved_on(branch: Branch) -> None:
    branch.world.commit(branch.root, "meanwhile.txt")


def _dirty(branch: Branch) -> None:
    (branch.root / "f1.txt").write_text("mine\n")


def _staged(branch: Branch) -> None:
    (branch.root / "f2.txt").write_text("mine\n")
    branch.world.sh(branch.root, "add", "f2.txt")


def _removed(branch: Branch) -> None:
    (branch.root / "f2.txt").unlink()


def _untracked(branch: Branch) -> None:
    (branch.root / "new").mkdir()
    (branch.root / "new" / "file.txt").write_text("mine\n")


def _untracked_directory(branch: Branch) -> None:
    (branch.root / "new" / "file.txt").mkdir(parents=True)
    (branch.root / "new" / "file.txt" / "mine").write_text("mine\n")


def _untracked_file_for_a_directory(branch: Branch) -> None:
    (branch.root / "new").write_text("mine\n")


def _ignored(branch: Branch) -> None:
    (branch.root / ".git" / "info" / "exclude").write_text("new/\n")
    _untracked(branch)


def _ignored_directory(branch: Branch) -> None:
    (branch.root / ".git" / "info" / "exclude").write_text("file.txt/\n")
    _untracked_directory(branch)


def _ignored_file_for_a_directory(branch: Branch) -> None:
    (branch.root / ".git" / "info" / "exclude").write_text("new\n")
    _untracked_file_for_a_directory(branch)


def _merging(branch: Branch) -> None:
    branch.world.sh(branch.root, "switch", "-q", "-c", "side")
    branch.world.commit(branch.root, "f0.txt", "side\n")
    branch.world.sh(branch.root, "switch", "-q", "main")
    branch.world.commit(branch.root, "f0.txt", "main\n")
    branch.world.sh(branch.root, "merge", "-q", "side", ok=False)
    branch.again()


def _picking(branch: Branch) -> None:
    _merging(branch)
    branch.world.sh(branch.root, "merge", "--abort")
    branch.world.sh(branch.root, "cherry-pick", "side", ok=False)


def _rebasing(branch: Branch) -> None:
    branch.world.sh(branch.root, "-c", "sequence.editor=sed -i 1ibreak", "rebase", "-q", "-i", "--root")
    assert (branch.root / ".git" / "rebase-merge").is_dir()


def _bisecting(branch: Branch) -> None:
    for name in ("x.txt", "y.txt"):
        branch.world.commit(branch.root, name)
    branch.again()
    branch.world.sh(branch.root, "bisect", "start", "main", "main~2")


def _locked(branch: Branch) -> None:
    (branch.root / ".git" / "index.lock").touch()


def _locked_ref(branch: Branch) -> None:
    branch.world.sh(branch.root, "switch", "-q", "--detach")
    (branch.root / ".git" / "refs" / "heads" / "main.lock").touch()


def _no_log(branch: Branch) -> None:
    branch.world.sh(branch.root, "switch", "-q", "--detach")
    log = branch.root / ".git" / "logs" / "refs" / "heads" / "main"
    log.unlink()
    (log / "kept").mkdir(parents=True)
    (log / "kept" / "file").touch()


def _symbolic(branch: Branch) -> None:
    branch.world.sh(branch.root, "branch", "trunk")
    branch.world.sh(branch.root, "symbolic-ref", "refs/heads/main", "refs/heads/trunk")


def _symbolic_and_not_checked_out(branch: Branch) -> None:
    _symbolic(branch)
    branch.world.sh(branch.root, "switch", "-q", "--detach")


def _linked(branch: Branch) -> None:
    """As only a tool or an agent could leave it."""
    branch.world.sh(branch.root, "switch", "-q", "--detach")
    ref = branch.root / ".git" / "refs" / "heads" / "main"
    ref.rename(ref.with_name("elsewhere"))
    ref.symlink_to("elsewhere")


def _twice(branch: Branch) -> None:
    branch.world.sh(branch.root, "worktree", "add", "-q", "--force", os.fspath(branch.world.tmp / "twice"), "main")


def _checkout_gone(branch: Branch) -> None:
    branch.world.sh(branch.root, "switch", "-q", "--detach")
    branch.world.sh(branch.root, "worktree", "add", "-q", os.fspath(branch.world.tmp / "gone"), "main")
    (branch.world.tmp / "gone").rename(branch.world.tmp / "unplugged")


def _rewritten(branch: Branch) -> None:
    branch.new = branch.world.sh(branch.root, "commit-tree", f"{branch.new}^{{tree}}", "-m", "not on top of it")


SPOILT: list[tuple[Callable[[Branch], None], str]] = [
    (_moved_on, "when its results were tried"),
    (_rewritten, "does not contain"),
    (_dirty, "f1.txt"),
    (_staged, "f2.txt"),
    (_removed, "f2.txt"),
    (_untracked, "new/file.txt"),
    (_untracked_directory, "new/file.txt"),
    (_untracked_file_for_a_directory, "new"),
    (_ignored, "new/file.txt"),
    (_ignored_directory, "new/file.txt"),
    (_ignored_file_for_a_directory, "new"),
    (_merging, "a merge is in progress"),
    (_picking, "a cherry-pick is in progress"),
    (_rebasing, "a rebase of it is in progress"),
    (_bisecting, "a bisect of it is in progress"),
    (_locked, "index.lock"),
    (_locked_ref, "main.lock"),
    (_no_log, "logs/refs/heads/main"),
    (_symbolic, "another name of trunk"),
    (_symbolic_and_not_checked_out, "another name of trunk"),
    (_linked, "is a link"),
    (_twice, "and at"),
    (_checkout_gone, "which is not there"),
]


@pytest.mark.parametrize(("spoil", "why"), SPOILT)
def test_refused_with_everything_untouched(world: World, branch: Branch, spoil: Callable[[Branch], None], why: str) -> None:
    spoil(branch)
    before = branch.state()
    with pytest.raises(Refused, match=why) as caught:
        branch.move()
    assert caught.value.hint and caught.value.kept
    assert branch.state() == before


def test_what_is_known_before_a_train_begins(branch: Branch) -> None:
    _dirty(branch)
    assert "f1.txt" in landing.readiness(branch.repo, "main")
    with pytest.raises(NotFound, match="no such branch"):
        landing.move(branch.repo, "none", branch.old, branch.new)


def test_the_lock_of_a_git_that_was_killed_long_ago_is_removed_and_said(branch: Branch) -> None:
    _locked(branch)
    os.utime(branch.root / ".git" / "index.lock", (time.time() - 120,) * 2)
    done = branch.move()
    branch.assert_moved(done)
    assert isinstance(done, Moved) and done.unlocked


CONFIGURED = {
    "merge.ff": "false", "merge.autoStash": "true", "merge.verifySignatures": "true", "merge.conflictStyle": "diff3",
    "submodule.recurse": "true", "core.fsmonitor": "/bin/false", "core.logAllRefUpdates": "false", "receive.denyCurrentBranch": "refuse",
}  # fmt: skip


@pytest.mark.parametrize("options", ["--squash", "-s ours", "--no-commit --no-ff"])
def test_whatever_is_configured(world: World, branch: Branch, options: str) -> None:
    for key, value in {**CONFIGURED, "branch.main.mergeOptions": options}.items():
        world.sh(branch.root, "config", key, value)
    branch.assert_moved(branch.move())
    assert branch.stands() == branch.new


# Killed ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checked_out", [True, False])
@pytest.mark.parametrize("stride", [pytest.param(14), pytest.param(1, marks=pytest.mark.soak)])
def test_killed_anywhere_and_done_again_it_is_as_before_or_moved(
    world: World, branch: Branch, checked_out: bool, stride: int, seed: int, until: Callable[[Callable[[], bool]], None]
) -> None:
    if not checked_out:
        world.sh(branch.root, "switch", "-q", "-c", "other")
    for number in range(stride - seed % stride, 400, stride):
        ended = died_at(number, functools.partial(landing.move, branch.repo, "main", branch.old, branch.new))
        until(lambda: not (branch.root / ".git" / "index.lock").exists())  # the git that moves a checkout goes on to its end
        assert branch.stands() in {branch.old, branch.new}
        done = branch.move()
        assert isinstance(done, Moved) and branch.stands() == branch.new
        assert not list((branch.root / ".git").glob("**/*.lock")), f"killed at step {number}"
        assert not world.sh(branch.root, "status", "--porcelain")
        world.sh(branch.root, *(("reset", "-q", "--hard", branch.old) if checked_out else ("update-ref", "refs/heads/main", branch.old)))
        if ended:
            return
    pytest.fail("it never came to its end")


def test_two_at_once_are_one(world: World, branch: Branch) -> None:
    repo = branch.repo
    children = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            try:
                landing.move(Repository(**{name: getattr(repo, name) for name in Repository.__slots__}), "main", branch.old, branch.new)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0]
    branch.assert_moved(branch.move())
