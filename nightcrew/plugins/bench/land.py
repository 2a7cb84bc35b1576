"""`nightcrew bench land`: what it takes to know which results conflict, and to land a train of them."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nightcrew.plugins.bench.crews import (
    GIT_ENV,
    Say,
    SupervisedRun,
    by_hand,
    children_cpu_s,
    commit_all,
    timed,
)
from nightcrew.plugins.bench.figures import Aim, median_ms, rows
from supervisor.host import files
from supervisor.kernel.errors import NightcrewError, ToolFailed
from supervisor.kernel.spec import TaskSpec
from supervisor.results import trial_merges
from supervisor.results.conflicts import Matrix
from supervisor.store.journal import Branch
from worktrees.git import Git
from worktrees.repository import Repository, discover

# Land train
# ----------
# A train of merges with planted conflicts, textual ones and such that each result passes alone: what is left out, and what it takes
# beside one by one.
#
# The results are those of real tasks, in a supervisor of their own; the train is `nightcrew land` as a person types it. A gate
# takes some processor time, and looks for pairs of files that may not be there together.


_PADDING = 20
"""Lines by which a planted result is larger: those that it does not fit with come before it."""
_TRAIN_FILES = 50


@dataclass(frozen=True, slots=True)
class LandTrainOptions:
    """How much is measured."""

    results: int = 20
    planted: int = 3
    """Conflicts of each sort."""
    loops: int = 1_000_000
    """Turns of a gate's own loop in the shell."""


def measure_land_train(options: LandTrainOptions, root: Path, say: Say) -> dict[str, Any]:
    """Return the figures `train`. Raises ToolFailed when a train does not come to its end."""
    place = _train_repository(root / "landed", options)
    work = works(options)
    with SupervisedRun(root / "l", slots=8) as run:
        say(f"making {options.results} results")
        run.ended(run.submit(run.repository(place), [_task(name, command) for name, command in work.items()]))
        by_hand(["git", "branch", "one-by-one"], place)
        say("the train")
        wall_s, together = _land(run, place, "main")
        say("the same one by one")
        alone_s, alone = _land(run, place, "one-by-one", "--width", "1")
        gates = [str(one["task"]).partition("/")[0] for one in together["ran"] if one["state"] in ("passed", "failed")]
        times = [view.ended - view.started for gate in gates for view in run.views(gate) if view.ended and view.started]
    wanted = {name for name in work if name.startswith(("text", "pair"))}
    ejected, landed = _names(together, "ejected"), _names(together, "landed")
    return {
        "results": options.results,
        "gate_s": round(statistics.median(times), 2),
        "wall_s": round(wall_s, 2),
        "sequential_wall_s": round(alone_s, 2),
        "landed": len(landed),
        "ejected": len(ejected),
        "wrong": len(ejected ^ wanted) + len(landed ^ (work.keys() - wanted)) + len(_names(alone, "ejected") ^ wanted),
        "gates": len(together["ran"]),
    }


def works(options: LandTrainOptions) -> dict[str, str]:
    """Return the command of each task. A result called `text` or `pair` conflicts with the fitting one of the same number, by its lines or
    its meaning; each of them passes alone."""
    planted = options.planted
    found = {f"fits{number}": f"echo {number} > result{number}" for number in range(options.results - 2 * planted)}
    for number in range(planted):
        found[f"fits{number}"] += f"; echo fits > shared{number}"
        found[f"fits{planted + number}"] += f"; echo a > both{number}.a"
        more = f"seq {_PADDING} > more{number}"
        found[f"text{number}"] = f"echo other > shared{number}; {more}.text"
        found[f"pair{number}"] = f"echo b > both{number}.b; {more}.pair"
    return {name: f"{work}; git add -A; git commit -q -m {name}" for name, work in found.items()}


def _task(name: str, work: str) -> TaskSpec:
    return TaskSpec(name=name, title=name, kind="shell", argv=("/bin/sh", "-c", work), gate=("/bin/sh", "-c", "true"), gate_timeout_s=60.0)


def _train_repository(place: Path, options: LandTrainOptions) -> Path:
    place.mkdir()
    for number in range(_TRAIN_FILES):
        (place / f"file{number}.txt").write_text(f"{number}\n" * 100)
    for number in range(options.planted):
        (place / f"shared{number}").write_text("base\n")
    spend = f"i=0; while [ $i -lt {options.loops} ]; do i=$((i + 1)); done"
    look = 'for a in both*.a; do test -e "$a" && test -e "${a%a}b" && exit 1; done'
    (place / "gate.sh").write_text(f"{spend}\n{look}\nexit 0\n")
    commit_all(place)
    for key, text in (("user.name", "bench"), ("user.email", "bench@example.invalid")):
        by_hand(["git", "config", key, text], place)
    return place


