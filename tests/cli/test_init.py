"""`nightcrew init`, and what the file that it writes changes."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from supervisor.config.project import template
from tests.support import House, git, make_repository


def listing(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if ".git" not in path.relative_to(root).parts}


def test_it_writes_one_file_and_says_what_is_next(house: House) -> None:
    before = listing(house.repo)
    done = house.run("init")
    assert (done.returncode, done.stdout) == (0, f"{house.repo / 'nightcrew.toml'}\n")
    assert done.stderr.startswith("nightcrew: written; ") and "next: nightcrew doctor" in done.stderr
    assert listing(house.repo) - before == {"nightcrew.toml"}
    file = house.repo / "nightcrew.toml"
    assert file.read_text() == template()
    assert stat.S_IMODE(file.stat().st_mode) & 0o600 == 0o600 and not file.stat().st_mode & stat.S_IXUSR
    assert git(house.repo, "status", "--porcelain") == "?? nightcrew.toml"


def test_a_file_that_is_there_stays(house: House) -> None:
    file = house.repo / "nightcrew.toml"
    file.write_text("base = 'main'\n")
    done = house.run("init")
    assert (done.returncode, done.stdout) == (0, f"{file}\n")
    assert "there is one already, and it stays as it is" in done.stderr
    assert file.read_text() == "base = 'main'\n"
    assert "written anew" in house.run("init", "--force").stderr
    assert file.read_text() == template()


def test_a_link_is_never_written_through(house: House, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("mine\n")
    file = house.repo / "nightcrew.toml"
    file.symlink_to(target)
    assert house.run("init").returncode == 0 and file.is_symlink()
    assert house.run("init", "--force").returncode == 0
    assert not file.is_symlink() and target.read_text() == "mine\n"


def test_it_finds_the_main_worktree_from_anywhere_in_it(house: House, tmp_path: Path) -> None:
    deep = house.repo / "a" / "b"
    deep.mkdir(parents=True)
    linked = tmp_path / "linked"
    git(house.repo, "worktree", "add", "-q", str(linked))
    for where in (deep, linked):
        assert house.ok("init", cwd=where) == f"{house.repo / 'nightcrew.toml'}\n"
    assert not (linked / "nightcrew.toml").exists()
    assert house.ok("init", str(linked), cwd=tmp_path) == f"{house.repo / 'nightcrew.toml'}\n"


def test_linked_worktrees_of_a_bare_repository_have_their_own(house: House, tmp_path: Path) -> None:
    bare, linked = tmp_path / "all" / ".git", tmp_path / "all" / "linked"
    git(tmp_path, "clone", "-q", "--bare", str(house.repo), str(bare))
    git(bare, "worktree", "add", "-q", str(linked))
    assert house.ok("init", cwd=linked) == f"{linked / 'nightcrew.toml'}\n"


def test_places_without_a_checkout_are_refused(house: House, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(house.repo), str(tmp_path / "bare"))
    (tmp_path / "plain").mkdir()
    for where, code, said in (
        ("plain", 4, "not a git repository"),
        ("bare", 6, "a bare repository has no checkout"),
        ("none", 4, "no such"),
    ):
        done = house.run("init", str(tmp_path / where))
        assert done.returncode == code and done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert said in line and "; next: " in line
    assert not list(tmp_path.rglob("nightcrew.toml"))


def test_run_and_add_obey_it_and_the_command_line_comes_first(house: House, tmp_path: Path) -> None:
    first = git(house.repo, "rev-parse", "HEAD")
    git(house.repo, "branch", "stable")
    git(house.repo, "commit", "-q", "--allow-empty", "-m", "second")
    (house.repo / "nightcrew.toml").write_text("base = 'stable'\n[defaults]\npriority = 7\ntimeout = '1h'\n")
    linked = tmp_path / "linked"
    git(house.repo, "worktree", "add", "-q", str(linked), "HEAD", "-b", "other")
    (linked / "nightcrew.toml").write_text("nonsense = 1\n")  # as an agent might: its worktree's file is nobody's settings
    house.start_daemon()
    plan = house.plan('[[tasks]]\nid = "a"\ncommand = "true"\n[[tasks]]\nid = "b"\ncommand = "true"\npriority = 50\n')
    (ran,) = [json.loads(house.ok("run", plan, "--json", cwd=linked))]
    assert [task["priority"] for task in ran["tasks"]] == [7, 50]
    assert house.task("a").base_oid == first
    added = json.loads(house.ok("add", "-f", "--json", "--id", "c", "true"))
    assert added["tasks"][0]["priority"] == 7
    added = json.loads(house.ok("add", "-f", "--json", "--id", "d", "--base", "main", "-p", "50", "true"))
    assert added["tasks"][0]["priority"] == 50
    assert house.task("d").base_oid != first


@pytest.mark.parametrize("words", [["add", "true"], ["run", "plan.toml"]], ids=" ".join)
def test_a_mistake_in_it_is_one_line_and_nothing_is_handed_over(house: House, words: list[str]) -> None:
    (house.repo / "nightcrew.toml").write_text("[defaults]\nparams = { PATH = '.' }\n")
    done = house.run(*words)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 3 and "nightcrew.toml:2 defaults.params" in line and "; next: " in line
    assert not house.home.ledger.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_repository_that_cannot_be_written(house: House) -> None:
    house.repo.chmod(0o500)
    try:
        done = house.run("init")
    finally:
        house.repo.chmod(0o700)
    assert done.returncode == 1 and "cannot write" in done.stderr and "Traceback" not in done.stderr


def test_a_repository_of_a_repository(house: House) -> None:
    make_repository(house.repo / "inner")
    assert house.ok("init", "inner") == f"{house.repo / 'inner' / 'nightcrew.toml'}\n"
