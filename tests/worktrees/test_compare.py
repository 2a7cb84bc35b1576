"""Commits compared as git's own merge would have it, one by one; what cannot be merged costs no other pair its answer."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.kernel.errors import ToolHung
from supervisor.results import trial_merges
from supervisor.results.conflicts import FILES_MAX, pair
from tests.support import git, make_repository
from tests.worktrees.test_conflicts import branch, opened
from worktrees import tree_merge
from worktrees.git import Answer, Bounds, Git
from worktrees.repository import Repository
from worktrees.tree_merge import Merged

LINES = "".join(f"line {number}\n" for number in range(40))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = {"one.txt": LINES, "d/a.txt": LINES, "run.sh": "exit 0\n", "bin": "\0start\n", "crlf.txt": LINES, "g": LINES}
    return make_repository(tmp_path_factory.mktemp("compared") / "repo", files)


DEEDS = {
    "edit": "sed -i 's/^line 5$/edit/' one.txt",
    "edit-too": "sed -i 's/^line 5$/too/' one.txt",
    "edit-far": "sed -i 's/^line 30$/far/' one.txt",
    "move": "git mv one.txt moved.txt",
    "drop": "git rm -q one.txt",
    "mode": "chmod +x run.sh",
    "mode-edit": "echo echo >> run.sh",
    "binary": "printf '\\0one\\n' > bin",
    "binary-too": "printf '\\0two\\n' > bin",
    "crlf": "sed -i 's/$/\\r/' crlf.txt",
    "crlf-edit": "sed -i 's/^line 9$/nine/' crlf.txt",
    "folder": "git rm -q g && mkdir g && echo new > g/inner",
    "folder-edit": "sed -i 's/^line 9$/nine/' g",
    "link": "git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,sub",
    "link-too": "git update-index --add --cacheinfo 160000,2222222222222222222222222222222222222222,sub",
}
CONFLICTS = {
    ("edit", "edit-too"): ("one.txt",),
    ("edit", "drop"): ("one.txt",),
    ("drop", "edit-far"): ("one.txt",),
    ("drop", "move"): ("moved.txt",),
    ("drop", "edit-too"): ("one.txt",),
    ("binary", "binary-too"): ("bin",),
    ("crlf", "crlf-edit"): ("crlf.txt",),
    ("folder", "folder-edit"): ("g",),
    ("link", "link-too"): ("sub",),
}


def test_every_kind_of_change(place: Path) -> None:
    for name, deed in DEEDS.items():
        git(place, "switch", "-q", "-c", name, "main")
        subprocess.run(["sh", "-ec", deed], cwd=place, check=True)
        if not name.startswith("link"):  # `add -A` would take it out again: there is no such directory
            git(place, "add", "-A")
        git(place, "commit", "-q", "-m", name)
        git(place, "switch", "-q", "-f", "main")
    tips = {name: git(place, "rev-parse", name) for name in DEEDS}
    names = {tip: name for name, tip in tips.items()}
    asked = [pair(tips[one], tips[two]) for one in DEEDS for two in DEEDS if one < two]
    found = trial_merges.compare(opened(place), asked)
    assert set(found) == set(asked)
    told = {frozenset((names[one], names[two])): verdict.files for (one, two), verdict in found.items() if verdict.files}
    assert told == {frozenset(two): files for two, files in CONFLICTS.items()}
    assert not [verdict for verdict in found.values() if verdict.why]


def test_what_git_cannot_merge_has_a_reason_and_the_others_their_answer(place: Path) -> None:
    one, two = (git(place, "commit-tree", "main^{tree}", "-p", "main", "-m", name) for name in ("one", "two"))
    alone = git(place, "commit-tree", "main^{tree}", "-m", "of no family")
    gone = "4" * 40
    asked = [(one, alone), (one, two), (gone, two), (two, git(place, "rev-parse", "main"))]
    found = trial_merges.compare(opened(place), asked)
    assert ["unrelated histories" in found[asked[0]].why, found[asked[1]].why, found[asked[3]].why] == [True, "", ""]
    assert found[asked[2]].why


def test_no_program_of_the_repository_or_of_an_agent_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    place = make_repository(tmp_path / "repo", {"one.txt": LINES, ".gitattributes": "*.txt merge=evil filter=evil diff=evil\n"})
    for key in (
        "merge.evil.driver",
        "filter.evil.clean",
        "filter.evil.smudge",
        "diff.evil.textconv",
        "diff.evil.command",
        "core.fsmonitor",
    ):
        git(place, "config", key, f"touch {mark}; cat; true")
    git(place, "config", "merge.renormalize", "true")
    (place / ".git" / "info").mkdir(exist_ok=True)
    (place / ".git" / "info" / "attributes").write_text("*.txt merge=evil filter=evil diff=evil\n")
    (place / ".git" / ".gitattributes").write_text("*.txt merge=evil\n")
    hook = place / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
    hook.chmod(0o755)
    tips = [_tip(place, name, line) for name, line in (("one", 5), ("two", 30))]
    mark.unlink(missing_ok=True)  # the person's own git ran them
    found = trial_merges.compare(opened(place), [pair(*tips)])
    assert not mark.exists()
    assert found[pair(*tips)].files == ("one.txt",)  # a driver that is not run is a conflict
    subprocess.run(["git", "-C", place, "merge-tree", "--write-tree", *tips], stdout=subprocess.DEVNULL, check=False)
    assert mark.exists()  # plain git would have run it


def _tip(place: Path, name: str, line: int) -> str:
    branch(place, name, f"sed -i 's/^line {line}$/{name}/' one.txt")
    return git(place, "rev-parse", name)


def test_a_batch_that_takes_too_long_is_asked_pair_by_pair(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tips = [git(place, "commit-tree", "main^{tree}", "-p", "main", "-m", str(number)) for number in range(3)]
    asked, real = [pair(tips[0], tips[1]), pair(tips[1], tips[2]), pair(tips[0], tips[2])], tree_merge.merge_pairs

    def merge(repo: Repository, pairs: Sequence[tuple[str, str]], deadline_s: float, bounds: Bounds) -> tuple[list[Merged], Answer]:
        if any(tips[2] in one for one in pairs):
            raise ToolHung("git merge-tree was stopped", why="it took longer than it may")
        return real(repo, pairs, deadline_s, bounds)

    monkeypatch.setattr(tree_merge, "merge_pairs", merge)
    found = trial_merges.compare(opened(place), asked)
    assert [found[one].why for one in asked] == ["", "it took longer than it may", "it took longer than it may"]
    assert trial_merges.compare(opened(place), asked, time.monotonic()) == {}


def test_many_files_are_counted_and_not_all_named(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "repo", {f"{number:02}": "start\n" for number in range(FILES_MAX + 5)})
    tips = []
    for name in ("one", "two"):
        branch(place, name, f'for file in [0-9]*; do echo {name} > "$file"; done')
        tips.append(git(place, "rev-parse", name))
    verdict = trial_merges.compare(opened(place), [pair(*tips)])[pair(*tips)]
    assert (len(verdict.files), verdict.more) == (FILES_MAX, 5)


def test_the_checkout_is_looked_at_anew(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "repo")
    repo: Repository = opened(place)
    assert isinstance(repo.git, Git)
    one = branch(place, "nightcrew/one", "echo one > one")
    assert trial_merges.standing(repo, [one, "nightcrew/gone"]).merged == frozenset()
    git(place, "merge", "-q", one)
    now = trial_merges.standing(repo, [one, "nightcrew/gone"])
    assert (now.head, now.on, now.merged, set(now.tips)) == (git(place, "rev-parse", "HEAD"), "main", frozenset({one}), {one})
    git(place, "switch", "-q", "--detach")
    assert trial_merges.standing(repo, []).on == now.head[:12]


def test_where_nothing_moved_it_is_not_asked_again_what_is_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make_repository(tmp_path / "repo")
    repo: Repository = opened(place)
    names = [branch(place, name, f"echo {name} > {name}") for name in ("one", "two")]
    before = trial_merges.standing(repo, names)
    with monkeypatch.context() as changed:
        changed.setattr(trial_merges, "_reached", lambda *_: pytest.fail("asked"))
        git(place, "switch", "-q", "-c", "other")
        assert trial_merges.standing(repo, names, before=before) == replace(before, on="other")
    git(place, "merge", "-q", "one")
    assert trial_merges.standing(repo, names, before=before).merged == {"one"}
    before = trial_merges.standing(repo, names)
    git(place, "branch", "-f", "one", branch(place, "three", "echo three > three"))
    assert trial_merges.standing(repo, names, before=before).merged == frozenset()


def test_gits_own_merge_drivers_count_as_in_a_merge_of_the_checkout(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "repo", {".gitattributes": "*.md merge=union\n", "log.md": "one\n", "long.txt": LINES})
    for name in ("one", "two"):
        branch(place, name, f"echo {name} >> log.md")
    tips = git(place, "rev-parse", "one", "two").split()
    assert [verdict.files for verdict in trial_merges.compare(opened(place), [(tips[0], tips[1])]).values()] == [()]


def test_a_change_that_the_person_made_meanwhile_belongs_to_no_result(tmp_path: Path) -> None:
    """`left` and the person changed the same line; `other` began after that, and touches another file."""
    place = make_repository(tmp_path / "repo", {"f": LINES, "g": LINES})
    base = git(place, "rev-parse", "main")
    left = _tip_of(place, "left", "sed -i 's/^line 5$/left/' f")
    (place / "f").write_text(LINES.replace("line 5\n", "mine\n"))
    git(place, "commit", "-qam", "mine")
    head = git(place, "rev-parse", "main")
    other = _tip_of(place, "other", "echo new > new")
    near = _tip_of(place, "near", "sed -i 's/^line 6$/near/' f")
    same = _tip_of(place, "same", "sed -i 's/^mine$/same/' f")
    late = _tip_of(place, "late", f"git merge -q -s ours {left} && sed -i 's/^line 30$/late/' g")
    far = _tip_of(place, "far", f"git reset -q --hard {base} && sed -i 's/^line 30$/far/' g")
    bases = {left: base, far: base, other: head, near: head, same: head, late: head}
    expected = {(left, other): (), (left, near): ("f",), (left, same): ("f",), (far, late): ("g",), (far, other): (), (far, left): ()}
    repo = opened(place)
    direct = trial_merges.compare(repo, [*expected, (left, head)])
    assert direct[left, other].files == ("f",), "the branches themselves do conflict"
    assert direct[left, head].files == ("f",)
    found = trial_merges.compare(repo, [*expected, (left, head)], bases=bases)
    assert {pair: verdict.files for pair, verdict in found.items()} == {**expected, (left, head): ("f",)}


def test_what_an_agent_merged_is_not_its_own_change(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "repo", {"f": LINES})
    base = git(place, "rev-parse", "main")
    left = _tip_of(place, "left", "sed -i 's/^line 5$/left/' f")
    merged = _tip_of(place, "merged", "echo mine > mine")
    (place / "f").write_text(LINES.replace("line 5\n", "mine\n"))
    git(place, "commit", "-qam", "mine")
    git(place, "switch", "-q", "merged")
    git(place, "merge", "-q", "--no-edit", "main")
    merged = git(place, "rev-parse", "merged")
    git(place, "switch", "-q", "main")
    found = trial_merges.compare(opened(place), [(left, merged)], bases={left: base, merged: base})
    assert found[left, merged].files == ()


def test_a_dispute_that_gets_no_turn_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make_repository(tmp_path / "repo", {"f": LINES})
    base = git(place, "rev-parse", "main")
    left = _tip_of(place, "left", "sed -i 's/^line 5$/left/' f")
    (place / "f").write_text(LINES.replace("line 5\n", "mine\n"))
    git(place, "commit", "-qam", "mine")
    other = _tip_of(place, "other", "echo new > new")
    bases = {left: base, other: git(place, "rev-parse", "main")}
    real, turns = trial_merges._Trial.merges, itertools.count()
    monkeypatch.setattr(trial_merges._Trial, "merges", lambda trial, pairs: {} if next(turns) else real(trial, pairs))
    assert trial_merges.compare(opened(place), [(left, other)], bases=bases) == {}


def _tip_of(place: Path, name: str, deed: str) -> str:
    return git(place, "rev-parse", branch(place, name, deed))
