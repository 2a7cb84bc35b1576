"""Our form of git's administration equals git's own, and unusual repositories are left to git."""

from __future__ import annotations

import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.host.untrusted_fs import remove_tree
from worktrees import registration
from worktrees.registration import Registration
from worktrees.repository import discover

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.worktrees.conftest import World


def facts(top: Path, *, without: str) -> dict[str, bytes]:
    """File -> bytes, with the worktree's own name taken out; of a reflog the oids only, because its author and time may differ."""
    found = {str(file.relative_to(top)): file.read_bytes().replace(without.encode(), b"NAME") for file in top.rglob("*") if file.is_file()}
    return {name: b" ".join(data.split()[:2]) if name == "logs/HEAD" else data for name, data in found.items()}


@pytest.mark.parametrize("branch", ["topic", ""])
@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_both_forms_are_equal(world: World, branch: str, form: str) -> None:
    path = world.tmp / "repo"
    path.mkdir()
    world.sh(path, "init", "-q", f"--object-format={form}")
    world.commit(path)
    repo = discover(world.git, path)
    wanted = Registration(world.tmp / "ours", b"being made", repo.head, branch and f"{branch}/ours")
    theirs = replace(wanted, path=world.tmp / "theirs", branch=branch and f"{branch}/theirs")
    for one in (wanted, theirs):
        if one.branch:
            world.sh(path, "branch", one.branch)
    mine = registration.add(repo, wanted)
    registration._by_git(repo, theirs)
    gits = repo.common_dir / "worktrees" / "theirs"
    assert facts(mine, without="ours") == facts(gits, without="theirs")
    assert facts(wanted.path, without="ours") == facts(theirs.path, without="theirs")
    listed = world.sh(path, "worktree", "list", "--porcelain").rstrip().split("\n\n")
    assert listed[1].replace("ours", "NAME") == listed[2].replace("theirs", "NAME")
    assert "locked being made" in listed[1]
    world.sh(wanted.path, "reset", "-q", "--hard")
    assert world.sh(wanted.path, "status", "--porcelain") == ""
    assert world.sh(path, "fsck") == ""


@pytest.mark.parametrize("key", ["extensions.worktreeConfig", "core.sharedRepository", "core.sparseCheckout"])
def test_unusual_repositories_are_left_to_git(world: World, key: str) -> None:
    path = world.make()
    world.sh(path, "config", key, "true")
    repo = discover(world.git, path)
    assert registration.is_unusual(repo)
    admin = registration.add(repo, Registration(world.tmp / "tree", b"being made", repo.head))
    assert admin == repo.common_dir / "worktrees" / "tree"
    assert registration.lock_reason(admin) == b"being made"


def test_a_taken_name_gets_a_number_and_an_empty_one_is_taken_over(world: World) -> None:
    repo = world.repo()
    for name in ("a", "b"):
        (world.tmp / name).mkdir()
    first = registration.add(repo, Registration(world.tmp / "a" / "tree", b"one", repo.head))
    second = registration.add(repo, Registration(world.tmp / "b" / "tree", b"two", repo.head))
    assert (first.name, second.name) == ("tree", "tree1")
    (repo.common_dir / "worktrees" / "other").mkdir()
    assert registration.add(repo, Registration(world.tmp / "other", b"three", repo.head)).name == "other"
    assert registration.find(repo, world.tmp / "b" / "tree", b"two") == second
    assert world.sh(repo.root, "worktree", "list").count("\n") == 3


def test_a_removal_that_is_cut_off_is_never_taken_for_a_worktree_that_was_finished(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = discover(world.git, world.make())
    path = world.tmp / "tree"
    admin = registration.add(repo, Registration(path, b"being made", repo.head))

    def killed(place: Path, keep: Collection[str] = ()) -> None:
        if place == admin and not keep:
            (admin / "locked").unlink()
            raise KeyboardInterrupt
        remove_tree(place, keep=keep)

    monkeypatch.setattr(registration, "remove_tree", killed)
    with pytest.raises(KeyboardInterrupt):
        registration.clear(path, admin)
    assert registration.find(repo, path, b"being made") is None
    assert registration.add(repo, Registration(path, b"being made", repo.head)) == admin


def test_a_prune_meanwhile_takes_no_worktree_that_is_being_made(world: World) -> None:
    repo = discover(world.git, world.make())
    over = threading.Event()

    def prune() -> None:
        while not over.is_set():
            subprocess.run(["git", "worktree", "prune", "--expire=now"], cwd=repo.root, check=True)

    person = threading.Thread(target=prune)
    person.start()
    try:
        made = [registration.add(repo, Registration(world.tmp / f"tree{n}", b"being made", repo.head)) for n in range(300)]
    finally:
        over.set()
        person.join()
    assert {registration.lock_reason(admin) for admin in made} == {b"being made"}
    assert world.sh(repo.root, "worktree", "list").count("\n") == len(made)


@pytest.mark.parametrize("after", ["mkdir", "rename"])
def test_a_prune_between_two_steps_is_survived(world: World, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """It saw the directory before the lock was in it, and removes everything now."""
    repo, rename, pruned = discover(world.git, world.make()), Path.rename, list[Path]()

    def late(self: Path, to: Path) -> Path:
        if not pruned and self.parent == repo.common_dir / "worktrees":
            pruned.append(self)
            (self / "locked").unlink()
            if after == "mkdir":
                self.rmdir()
                self.parent.rmdir()
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", late)
    admin = registration.add(repo, Registration(world.tmp / "tree", b"being made", repo.head))
    assert pruned and registration.lock_reason(admin) == b"being made" and admin.name == "tree"
    assert sorted(place.name for place in admin.parent.iterdir()) == ["tree"]


def test_what_a_kill_left_of_a_directory_is_found(world: World) -> None:
    repo = discover(world.git, world.make())
    left = repo.common_dir / "worktrees" / "tree.making"
    left.mkdir(parents=True)
    (left / "locked").write_bytes(b"being made\n")
    assert registration.find(repo, world.tmp / "tree", b"being made") == left
    registration.clear(world.tmp / "tree", left)
    assert not left.exists()


def test_whether_a_branch_is_checked_out_is_what_git_says_at_each_moment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = discover(world.git, world.make())
    here = world.tmp / "beside"
    refs = [f"refs/heads/{name}" for name in ("main", "a", "b")]

    def by_git() -> list[bool]:
        return [bool(world.sh(repo.root, "for-each-ref", "--format=%(worktreepath)", ref)) for ref in refs]

    def ours() -> list[bool]:
        return [registration.has_checkout(repo, ref) for ref in refs]

    for name in ("a", "b"):
        world.sh(repo.root, "branch", name)
    assert ours() == by_git() == [True, False, False]
    world.sh(repo.root, "worktree", "add", "-q", str(here), "a")
    assert ours() == by_git() == [True, True, False]
    for argv in (("checkout", "-q", "b"), ("checkout", "-q", "--detach"), ("checkout", "-q", "a"), ("checkout", "-q", "b")):
        world.sh(here, *argv)  # the same size, within the same moment
        assert ours() == by_git()
    world.sh(repo.root, "checkout", "-q", "--detach")
    assert ours() == by_git() == [False, False, True]
    (repo.common_dir / "worktrees" / "half-made").mkdir()
    monkeypatch.setattr(registration, "_RACY_NS", -(10**18))  # all that is known is believed by its stamp
    assert ours() == by_git() == ours() == [False, False, True]
    head = repo.common_dir / "worktrees" / "beside" / "HEAD"
    head.unlink()
    head.symlink_to("../../refs/heads/a")
    assert ours() == by_git(), "what git did not write is left to git"
