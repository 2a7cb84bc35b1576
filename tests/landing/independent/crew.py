"""A person with a crew that made the results of the books, and who judges trains by plain git alone."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import signal
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.landing.independent.books import MIDDLE, Books
from tests.support import House, git, plan_of, shell_task, signal_if_there, wait_until

OVER = ("landed", "empty", "stopped")
Train = dict[str, Any]


class Crew:
    """Results in a repository with two branches: `main`, which is checked out, and `quiet`, which is not."""

    def __init__(self, house: House, books: Books, rng: random.Random) -> None:
        self.house, self.books, self.rng = house, books, rng
        for name, text in books.files.items():
            (house.repo / name).write_text(text)
        git(house.repo, "add", "-A")
        git(house.repo, "commit", "-qm", "what the books begin with")
        git(house.repo, "branch", "quiet")
        (house.repo / "untracked").write_text("a person's\n")
        self.persons: dict[str, str] = {}
        """Commits that the person made into `main` while trains ran, and whose line each changed."""
        self._daemon = house.start_daemon()
        tasks = [shell_task(one.name, one.command, after=list(one.after)) for one in books.results.values()]
        house.ok("run", house.plan(plan_of(tasks)))
        self.commits = {name: self._tip(name) for name in books.results}

    def _tip(self, name: str) -> str:
        return git(self.house.repo, "rev-parse", f"nightcrew/{self.house.task(name).run}/{name}/work")

    # What happens meanwhile ------------------------------------------------------------------------------------------------------------

    def train(self, into: str) -> Train:
        return dict(json.loads(self.house.run("land", "--status", "--into", into, "--json").stdout))

    def after_gates(self, into: str, count: int) -> None:
        """Wait until so many gates have been begun, or the train is over."""

        def there() -> bool:
            train = self.train(into)
            return train["state"] in OVER or len(train["ran"]) >= count

        wait_until(there, f"{count} gates", 120, every_s=0.1)

    def kill(self, what: str) -> None:
        """`kill -9`, and a new supervisor where that was the one, or might have lost its tmux."""
        server = self.house.tmux_pid()
        if what == "supervisor":
            self._daemon.kill()
            assert self._daemon.wait(30) == -signal.SIGKILL
            self._daemon = self.house.start_daemon()
        elif what == "tmux" and server is not None:
            signal_if_there(server)
        elif what == "runner" and (living := _children(server) if server is not None else []):
            signal_if_there(self.rng.choice(living))

    def commit(self) -> None:
        """The person changes, on `main`, the line that a result changes in its own file, unless that is there already."""
        name = self.rng.choice(sorted(self.books.results))
        path = self.house.repo / f"own-{name}"
        lines = path.read_text().splitlines()
        if lines[MIDDLE - 1] != f"{name} {MIDDLE - 1}":
            return
        path.write_text("\n".join([*lines[: MIDDLE - 1], "a person was here", *lines[MIDDLE:]]) + "\n")
        with contextlib.suppress(subprocess.CalledProcessError):  # the branch is being moved at this moment: the person would try again
            git(self.house.repo, "commit", "-qm", "a person's", "--", path.name)
            self.persons[git(self.house.repo, "rev-parse", "HEAD")] = name
            return
        git(self.house.repo, "checkout", "HEAD", "--", path.name)

    # Judging ---------------------------------------------------------------------------------------------------------------------------

    def finished(self, into: str) -> Train:
        """The train once it rests; one that a person's commits stopped goes on as it says."""
        for _ in range(5):
            self.house.run("land", "--follow", "--into", into, timeout_s=240)
            train = self.train(into)
            if train["state"] != "stopped":
                break
            assert train["reason"] and self.house.run("land", "--resume", "--into", into, timeout_s=240).returncode in (0, 1)
        return self.train(into)

    def judge(self, into: str, train: Train, names: Collection[str]) -> None:
        """Against the books, and with git and the gate run by ourselves."""
        entries = {entry["task"].partition("/")[2]: entry for entry in train["entries"]}
        assert list(entries) == self.books.order(names), "the documented order"
        changed = {name for commit, name in self.persons.items() if self._is_below(commit, train["base"])}
        said = {name: "landed" if entry["state"] == "landed" else _why(entry) for name, entry in entries.items()}
        assert said == self.books.outcome(names, changed), (train, self.books, changed)
        self._judge_branch(into, [name for name in said if said[name] == "landed"])
        for name in (name for name in said if said[name] == "conflict"):
            merged = _git(self.house.repo, "merge-tree", "--write-tree", "--name-only", "--no-messages", into, self.commits[name])
            assert merged.returncode == 1 and set(entries[name]["files"]) <= set(merged.stdout.split()[1:])

    def _is_below(self, commit: str, base: str) -> bool:
        """Whether a person's commit was there when the train began (anew): one that comes after it has landed leaves its reasons true."""
        return _git(self.house.repo, "merge-base", "--is-ancestor", commit, base).returncode == 0

    def _judge_branch(self, into: str, landed: list[str]) -> None:
        moves = git(self.house.repo, "reflog", "show", "--format=%H", f"refs/heads/{into}").split()[::-1]
        for old, new in itertools.pairwise(moves):
            assert _git(self.house.repo, "merge-base", "--is-ancestor", old, new).returncode == 0, f"{into} did not move forward"
        base = git(self.house.repo, "log", "-1", "--format=%H", "--grep=what the books begin with", into)
        ours = [move for move in moves[moves.index(base) + 1 :] if move not in self.persons]
        assert len(ours) == bool(landed), f"{into} was moved more than once"
        for number, commit in enumerate((*ours, git(self.house.repo, "rev-parse", into))):
            place = self.house.home.root.parent / f"judge-{into}-{number}"
            git(self.house.repo, "clone", "-q", "--no-local", str(self.house.repo), str(place))
            git(place, "checkout", "-q", commit)
            assert subprocess.run(["/bin/sh", "-c", self.books.gate], cwd=place, check=False).returncode == 0, "it does not pass"
            marks = {path.name for path in place.glob("m/*")}
            assert marks == set(landed) and all(
                f"{name} was here" in (place / f"own-{name}").read_text()
                and len((place / f"bulk-{name}").read_text().splitlines()) == self.books.results[name].size
                for name in landed
            )

    def leave(self) -> None:
        """Nothing of anybody is lost, and nothing of the crew is left."""
        assert git(self.house.repo, "status", "--porcelain") == "?? untracked"
        assert (self.house.repo / "untracked").read_text() == "a person's\n"
        heads = {path.read_text().strip() for path in (self.house.home.root / "runs").glob("*/*/*/out/head")}
        assert set(self.commits.values()) <= heads
        self.house.ok("clean", "--yes")
        kept = json.loads(self.house.ok("clean", "--json"))["kept"]
        names = {one["attempt"].partition(":")[0] for one in kept}
        if names:
            self.house.ok("clean", "--yes", "--discard", *names)
        assert heads <= set(git(self.house.repo, "rev-list", "--all").split()), "a commit of an agent is unreachable"
        wait_until(lambda: not git(self.house.repo, "for-each-ref", "refs/nightcrew/train", "refs/heads/nightcrew"), "refs to go")
        assert git(self.house.repo, "worktree", "list", "--porcelain").count("worktree ") == 1
        assert git(self.house.repo, "fsck", "--connectivity-only", "--no-dangling") == ""
        self.house.ok("down")
        wait_until(lambda: not self.house.tagged() and not self.house.sessions(), "every process to end")
        assert not [*(self.house.repo / ".git").rglob("*.lock")]


def _why(entry: dict[str, Any]) -> str:
    """The sort of its reason."""
    assert entry["state"] == "ejected", entry
    words = {"after": "it comes after", "conflict": "it conflicts in", "gate": "failed (exit code 3) on the merged tree"}
    return next((sort for sort, text in words.items() if text in entry["reason"]), entry["reason"])


def _children(parent: int) -> list[int]:
    """What runs in the panes of a tmux server."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=False).stdout
    return [int(pid) for pid in found.split()]


def _git(where: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(where), *args], capture_output=True, text=True, check=False)
