"""A worktree after a shard: as it was, or said and undone, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.features.map.worker.worker import Worktree
from supervisor.kernel.errors import NightcrewError, Refused
from tests.support import git, make_repository


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = make_repository(tmp_path / "repo", {"a": "1\n", "b/c": "2\n", ".gitignore": "cache\n"})
    git(made, "worktree", "add", "-q", "-b", "work", str(tmp_path / "tree"))
    return tmp_path / "tree"


def test_one_that_is_as_it_was(place: Path) -> None:
    tree = Worktree(place)
    (place / "cache").write_text("ignored")
    (place / "a").touch()
    assert tree.clean() == [] and (place / "cache").exists()


def test_what_differs_is_undone_and_said(place: Path) -> None:
    tree = Worktree(place)
    (place / "a").write_text("other")
    (place / "b/c").unlink()
    (place / "new\nfile").write_text("x")
    git(place, "init", "-q", "inner")
    said = tree.clean()
    assert {line.rpartition(" ")[2] for line in said} == {"a", "b/c", "new\nfile", "inner/"}
    assert (
        (place / "a").read_text() == "1\n"
        and (place / "b/c").exists()
        and sorted(path.name for path in place.iterdir())
        == [
            ".git",
            ".gitignore",
            "a",
            "b",
        ]
    )
    assert tree.clean() == []


def test_what_git_was_told_not_to_see_is_undone_too(place: Path) -> None:
    git(place, "update-index", "--skip-worktree", "b/c")
    tree = Worktree(place)
    git(place, "update-index", "--assume-unchanged", "a")
    (place / "a").write_text("other")
    assert len(tree.clean()) == 1 and (place / "a").read_text() == "1\n" and tree.clean() == []
    assert git(place, "ls-files", "-v", "a", "b/c").split() == ["H", "a", "S", "b/c"], "what was so before stays so"


def test_a_head_that_moved_goes_back(place: Path) -> None:
    before = git(place, "rev-parse", "HEAD")
    tree = Worktree(place)
    (place / "a").write_text("committed")
    git(place, "commit", "-q", "-a", "-m", "left")
    git(place, "checkout", "-q", "-b", "elsewhere")
    assert "HEAD is at" in tree.clean()[0]
    assert (git(place, "rev-parse", "HEAD"), git(place, "branch", "--show-current")) == (before, "work")
    git(place, "checkout", "-q", "--detach")
    assert tree.clean() and git(place, "branch", "--show-current") == "work"


def test_one_that_does_not_become_clean(place: Path) -> None:
    tree = Worktree(place)
    (place / "a").write_text("other")
    (Path(git(place, "rev-parse", "--absolute-git-dir")) / "index.lock").touch()
    with pytest.raises(NightcrewError, match="git failed"):
        tree.clean()


def test_one_that_git_says_it_cleaned_and_that_is_not(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Worktree(place)
    (place / "a").write_text("other")
    real = Worktree.git
    monkeypatch.setattr(Worktree, "git", lambda self, *words: "" if words[0] in ("reset", "clean") else real(self, *words))
    with pytest.raises(Refused, match="does not become clean"):
        tree.clean()
