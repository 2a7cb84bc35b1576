"""A train of merges with planted conflicts, textual ones and such that each result passes alone: what is left out, and what it takes beside
one by one.

The results are those of real tasks, in a supervisor of their own; the train is `nightcrew land` as a person types it. A gate takes some
processor time, and looks for pairs of files that may not be there together.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.bench.supervised_run import SupervisedRun
from supervisor.bench.workspace import GIT_ENV, by_hand, commit_all, nightcrew
from supervisor.core.errors import ToolFailed, last_line
from supervisor.core.spec import TaskSpec

_PADDING = 20
"""Lines by which a planted result is larger: those that it does not fit with come before it."""
_FILES = 50
_GATE = "sh gate.sh"
_RESTS = frozenset({"landed", "empty"})


@dataclass(frozen=True, slots=True)
class Options:
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


def measure(options: Options, root: Path, say: Callable[[str], None]) -> dict[str, Any]:
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


def works(options: Options) -> dict[str, str]:
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


def _repository(place: Path, options: Options) -> Path:
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
