"""How long `nightcrew clean` takes over thousands of worktrees: the whole command, as a person waits for it.

The worktrees are made and secured by what the supervisor itself does at the begin and the end of an attempt; only the agents are left out.
A third of them hold nothing, a third a commit that is on no other branch, and a third an ignored file.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.bench.figures import milli
from supervisor.bench.supervised_run import SupervisedRun
from supervisor.bench.workspace import make_repository, nightcrew
from supervisor.core.errors import NightcrewError, one_line
from supervisor.core.spec import TaskSpec
from supervisor.daemon.environments import facts
from supervisor.host import cores, files
from supervisor.host.paths import Home
from supervisor.host.sandbox import probing
from supervisor.ledger import store
from worktrees import environments, securing
from worktrees.environment import Environment
from worktrees.environments import Confined
from worktrees.git import Git
from worktrees.repository import Repository, discover

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


def measure(root: Path, worktrees: int, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """`clean{...}` of the report: of agents that had no sandbox; `confined` is of a ninth as many that had one, None where none works."""
    files.private_dir(root)
    shared = _of(root / "shared", worktrees, seed, say, None)
    works = any(probing.known().works.values())
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
    securing.secure(env, "nightcrew: work left", always=True)
    if number % 3 == 2:
        (env.path / "some.cache").touch()
    environments.release(env)
    return env


def fill(home: Home, repository: Repository, made: list[Environment]) -> None:
    """A new ledger, with an ended attempt for each environment."""
    spec = TaskSpec("task", "a task", "shell", ("sh", "-c", "true")).to_json()
    project, root, common, oid = repository.project, str(repository.root), str(repository.common_dir), repository.head
    with contextlib.closing(store.connect(home.ledger)) as db, store.transaction(db, home.ledger):
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
