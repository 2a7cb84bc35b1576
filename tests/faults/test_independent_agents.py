"""An independent trial: agents that use git in every way write down what they made, and plain git is asked afterwards where it is.

Written from the documents alone by somebody who had not seen the code: nothing here reads nightcrew's own books. Each agent appends the
name of every commit that it makes to its `out/`, and at its end the hash of every file that git does not ignore. A person collects
garbage in the same repository meanwhile, as hard as git allows.
"""

# ruff: noqa: E501
# (a table)

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.support import House, git, plan_of, shell_task

LIBRARY = r"""
export GIT_EDITOR=true GIT_SEQUENCE_EDITOR=true GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
O=$NIGHTCREW_OUT
rc() { git rev-parse "${1:-HEAD}" >> $O/commits; }
wf() { mkdir -p "$(dirname "$1")"; head -c 200 /dev/urandom | base64 > "$1"; }
ci() { wf "$1"; git add -A; git commit -q -m "c $1" || echo "commit $1" >> $O/trouble; rc; }
t() { "$@" >> $O/log 2>&1 || echo "$*" >> $O/trouble; }
claim() {
  git ls-files -co --exclude-standard -z | sort -zu | while IFS= read -r -d '' f; do
    if [ -L "$f" ]; then readlink -n "$f" | git hash-object --stdin; elif [ -f "$f" ]; then git hash-object --no-filters -- "$f"; fi
  done >> $O/files
}
"""
KINDS = {
    "amend": "for k in 1 2 3; do wf am$k; git add -A; t git commit -q --amend -m am$k; rc; done",
    "rebase": "ci b; ci c; t git branch keep; t git rebase -q --onto HEAD~2 HEAD~1; rc",
    "interactive": "ci b; ci c; t git rebase -q -i --exec true HEAD~2; rc",
    "reset": "ci b; ci c; t git reset -q --hard HEAD~2; rc",
    "stash": "for k in 1 2 3; do echo $k >> README; wf u$k; t git stash -u; rc stash@{0}; rc 'stash@{0}^3'; done",
    "branch": "t git checkout -q -b side; ci s; t git checkout -q -; ci m; t git branch -D side",
    "tag": "ci x; t git tag -a -m x T; t git tag L; t git reset -q --hard HEAD~1",
    "merge": "t git checkout -q -b m HEAD~1; ci s; t git checkout -q -; t git merge -q --no-ff -m mm m; rc",
    "pick": "t git checkout -q -b cp; ci s; c=$(git rev-parse HEAD); t git checkout -q -; ci o; t git cherry-pick $c; rc",
    "worktrees": "t git worktree add -q $TMPDIR/w -b wt; (cd $TMPDIR/w && ci in-wt); t git worktree add -q --detach $TMPDIR/d; (cd $TMPDIR/d && ci in-d)",
    "orphan": "t git checkout -q --orphan orph; git commit -q -m orph; rc; ci o",
    "detached": "t git checkout -q --detach; ci d; ci e",
    "gc": "ci b; t git reset -q --hard HEAD~1; ci c; t git gc -q; t git repack -adq",
    "packed": "t git branch pr; t git pack-refs --all; ci x; t git pack-refs --all --prune",
    "odd": "t git update-ref refs/odd/name HEAD; t git checkout -q --detach; ci k; t git update-ref refs/odd/x HEAD; t git checkout -q -",
    "notes": "t git notes add -m note; rc refs/notes/commits",
    "stopped": "ci b; t git checkout -q -b mr HEAD~1; echo conflict > b; git add -A; git commit -qm conf; rc; git rebase -q - >> $O/log 2>&1; rc",
    "leftover": "for k in 1 2 3; do wf \"left $k\ttab\"; done; wf $'new\\nline'; ln -sf /etc/passwd lnk; rm README",
    "renamed": "t git branch -m elsewhere; ci r",
    "index": "wf staged; git add -A; wf more; git add -N more; t git update-index --assume-unchanged README; echo c >> README",
}  # fmt: skip
UNCOMMITTED = {
    "same-size": "sed -i s/1/9/g file10",
    "same-time": "touch -r file11 $O/time; printf 99 | dd of=file11 conv=notrunc status=none; touch -r $O/time file11",
    "new": "wf new/deep",
    "staged": "wf staged; git add staged",
    "staged-over": "printf 99 | dd of=file12 conv=notrunc status=none; git add file12; touch file12",
    "moved": "mv file13 moved",
    "linked": "ln -sf /etc/hostname file14",
    "hidden": "git update-index --assume-unchanged file15; printf 99 | dd of=file15 conv=notrunc status=none",
    "mapped": 'python3 -c \'import mmap; f = open("file16", "r+b"); mmap.mmap(f.fileno(), 0)[:2] = b"99"\'',
}


