"""`restore`: what an attempt left comes back as a branch, and nothing that stands is moved."""

from __future__ import annotations

import json

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
