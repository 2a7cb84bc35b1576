"""A branch of the person's moves forward: as compare and swap, with the checkout that is on it, or not at all."""

from __future__ import annotations

import functools
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.core.errors import NotFound, Refused
from tests.worktrees import kinds_of_repositories
from tests.worktrees.killing import died_at
from worktrees import landing
from worktrees.landing import Moved
from worktrees.merge import ByHand
from worktrees.repository import Repository, discover

if TYPE_CHECKING:
    from tests.worktrees.conftest import World


class Branch:
    """`main` of a repository, checked out, and a commit in front of it that changes, adds, removes and moves files."""

    def __init__(self, world: World, root: Path | None = None) -> None:
        self.world, self.root = world, root or world.make()
        self.repo = discover(world.git, self.root)
        self.old = self.repo.head
        self.new = self.ahead(self.old)

    def ahead(self, old: str) -> str:
        """Made beside the checkout."""
        top = self.world.tmp / "beside"
        self.world.sh(self.root, "worktree", "add", "-q", "--detach", os.fspath(top), old)
        (top / "f0.txt").write_text("new\n")
        new = self.world.commit(top, "new/file.txt")
        self.world.sh(self.root, "worktree", "remove", "--force", os.fspath(top))
        return new

    def again(self) -> None:
        """In front of where it stands now."""
        self.old = self.stands()
        self.new = self.ahead(self.old)

    def move(self, branch: str = "main") -> Moved | ByHand:
        return landing.move(self.repo, branch, self.old, self.new)

    def state(self, root: Path | None = None) -> tuple[str, ...]:
        """All that a person could miss of a checkout: refs, what is staged, every file."""
        top = root or self.root
        files = [f"{path.relative_to(top)} {path.lstat().st_mode:o} {path.read_bytes() if path.is_file() else b''!r}"
                 for path in sorted(top.rglob("*")) if ".git" not in path.relative_to(top).parts]  # fmt: skip
        refs = self.world.sh(top, "for-each-ref")
        return (refs, self.world.sh(top, "ls-files", "--stage"), self.world.sh(top, "status", "--porcelain"), *files)

    def stands(self, branch: str = "main") -> str:
        return self.world.sh(self.root, "rev-parse", f"refs/heads/{branch}")

    def assert_moved(self, done: object, root: Path | None = None) -> None:
        top = root or self.root
        assert isinstance(done, Moved) and done.commit == self.new and done.checkout == top
        assert (top / "f0.txt").read_text() == "new\n" and (top / "new" / "file.txt").exists()
        assert not self.world.sh(top, "status", "--porcelain", "--untracked-files=no")


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


# Nothing of the repository runs ---------------------------------------------------------------------------------------------------------

MOVING = ("post-merge", "reference-transaction", "post-index-change")
"""Hooks that `git merge --ff-only` runs."""
HOOKS = (
    "pre-merge-commit", "post-checkout", "pre-push", "pre-commit", "post-commit", "post-rewrite", "commit-msg", "prepare-commit-msg",
    "pre-auto-gc", "update", "pre-receive", "fsmonitor-watchman",
)  # fmt: skip
PROGRAMS = (
    "core.fsmonitor", "core.sshCommand", "filter.evil.smudge", "filter.evil.clean", "merge.evil.driver", "diff.external", "gpg.program",
    "core.editor", "core.pager", "credential.helper", "diff.evil.textconv",
)  # fmt: skip


def plant(branch: Branch, *hooks: str) -> Path:
    proof = branch.world.tmp / "ran"
    script = f"#!/bin/sh\necho $0 >> {proof}\n"
    for name in hooks:
        hook = branch.root / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(script)
        hook.chmod(0o755)
    evil = branch.world.tmp / "evil"
    evil.write_text(script + "cat\n")
    evil.chmod(0o755)
    for key in PROGRAMS:
        branch.world.sh(branch.root, "config", key, os.fspath(evil))
    proof.unlink(missing_ok=True)
    return proof


@pytest.mark.parametrize("hook", MOVING)
def test_a_hook_that_a_merge_would_run_leaves_it_to_the_person(branch: Branch, hook: str) -> None:
    proof = plant(branch, hook)
    before = branch.state()
    proof.unlink(missing_ok=True)
    done = branch.move()
    assert isinstance(done, ByHand) and hook in done.why
    assert not proof.exists() and branch.stands() == branch.old
    assert done.commands == (f"git -C {branch.root} merge --ff-only {branch.new}",)
    subprocess.run(["sh", "-c", done.commands[0]], check=True, stdout=subprocess.DEVNULL)
    assert hook in proof.read_text() and branch.state() != before
    branch.assert_moved(branch.move())


def test_no_other_hook_and_no_program_runs(world: World, branch: Branch) -> None:
    world.sh(branch.root, "update-ref", "refs/heads/side", branch.old)
    proof = plant(branch, *HOOKS)
    branch.move()
    assert branch.move("side") == Moved(branch.new, None)
    assert "commit-msg" in landing.left_out(branch.repo) and "post-checkout" not in landing.left_out(branch.repo)
    assert not proof.exists()
    for key in PROGRAMS:
        world.sh(branch.root, "config", "--unset", key)
    branch.assert_moved(branch.move())


def test_without_a_checkout_only_the_hook_of_refs_matters(world: World, branch: Branch) -> None:
    plant(branch, "post-merge")
    world.sh(branch.root, "update-ref", "refs/heads/side", branch.old)
    assert branch.move("side") == Moved(branch.new, None)
    plant(branch, "reference-transaction")
    world.sh(branch.root, "-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/side2", branch.old)
    done = branch.move("side2")
    assert isinstance(done, ByHand) and "update-ref" in done.commands[0]


@pytest.mark.parametrize("brought", [False, True])
def test_files_of_a_filter_leave_the_checkout_to_the_person(world: World, branch: Branch, brought: bool) -> None:
    """Whether the attributes were there or come along; a branch that nobody has checked out is moved."""
    if brought:
        top = world.tmp / "more"
        world.sh(branch.root, "worktree", "add", "-q", "--detach", os.fspath(top), branch.new)
        (top / ".gitattributes").write_text("*.txt filter=lfs\n")
        branch.new = world.commit(top, "big.txt")
    else:
        (branch.root / ".git" / "info" / "attributes").write_text("f0.txt filter=lfs\n")
    done = branch.move()
    assert isinstance(done, ByHand) and "filter=lfs" in done.why
    assert branch.stands() == branch.old
    world.sh(branch.root, "switch", "-q", "-c", "other")
    assert branch.move() == Moved(branch.new, None)


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
