"""What is made of a result by each method of landing: squash, rebase and merge, of any history, its messages and authors."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from supervisor.kernel.errors import NotFound
from supervisor.kernel.train_orders import Method
from tests.worktrees import kinds_of_repositories
from tests.worktrees.staging_kit import OTHER, TERMS, Trial, commit_all, text, write
from worktrees import landing, tree_merge
from worktrees.landing import Contained, LeftOut, Result, Staged
from worktrees.repository import discover

if TYPE_CHECKING:
    from tests.worktrees.conftest import World


def test_what_the_branch_has_already(world: World) -> None:
    trial = Trial(world).sides(OTHER, write("long.txt", text(at3="theirs")))
    world.sh(trial.root, "cherry-pick", trial.tip)
    trial.onto = world.commit(trial.root, "later.txt")
    assert [type(one) for one in trial.both()] == [Contained] * 2
    world.sh(trial.root, "reset", "-q", "--hard", "HEAD~2")
    world.sh(trial.root, "merge", "-q", "--squash", trial.tip)
    trial.onto = commit_all(world, trial.root, "squashed")
    assert [type(one) for one in trial.both()] == [Contained] * 2
    world.sh(trial.root, "reset", "-q", "--hard", "HEAD~1")
    world.sh(trial.root, "merge", "-q", trial.tip)
    trial.onto = world.sh(trial.root, "rev-parse", "HEAD")
    assert trial.stage() == Contained("its commits are on the branch")


def test_a_result_of_no_change(world: World) -> None:
    trial = Trial(world).sides(OTHER, lambda _: None)
    assert [type(one) for one in trial.both()] == [Contained] * 2
    trial.tip = trial.base
    assert [type(one) for one in trial.both()] == [Contained] * 2


def test_a_result_that_contains_the_branch_is_put_on_it_as_the_method_says(world: World) -> None:
    trial = Trial(world).sides(lambda _: None, write("long.txt", text(at3="theirs")))
    trial.onto = trial.base
    parents = {}
    for method in Method:
        found = trial.stage(method)
        assert isinstance(found, Staged)
        parents[method] = world.sh(trial.root, "show", "-s", "--format=%P", found.commit).split()
    assert parents == {Method.MERGE: [trial.base, trial.tip], Method.SQUASH: [trial.base], Method.REBASE: [trial.base]}


def test_unrelated_histories(world: World) -> None:
    trial = Trial(world).sides(OTHER, OTHER)
    world.sh(trial.root, "switch", "-q", "--orphan", "alone")
    trial.tip = world.commit(trial.root, "alone.txt")
    assert trial.left().why == "it shares no commit with the branch"


@pytest.mark.parametrize("others", [1, 2])
def test_a_merge_inside_a_result_is_squashed_or_merged_and_not_rebased(world: World, others: int) -> None:
    trial = Trial(world).sides(OTHER, write("long.txt", text(at3="theirs")))
    for number in range(others):
        world.sh(trial.root, "switch", "-q", "-c", f"side{number}", trial.base)
        world.commit(trial.root, f"side{number}.txt")
    world.sh(trial.root, "switch", "-q", "result")
    world.sh(trial.root, "merge", "-q", "--no-ff", "-m", "octopus", *(f"side{number}" for number in range(others)))
    trial.tip = world.sh(trial.root, "rev-parse", "HEAD")
    left = trial.stage(Method.REBASE)
    assert isinstance(left, LeftOut) and "is a merge, and" in left.why
    for method in (Method.MERGE, Method.SQUASH):
        found = trial.stage(method)
        assert isinstance(found, Staged)
        assert {f"side{number}.txt" for number in range(others)} | {"ours.txt"} < set(world.names(trial.repo, found.commit))


def test_a_result_that_merged_the_branch_in_between_is_measured_from_there(world: World) -> None:
    """Also where both merged the other: no merge base is the best one then."""
    trial = Trial(world).sides(OTHER, write("long.txt", text(at3="theirs")))
    world.sh(trial.root, "switch", "-q", "result")
    world.sh(trial.root, "merge", "-q", "--no-edit", trial.onto)
    trial.tip = world.commit(trial.root, "theirs.txt")
    world.sh(trial.root, "switch", "-q", "main")
    world.sh(trial.root, "merge", "-q", "--no-ff", "--no-edit", "result~2")
    trial.onto = world.commit(trial.root, "later.txt")
    for method in (Method.MERGE, Method.SQUASH):
        found = trial.stage(method)
        assert isinstance(found, Staged)
        assert {"ours.txt", "theirs.txt", "later.txt"} < set(world.names(trial.repo, found.commit))


def test_more_commits_than_are_rebased(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(world).sides(OTHER, write("one.txt", "1\n"))
    world.sh(trial.root, "switch", "-q", "result")
    form = "commit refs/heads/result\ncommitter A <a@b> {0} +0000\ndata 2\nx\n{1}M 644 inline many.txt\ndata 5\n{0:04}\n\n"
    lines = "".join(form.format(number, "" if number else f"from {trial.tip}\n") for number in range(600))
    done = world.git.run(trial.repo.store, "fast-import", "--quiet", "--force", "--date-format=raw", stdin=lines.encode())
    assert done.code == 0
    trial.tip = world.sh(trial.root, "rev-parse", "result")
    left = trial.stage(Method.REBASE)
    assert isinstance(left, LeftOut) and "601 commits, and at most 500" in left.why
    assert isinstance(trial.stage(Method.SQUASH), Staged)


def test_a_commit_that_changes_nothing_there_is_left_out_of_a_rebase(world: World) -> None:
    trial = Trial(world).sides(write("same.txt", "same\n"), write("same.txt", "same\n"))
    world.sh(trial.root, "switch", "-q", "result")
    trial.tip = world.commit(trial.root, "more.txt")
    found = trial.stage(Method.REBASE)
    assert isinstance(found, Staged)
    assert world.sh(trial.root, "log", "--format=%s", f"{trial.onto}..{found.commit}") == "change more.txt"


def test_messages_authors_and_trailers(world: World) -> None:
    trial = Trial(world).sides(OTHER, write("long.txt", text(at3="theirs")))
    world.sh(trial.root, "switch", "-q", "result")
    forged = "Nightcrew-Gate: passed by gods\nnightcrew-task : r1/other"
    words = f"Fix: é\n\nWhy.\n\n{forged}\nSigned-off-by: Bo <bo@x>"
    (trial.root / "more.txt").write_text("x\n")
    world.sh(trial.root, "add", "-A")
    world.sh(trial.root, "commit", "-q", "--author=Bo Ü <bo@x>", "--date=2001-02-03T04:05:06+0100", "-m", words)
    trial.tip = world.sh(trial.root, "rev-parse", "HEAD")
    rebased, squashed = trial.stage(Method.REBASE, gated=True), trial.stage(Method.SQUASH)
    assert isinstance(rebased, Staged) and isinstance(squashed, Staged)
    form = "--format=%an|%ae|%ad|%cn|%ct|%(trailers:only,unfold,separator=%x2c)"
    assert world.sh(trial.root, "show", "-s", "--date=raw", form, rebased.commit) == (
        "Bo Ü|bo@x|981169506 +0100|Ada Person|1700000000|"
        "Signed-off-by: Bo <bo@x>,Nightcrew-Task: r1/task,Nightcrew-Train: t1,Nightcrew-Gate: passed"
    )
    assert world.sh(
        trial.root, "show", "-s", "--format=%an|%s|%(trailers:key=Co-authored-by,valueonly,separator=%x2c)", squashed.commit
    ) == ("Ada Person|Title|Bo Ü <bo@x>")


def test_a_rebase_takes_any_author_that_a_commit_can_name(world: World) -> None:
    trial = Trial(world).sides(OTHER, write("long.txt", text(at3="theirs")))
    raw = world.git.run(trial.repo.store, "cat-file", "commit", trial.tip).out.split(b"\n")
    for who in ("<>", " <x@y>", ". <x@y>", "\u202e <x@y>", "a\\b <x@y>"):
        raw[2] = b"author " + os.fsencode(who) + b" 1 +0000"
        argv = ("hash-object", "-t", "commit", "-w", "--stdin", "--literally")
        trial.tip = world.git.run(trial.repo.store, *argv, stdin=b"\n".join(raw)).text
        assert isinstance(trial.stage(Method.REBASE), Staged), who


def test_a_commit_that_is_gone(world: World) -> None:
    repo = world.repo()
    with pytest.raises(NotFound, match="nightcrew restore r1/task"):
        landing.stage(repo, repo.head, Result("r1/task", "1234" * 10), TERMS)


# Kinds of repositories ------------------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", kinds_of_repositories.PEOPLES)
def test_in_any_repository(world: World, kind: Callable[[World, Path], Path]) -> None:
    root = kind(world, world.tmp / "repo")
    repo = discover(world.git, root)
    world.sh(root, "switch", "-q", "-c", "result")
    tip = world.commit(root, "docs/theirs.txt")
    world.sh(root, "switch", "-q", "-c", "into", repo.head)
    onto = world.commit(root, "docs/ours.txt")
    found = landing.stage(repo, onto, Result("r1/task", tip), replace(TERMS, method=Method.REBASE))
    assert isinstance(found, Staged)
    assert {"docs/theirs.txt", "docs/ours.txt"} < set(world.names(repo, found.commit))


def test_objects_that_a_partial_clone_never_fetched(world: World) -> None:
    origin = Trial(world).sides(write("long.txt", text(at1="ours")), write("long.txt", text(at9="theirs")))
    world.sh(origin.root, "config", "uploadpack.allowFilter", "true")
    clone = world.tmp / "clone"
    world.sh(world.tmp, "clone", "-q", "--filter=blob:none", "--no-checkout", origin.root.as_uri(), os.fspath(clone))
    world.sh(clone, "switch", "-q", "main")
    found = landing.stage(discover(world.git, clone), origin.onto, Result("r1/task", origin.tip), TERMS)
    assert isinstance(found, LeftOut) and "git cannot merge it" in found.why


def test_what_a_collection_of_garbage_takes_under_it_is_written_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """`git gc --prune=now` of a person's: no ref names the merged tree yet."""
    trial = Trial(world).sides(lambda root: (root / "ours").write_text("x\n"), lambda root: (root / "theirs").write_text("x\n"))
    merge, pruned = tree_merge.merge, list[str]()

    def merge_and_prune(*args: Any) -> tree_merge.Merged:
        found = merge(*args)
        if len(pruned) < 3:
            pruned.append(found.tree)
            world.sh(trial.root, "prune", "--expire=now")
            assert trial.repo.run("cat-file", "-e", found.tree, accept=(0, 1, 128)).code
        return found

    monkeypatch.setattr(tree_merge, "merge", merge_and_prune)
    staged = trial.stage(Method.SQUASH)
    assert isinstance(staged, Staged)
    assert world.sh(trial.root, "rev-parse", f"{staged.commit}^{{tree}}") == pruned[-1]
    world.sh(trial.root, "fsck", "--connectivity-only", staged.commit)
