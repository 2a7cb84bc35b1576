"""What a worker's items change is kept in a commit each, all from the same base."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from supervisor.features.map.worker.worker import Edits, Item, Result, Worktree, done, failed
from supervisor.kernel.errors import ToolFailed


def sh(where: Path, *argv: str) -> str:
    return subprocess.run(["git", *argv], cwd=where, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def top(tmp_path: Path) -> Path:
    sh(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "b").write_text("b\n")
    (tmp_path / ".gitignore").write_text("cache\n")
    sh(tmp_path, "add", "-A")
    sh(tmp_path, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "base")
    hook = tmp_path / ".git" / "hooks" / "post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/cache\n")
    hook.chmod(0o755)
    return tmp_path


def value(made: Result) -> Any:
    assert made.ok, made.text
    return json.loads(made.text)


def test_each_item_has_a_commit_of_its_own_from_the_same_base(top: Path) -> None:
    base = sh(top, "rev-parse", "HEAD")
    tree = Worktree(top)
    edits = Edits(tree, "0123456789ab")
    (top / "a").write_text("one\n")
    (top / "dir" / "b").unlink()
    (top / "new").mkdir()
    (top / "new" / "file").write_text("one\n")
    first = value(edits.kept(Item(3, "item\nthree"), done([1])))
    assert not (top / "cache").exists()  # no hook ran
    assert sh(top, "status", "--porcelain") == "" and (top / "a").read_text() == "a\n" and not (top / "new").exists()
    (top / "a").write_text("two\n")
    sh(top, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-a", "-m", "by the item itself")
    second = value(edits.kept(Item(4, "four"), done(None)))
    assert (first["output"], first["base"]) == ([1], base) and tree.clean() == []
    assert sh(top, "diff", "--name-status", base, first["commit"]).split() == ["M", "a", "D", "dir/b", "A", "new/file"]
    assert sh(top, "diff", "--name-status", base, second["commit"]).split() == ["M", "a"]
    assert sh(top, "rev-parse", f"{first['commit']}^@", f"{second['commit']}^@").split() == [base, base]
    assert {first["commit"], second["commit"]} <= set(sh(top, "rev-list", "HEAD").split()) and sh(top, "diff", base, "HEAD") == ""
    said = sh(top, "log", "-1", "--format=%s|%(trailers:key=Nightcrew-Item,valueonly)", first["commit"])
    assert said == "item\\nthree|3"


def test_an_item_that_failed_or_changed_nothing_leaves_nothing(top: Path) -> None:
    edits = Edits(Worktree(top), "0123456789ab")
    before = sh(top, "rev-parse", "HEAD")
    (top / "a").write_text("half\n")
    sh(top, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-a", "-m", "by the item itself")
    (top / "dir" / "b").unlink()
    (top / "dir").rmdir()
    (top / "dir").write_text("in its place")
    (top / "nested").mkdir()
    sh(top / "nested", "init", "-q")
    (top / "cache").write_text("kept")
    assert not edits.kept(Item(0, "x"), failed("no")).ok
    assert sh(top, "status", "--porcelain") == "" and (top / "dir" / "b").exists() and not (top / "nested").exists()
    assert value(edits.kept(Item(1, "y"), done("z")))["commit"] is None
    assert sh(top, "rev-parse", "HEAD") == before and (top / "cache").read_text() == "kept"


@pytest.mark.parametrize("committed", [True, False])
def test_an_item_that_makes_a_repository_inside_has_failed(top: Path, committed: bool) -> None:
    edits = Edits(Worktree(top), "0123456789ab")
    (top / "a").write_text("one\n")
    sh(top, "init", "-q", "dir/inner")
    (top / "dir" / "inner" / "file").write_text("x\n")
    if committed:
        sh(top / "dir" / "inner", "add", "-A")
        sh(top / "dir" / "inner", "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "inside")
    made = edits.kept(Item(0, "x"), done(None))
    assert not made.ok and "a git repository of its own" in made.text and "dir/inner" in made.text
    assert sh(top, "status", "--porcelain") == "" and not (top / "dir" / "inner").exists()
    (top / "a").write_text("two\n")
    assert value(edits.kept(Item(1, "y"), done(None)))["commit"]


def test_an_edit_that_git_was_told_not_to_see_is_in_the_commit(top: Path) -> None:
    base, tree = sh(top, "rev-parse", "HEAD"), Worktree(top)
    edits = Edits(tree, "0123456789ab")
    sh(top, "update-index", "--assume-unchanged", "a")
    sh(top, "update-index", "--skip-worktree", "dir/b")
    (top / "a").write_text("hidden\n")
    (top / "dir" / "b").unlink()
    commit = value(edits.kept(Item(0, "x"), done(None)))["commit"]
    assert sh(top, "diff", "--name-status", base, commit).split() == ["M", "a", "D", "dir/b"]
    assert (top / "a").read_text() == "a\n" and (top / "dir" / "b").exists() and tree.clean() == []


def test_what_git_cannot_do_is_said(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="git failed"):
        Edits(Worktree(tmp_path), "0123456789ab")
