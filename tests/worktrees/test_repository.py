"""I07 and friends: each kind of place works, with a note, or gives one line with the command that mends it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import NightcrewError, NotFound, Refused, ToolFailed
from worktrees.environments import create
from worktrees.repository import discover, refuse_absent, resolve

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worktrees.conftest import World


def test_it_finds_the_repository_from_a_directory_inside(world: World) -> None:
    path = world.make()
    world.commit(path, "deep/er/file.txt")
    repo = discover(world.git, path / "deep" / "er")
    assert repo.root == path
    assert repo.common_dir == repo.git_dir == path / ".git"
    assert repo.branch == "main"
    assert repo.head == world.sh(path, "rev-parse", "HEAD")
    assert len(repo.project) == 12
    assert repo.notes == ()


def test_a_linked_worktree_belongs_to_the_same_project(world: World) -> None:
    path = world.make()
    world.sh(path, "worktree", "add", "-q", str(world.tmp / "linked"))
    linked, main = discover(world.git, world.tmp / "linked"), discover(world.git, path)
    assert linked.project == main.project
    assert linked.root != main.root
    assert linked.git_dir != main.git_dir
    assert create(linked, "r1/a", 1, linked.head, world.root).path.is_dir()


def test_a_branch_called_head_hides_neither_the_commit_nor_the_branch(world: World) -> None:
    root = world.make()
    first = world.sh(root, "rev-parse", "HEAD")
    world.commit(root)
    world.sh(root, "update-ref", "refs/heads/HEAD", first)
    found = discover(world.git, root)
    assert (found.head, found.branch) == (world.sh(root, "rev-parse", "refs/heads/main"), "main")


def test_not_a_repository(world: World) -> None:
    plain = world.tmp / "plain dir"
    plain.mkdir()
    with pytest.raises(NotFound, match="not a git repository") as caught:
        discover(world.git, plain)
    assert "-C" in caught.value.hint
    with pytest.raises(NotFound, match="no such directory"):
        discover(world.git, world.tmp / "nowhere")


def test_bare(world: World) -> None:
    world.sh(world.tmp, "init", "-q", "--bare", "bare.git")
    with pytest.raises(Refused, match="bare") as caught:
        discover(world.git, world.tmp / "bare.git")
    assert "git clone" in caught.value.hint


def test_a_checkout_that_was_made_bare_by_accident(world: World) -> None:
    path = world.make()
    world.sh(path, "config", "core.bare", "true")
    with pytest.raises(Refused, match="says it is bare") as caught:
        discover(world.git, path)
    assert os.system(caught.value.hint) == 0  # the command in the hint mends it  # noqa: S605
    assert discover(world.git, path).root == path


def test_inside_the_git_directory(world: World) -> None:
    path = world.make()
    with pytest.raises(Refused, match=r"inside of a \.git"):
        discover(world.git, path / ".git")


def test_no_commit_yet(world: World) -> None:
    world.sh(world.tmp, "init", "-q", "empty")
    with pytest.raises(Refused, match="no commit") as caught:
        discover(world.git, world.tmp / "empty")
    assert os.system(caught.value.hint + " >/dev/null") == 0  # noqa: S605
    assert discover(world.git, world.tmp / "empty").branch == "main"


def test_a_broken_configuration_names_the_line(world: World) -> None:
    path = world.make()
    (path / ".git" / "config").write_text("[core\n")
    with pytest.raises(ToolFailed, match="bad config line 1"):
        discover(world.git, path)


def test_a_branch_called_head_as_well(world: World) -> None:
    path = world.make()
    world.sh(path, "update-ref", "refs/heads/HEAD", "HEAD")
    found = discover(world.git, path)
    assert (found.branch, found.head) == ("main", world.sh(path, "rev-parse", "--verify", "refs/heads/main"))


def test_a_head_that_names_nothing(world: World) -> None:
    path = world.make()
    (path / ".git" / "HEAD").write_text("1" * 40 + "\n")
    with pytest.raises(Refused, match="HEAD names no readable commit"):
        discover(world.git, path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")
def test_somebody_elses_repository_and_the_command_that_trusts_it(world: World) -> None:
    path = world.make("theirs")
    for entry in (path, path / ".git"):
        os.chown(entry, 12345, 12345)
    with pytest.raises(Refused, match="another user") as caught:
        discover(world.git, path)
    assert os.system(caught.value.hint) == 0  # noqa: S605
    assert discover(world.git, path).root == path


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(world: World) -> None:
    path = world.make()
    (path / ".git").chmod(0)
    try:
        with pytest.raises(NightcrewError) as caught:
            discover(world.git, path)
        assert caught.value.hint
    finally:
        (path / ".git").chmod(0o700)


def test_detached_shallow_submodule_sparse_lfs_and_rebase_work_with_a_note(world: World) -> None:
    origin = world.make("origin")
    for number in range(3):
        world.commit(origin, "f0.txt", f"{number} here\n")
    world.sh(world.tmp, "clone", "-q", "--depth", "1", f"file://{origin}", "shallow")
    path = world.tmp / "shallow"
    (path / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    world.sh(path, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(origin), "sub")
    world.sh(path, "add", "-A")
    world.sh(path, "commit", "-q", "-m", "sub")
    world.sh(path, "switch", "-q", "--detach")
    (path / ".git" / "rebase-merge").mkdir()
    world.sh(path, "config", "core.sparseCheckout", "true")
    repo = discover(world.git, path)
    assert repo.branch is None
    assert [note.split(":")[0].split(" ")[0] for note in repo.notes] == ["shallow", "submodules", "content", "sparse", "a", "HEAD"]
    env = create(repo, "r1/a", 1, repo.head, world.root)
    assert (env.path / "f0.txt").read_text() == "2 here\n"
    for off in ("false", "no", "0"):
        world.sh(path, "config", "core.sparseCheckout", off)
        assert not [note for note in discover(world.git, path).notes if note.startswith("sparse")], off


@pytest.mark.parametrize("name", ["with space", "ünï çødé", "#(touch CANARY)", "a;b&&c", "-dash", "'quote\"", "line\nbreak", "$(x)`y`"])
def test_strange_directory_names(world: World, name: str) -> None:
    repo = discover(world.git, world.make(name))
    env = create(repo, "r1/a", 1, repo.head, world.tmp / name / ".." / f"{name} work")
    assert (env.path / "f0.txt").exists()
    assert world.sh(env.path, "status", "--porcelain") == ""
    assert not list(world.tmp.rglob("CANARY"))


def test_a_moved_repository_is_found_at_its_new_place(world: World) -> None:
    path = world.make()
    shutil.move(path, world.tmp / "moved")
    assert discover(world.git, world.tmp / "moved").root == world.tmp / "moved"


@pytest.mark.parametrize(
    "rev", ["", "-x", "--all", "@{-1}", "main@{1}", "main..HEAD", "HEAD:f0.txt", ":/start", "^main", "a\nb", "nope", "0" * 40]
)
def test_resolve_refuses_what_is_not_a_name(world: World, rev: str) -> None:
    with pytest.raises(NotFound):
        resolve(world.repo(), rev)


def test_resolve_takes_names_of_commits(world: World, tmp_path: Path) -> None:
    repo = world.repo()
    world.sh(repo.root, "tag", "-a", "-m", "x", "v1")
    world.sh(repo.root, "update-ref", "refs/heads/-odd", "HEAD")
    for rev in ("main", "HEAD", "v1", repo.head[:8], "refs/heads/-odd"):
        assert resolve(repo, rev) == repo.head


def test_partial_clone_is_refused_where_files_are_missing_and_the_hint_fetches_them(both: World) -> None:
    origin = both.make("origin")
    both.sh(origin, "config", "uploadpack.allowFilter", "true")
    both.sh(both.tmp, "clone", "-q", "--filter=blob:none", f"file://{origin}", "partial")
    repo = discover(both.git, both.tmp / "partial")
    refuse_absent(repo, repo.head)
    newer = both.commit(origin, "new.txt")
    both.sh(repo.root, "fetch", "-q")
    with pytest.raises(Refused, match="1 files of commit") as caught:
        both.env(repo, base=newer)
    assert both.leftovers(repo) == []
    with pytest.raises(Refused, match="were never fetched"):
        refuse_absent(repo, newer)
    assert os.system(f"{caught.value.hint} 2> /dev/null") == 0  # noqa: S605
    assert (both.env(repo, base=newer).path / "new.txt").read_text() == "one\n"
