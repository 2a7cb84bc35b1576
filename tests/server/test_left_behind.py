"""Leftover files that no commit takes: they cost no time, are named, and are kept where they can be."""

from __future__ import annotations

import json

import pytest

from supervisor.sandbox import executors
from tests.support import House, git

ODD = r"mkdir -p 'sub/.GIT ' && echo one > 'git~1' && echo two > 'sub/.GIT /config' && mkfifo .Git"
SPARSE = "truncate -s 6G huge && truncate -s 2G large && truncate -s 100M holes1 && truncate -s 200M holes2"


@pytest.fixture(params=[0, 1])
def tier(request: pytest.FixtureRequest, house: House) -> int:
    if request.param and not any(executors.known().works.values()):
        pytest.skip("no sandbox works here")
    house.config.write_text(f'grace = "1s"\nsandbox = {request.param}\n[limits]\ndisk_free_min = 0\n')
    return int(request.param)


@pytest.mark.in_turns
@pytest.mark.usefixtures("tier")
def test_a_name_that_git_refuses_is_kept_beside_the_records_and_named(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", f"{ODD} && echo ok > good.txt")
    work = house.task("work")
    left = house.home.attempt(work.id, 1) / "left"
    assert {str(path.relative_to(left)): path.read_text() for path in left.rglob("*") if path.is_file()} == {
        "git~1": "one\n",
        "sub/.GIT /config": "two\n",
    }
    notes = (work.result or {})["notes"]
    assert [note for note in notes if note.startswith("git~1 was not stored") and note.endswith("as left/git~1")], notes
    shown = json.loads(house.ok("report", "--json"))
    assert "left/sub/.GIT /config" in json.dumps(shown), "the report names it"
    assert git(house.repo, "show", f"{work.branch}:good.txt") == "ok"


@pytest.mark.in_turns
@pytest.mark.usefixtures("tier")
def test_sparse_files_are_measured_by_what_they_use_and_named(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", f"{SPARSE} && echo ok > good.txt")
    work = house.task("work")
    notes = (work.result or {})["notes"]
    (huge,) = [note for note in notes if note.startswith("huge is of 6442450944 bytes (0 used)")]
    assert "was not stored and lies where it was" in huge
    assert [note.split(" is sparse, of ")[0] for note in notes if "sparse" in note] == ["holes2", "large"], notes
    assert git(house.repo, "ls-tree", "--name-only", work.branch or "").split() == ["README", "good.txt", "holes1"]
