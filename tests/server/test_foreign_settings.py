"""A repository whose settings describe another file system, and agents of each tier whose own git obeys the one that is there."""

from __future__ import annotations

import pytest

from tests.support import House, git


@pytest.mark.parametrize("tier", ["0", "1"])
def test_agents_git_sees_the_file_system_that_is_there(house: House, tier: str) -> None:
    (house.repo / "latest").symlink_to("README")
    (house.repo / "Foo.txt").write_text("foo\n")
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-q", "-m", "files")
    for key, value in (("core.ignorecase", "true"), ("core.symlinks", "false"), ("core.filemode", "false")):
        git(house.repo, "config", key, value)
    house.start_daemon()
    spelled = "test -L latest && rm latest && git checkout -q -- latest && test -L latest && mv Foo.txt foo.txt && git add -A"
    house.ok("add", "-f", "--sandbox", tier, f"{spelled} && git -c user.name=a -c user.email=a@b commit -q -m spelled")
    (task,) = house.tasks()
    assert git(house.repo, "diff", "--no-renames", "--name-status", "main", str(task.branch)) == "D\tFoo.txt\nA\tfoo.txt"
    assert git(house.repo, "log", "-1", "--format=%s", str(task.branch)) == "spelled", "its own commit has it all"


def test_partial_clone_without_its_files_is_refused_before_anything_starts(house: House) -> None:
    git(house.repo, "config", "uploadpack.allowFilter", "true")
    partial = house.repo.parent / "partial"
    git(house.repo.parent, "clone", "-q", "--filter=blob:none", f"file://{house.repo}", str(partial))
    (house.repo / "newer").write_text("newer\n")
    git(house.repo, "add", "newer")
    git(house.repo, "commit", "-q", "-m", "newer")
    git(partial, "fetch", "-q")
    house.start_daemon()
    for verb in (["add", "--base", "origin/main", "cat newer"], ["snapshot", "create", "x", "--base", "origin/main", "--setup", "true"]):
        said = house.run(*verb, cwd=partial)
        assert said.returncode == 6 and "fetch --refetch --no-filter origin" in said.stderr, said.stderr
    assert house.tasks() == []
    git(partial, "fetch", "-q", "--refetch", "--no-filter", "origin")
    house.ok("add", "-f", "--base", "origin/main", "cat newer", cwd=partial)


@pytest.mark.parametrize("tier", ["0", "1"])
def test_commit_that_was_amended_away_is_kept_where_the_repository_keeps_no_logs(house: House, tier: str) -> None:
    for key, value in (("core.logAllRefUpdates", "false"), ("core.sparseCheckout", "false")):
        git(house.repo, "config", key, value)
    house.start_daemon()
    commit = "git -c user.name=a -c user.email=a@b commit -q"
    house.ok("add", "-f", "--sandbox", tier, f"echo 1 >a && git add a && {commit} -m one && echo 2 >a && {commit} -a --amend -m two")
    assert "one" in git(house.repo, "log", "--all", "--format=%s").splitlines()
