"""Our form of a new branch equals git's own; whatever is in its way, git decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from worktrees import environments, private_repository, repository
from worktrees.git import Answer, Git, Place
from worktrees.repository import Repository, discover

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worktrees.conftest import World

OURS, THEIRS = "nightcrew/run/ours/work", "nightcrew/run/theirs/work"


@pytest.fixture(params=["sha1", "sha256"])
def repo(world: World, request: pytest.FixtureRequest) -> Repository:
    path = world.tmp / "repo"
    path.mkdir()
    world.sh(path, "init", "-q", f"--object-format={request.param}")
    world.commit(path)
    return discover(world.git, path)


def write(repo: Repository, branch: str = OURS) -> bool:
    made = environments.write_new(repo, branch, repo.head, "nightcrew: task")
    assert [file for pattern in ("*.lock", ".*") for file in (repo.common_dir / "refs").rglob(pattern)] == []
    return made


def kept(path: Path) -> tuple[bytes, ...]:
    """Without author and time."""
    return tuple(part for part in path.read_bytes().replace(b"\t", b" ").split() if part[-1:].isalnum() and b"@" not in part)[:2]


def test_both_forms_are_equal(world: World, repo: Repository) -> None:
    assert write(repo) and not write(repo)
    repo.git.run(repo.store, "update-ref", "-m", "nightcrew: task", f"refs/heads/{THEIRS}", repo.head, "")
    for top in (repo.common_dir, repo.common_dir / "logs"):
        ours, theirs = (top / "refs/heads" / name for name in (OURS, THEIRS))
        assert kept(ours) == kept(theirs)
    for name in (OURS, THEIRS):
        assert world.sh(repo.root, "reflog", "show", "--format=%H %gs", name) == f"{repo.head} nightcrew: task"
        world.sh(repo.root, "branch", "-D", name)
    assert world.sh(repo.root, "fsck") == ""


@pytest.mark.parametrize("taken", [OURS, "nightcrew/run", "nightcrew", f"{OURS}/below"])
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "loose"])
def test_what_is_there_is_left_as_it_is(world: World, repo: Repository, taken: str, packed: bool) -> None:
    world.sh(repo.root, "branch", taken)
    if packed:
        world.sh(repo.root, "pack-refs", "--all", "--prune")
    before = world.sh(repo.root, "for-each-ref")
    assert not write(repo)
    assert world.sh(repo.root, "for-each-ref") == before
    assert environments.write_new(repo, "nightcrews", repo.head, "") and environments.write_new(repo, "other/run", repo.head, "")


def test_a_name_that_only_looks_alike_is_no_obstacle(world: World, repo: Repository) -> None:
    for name in (f"{OURS}2", "nightcrew/runs", "x" + OURS):
        world.sh(repo.root, "branch", name)
    world.sh(repo.root, "pack-refs", "--all")
    assert write(repo)


def test_a_lock_that_git_holds_is_not_taken(repo: Repository) -> None:
    lock = repo.common_dir / "refs/heads" / f"{OURS}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert not environments.write_new(repo, OURS, repo.head, "")
    assert lock.exists()


def test_what_a_kill_left_is_no_branch_and_no_obstacle(world: World, repo: Repository) -> None:
    left = repo.common_dir / "refs/heads/nightcrew/run/ours/.work.0123456789abcdef"
    left.parent.mkdir(parents=True)
    left.write_text("0123")
    assert world.sh(repo.root, "for-each-ref", "refs/heads/nightcrew") == ""
    world.sh(repo.root, "pack-refs", "--all")
    assert environments.write_new(repo, OURS, repo.head, "nightcrew: task")
    repository.move(repo, f"refs/heads/{OURS}", "", repo.head, "")
    assert not left.parent.exists(), "it goes with the branch"


def test_the_log_of_another_branch_in_the_way_is_gits_to_solve(world: World, repo: Repository) -> None:
    log = repo.common_dir / "logs/refs/heads" / OURS
    (log / "below").mkdir(parents=True)
    assert not write(repo)
    world.sh(repo.root, "update-ref", f"refs/heads/{OURS}", repo.head)


RESCUE, TOPS = "refs/nightcrew/rescue/run/ours/1", ("refs/heads/nightcrew/run/ours", "refs/nightcrew/rescue/run/ours")


def test_the_first_rescue_ref_is_as_git_writes_it(world: World, repo: Repository) -> None:
    assert environments.write_rescue(repo, RESCUE, repo.head)
    repository.move(repo, f"{RESCUE}0", repo.head, "", "nightcrew: rescue")
    ours, theirs = repo.common_dir / RESCUE, repo.common_dir / f"{RESCUE}0"
    assert (ours.read_bytes(), ours.stat().st_mode) == (theirs.read_bytes(), theirs.stat().st_mode)
    assert not (repo.common_dir / "logs" / RESCUE).exists() and not (repo.common_dir / "logs" / f"{RESCUE}0").exists()
    assert world.sh(repo.root, "fsck") == "" and not list(ours.parent.glob(".*"))


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "loose"])
@pytest.mark.parametrize("taken", [RESCUE, f"{RESCUE}/below", RESCUE.rpartition("/")[0]])
def test_a_rescue_ref_takes_no_place_that_is_taken(world: World, repo: Repository, taken: str, packed: bool) -> None:
    world.sh(repo.root, "update-ref", taken, "HEAD")
    if packed:
        world.sh(repo.root, "pack-refs", "--all", "--prune")
    before = world.sh(repo.root, "for-each-ref")
    assert not environments.write_rescue(repo, RESCUE, repo.head)
    assert world.sh(repo.root, "for-each-ref") == before


@pytest.mark.parametrize("state", ["none", "loose", "packed", "both", "symbolic", "locked", "itself", "broken"])
def test_refs_of_a_task_are_those_that_git_names(world: World, repo: Repository, state: str) -> None:
    common = repo.common_dir
    world.sh(repo.root, "update-ref", "refs/heads/nightcrew/run/ours2/work", "HEAD")
    if state == "itself":
        world.sh(repo.root, "update-ref", TOPS[0], "HEAD")
    elif state != "none":
        for ref in (f"{TOPS[0]}/work", RESCUE, f"{RESCUE}-tips"):
            world.sh(repo.root, "update-ref", ref, "HEAD")
    if state in ("packed", "both"):
        world.sh(repo.root, "pack-refs", "--all", "--prune")
    if state == "both":
        world.sh(repo.root, "commit", "--allow-empty", "-qm", "more")
        world.sh(repo.root, "update-ref", RESCUE, "HEAD")
    if state == "symbolic":
        world.sh(repo.root, "symbolic-ref", f"{TOPS[0]}/other", "refs/heads/nightcrew/run/ours2/work")
    if state == "locked":
        (common / f"{RESCUE}.lock").touch()
        (common / TOPS[0] / ".work.0123").write_text("0123")
    if state == "broken":
        (common / RESCUE).write_text("0" * len(repo.head) + "\n")
    rows = world.sh(repo.root, "for-each-ref", "--format=%(refname) %(objectname)", *TOPS).splitlines()
    assert private_repository.below(repo, *TOPS) == dict(row.split(" ") for row in rows)
    assert len(rows) == {"none": 0, "symbolic": 4, "itself": 1, "broken": 2}.get(state, 3)


def test_git_searches_a_list_of_refs_that_is_long(world: World, repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    world.sh(repo.root, "update-ref", RESCUE, "HEAD")
    world.sh(repo.root, "pack-refs", "--all", "--prune")
    asked, run = list[str](), type(repo.git).run

    def counted(git: Git, place: Place, verb: str, *argv: str, **options: Any) -> Answer:
        asked.append(verb)
        return run(git, place, verb, *argv, **options)

    monkeypatch.setattr(type(repo.git), "run", counted)
    assert private_repository.below(repo, *TOPS) == {RESCUE: repo.head} and asked == []
    monkeypatch.setattr(private_repository, "_SEARCHED_MAX", 10)
    assert private_repository.below(repo, *TOPS) == {RESCUE: repo.head} and asked == ["for-each-ref"]
