"""`nightcrew bench land`: what conflicts and a train of merges cost."""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nightcrew.plugins.bench import verbs
from nightcrew.plugins.bench.crews import GIT_ENV, SupervisedRun, by_hand, commit_all, machine, nightcrew, private_place
from nightcrew.plugins.bench.figures import Aim, milli, rows
from supervisor.features.conflicts import service as conflicts_service
from supervisor.features.conflicts.rules import Matrix
from supervisor.host import files
from supervisor.kernel.errors import NightcrewError, ToolFailed, last_line
from supervisor.kernel.spec import TaskSpec
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
_FILES = 50
_GATE = "sh gate.sh"
_RESTS = frozenset({"landed", "empty"})


@dataclass(frozen=True, slots=True)
class LandTrainOptions:
    """How much is measured."""

    results: int = 20
    planted: int = 3
    """Conflicts of each sort."""
    loops: int = 1_000_000
    """Turns of a gate's own loop in the shell."""


@dataclass(frozen=True, slots=True)
class Landed:
    """What one train came to."""

    wall_s: float
    shape: Mapping[str, Any]

    def names(self, state: str) -> set[str]:
        """The results that ended so."""
        return {str(entry["task"]).partition("/")[2] for entry in self.shape["entries"] if entry["state"] == state}


def measure_land_train(options: LandTrainOptions, root: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The figures `train`. Raises ToolFailed when a train does not come to its end."""
    place = _repository(root / "landed", options)
    with SupervisedRun(root / "l", slots=8) as run:
        repo = run.repository(place)
        say(f"making {options.results} results")
        run.ended(run.submit(repo, [_task(name, work) for name, work in works(options).items()]))
        by_hand(["git", "branch", "one-by-one"], place)
        say("the train")
        together = _land(run, place, "main", ())
        say("the same one by one")
        alone = _land(run, place, "one-by-one", ("--width", "1"))
        gates = [view.ended - view.started for view in _gates(run, together) if view.ended and view.started]
    wanted = {name for name in works(options) if name.startswith(("text", "pair"))}
    ejected, landed = together.names("ejected"), together.names("landed")
    wrong = len(ejected ^ wanted) + len(landed ^ (works(options).keys() - wanted)) + len(alone.names("ejected") ^ wanted)
    return {
        "results": options.results,
        "gate_s": round(statistics.median(gates), 2),
        "wall_s": round(together.wall_s, 2),
        "sequential_wall_s": round(alone.wall_s, 2),
        "landed": len(landed),
        "ejected": len(ejected),
        "wrong": wrong,
        "gates": len(together.shape["ran"]),
    }


def works(options: LandTrainOptions) -> dict[str, str]:
    """The command of each task. A result called `text` or `pair` conflicts with the fitting one of the same number, by its lines or its
    meaning; each of them passes alone."""
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


def _repository(place: Path, options: LandTrainOptions) -> Path:
    place.mkdir()
    for number in range(_FILES):
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


def _land(run: SupervisedRun, place: Path, into: str, more: tuple[str, ...]) -> Landed:
    env = {**os.environ, **GIT_ENV, "NIGHTCREW_HOME": str(run.home.root), "NIGHTCREW_CONFIG": str(run.settings)}
    began = time.monotonic()
    words = nightcrew("land", "--ready", "--into", into, "--gate", _GATE, "--repairs", "0", "--json", *more)
    done = subprocess.run(words, cwd=place, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    took = time.monotonic() - began
    shape = json.loads(done.stdout) if done.stdout else {}
    if shape.get("state") not in _RESTS:
        raise ToolFailed("the train did not come to its end", on=into, why=shape.get("reason") or last_line(done.stderr))
    return Landed(took, shape)


def _gates(run: SupervisedRun, landed: Landed) -> list[Any]:
    tasks = [str(one["task"]) for one in landed.shape["ran"] if one["state"] in ("passed", "failed")]
    return [view for task in tasks for view in run.views(task.partition("/")[0])]


# Land
# ----
# The figures of `nightcrew bench land`: what it takes to know which results conflict, to look at one, and what a train of them
# takes (`land_train`).
#
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
    reviews: int = 7
    """How often each result is looked at; the median is reported."""
    seed: int = 1
    train: LandTrainOptions = field(default_factory=LandTrainOptions)


QUICK = Options(branches=10, files=200, updates=3, rounds=1, reviews=2, train=LandTrainOptions(results=6, planted=1, loops=200_000))


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
        conflicts_service.look(repo, (branches[:1], 0), {})  # the configuration is read once
        matrix, took, updates = Matrix("", "", ()), list[_Took](), list[_Took]()
        for number in range(options.rounds):
            say(f"the full matrix, {number + 1} of {options.rounds}")
            one, matrix = _timed(lambda: conflicts_service.look(repo, (branches, 0), {}))
            took.append(one)
        _check(matrix, options)
        say(f"{options.updates} updates")
        for number in range(options.updates):
            _move(repo, number % options.branches)
            one, matrix = _timed(lambda known=matrix.known: conflicts_service.look(repo, (branches, 0), known))  # type: ignore[misc]
            updates.append(one)
        reviewed = verbs.measure_review(root / "review", options.files, options.reviews, say)
    with private_place(under) as root:
        train = measure_land_train(options.train, root, say)
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
