"""How long `clean` and `status` take, as whole commands, over what is made without agents."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightcrew.plugins.bench.crews import Say, SupervisedRun, environ, make_repository, nightcrew, timed
from nightcrew.plugins.bench.figures import milli
from supervisor.host import cores, files
from supervisor.host.paths import Home
from supervisor.kernel import codec, result
from supervisor.kernel.errors import NightcrewError, one_line
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import End
from supervisor.sandbox import executors
from supervisor.server.attempts.environments import facts
from supervisor.store import sqlite
from worktrees import collect_work, environments
from worktrees.environments import Confined, Environment
from worktrees.git import Git
from worktrees.repository import Repository, discover

RUN = "0101-bench"
FILES = 100
"""In each worktree that is cleaned."""
REMOVED = 100
"""At most so many of them are removed: one after the other, since git changes a repository's list of worktrees."""
RUN_TASKS = 200
REPEATS = 11

# A ledger without agents
# -----------------------


def insert(db: sqlite3.Connection, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert rows of the same columns."""
    made = list(rows)
    columns = ", ".join(made[0])
    marks = ", ".join("?" for _ in made[0])
    db.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", [tuple(row.values()) for row in made])  # noqa: S608 - names of ours


def insert_run(
    db: sqlite3.Connection, run: str, project: str, base_oid: str, state: str, attempts: Mapping[str, Mapping[str, Any]]
) -> None:
    """Insert a run whose tasks are in `state`, with the columns of the first attempt of each, by its name."""
    spec = codec.dumps(TaskSpec("task", "a task", "shell", ("sh", "-c", "true")))
    what = {"project": project, "title": "bench", "base": "HEAD", "base_oid": base_oid, "env": "{}", "created": 0}
    insert(db, "run", [{"id": run, "key": run, **what}])
    ids = {name: {"id": f"{run}/{name}", "name": name} for name in attempts}
    same = {"run": run, "project": project, "title": "a task", "spec": spec, "state": state, "epoch": 1, "changed": 0}
    insert(db, "task", [{**one, **same} for one in ids.values()])
    insert(db, "attempt", [{"task": f"{run}/{name}", "epoch": 1, "created": 0, **known} for name, known in attempts.items()])


def fill(home: Home, repository: Repository, made: list[Environment]) -> None:
    """Make a new ledger, with an ended attempt for each environment."""
    with contextlib.closing(sqlite.connect(home.ledger)) as db, sqlite.transaction(db, home.ledger):
        db.execute("INSERT INTO project VALUES (?, ?, ?, 0)", (repository.project, str(repository.root), str(repository.common_dir)))
        attempts = {env.task.partition("/")[2]: {"state": "released", "end": "done", **facts(env)} for env in made}
        insert_run(db, RUN, repository.project, repository.head, "done", attempts)


# Cleaning
# --------
# The worktrees are made and secured by what the supervisor itself does at the begin and the end of an attempt; only the agents are
# left out. A third of them hold nothing, a third a commit that is on no other branch, and a third an ignored file.


@dataclass(frozen=True, slots=True)
class Took:
    """One call of the command."""

    first_line_s: float
    whole_s: float
    lines: int


def measure_cleaning(root: Path, worktrees: int, seed: int, say: Say) -> dict[str, Any]:
    """`clean{...}` of the report: of agents that had no sandbox; `confined` is of a ninth as many that had one, None where none works."""
    files.private_dir(root)
    shared = _of(root / "shared", worktrees, seed, say, None)
    works = any(executors.known().works.values())
    return {**shared, "confined": _of(root / "confined", max(3, worktrees // 9), seed, say, Confined()) if works else None}


def _of(root: Path, count: int, seed: int, say: Say, confined: Confined | None) -> dict[str, Any]:
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
    """Make the worktree of an attempt that has ended."""
    root = home.worktrees / repository.project
    env = environments.create(repository, f"{RUN}/t{number}", 1, repository.head, root, confined=confined)
    if number % 3 == 1:
        (env.path / "left.txt").write_text(f"{number}\n")
    collect_work.secure(env, "nightcrew: work left", always=True)
    if number % 3 == 2:
        (env.path / "some.cache").touch()
    environments.release(env)
    return env


def _clean(home: Home, *flags: str) -> Took:
    """Run `nightcrew clean`. Raises NightcrewError when it fails."""
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        argv, out = nightcrew("clean", *flags), subprocess.PIPE
        with subprocess.Popen(argv, env=environ(home.root), stdin=subprocess.DEVNULL, stdout=out, stderr=said) as clean:
            assert clean.stdout is not None  # noqa: S101 - for the types: it is a pipe
            first = clean.stdout.readline()
            first_line = time.monotonic()
            lines = bool(first) + sum(1 for _ in clean.stdout)
        if clean.returncode != 0:
            said.seek(0)
            raise NightcrewError("nightcrew clean failed", on=" ".join(flags), why=one_line(said.read().decode()))
    return Took(first_line - began, time.monotonic() - began, lines)


# A long history
# --------------


def status_s(root: Path, rows: int) -> float:
    """Seconds that `nightcrew status` takes with `rows` ended tasks and 200 running ones in the ledger: the median of 11 calls."""
    home = Home(files.private_dir(root))
    _fill_history(home.ledger, rows)
    return statistics.median(status_once_s(root) for _ in range(REPEATS))


def status_once_s(root: Path) -> float:
    """Seconds that one `nightcrew status` takes over the state directory `root`, from its start to its exit."""
    return timed(root, "status")[0]


def _fill_history(path: Path, rows: int) -> None:
    """Make a new ledger: `rows` ended tasks in runs of 200, each with attempt, result and journal; then a run of 200 that work."""
    work = result.Work(branch="nightcrew/work", tip="0" * 40, commits=1, files=2, plus=30, minus=4, rescue=None)
    times = result.Times(queued=0, spawned=0, ended=0)
    shape = result.build(task="task", epoch=1, end=End.DONE, cause="", record=None, times=times, work=work, output=None)
    ended = {"state": "released", "end": str(End.DONE), "result": json.dumps(shape)}
    with contextlib.closing(sqlite.connect(path)) as db, sqlite.transaction(db, path):
        db.execute("INSERT INTO project VALUES ('p', '/nowhere', '/nowhere/.git', 0)")
        for first in range(0, rows, RUN_TASKS):
            _insert_history(db, range(first, min(first + RUN_TASKS, rows)), "done", ended)
        _insert_history(db, range(rows, rows + RUN_TASKS), "running", {"state": "running"})


def _insert_history(db: sqlite3.Connection, numbers: range, state: str, attempt: Mapping[str, Any]) -> None:
    run = f"0101-{numbers[0]}"
    insert_run(db, run, "p", "oid", state, {str(number): attempt for number in numbers})
    events = ("ready", "start", "tree gone", "end done")
    insert(db, "journal", [{"at": 0, "task": f"{run}/{number}", "epoch": 1, "event": event} for number in numbers for event in events])
