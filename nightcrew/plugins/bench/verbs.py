"""How long `clean`, `review` and `status` take, as whole commands."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightcrew.plugins.bench.crews import SupervisedRun, commit_all, in_turns, make_repository, nightcrew
from nightcrew.plugins.bench.figures import milli
from supervisor.host import cores, files
from supervisor.host.paths import Home
from supervisor.kernel import codec, result
from supervisor.kernel.errors import NightcrewError, last_line, one_line
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import End
from supervisor.sandbox import executors
from supervisor.server.attempts.environments import facts
from supervisor.store import sqlite
from worktrees import collect_work, environments
from worktrees.environments import Confined, Environment
from worktrees.git import Git
from worktrees.repository import Repository, discover

# Cleaning
# --------
# How long `nightcrew clean` takes over thousands of worktrees: the whole command, as a person waits for it.
#
# The worktrees are made and secured by what the supervisor itself does at the begin and the end of an attempt; only the agents are
# left out. A third of them hold nothing, a third a commit that is on no other branch, and a third an ignored file.


FILES = 100
"""In each worktree."""
REMOVED = 100
"""At most so many of them are removed: one after the other, since git changes a repository's list of worktrees."""
RUN = "0101-bench"


@dataclass(frozen=True, slots=True)
class Took:
    """One call of the command."""

    first_line_s: float
    whole_s: float
    lines: int


