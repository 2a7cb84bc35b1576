"""Files that a command makes: they never conflict, and what the command made is taken from its task and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import NotFound, Refused
from supervisor.kernel.train_orders import GeneratedRule, Method, Person, Terms
from worktrees import landing
from worktrees.landing import LeftOut, Result, Staged
from worktrees.repository import Repository, discover

if TYPE_CHECKING:
    from tests.worktrees.conftest import World

LOCK, GEN = GeneratedRule(("deps.lock",), "make lock"), GeneratedRule(("gen", "**/*.pb"), "make gen")
TERMS = Terms("t1", Person("Ada Person", "ada@example.com"), 1_700_000_000.0, into="main", generated=(LOCK, GEN))


@pytest.fixture
def repo(world: World) -> Repository:
    """Both sides changed the lock file in the same line; `result` is the other side."""
    root = world.make()
    world.commit(root, "deps.lock", "none\n")
    world.commit(root, "gen/old.txt", "old\n")
    world.sh(root, "switch", "-q", "-c", "result")
    (root / "deps.lock").write_text("theirs\n")
    world.commit(root, "mine.txt")
    world.sh(root, "switch", "-q", "main")
    (root / "deps.lock").write_text("ours\n")
    world.commit(root, "ours.txt")
    return discover(world.git, root)


def staged(repo: Repository, terms: Terms = TERMS, tip: str = "result") -> Staged:
    oid = repo.git.run(repo.store, "rev-parse", tip).text
    found = landing.stage(repo, repo.head, Result("r1/deps", oid, "Add a dependency"), terms)
    assert isinstance(found, Staged)
    return found


def made(world: World, commit: str, change: Callable[[Path], object]) -> str:
    """What a task leaves that ran `change` in a worktree at `commit`."""
    top = world.tmp / "task"
    world.sh(world.tmp / "repo", "worktree", "add", "-q", "--detach", os.fspath(top), commit)
    change(top)
    world.sh(top, "add", "-A")
    world.sh(top, "commit", "-q", "-m", "leftover")
    return world.sh(top, "rev-parse", "HEAD")


@pytest.mark.parametrize("method", Method)
def test_the_commit_stays_and_its_generated_file_is_as_it_was_made(world: World, repo: Repository, method: Method) -> None:
    terms = replace(TERMS, method=method)
    found = staged(repo, terms)
    assert found.regenerate == ("make lock",)
    assert world.blobs(repo, found.commit)["deps.lock"] == "ours", "nobody merges it by lines"
    left = made(world, found.commit, lambda top: (top / "deps.lock").write_text("both\n"))
    done = landing.finish(repo, found.commit, left, terms)
    assert isinstance(done, Staged) and not done.regenerate
    files = world.blobs(repo, done.commit)
    assert (files["deps.lock"], files["mine.txt"], files["ours.txt"]) == ("both", "one", "one")
    for form in ("%P", "%an|%ae|%at|%cn|%ce|%ct", "%B"):
        assert world.sh(repo.root, "show", "-s", f"--format={form}", done.commit) == world.sh(
            repo.root, "show", "-s", f"--format={form}", found.commit
        )
    assert landing.finish(repo, found.commit, left, terms) == done, "again it is the same commit"
    assert landing.finish(repo, done.commit, left, terms) == done


def test_a_rebased_result_of_generated_files_alone_never_amends_the_branch(world: World, repo: Repository) -> None:
    terms = replace(TERMS, method=Method.REBASE)
    world.sh(repo.root, "switch", "-q", "-c", "only", "main~1")
    world.commit(repo.root, "deps.lock", "only\n")
    world.sh(repo.root, "switch", "-q", "main")
    found = staged(repo, terms, "only")
    assert world.sh(repo.root, "rev-parse", f"{found.commit}^") == repo.head
    left = made(world, found.commit, lambda top: (top / "deps.lock").write_text("both\n"))
    done = landing.finish(repo, found.commit, left, terms)
    assert isinstance(done, Staged)
    assert world.sh(repo.root, "diff", "--name-only", "main", done.commit) == "deps.lock"
    assert world.sh(repo.root, "rev-parse", f"{done.commit}^") == repo.head


def _foreign(top: Path) -> None:
    (top / "deps.lock").write_text("both\n")
    (top / "node_modules.txt").write_text("x")


def _link(top: Path) -> None:
    (top / "deps.lock").unlink()
    (top / "deps.lock").symlink_to("/etc/passwd")


def _removed(top: Path) -> None:
    (top / "deps.lock").unlink()


@pytest.mark.parametrize(
    ("change", "why", "file"),
    [
        (_foreign, "also changed files that no rule names", "node_modules.txt"),
        (_link, "something else than a file", "deps.lock"),
        (_removed, "removed one that a rule names", "deps.lock"),
    ],
)
def test_what_else_a_command_did_is_a_reason_and_no_part_of_the_branch(
    world: World, repo: Repository, change: Callable[[Path], None], why: str, file: str
) -> None:
    found = staged(repo)
    done = landing.finish(repo, found.commit, made(world, found.commit, change), TERMS)
    assert isinstance(done, LeftOut)
    assert why in done.why and done.files == (file,)
    assert file in done.why


def test_a_submodule_in_the_place_of_a_generated_file(world: World, repo: Repository) -> None:
    found = staged(repo)
    world.sh(repo.root, "update-index", "--add", "--cacheinfo", f"160000,{repo.head},gen/sub")
    tree = world.sh(repo.root, "write-tree")
    world.sh(repo.root, "reset", "-q")
    left = world.sh(repo.root, "commit-tree", tree, "-p", found.commit, "-m", "sub")
    done = landing.finish(repo, found.commit, left, replace(TERMS, generated=(GeneratedRule(("*",), "x"),)))
    assert isinstance(done, LeftOut)
    assert "something else than a file" in done.why and "gen/sub" in done.files


def test_files_that_a_pattern_covers_may_come_and_go_and_be_programs(world: World, repo: Repository) -> None:
    def change(top: Path) -> None:
        (top / "gen" / "old.txt").unlink()
        (top / "gen" / "new\n.sh").write_text("true\n")
        (top / "gen" / "new\n.sh").chmod(0o755)
        Path(os.fsdecode(os.fsencode(top) + b"/gen/\xff.pb")).write_text("x")

    found = staged(repo)
    done = landing.finish(repo, found.commit, made(world, found.commit, change), TERMS)
    assert isinstance(done, Staged)
    names = set(world.names(repo, done.commit))
    assert {"gen/new\n.sh", os.fsdecode(b"gen/\xff.pb")} < names and "gen/old.txt" not in names
    assert world.sh(repo.root, "ls-tree", "-r", done.commit, "--", "gen/new\n.sh").startswith("100755")


def test_what_a_task_left_that_is_gone(repo: Repository) -> None:
    with pytest.raises(NotFound, match="is gone"):
        landing.finish(repo, staged(repo).commit, "1234" * 10, TERMS)


def test_take_runs_no_command_and_says_what_does(world: World, repo: Repository) -> None:
    before = world.sh(repo.root, "rev-parse", "HEAD")
    with pytest.raises(Refused, match=r"deps\.lock") as caught:
        landing.take(repo, "result", generated=(LOCK, GEN))
    assert "which commands make" in caught.value.why and "nightcrew land" in caught.value.hint
    with pytest.raises(Refused) as caught:
        landing.take(repo, "result", generated=(GEN,))
    assert "commands" not in caught.value.why
    assert world.sh(repo.root, "rev-parse", "HEAD") == before
