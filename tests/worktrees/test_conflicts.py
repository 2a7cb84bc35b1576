"""Branches that would conflict: compared with a real merge of every pair, and without a trace in the repository."""

from __future__ import annotations

import random
import subprocess
from itertools import combinations
from pathlib import Path

import pytest

from supervisor.results import trial_merges
from supervisor.results.conflicts import Matrix
from supervisor.store.journal import Branch
from tests.support import git, make_repository
from worktrees.git import Git
from worktrees.repository import Repository, discover


@pytest.fixture
def place(tmp_path: Path) -> Path:
    lines = "".join(f"line {number}\n" for number in range(40))
    return make_repository(tmp_path / 'a "b": c', {"one.txt": lines, "two.txt": lines, "d/a.txt": lines, "d/e/b.txt": lines, "g": lines})


def opened(place: Path) -> Repository:
    return discover(Git(place.parent / "state"), place)


def branch(place: Path, name: str, *shell: str) -> str:
    """A branch from main that does this."""
    git(place, "switch", "-q", "-c", name, "main")
    for line in shell:
        subprocess.run(["sh", "-ec", line], cwd=place, check=True)
    git(place, "add", "-A")
    git(place, "commit", "-q", "--allow-empty", "-m", name)
    git(place, "switch", "-q", "main")
    return name


def looked(repo: Repository, names: list[str], base: str) -> Matrix:
    """How these branches stand to each other and to the checkout."""
    branches = [Branch(name, 1, name, living=False, base=base) for name in names]
    return trial_merges.look(repo, (branches, 0), {})


def between(matrix: Matrix) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(one.one, one.two): one.verdict.files for one in matrix.conflicts()}


def test_with_the_checkout_and_with_each_other(place: Path) -> None:
    base = git(place, "rev-parse", "main")
    one = branch(place, "nightcrew/one", "sed -i 's/^line 5$/one/' one.txt")
    two = branch(place, "nightcrew/two", "sed -i 's/^line 5$/two/' one.txt")
    far = branch(place, "nightcrew/far", "sed -i 's/^line 35$/far/' one.txt")
    taken = branch(place, "nightcrew/taken", "echo more >> two.txt")
    behind = branch(place, "nightcrew/behind", "sed -i 's/^line 39$/behind/' two.txt")
    git(place, "merge", "-q", taken)
    found = looked(opened(place), [one, two, far, taken, behind, "nightcrew/gone"], base)
    assert found.merged == (taken,)
    assert {side.task for side in found.sides} == {one, two, far, behind}
    assert between(found) == {(behind, ""): ("two.txt",), (one, two): ("one.txt",)}


def test_nothing_changes_in_the_repository(place: Path) -> None:
    base = git(place, "rev-parse", "main")
    names = [branch(place, f"nightcrew/{number}", f"sed -i 's/^line 5$/{number}/' one.txt") for number in range(3)]
    before = sorted(path for path in place.rglob("*"))
    assert len(between(looked(opened(place), names, base))) == 3
    assert sorted(path for path in place.rglob("*")) == before
    assert not list((place.parent / "state").glob("nightcrew.*/*"))


DEEDS = (
    "sed -i 's/^line 5$/{n}/' one.txt",
    "sed -i 's/^line 30$/{n}/' one.txt",
    "git rm -q two.txt",
    "sed -i 's/^line 9$/{n}/' two.txt",
    "git mv d h",
    "git mv d/e k",
    "echo {n} > d/new-{n}.txt",
    "mkdir -p d/o && echo {n} > d/o/new-{n}.txt",
    "echo {n} > d/e/same.txt",
    "git rm -q g && mkdir g && echo {n} > g/inner",
    "sed -i 's/^line 9$/{n}/' g",
    "mkdir -p z && echo {n} > z/free-{n}",
    "echo {n} > z",
    "git mv one.txt moved.txt",
)


def test_no_conflict_is_missed_that_a_merge_of_every_pair_finds(place: Path, seed: int) -> None:
    base = git(place, "rev-parse", "main")
    chance = random.Random(seed)
    some = [(deed,) for deed in DEEDS] + [(chance.choice(DEEDS[:2]), chance.choice(DEEDS[6:9])) for _ in range(2)]
    names = [branch(place, f"nightcrew/{n:02}", *(deed.replace("{n}", str(n)) for deed in deeds)) for n, deeds in enumerate(some)]
    found = between(looked(opened(place), names, base))
    for one, two in combinations(names, 2):
        merged = subprocess.run(["git", "-C", place, "merge-tree", "--write-tree", one, two], stdout=subprocess.DEVNULL, check=False)
        assert ((one, two) in found) == (merged.returncode == 1), (one, two)
    assert 8 < len(found) < len(names) * (len(names) - 1) / 2


def test_no_branch_at_all(place: Path) -> None:
    assert looked(opened(place), [], git(place, "rev-parse", "main")).sides == ()