def measure_cleaning(root: Path, worktrees: int, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """`clean{...}` of the report: of agents that had no sandbox; `confined` is of a ninth as many that had one, None where none works."""
    files.private_dir(root)
    shared = _of(root / "shared", worktrees, seed, say, None)
    works = any(executors.known().works.values())
    return {**shared, "confined": _of(root / "confined", max(3, worktrees // 9), seed, say, Confined()) if works else None}


def _of(root: Path, count: int, seed: int, say: Callable[[str], None], confined: Confined | None) -> dict[str, Any]:
    say(f"making {count} worktrees of {FILES} files, in tier {1 if confined else 0}")
    home = Home(files.private_dir(root))
    make_repository(root / "repo", seed, FILES)
    repository = discover(Git(home.root / "git"), root / "repo")
    (repository.common_dir / "info" / "exclude").write_text("*.cache\n")
    with ThreadPoolExecutor(2 * len(cores.usable())) as pool:
        made = list(pool.map(lambda number: ended(repository, home, number, confined), range(count)))
    fill(home, repository, made)
    some = made[:: -(-count // REMOVED)]
    say(f"nightcrew clean of {count} worktrees, then --yes of {len(some)}")
    with SupervisedRun(root, slots=2):
        look = _clean(home)
        removal = _clean(home, "--yes", "--discard", *(env.task for env in some))
    if look.lines != count or any(env.path.exists() for env in some):
        raise NightcrewError("nightcrew clean did not do what it should", why=f"{look.lines} of {count} were looked at")
    return {
        "worktrees": count,
        "ms_each": milli(look.whole_s / count),
        "first_line_s": round(look.first_line_s, 3),
        "removed": len(some),
        "remove_ms_each": milli(removal.whole_s / len(some)),
    }


def ended(repository: Repository, home: Home, number: int, confined: Confined | None) -> Environment:
    """The worktree of an attempt that has ended."""
    root = home.worktrees / repository.project
    env = environments.create(repository, f"{RUN}/t{number}", 1, repository.head, root, confined=confined)
    if number % 3 == 1:
        (env.path / "left.txt").write_text(f"{number}\n")
    collect_work.secure(env, "nightcrew: work left", always=True)
    if number % 3 == 2:
        (env.path / "some.cache").touch()
    environments.release(env)
    return env


def fill(home: Home, repository: Repository, made: list[Environment]) -> None:
    """A new ledger, with an ended attempt for each environment."""
    spec = codec.dumps(TaskSpec("task", "a task", "shell", ("sh", "-c", "true")))
    project, root, common, oid = repository.project, str(repository.root), str(repository.common_dir), repository.head
    with contextlib.closing(sqlite.connect(home.ledger)) as db, sqlite.transaction(db, home.ledger):
        db.execute("INSERT INTO project VALUES (?, ?, ?, 0)", (project, root, common))
        db.execute(
            "INSERT INTO run (id, key, project, title, base, base_oid, env, created) VALUES (?, ?, ?, 'bench', 'HEAD', ?, '{}', 0)",
            (RUN, RUN, project, oid),
        )
        for env in made:
            name, known = env.task.partition("/")[2], facts(env)
            db.execute(
                "INSERT INTO task (id, run, project, name, title, spec, state, epoch, changed)"
                " VALUES (?, ?, ?, ?, 'a task', ?, 'done', 1, 0)",
                (env.task, RUN, project, name, spec),
            )
            db.execute(
                f"INSERT INTO attempt (task, epoch, state, end, created, {', '.join(known)})"  # noqa: S608 - names of ours
                f" VALUES (?, 1, 'released', 'done', 0, {', '.join('?' for _ in known)})",
                (env.task, *known.values()),
            )


def _clean(home: Home, *flags: str) -> Took:
    """Raises NightcrewError when it fails."""
    argv, environment = nightcrew("clean", *flags), {**os.environ, "NIGHTCREW_HOME": str(home.root)}
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        with subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said) as clean:
            assert clean.stdout is not None  # noqa: S101 - for the types: it is a pipe
            first = clean.stdout.readline()
            first_line = time.monotonic()
            lines = bool(first) + sum(1 for _ in clean.stdout)
        if clean.returncode != 0:
            said.seek(0)
            raise NightcrewError("nightcrew clean failed", on=" ".join(argv[3:]), why=one_line(said.read().decode()))
    return Took(first_line - began, time.monotonic() - began, lines)


# Status history
# --------------
# How long `nightcrew status` takes over a long history: the whole command, as a person waits for it.


RUN_TASKS = 200
REPEATS = 11


def status_s(root: Path, rows: int) -> float:
    """Seconds that `nightcrew status` takes with `rows` ended tasks and 200 running ones in the ledger: the median of 11 calls."""
    home = Home(files.private_dir(root))
    _fill(home.ledger, rows)
    return statistics.median(status_once_s(root) for _ in range(REPEATS))


def status_once_s(root: Path) -> float:
    """Seconds that one `nightcrew status` takes over the state directory `root`, from its start to its exit."""
    environment = {**os.environ, "NIGHTCREW_HOME": str(root)}
    began = time.monotonic()
    subprocess.run(
        nightcrew("status"), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    return time.monotonic() - began


def _fill(path: Path, rows: int) -> None:
    """A new ledger: `rows` ended tasks in runs of 200, each with attempt, result and journal; then a run of 200 that work."""
    work = result.Work(branch="nightcrew/work", tip="0" * 40, commits=1, files=2, plus=30, minus=4, rescue=None)
    times = result.Times(queued=0, spawned=0, ended=0)
    text = json.dumps(result.build(task="task", epoch=1, end=End.DONE, cause="", record=None, times=times, work=work, output=None))
    with contextlib.closing(sqlite.connect(path)) as db, sqlite.transaction(db, path):
        db.execute("INSERT INTO project VALUES ('p', '/nowhere', '/nowhere/.git', 0)")
        for first in range(0, rows, RUN_TASKS):
            _run(db, range(first, min(first + RUN_TASKS, rows)), "done", ("released", str(End.DONE), text))
        _run(db, range(rows, rows + RUN_TASKS), "running", ("running", None, None))


def _run(db: sqlite3.Connection, numbers: range, state: str, attempt: tuple[str, str | None, str | None]) -> None:
    run = f"0101-{numbers[0]}"
    spec = codec.dumps(TaskSpec("task", "a task", "shell", ("sh", "-c", "true")))
    db.execute(
        "INSERT INTO run (id, key, project, title, base, base_oid, env, created) VALUES (?, ?, 'p', 'bench', 'HEAD', 'oid', '{}', 0)",
        (run, run),
    )
    db.executemany(
        "INSERT INTO task (id, run, project, name, title, spec, state, epoch, changed) VALUES (?, ?, 'p', ?, 'a task', ?, ?, 1, 0)",
        ((f"{run}/{number}", run, str(number), spec, state) for number in numbers),
    )
    db.executemany(
        "INSERT INTO attempt (task, epoch, state, end, result, created) VALUES (?, 1, ?, ?, ?, 0)",
        ((f"{run}/{number}", *attempt) for number in numbers),
    )
    db.executemany(
        "INSERT INTO journal (at, task, epoch, event) VALUES (0, ?, 1, ?)",
        ((f"{run}/{number}", event) for number in numbers for event in ("ready", "start", "tree gone", "end done")),
    )


# Review
# ------
# How long `nightcrew review NAME` takes: the whole command, in colours, as a person waits for it.
#
# The results are made and secured by what the supervisor itself does at the begin and the end of an attempt; only the agents are
# left out.


SIZES = {"middle": (12, 25), "large": (40, 50)}
"""By name: files that are changed, and lines that come in each."""
_FUNCTIONS = 30
"""In each file, of three lines."""


def measure_review(root: Path, count: int, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """`review_ms` of the report, over a repository of `count` files. Raises NightcrewError when a result is not shown whole."""
    say(f"nightcrew review of {len(SIZES)} results, {rounds} times")
    home = Home(files.private_dir(root))
    repository = discover(Git(home.root / "git"), _made(root / "repo", max(count, *(changed for changed, _ in SIZES.values()))))
    made = [_result(repository, home, number, *size) for number, size in enumerate(SIZES.values())]
    fill(home, repository, made)
    ways = {name: _way(home, env.task, number * lines) for (name, (number, lines)), env in zip(SIZES.items(), made, strict=True)}
    took = in_turns({**ways, "start": lambda: _timed(home, "--version")[0]}, rounds)
    return {name: milli(statistics.median(some)) for name, some in took.items()}


def _made(place: Path, count: int) -> Path:
    for number in range(count):
        file = place / f"part{number % 25:02}" / f"file{number:04}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"def f{n}(x: int) -> int:\n    return x + {number} * {n}\n\n" for n in range(_FUNCTIONS)))
    commit_all(place)
    return place


def _result(repository: Repository, home: Home, number: int, changed: int, lines: int) -> Environment:
    """The worktree of an attempt that has ended, with so many new lines in so many files, spread over each."""
    env = environments.create(repository, f"{RUN}/t{number}", 1, repository.head, home.worktrees / repository.project)
    for file in sorted(env.path.glob("part*/*.py"))[:changed]:
        old = file.read_text().splitlines(keepends=True)
        step = max(1, len(old) // lines)
        new = {place * step: f"# note {place} of result {number}\n" for place in range(lines)}
        file.write_text("".join(line + new.pop(place, "") for place, line in enumerate(old)) + "".join(new.values()))
    collect_work.secure(env, "nightcrew: work left", always=True)
    environments.release(env)
    return env


def _way(home: Home, task: str, lines: int) -> Callable[[], float]:
    def look() -> float:
        took, said = _timed(home, "review", task)
        if (shown := said.count(b"# note")) != lines:
            raise NightcrewError("nightcrew review did not show all", on=task, why=f"{shown} of {lines} lines")
        return took

    return look


def _timed(home: Home, *words: str) -> tuple[float, bytes]:
    """Seconds, and what it printed. Raises NightcrewError when it fails."""
    environment = {**os.environ, "NIGHTCREW_HOME": str(home.root), "FORCE_COLOR": "1"}
    began = time.monotonic()
    done = subprocess.run(nightcrew(*words), env=environment, cwd=home.root / "repo", stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        raise NightcrewError("nightcrew failed", on=" ".join(words), why=last_line(done.stderr.decode(errors="replace")))
    return time.monotonic() - began, done.stdout
