"""The edits of many workers come into one branch in their order; what conflicts is left out and kept."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import Refused
from worktrees.landing import Edit, integrate
from worktrees.repository import Repository

if TYPE_CHECKING:
    from tests.worktrees.conftest import World

NAME = "0123456789ab"
BRANCH = f"nightcrew/map/{NAME}"


@pytest.fixture
def repo(world: World) -> Repository:
    return world.repo(files=6)


class Bench:
    """A second checkout, where edits are made as workers make them."""

    def __init__(self, world: World, repo: Repository) -> None:
        self.world, self.repo = world, repo
        self.at = world.tmp / "bench"
        world.sh(repo.root, "worktree", "add", "-q", "--detach", str(self.at))

    def edit(self, position: int, files: dict[str, str | None], base: str = "") -> Edit:
        """Write these files (None removes one) on top of `base`."""
        base = base or self.repo.head
        self.world.sh(self.at, "checkout", "-q", "-f", "--detach", base)
        for name, text in files.items():
            path = self.at / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        self.world.sh(self.at, "add", "-A")
        self.world.sh(self.at, "commit", "-q", "--allow-empty", "-m", f"item {position}")
        return Edit(position, f"item {position}", base, self.world.sh(self.at, "rev-parse", "HEAD"))


@pytest.fixture
def bench(world: World, repo: Repository) -> Bench:
    return Bench(world, repo)


def lines(*changed: tuple[int, str], count: int = 5, number: int = 0) -> str:
    rows = [f"{number}"] * count
    for at, text in changed:
        rows[at] = text
    return "\n".join(rows) + "\n"


def test_edits_come_in_order_one_commit_each(world: World, repo: Repository, bench: Bench) -> None:
    edits = [bench.edit(place, {f"f{place}.txt": f"new {place}\n"}) for place in (0, 1, 2)]
    done = integrate(repo, NAME, repo.head, edits)
    assert done.merged == (0, 1, 2) and done.left == ()
    assert world.sh(repo.root, "log", "--format=%s", f"{repo.head}..{BRANCH}").split("\n") == ["item 2", "item 1", "item 0"]
    assert {name: text for name, text in world.blobs(repo, BRANCH).items() if text.startswith("new")} == {
        "f0.txt": "new 0",
        "f1.txt": "new 1",
        "f2.txt": "new 2",
    }
    assert world.sh(repo.root, "status", "--porcelain") == "" and world.sh(repo.root, "rev-parse", "HEAD") == repo.head
    assert world.sh(repo.root, "for-each-ref", "--format=%(refname)", "refs/nightcrew/map") == ""
    assert f"Nightcrew-Commit: {edits[1].tip}" in world.sh(repo.root, "log", "-1", "--format=%B", f"{BRANCH}~1")


def test_what_a_merge_can_join_is_joined_and_what_conflicts_is_left(world: World, repo: Repository, bench: Bench) -> None:
    first = bench.edit(0, {"f0.txt": lines((0, "first"))})
    joined = bench.edit(1, {"f0.txt": lines((4, "joined")), "f5.txt": "new\n"})
    against = bench.edit(2, {"f0.txt": lines((0, "against")), "f1.txt": "against\n"})
    later = bench.edit(3, {"f1.txt": "later\n"})
    done = integrate(repo, NAME, repo.head, [first, joined, against, later])
    assert done.merged == (0, 1, 3)
    (left,) = done.left
    assert (left.edit, left.files) == (against, ("f0.txt",))
    assert world.sh(repo.root, "rev-parse", left.ref) == against.tip
    found = world.blobs(repo, BRANCH)
    assert (found["f0.txt"], found["f1.txt"], found["f5.txt"]) == (lines((0, "first"), (4, "joined")).rstrip("\n"), "later", "new")
    again = integrate(repo, NAME, repo.head, [first, joined, later])
    assert again.merged == (0, 1, 3) and world.sh(repo.root, "for-each-ref", "--format=%(refname)", "refs/nightcrew/map") == ""


def test_an_edit_is_what_its_item_changed_not_what_its_worker_did_before(world: World, repo: Repository, bench: Bench) -> None:
    other = bench.edit(0, {"f0.txt": "other\n"})
    clash = bench.edit(1, {"f0.txt": "clash\n", "f1.txt": "clash\n"})
    after = bench.edit(2, {"f2.txt": "after\n"}, base=clash.tip)
    on_top = bench.edit(3, {"f1.txt": "clash\nand more\n"}, base=after.tip)
    done = integrate(repo, NAME, repo.head, [other, clash, after, on_top])
    assert done.merged == (0, 2) and [left.edit.position for left in done.left] == [1, 3]
    found = world.blobs(repo, BRANCH)
    assert (found["f0.txt"], found["f1.txt"], found["f2.txt"]) == ("other", world.blobs(repo, repo.head)["f1.txt"], "after")


def test_files_that_go_and_directories_in_their_place(world: World, repo: Repository, bench: Bench) -> None:
    gone = bench.edit(0, {"f0.txt": None})
    folder = bench.edit(1, {"f1.txt": None, "f1.txt/deep/er": "below\n"})
    added = bench.edit(2, {"f0.txt/x": "below a file that another removed\n"}, base=gone.tip)
    in_the_way = bench.edit(3, {"new": "a file\n"})
    below = bench.edit(4, {"new/file": "below it\n"})
    nothing = bench.edit(5, {})
    done = integrate(repo, NAME, repo.head, [gone, folder, added, in_the_way, below, nothing])
    assert done.merged == (0, 1, 2, 3) and [left.edit.position for left in done.left] == [4]
    assert set(world.names(repo, BRANCH)) == {"f0.txt/x", "f1.txt/deep/er", "f2.txt", "f3.txt", "f4.txt", "f5.txt", "new"}


def test_a_conflict_is_told_by_the_name_that_the_file_has(repo: Repository, bench: Bench) -> None:
    folder = bench.edit(0, {"df/x": "below\n"})
    file = bench.edit(1, {"df": "a file\n"})
    for edits in ([folder, file], [file, folder]):
        (left,) = integrate(repo, NAME, repo.head, edits).left
        assert left.files == ("df",)


def test_a_commit_of_another_repository_is_left_out_and_kept(world: World, repo: Repository, bench: Bench) -> None:
    plain = bench.edit(1, {"f1.txt": "new\n"})
    world.sh(bench.at, "init", "-q", "inner")
    world.sh(bench.at / "inner", "commit", "-q", "--allow-empty", "-m", "inside")
    linked = bench.edit(0, {"f0.txt": "linked\n"})
    done = integrate(repo, NAME, repo.head, [linked, plain])
    (left,) = done.left
    assert done.merged == (1,) and left.files == ("inner",) and "another repository" in left.why
    assert world.sh(repo.root, "rev-parse", left.ref) == linked.tip


def test_hostile_names_of_files_and_items(world: World, repo: Repository, bench: Bench) -> None:
    names = ['a"quote', "back\\slash", "line\nbreak", " space ", "ünï", "-flag", "tab\tt", os.fsdecode(b"\xff\xfe")]
    edits = [bench.edit(place, {f"d{place}/{name}": f"{place}\n"}) for place, name in enumerate(names)]
    edits = [Edit(one.position, f"{names[one.position]}\nNightcrew-Map: x", one.base, one.tip) for one in edits]
    done = integrate(repo, NAME, repo.head, edits)
    assert len(done.merged) == len(names)
    assert {f"d{place}/{name}" for place, name in enumerate(names)} <= set(world.names(repo, BRANCH))


def test_the_same_edits_give_the_same_branch(world: World, repo: Repository, bench: Bench) -> None:
    edits = [bench.edit(place, {"f0.txt": lines((place, "x")), f"n{place}": "n\n"}) for place in range(4)]
    first = integrate(repo, NAME, repo.head, edits)
    world.sh(repo.root, "branch", "-D", BRANCH)
    assert integrate(repo, NAME, repo.head, edits) == first
    assert integrate(repo, NAME, repo.head, edits) == first


def test_a_branch_with_a_persons_commit_or_a_checkout_stays(world: World, repo: Repository, bench: Bench) -> None:
    edits = [bench.edit(0, {"f0.txt": "x\n"})]
    integrate(repo, NAME, repo.head, edits)
    more = [*edits, bench.edit(1, {"f1.txt": "x\n"})]
    other = world.tmp / "other"
    world.sh(repo.root, "worktree", "add", "-q", str(other), BRANCH)
    with pytest.raises(Refused, match="checked out"):
        integrate(repo, NAME, repo.head, more)
    theirs = world.commit(other, "mine.txt")
    world.sh(other, "checkout", "-q", "--detach")
    with pytest.raises(Refused, match="not nightcrew's"):
        integrate(repo, NAME, repo.head, more)
    assert world.sh(repo.root, "rev-parse", BRANCH) == theirs
    world.sh(repo.root, "branch", "-m", BRANCH, "kept/mine")
    assert integrate(repo, NAME, repo.head, more).merged == (0, 1)


def test_a_commit_that_is_gone_is_said(world: World, repo: Repository, bench: Bench) -> None:
    edit = bench.edit(0, {"f0.txt": "x\n"})
    done = integrate(repo, NAME, repo.head, [edit, Edit(1, "lost", repo.head, "1" * 40)])
    assert done.merged == (0,) and [(left.edit.position, left.why, left.ref) for left in done.left] == [(1, "its commit is gone", "")]
    world.sh(repo.root, "branch", "-D", BRANCH)
    assert integrate(repo, NAME, repo.head, []).tip == repo.head and not world.sh(repo.root, "branch", "--list", BRANCH)


SCRIPT = """
import json, sys
from pathlib import Path
from worktrees.git import Git
from worktrees.landing import Edit, integrate
from worktrees.repository import discover
state, root, name, base, edits = json.load(sys.stdin)
print("go", flush=True)
integrate(discover(Git(Path(state)), Path(root)), name, base, [Edit(*edit) for edit in edits])
"""


def test_a_kill_in_the_middle_changes_nothing_in_the_end(world: World, repo: Repository, bench: Bench, seed: int) -> None:
    import json
    import time

    rng = random.Random(seed)
    edits = [bench.edit(place, {"f0.txt": lines((place % 5, f"x{place}")), f"n{place}": "n\n"}) for place in range(7)]
    wanted = integrate(repo, NAME, repo.head, edits)
    given = json.dumps([str(world.tmp / "state"), str(repo.root), NAME, repo.head, [[e.position, e.name, e.base, e.tip] for e in edits]])
    for _ in range(2):
        world.sh(repo.root, "update-ref", "-d", f"refs/heads/{BRANCH}")
        child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(given.encode())
        child.stdin.close()
        assert child.stdout.readline() == b"go\n"
        time.sleep(rng.random() * 0.4)  # where it is killed is not asserted
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert integrate(repo, NAME, repo.head, edits) == wanted