@pytest.fixture
def tiers() -> tuple[int, ...]:
    """The confined ones that work here."""
    works = executors.known().tiers
    if Tier.FILES not in works:
        pytest.skip("no sandbox works here")
    return tuple(int(tier) for tier in (Tier.FILES, Tier.OFFLINE) if tier in works)


def collect_garbage(repo: Path, over: threading.Event) -> None:
    """As a person at work might: until it is over, one after another."""
    while not over.is_set():
        subprocess.run(["git", "-C", str(repo), "gc", "-q", "--prune=now"], check=False, capture_output=True)
        over.wait(0.5)


def said(house: House, name: str) -> dict[str, list[str]]:
    """What each attempt wrote into that file of its `out/`."""
    files = (house.home.root / "runs").glob(f"*/*/*/out/{name}")
    return {"/".join(file.parts[-4:-2]): file.read_text().split() for file in files}


@pytest.fixture
def bash() -> str:
    found = shutil.which("bash")
    if found is None:
        pytest.skip("the agents are written for bash")
    return found


def begin(house: House) -> None:
    for number in range(20):
        (house.repo / f"file{number}").write_text(f"{number}\n" * 50)
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-qm", "more")
    git(house.repo, "tag", "before")
    house.start_daemon()


def agents(bash: str, tiers: tuple[int, ...], times: int) -> list[str]:
    return [
        shell_task(f"{kind}-{number}", [bash, "-c", f"{LIBRARY}\nci first\n{work}\nclaim\n"], sandbox=tiers[(number + nth) % len(tiers)])
        for number in range(times)
        for nth, (kind, work) in enumerate(KINDS.items())
    ]


def all_is_reachable(house: House, count: int, *beside: str) -> None:
    """From any ref, or `beside` them."""
    assert "\n".join(f"{view.id}: {view.end_cause}" for view in house.tasks() if view.state != "done") == ""
    assert said(house, "trouble") == {}
    reached = {line.split()[0] for line in git(house.repo, "rev-list", "--objects", "--all", *beside).splitlines()}
    commits, files = said(house, "commits"), said(house, "files")
    assert len(commits) == len(files) == count
    assert {task: lost for task, made in commits.items() if (lost := set(made) - reached)} == {}
    assert {task: lost for task, made in files.items() if (lost := set(made) - reached)} == {}
    assert git(house.repo, "fsck", "--connectivity-only", "--no-dangling") == ""


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_whatever_honest_agents_made_is_reachable_while_a_person_collects_garbage(
    house: House, bash: str, tiers: tuple[int, ...], times: int
) -> None:
    begin(house)
    tasks = agents(bash, tiers, times)
    over = threading.Event()
    person = threading.Thread(target=collect_garbage, args=(house.repo, over))
    person.start()
    try:
        house.run("run", house.plan(plan_of(tasks)), timeout_s=170)
    finally:
        over.set()
        person.join()
    all_is_reachable(house, len(tasks))
    assert git(house.repo, "fsck", "--connectivity-only") == ""
    assert git(house.repo, "status", "--porcelain") == "" and git(house.repo, "tag", "--list") == "before"
    assert git(house.repo, "branch", "--list", "--format=%(refname:short)", "[!n]*") == "main"


@pytest.mark.soak
def test_whatever_honest_agents_made_without_a_sandbox_is_reachable(house: House, bash: str) -> None:
    """They share the person's repository, whose list of stashes is a log. Nobody collects garbage: that would take from under their gits.
    Some commit nothing, so that all is left to nightcrew to see."""
    begin(house)
    tasks = agents(bash, (0,), 1)
    tasks += [
        shell_task(kind, [bash, "-c", f"{LIBRARY}\n{work}\ntouch $O/commits\nclaim\n"], sandbox=0) for kind, work in UNCOMMITTED.items()
    ]
    house.run("run", house.plan(plan_of(tasks)), timeout_s=170)
    all_is_reachable(house, len(tasks), "--reflog")
