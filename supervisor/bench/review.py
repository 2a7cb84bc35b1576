"""How long `nightcrew review NAME` takes: the whole command, in colours, as a person waits for it.

The results are made and secured by what the supervisor itself does at the begin and the end of an attempt; only the agents are left out.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from supervisor.bench import cleaning
from supervisor.bench.figures import milli
from supervisor.bench.workspace import commit_all, in_turns, nightcrew
from supervisor.core.errors import NightcrewError, last_line
from supervisor.host import files
from supervisor.host.paths import Home
from worktrees import environments, securing
from worktrees.environment import Environment
from worktrees.git import Git
from worktrees.repository import Repository, discover

SIZES = {"middle": (12, 25), "large": (40, 50)}
"""By name: files that are changed, and lines that come in each."""
_FUNCTIONS = 30
"""In each file, of three lines."""


def measure(root: Path, count: int, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """`review_ms` of the report, over a repository of `count` files. Raises NightcrewError when a result is not shown whole."""
    say(f"nightcrew review of {len(SIZES)} results, {rounds} times")
    home = Home(files.private_dir(root))
    repository = discover(Git(home.root / "git"), _made(root / "repo", max(count, *(changed for changed, _ in SIZES.values()))))
    made = [_result(repository, home, number, *size) for number, size in enumerate(SIZES.values())]
    cleaning.fill(home, repository, made)
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
    env = environments.create(repository, f"{cleaning.RUN}/t{number}", 1, repository.head, home.worktrees / repository.project)
    for file in sorted(env.path.glob("part*/*.py"))[:changed]:
        old = file.read_text().splitlines(keepends=True)
        step = max(1, len(old) // lines)
        new = {place * step: f"# note {place} of result {number}\n" for place in range(lines)}
        file.write_text("".join(line + new.pop(place, "") for place, line in enumerate(old)) + "".join(new.values()))
    securing.secure(env, "nightcrew: work left", always=True)
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
