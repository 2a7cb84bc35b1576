"""`clean` of many worktrees: git is asked once what all have in common, each part is shown when it is done, an interrupted one goes on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nightcrew.plugins.bench import spawn
from supervisor.store import journal, sqlite
from supervisor.store.queries import TaskView
from tests import warm
from tests.server.test_many import at_once
from tests.support import House, git, plan_of, shell_task, wait_until
from worktrees.environments import Environment
from worktrees.git import Git
from worktrees.repository import discover


def crew_that_ended(house: House, count: int) -> list[Environment]:
    """Worktrees of attempts that have ended: in turns with nothing in it, with a commit, with an ignored file."""
    (house.repo / ".git" / "info" / "exclude").write_text("*.cache\n")
    house.home.root.mkdir(mode=0o700)
    repository = discover(Git(house.home.root / "git"), house.repo)
    made = [spawn.ended(repository, house.home, number, None) for number in range(count)]
    spawn.fill(house.home, repository, made)
    return made


def shim(place: Path, script: str) -> dict[str, str]:
    """Variables with which `script` runs before each git, with its arguments; `$real` is git."""
    place.mkdir()
    (place / "git").write_text(f'#!/bin/sh\nreal={shutil.which("git")}\n{script}\nexec $real "$@"\n')
    (place / "git").chmod(0o755)
    return {"PATH": f"{place}:{os.environ['PATH']}"}


def removals(house: House) -> list[str]:
    """Attempts that are noted as removed, once for each time."""
    db = sqlite.connect_readonly(house.home.ledger)
    try:
        names = [view.id for view in house.tasks()]
        return [name for name in names for row in journal.journal_of_task(db, name) if row["event"] == "worktree removed"]
    finally:
        db.close()


def gone(made: Sequence[Environment], house: House) -> bool:
    """Nothing is left of them but their rescue refs, each of which is there."""
    refs = git(house.repo, "for-each-ref", "--format=%(refname)").split()
    assert all(env.rescue_ref in refs for env in made)
    assert not [env.branch_ref for env in made if env.branch_ref in refs]
    return not any(env.path.exists() or env.admin_dir.exists() for env in made)


def test_git_is_asked_once_what_all_worktrees_have_in_common(house: House, tmp_path: Path) -> None:
    count, runs = 30, tmp_path / "runs"
    crew_that_ended(house, count)
    house.start_daemon(env=shim(tmp_path / "shim", f'echo "$@" >>{runs}'))
    runs.write_text("")
    said = house.ok("clean").splitlines()
    asked = [line.split(" -C ", 1)[1].split()[1] for line in runs.read_text().splitlines() if " -C " in line]
    parts = 4
    assert len(asked) <= count + 12 * parts, sorted(asked)
    assert asked.count("status") == count
    kinds = sorted(line.split("  ")[-1] for line in said if line.startswith("keep"))
    assert kinds == sorted(
        f"commits not on any other branch: 1 of them on nightcrew/{spawn.RUN}/t{n}/work" if n % 3 == 1 else "ignored files: some.cache"
        for n in range(count)
        if n % 3
    )
    assert sum(line.startswith("would remove") for line in said) == count // 3


def test_what_is_done_is_shown_while_the_rest_is_not(house: House, tmp_path: Path) -> None:
    """A git hangs at the tenth worktree: the first lines are there while it does, and then how far it is."""
    count = 30
    crew_that_ended(house, count)
    marker = tmp_path / "hangs"
    house.start_daemon(env=shim(tmp_path / "shim", f'case "$*" in *t9.1*status*) echo $$ >{marker}; exec sleep 600;; esac'))
    argv = [*warm.NIGHTCREW, "clean"]
    with subprocess.Popen(argv, cwd=house.repo, env=house.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as clean:
        assert clean.stdout is not None and clean.stderr is not None
        first = clean.stdout.readline()
        wait_until(lambda: marker.read_text().strip(), "the tenth worktree to be looked at")
        hangs = Path(f"/proc/{marker.read_text().strip()}/cmdline")
        assert hangs.exists(), "nothing was shown until it had been ended"
        rest, said = clean.stdout.read(), clean.stderr.read()
    assert first.startswith("would remove")
    assert len(rest.splitlines()) == count - 1
    assert [line.split()[1] for line in rest.splitlines() if "could not be inspected" in line] == [f"{spawn.RUN}/t9:1"]
    assert f"of {count} worktrees looked at" in said


def test_a_clean_that_was_killed_goes_on_where_it_was(house: House) -> None:
    made = crew_that_ended(house, 12)
    daemon = house.start_daemon(die_at="clean.removed:3")
    named = [env.task for env in made]
    assert house.run("clean", "--yes", "--discard", *named).returncode != 0
    daemon.wait(timeout=60)
    left = [env for env in made if env.path.exists()]
    assert 0 < len(left) < len(made)
    house.start_daemon()
    shape = json.loads(house.ok("clean", "--yes", "--discard", "--json", *named))
    assert shape["kept"] == [] and len(shape["removable"]) >= len(left)
    assert gone(made, house)
    assert sorted(removals(house)) == sorted(named), "each was removed once"


def test_two_that_clean_at_once_remove_each_worktree_once(house: House) -> None:
    made = crew_that_ended(house, 12)
    house.start_daemon()
    named = [env.task for env in made]
    answers = at_once(house, [["clean", "--yes", "--discard", *names] for names in (named, named, named)])
    assert [code for code, _ in answers] == [0, 0, 0], answers
    assert gone(made, house)
    assert sorted(removals(house)) == sorted(named)


def test_what_may_be_thrown_away_goes_although_the_branch_that_had_it_went_meanwhile(house: House, tmp_path: Path) -> None:
    _, made = crew_that_ended(house, 2)
    git(house.repo, "branch", "other", made.branch_ref)
    house.start_daemon(env=shim(tmp_path / "shim", f'case "$*" in *t1.1*status*) $real -C {house.repo} branch -q -D other;; esac'))
    assert "would remove" in house.ok("clean", made.task), "as long as the other branch has it"
    git(house.repo, "branch", "other", made.branch_ref)
    house.ok("clean", "--yes", "--discard", made.task)
    assert gone([made], house)


def insert(db: sqlite3.Connection, table: str, facts: dict[str, object]) -> None:
    db.execute(f"INSERT INTO {table} ({', '.join(facts)}) VALUES ({', '.join('?' * len(facts))})", tuple(facts.values()))  # noqa: S608 - ours


def claim(db: sqlite3.Connection, train_of: TaskView, pull_of: TaskView) -> None:
    """A train that is under way has the one, an open pull request the other."""
    train = {
        "id": "1125-t",
        "project": train_of.project,
        "number": 1,
        "branch": "main",
        "base": "c",
        "commands": "[]",
        "width": 1,
    }
    insert(db, "train", {**train, "repairs": 0, "orders": "{}", "state": "running", "began": 0, "changed": 0})
    entry: dict[str, object] = dict.fromkeys(("title", "needs", "onto", "staged", "gates", "repair", "reason", "files"), "")
    entry |= {"train": "1125-t", "position": 1, "task": train_of.id, "epoch": 1, "tip": "c", "state": "waiting"}
    insert(db, "train_entry", {**entry, "trusted": 0, "repairable": 0, "repairs": 0})
    pull = {"id": 1, "task": pull_of.id, "project": "p", "remote": "r", "branch": "b", "base": "main", "state": "open"}
    insert(db, "pull_request", {**pull, "link": "http://pull/1", "changed": 0})
    insert(db, "pull_task", {"task": pull_of.id, "pull": 1})


@dataclass(frozen=True)
class Crew:
    """Tasks that have ended, by their names: each made two commits, `nothing` none."""

    house: House
    views: Mapping[str, TaskView]
    tip: Mapping[str, str]
    place: Mapping[str, Path]

    @classmethod
    def of(cls, house: House, *names: str) -> Crew:
        house.start_daemon()
        two = "for n in 1 2; do echo {0} > {0}-$n; git add -A; git commit -qm {0}-$n; done"
        house.ok("run", house.plan(plan_of([shell_task(name, "true" if name == "nothing" else two.format(name)) for name in names])))
        views = {name: house.task(name) for name in names}
        tip = {name: git(house.repo, "rev-parse", str(view.branch)) for name, view in views.items()}
        return cls(house, views, tip, {name: Path(str(view.worktree)) for name, view in views.items()})

    def explains(self, goes: set[str], parts: Mapping[str, str]) -> None:
        """Check that `clean` says that these can go and the others not, and why each."""
        said = json.loads(self.house.ok("clean", "--json"))
        why = {item["attempt"].split("/")[1].partition(":")[0]: item["why"] for kind in ("removable", "kept") for item in said[kind]}
        assert {item["attempt"].split("/")[1].partition(":")[0] for item in said["removable"]} == goes, why
        assert {name: part in why[name] for name, part in parts.items()} == dict.fromkeys(self.views, True), why

    def loses(self, goes: set[str]) -> None:
        """Check that `clean --yes` removes exactly these, and that a rescue ref keeps all commits."""
        self.house.ok("clean", "--yes")
        assert {name for name in self.views if not self.place[name].exists()} == goes
        kept = git(self.house.repo, "for-each-ref", "--format=%(objectname)", "refs/nightcrew/rescue").split()
        assert set(self.tip.values()) <= {*kept, self.tip.get("nothing", "")}


def test_what_a_branch_of_the_persons_has_goes(house: House) -> None:
    crew = Crew.of(house, "nothing", "merged", "squashed", "picked", "partial", "open")
    tip, goes = crew.tip, {"nothing", "merged", "squashed", "picked"}
    house.ok("take", "merged")
    git(house.repo, "merge", "-q", "--squash", tip["squashed"])
    git(house.repo, "commit", "-qm", "squashed")
    git(house.repo, "cherry-pick", f"{tip['picked']}~1", tip["picked"], f"{tip['partial']}~1")
    parts = {
        "nothing": "no commit of its own",
        "merged": "on a branch or tag of yours",
        "squashed": "merging it would change nothing",
        "picked": "merging it would change nothing",
        "partial": "1 of its 2 commits are there as patches",
        "open": "commits not on any other branch: 2 of them",
    }
    crew.explains(goes, parts)
    crew.loses(goes)


def test_rejected_work_goes_while_its_ref_keeps_exactly_that(house: House) -> None:
    crew = Crew.of(house, "rejected", "undone", "moved")
    tip = crew.tip
    for name in tip:
        house.ok("review", name, "--reject", "-m", "no")
    house.ok("review", "undone", "--undo")
    newer = git(house.repo, "commit-tree", f"{tip['moved']}^{{tree}}", "-p", tip["moved"], "-m", "more")
    git(crew.place["moved"], "reset", "-q", "--hard", newer)
    ref = f"refs/nightcrew/rejected/{crew.views['rejected'].id}/1"
    parts = {
        "rejected": f"you rejected it; {ref} keeps it",
        "undone": "commits not on any other branch: 2 of them",
        "moved": "commits not on any other branch: 3 of them",
    }
    crew.explains({"rejected"}, parts)
    git(house.repo, "update-ref", "-d", ref)
    assert "commits not on" in json.loads(house.ok("clean", "rejected", "--json"))["kept"][0]["why"], "nothing keeps it any more"
    git(house.repo, "update-ref", ref, tip["rejected"])
    crew.loses({"rejected"})


def test_what_somebody_works_on_or_holds_stays(house: House) -> None:
    crew = Crew.of(house, "nothing", "dirty", "train", "pull", "alive", "locked")
    (crew.place["dirty"] / "new").touch()
    git(house.repo, "worktree", "lock", str(crew.place["locked"]), "--reason", "mine")
    with contextlib.closing(sqlite3.connect(house.home.ledger)) as db:
        claim(db, crew.views["train"], crew.views["pull"])
        db.commit()
    git(house.repo, "update-ref", "refs/remotes/origin/pull", crew.tip["pull"])
    inside = subprocess.Popen(["sleep", "100"], cwd=crew.place["alive"])
    parts = {
        "nothing": "no commit of its own",
        "dirty": "untracked files: new",
        "train": "it is in the train 1125-t",
        "pull": "it has an open pull request: http://pull/1",
        "alive": f"processes inside: {inside.pid}",
        "locked": "locked",
    }
    try:
        crew.explains({"nothing"}, parts)
        crew.loses({"nothing"})
    finally:
        inside.kill()
        inside.wait()


def test_worktree_without_its_link_is_removed_and_one_with_a_repository_in_its_place_says_what_to_do(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "without", "rm .git; echo left > left")
    house.ok("add", "-f", "--id", "own", "rm .git; git init -q; echo left > left")
    house.ok("clean", "--yes", "--discard", "without")
    assert not Path(house.task("without").worktree or "").exists()
    assert git(house.repo, "show", f"refs/nightcrew/rescue/{house.task('without').id}/1:left") == "left"
    said = house.run("clean", "--yes", "--discard", "own")
    assert said.returncode == 6 and "next: mv " in said.stderr and "next: nightcrew" not in said.stderr
    worktree = Path(house.task("own").worktree or "")
    (worktree / ".git").rename(worktree / "git-of-its-agent")
    house.ok("clean", "--yes", "--discard", "own")
    assert not worktree.exists()
