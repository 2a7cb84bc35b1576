"""The figures of `nightcrew bench land`: what it takes to know which results conflict, to look at one, and what a train of them takes
(`land_train`).

The branches are made by plain git. Each changes two files, one of them the same line as a fifth of the others.
"""

from __future__ import annotations

import json
import random
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor.bench import land_train, review
from supervisor.bench.aims import Aim, rows
from supervisor.bench.figures import milli
from supervisor.bench.workspace import by_hand, commit_all, machine, private_place
from supervisor.core.conflicts import Matrix
from supervisor.core.errors import NightcrewError
from supervisor.daemon import conflict_matrix
from supervisor.host import files
from supervisor.ledger.branches import Branch
from worktrees.git import Git
from worktrees.repository import Repository, discover

_LINES = 60
_FOLDER = 50
"""Files in each directory."""


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    branches: int = 50
    files: int = 2000
    updates: int = 20
    """Branches that move, one after the other; the median update is reported."""
    rounds: int = 3
    """How often the full matrix is made; the median is reported."""
    reviews: int = 7
    """How often each result is looked at; the median is reported."""
    seed: int = 1
    train: land_train.Options = field(default_factory=land_train.Options)


QUICK = Options(branches=10, files=200, updates=3, rounds=1, reviews=2, train=land_train.Options(results=6, planted=1, loops=200_000))


def aims(options: Options) -> tuple[Aim, ...]:
    """What is wanted of the full run."""
    name = f"matrix_ms.{options.branches}_branches"
    return (
        Aim(name, 3000, name=f"{options.branches} branches of {options.files} files with each other", unit="ms"),
        Aim("update_ms", 100, name="one of them moved, p50", unit="ms"),
        Aim("cpu_ms.matrix", name="processor time of the first", unit="ms"),
        Aim("cpu_ms.update", name="and of the second", unit="ms"),
        Aim("conflicts", name="conflicts found"),
        Aim("train.wall_s", name="a train of results", unit="s"),
        Aim("train.sequential_wall_s", name="the same, one gate at a time", unit="s"),
        Aim("train.gate_s", name="one of its gates, p50", unit="s"),
        Aim("train.landed", name="results that landed"),
        Aim("train.ejected", name="results that were left out"),
        Aim("train.wrong", 0, name="of both, wrongly"),
        Aim("review_ms.middle", name="nightcrew review of 300 new lines", unit="ms"),
        Aim("review_ms.large", name="of 2,000 new lines", unit="ms"),
        Aim("review_ms.start", name="of that, what any command takes", unit="ms"),
    )


def measure(options: Options, under: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """The report; docs/bench.md describes every key. Raises NightcrewError when a conflict that was planted is not found."""
    say(json.dumps(machine()))
    with private_place(under) as root:
        repo = discover(Git(files.private_dir(root / "state")), _made(root / "repo", options, say))
        branches = [Branch(f"0101-bench/{number}", 1, _name(number), living=True) for number in range(options.branches)]
        conflict_matrix.look(repo, (branches[:1], 0), {})  # the configuration is read once
        matrix, took, updates = Matrix("", "", ()), list[_Took](), list[_Took]()
        for number in range(options.rounds):
            say(f"the full matrix, {number + 1} of {options.rounds}")
            one, matrix = _timed(lambda: conflict_matrix.look(repo, (branches, 0), {}))
            took.append(one)
        _check(matrix, options)
        say(f"{options.updates} updates")
        for number in range(options.updates):
            _move(repo, number % options.branches)
            one, matrix = _timed(lambda known=matrix.known: conflict_matrix.look(repo, (branches, 0), known))  # type: ignore[misc]
            updates.append(one)
        reviewed = review.measure(root / "review", options.files, options.reviews, say)
    with private_place(under) as root:
        train = land_train.measure(options.train, root, say)
    return {
        "matrix_ms": {f"{options.branches}_branches": milli(statistics.median(one.wall for one in took))},
        "update_ms": milli(statistics.median(one.wall for one in updates)),
        "review_ms": reviewed,
        "cpu_ms": {name: milli(statistics.median(one.cpu for one in some)) for name, some in (("matrix", took), ("update", updates))},
        "conflicts": len(matrix.conflicts()),
        "pairs": len(matrix.known),
        "files": options.files,
        "train": train,
    }


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    branches = int(next(iter(report["matrix_ms"])).partition("_")[0])
    return "\n".join(rows(aims(Options(branches, report["files"])), report))


@dataclass(frozen=True, slots=True)
class _Took:
    """Seconds."""

    wall: float
    cpu: float
    """Of processor time, with every git."""


def _timed(work: Callable[[], Matrix]) -> tuple[_Took, Matrix]:
    began, before = time.monotonic(), _cpu_s()
    found = work()
    return _Took(time.monotonic() - began, _cpu_s() - before), found


def _cpu_s() -> float:
    """Of this process and of those that it started and that have ended."""
    taken = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in taken)


def _name(number: int) -> str:
    return f"nightcrew/0101-bench/{number}/work"


def _check(matrix: Matrix, options: Options) -> None:
    """Every two branches with the same remainder by 5 change the same line."""
    found = {tuple(sorted(int(task.rpartition("/")[2]) for task in one.tasks)) for one in matrix.conflicts()}
    want = {(one, two) for one in range(options.branches) for two in range(one + 1, options.branches) if (two - one) % 5 == 0}
    if found != want or matrix.missing():
        raise NightcrewError("the conflicts found are not those that were planted", why=f"{len(found)} and {len(want)}")


def _made(place: Path, options: Options, say: Callable[[str], None]) -> Path:
    say(f"making {options.branches} branches of {options.files} files")
    draw = random.Random(options.seed)  # noqa: S311 - text to fill files with, not a secret
    text = "".join(f"line {number}\n" for number in range(_LINES))
    for number in range(options.files):
        file = place / _path(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number} {draw.random()}\n{text}")
    commit_all(place)
    for number in range(options.branches):
        shared, own = number % 5, 5 + number % (options.files - 5)
        _commit(place, number, {_path(shared): f"shared {number}\n{text}", _path(own): (place / _path(own)).read_text() + f"{number}\n"})
    return place


def _path(number: int) -> str:
    return f"src/{number // _FOLDER:03}/{number:05}.txt"


def _commit(place: Path, number: int, changed: Mapping[str, str], parent: str = "main") -> None:
    """A commit on the branch by one `git fast-import`, without a checkout."""
    data = [f"commit refs/heads/{_name(number)}\ncommitter bench <bench@example.invalid> 1000000000 +0000\ndata 0\nfrom {parent}\n"]
    data += [f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n" for path, text in changed.items()]
    script = place.parent / "script"
    script.write_text("".join(data))
    by_hand(["sh", "-c", 'exec git fast-import --quiet < "$0"', str(script)], place)


def _move(repo: Repository, number: int) -> None:
    """An agent commits once more."""
    _commit(repo.root, number, {f"new/{number}-{time.monotonic_ns()}.txt": "new\n"}, f"refs/heads/{_name(number)}^0")