def _land(run: SupervisedRun, place: Path, into: str, *more: str) -> tuple[float, dict[str, Any]]:
    words = ("land", "--ready", "--into", into, "--gate", "sh gate.sh", "--repairs", "0", "--json", *more)
    took, said = timed(run.home.root, *words, cwd=place, judges=True, **GIT_ENV)
    shape: dict[str, Any] = json.loads(said)
    if shape["state"] not in ("landed", "empty"):
        raise ToolFailed("the train did not come to its end", on=into, why=str(shape.get("reason")))
    return took, shape


def _names(landed: Mapping[str, Any], state: str) -> set[str]:
    """The results of a train that ended so."""
    return {str(entry["task"]).partition("/")[2] for entry in landed["entries"] if entry["state"] == state}


# The matrix
# ----------
# The branches are made by plain git. Each changes two files, one of them the same line as a fifth of the others.


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
    seed: int = 1
    train: LandTrainOptions = field(default_factory=LandTrainOptions)


QUICK = Options(branches=10, files=200, updates=3, rounds=1, train=LandTrainOptions(results=6, planted=1, loops=200_000))


def aims(matrix: str, files: int) -> tuple[Aim, ...]:
    """What is wanted of the full run; `matrix` is its key in the report."""
    return (
        Aim(f"matrix_ms.{matrix}", 3000, name=f"{matrix.replace('_', ' ')} of {files} files with each other", unit="ms"),
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
    )


def measure(options: Options, root: Path, say: Say) -> dict[str, Any]:
    """Return the figures; docs/bench.md describes every key. Raises NightcrewError when a conflict that was planted is not found."""
    say(f"making {options.branches} branches of {options.files} files")
    repo = discover(Git(files.private_dir(root / "state")), _made(root / "repo", options))
    branches = [Branch(f"0101-bench/{number}", 1, _name(number), living=True) for number in range(options.branches)]
    trial_merges.look(repo, (branches[:1], 0), {})  # the configuration is read once
    say("the full matrix, and updates")
    matrix = Matrix("", "", ())
    took: dict[str, list[tuple[float, float]]] = {"matrix": [], "update": []}
    for _ in range(options.rounds):
        matrix = _timed(took["matrix"], lambda: trial_merges.look(repo, (branches, 0), {}))
    _check(matrix, options)
    for number in range(options.updates):
        _move(repo, number % options.branches)
        known = matrix.known
        matrix = _timed(took["update"], lambda known=known: trial_merges.look(repo, (branches, 0), known))  # type: ignore[misc]
    return {
        "matrix_ms": {f"{options.branches}_branches": median_ms(wall for wall, _ in took["matrix"])},
        "update_ms": median_ms(wall for wall, _ in took["update"]),
        "cpu_ms": {name: median_ms(cpu for _, cpu in some) for name, some in took.items()},
        "conflicts": len(matrix.conflicts()),
        "pairs": len(matrix.known),
        "files": options.files,
        "train": measure_land_train(options.train, root, say),
    }


def table(report: Mapping[str, Any]) -> str:
    """Return the report for people."""
    return "\n".join(rows(aims(next(iter(report["matrix_ms"])), report["files"]), report))


def _timed(took: list[tuple[float, float]], work: Callable[[], Matrix]) -> Matrix:
    """Note the seconds by the clock and of processor time, with every git."""
    began, before = time.monotonic(), time.process_time() + children_cpu_s()
    found = work()
    took.append((time.monotonic() - began, time.process_time() + children_cpu_s() - before))
    return found


def _name(number: int) -> str:
    return f"nightcrew/0101-bench/{number}/work"


def _check(matrix: Matrix, options: Options) -> None:
    """Every two branches with the same remainder by 5 change the same line."""
    found = {tuple(sorted(int(task.rpartition("/")[2]) for task in one.tasks)) for one in matrix.conflicts()}
    want = {(one, two) for two in range(options.branches) for one in range(two % 5, two, 5)}
    if found != want or matrix.missing():
        raise NightcrewError("the conflicts found are not those that were planted", why=f"{len(found)} and {len(want)}")


def _made(place: Path, options: Options) -> Path:
    text = "".join(f"line {number}\n" for number in range(_LINES))
    for number in range(options.files):
        file = place / _path(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number} {options.seed}\n{text}")
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
