"""`restore`: what an attempt left comes back as a branch, and nothing that stands is moved."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import House, git


def test_what_was_cleaned_away_comes_back_as_a_branch(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", "echo mine > mine.txt")
    house.ok("clean", "--yes", "--discard", "work")
    task = house.task("work").id
    rescue = git(house.repo, "rev-parse", f"refs/nightcrew/rescue/{task}/1")
    before = git(house.repo, "for-each-ref"), git(house.repo, "status", "--porcelain")
    name = house.ok("restore", "work").strip()
    assert name == f"restored/{task}.1"
    assert git(house.repo, "show", f"{name}:mine.txt") == "mine"
    git(house.repo, "branch", "other")
    taken = house.run("restore", "work", "--branch", "other")
    assert taken.returncode == 6 and "--branch NAME" in taken.stderr
    assert git(house.repo, "rev-parse", "other") == git(house.repo, "rev-parse", "main")
    shape = json.loads(house.ok("restore", "work.1", "--json"))
    assert (shape["commit"], shape["epoch"], shape["created"]) == (rescue, 1, False)
    for wrong in (["work.2"], ["work.x"], ["nobody.1"], ["work", "--tips"]):
        assert house.run("restore", *wrong).returncode == 4, wrong
    for bad in ("-f", "a..b", "x.lock"):
        assert house.run("restore", "work", f"--branch={bad}").returncode == 2, bad
    git(house.repo, "branch", "-D", name, "other")
    assert (git(house.repo, "for-each-ref"), git(house.repo, "status", "--porcelain")) == before


def test_it_comes_back_as_a_worktree_and_nothing_of_the_repository_runs(house: House, tmp_path: Path) -> None:
    house.start_daemon()
    ran = tmp_path / "ran"
    work = "echo mine > mine.txt; printf 'a' > 'new name'; ln -s /etc/passwd link; chmod +x mine.txt; rm README"
    house.ok("add", "-f", "--id", "work", work)
    house.ok("add", "-f", "--id", "lfs", "echo '*.bin filter=evil' > .gitattributes; echo x > a.bin")
    house.ok("clean", "--yes", "--discard", "work", "lfs")
    git(house.repo, "config", "filter.evil.smudge", f"touch {ran}; cat")
    before = git(house.repo, "status", "--porcelain", "--branch"), git(house.repo, "rev-parse", "HEAD")
    place = tmp_path / "mine" / "work"
    shape = json.loads(house.ok("restore", "work", "--worktree", str(place), "--json"))
    assert shape["worktree"] == str(place) and git(place, "status", "--porcelain", "--branch") == f"## {shape['branch']}"
    assert (place / "mine.txt").read_text() == "mine\n" and (place / "link").is_symlink() and not (place / "README").exists()
    assert "checked out already" in house.run("restore", "work", "--worktree", str(place)).stderr
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    ours = house.home.root / "worktrees" / "x"
    for bad in (taken, ours, house.repo / ".git" / "x", tmp_path / "a\nb", tmp_path / "second"):
        refused = house.run("restore", "work", "--worktree", str(bad))
        assert (refused.returncode, "no worktree was made" in refused.stderr) == (6, True), bad
    assert list(taken.iterdir()) == [taken / "file"] and not ours.exists()
    filtered = house.run("restore", "lfs", "--worktree", str(tmp_path / "lfs"))
    assert filtered.returncode == 6 and "filter=evil" in filtered.stderr and f"worktree add {tmp_path}/lfs restored/" in filtered.stderr
    hook = house.repo / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    hooked = house.run("restore", "work", "--branch", "again", "--worktree", str(tmp_path / "again"))
    assert hooked.returncode == 6 and "post-checkout" in hooked.stderr and "again" in git(house.repo, "branch", "--list", "again")
    assert not ran.exists() and not any((tmp_path / name).exists() for name in ("lfs", "again", "second"))
    assert (git(house.repo, "status", "--porcelain", "--branch"), git(house.repo, "rev-parse", "HEAD")) == before
    house.ok("clean", "--yes")
    assert place.exists(), "it is the person's own"
