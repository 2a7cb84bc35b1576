"""What is run in which order, and how much of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from supervisor.bench.fork import analysts, break_even, environment, fixtures, private_git, spawns
from supervisor.bench.fork.fixtures import Size
from supervisor.bench.supervised_run import SupervisedRun
from supervisor.bench.workspace import machine, private_place


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured. The same seed gives the same files."""

    repository: Size = field(default=Size(2000, 31_000_000))
    dependencies: Size = field(default=Size(11_000, 286_000_000))
    turns: int = 5
    """Of environments: each makes ten of ours, two with linked dependencies and one with copied ones."""
    attempts: int = 15
    """With a repository of their own, and as many without."""
    leftover: int = 50_000
    """Files that one attempt leaves behind."""
    rounds: int = 15
    """Agents of each kind, one at a time."""
    crew: int = 50
    """Agents at once."""
    bursts: int = 3
    python_files: int = 2000
    analysts: int = 5
    """Each of another perspective."""
    crews: int = 2
    """Times that the analysts work in each way."""
    index: bool = True
    """Whether the package index may be asked for one small package."""
    seed: int = 1


SLOTS = 16
"""At least: more than the analysts' pieces, so that none waits for a slot."""
QUICK = Options(
    Size(500, 7_000_000), Size(1100, 28_000_000), turns=1, attempts=3, leftover=5000, rounds=3, crew=10, bursts=1, python_files=200, crews=1
)


def measure(options: Options, under: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """The report of `nightcrew bench fork`; docs/bench.md describes every key.

    `under` is where the directory for it all is made (None: the system's temporary directory) and removed again. Raises what a tool or a
    task raises; nothing stays then either.
    """
    before = machine()
    with private_place(under) as root:
        say(f"seed {options.seed}, in {root}")
        source = root / "source"
        written = fixtures.repository(source, options.seed, options.repository)
        say(f"environments: {options.turns} turns beside {options.dependencies.files:,} copied and linked files of dependencies")
        found = environment.measure(root / "env", source, options.seed, options.dependencies, options.turns)
        say(
            f"repositories of attempts: {options.attempts} with one of their own and {options.attempts} without, {options.leftover:,} files"
        )
        own = private_git.measure(root / "private", source, options.attempts, options.leftover)
        with SupervisedRun(root / "home", max(options.crew, SLOTS)) as side:
            say(f"agents: {options.rounds} of each kind, then {options.crew} at once, {options.bursts} times")
            spawn, used = spawns.measure(side, source, options.rounds, options.crew, options.bursts)
            say("a snapshot with a set-up of its own")
            snapshot, setup = break_even.measure(side, source, options.seed, options.dependencies, options.index)
            say(f"{options.analysts} analysts over {options.python_files:,} Python files: cold, forked, and in a pool")
            crew, pieces = analysts.measure(side, options.python_files, options.analysts, options.crews)
        say(f"removing {root}; its files are many")
    return {
        "environment": found,
        "private_git": own,
        "spawn": spawn,
        "snapshot": snapshot,
        "analysts": crew,
        "load_average": {"before": before["load_1m"], "after": round(os.getloadavg()[0], 2)},
        "material": {"repository_bytes": written, "setup": setup, "spawn": used, "analysts": pieces},
        "options": asdict(options),
        "machine": before,
    }
