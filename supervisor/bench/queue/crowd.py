"""What a person feels of a crowd of busy agents, and what it costs those: `status` and an interactive task beside agents that only compute.

Three rounds take turns on one supervisor: nobody works; the crowd is of class batch; the crowd is unheld, of class interactive, whose
agents are as a person's own commands. Other programs take part of the machine, and more of it from agents that give way to them. So the
agents' work is counted by the second of processor time that nobody else used. Where others use much (`others`) it is not measured: who gets
the processor for moments only finds its caches cold (0.8 at a share of 1 %, 1.0 at 60 %), whatever held it back.
"""

from __future__ import annotations

import statistics
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from supervisor.bench.figures import milli
from supervisor.bench.status_history import status_once_s
from supervisor.bench.supervised_run import Agent, SupervisedRun, until
from supervisor.bench.workspace import in_turns, make_repository
from supervisor.core.spec import TaskSpec
from supervisor.core.states import TaskClass
from worktrees.repository import Repository

_LOOK_S = 0.005
_FILES = 20
_OTHERS_MOST = 0.3
"""Where other programs use more of the processors beside batch agents, the work of those is not compared."""
_SAMPLES_UNHELD = 2
"""Of rounds whose `status` takes seconds and is there for comparison only."""
_RECORD = struct.Struct("dd")
_BUSY = """
import mmap, os, struct, time

out = os.environ["NIGHTCREW_OUT"]
with open(out + "/work", "wb+") as file:
    file.truncate(16)
    done = mmap.mmap(file.fileno(), 16)
with open(out + "/.up", "w") as file:
    file.write(f"{time.time()} 0")
os.rename(out + "/.up", out + "/up")
rounds = 0
while not os.path.exists(out + "/go"):
    for _ in range(100_000):
        pass
    rounds += 1
    struct.pack_into("dd", done, 0, rounds, time.process_time())
"""


@dataclass(frozen=True, slots=True)
class Crowd:
    """How much is measured."""

    agents: int = 50
    rounds: int = 2
    samples: int = 7
    """Of `status` and of an interactive task, in each round."""
    window_s: float = 4.0
    """For which the agents' work is counted."""


@dataclass(frozen=True, slots=True)
class _Round:
    status_s: list[float]
    interactive_s: list[float]
    work_per_s: float
    """Work for a second of processor time that nobody else used; 0 without agents."""
    others: float
    """The part of the processor time that other programs used."""


def measure(root: Path, seed: int, wanted: Crowd) -> dict[str, Any]:
    """The `crowd` of the report; docs/bench.md describes every key. `root` is an empty directory."""
    make_repository(root / "repo.git", seed, files=_FILES)
    with SupervisedRun(root / "crowd", slots=wanted.agents + 1) as ours:
        repo = ours.repository(root / "repo.git")
        _interactive_s(ours, repo)  # the first one of a supervisor takes longer
        ways = {"idle": None, "busy": TaskClass.BATCH, "unheld": TaskClass.INTERACTIVE}
        rounds = in_turns({name: partial(_round, ours, repo, task_class, wanted) for name, task_class in ways.items()}, wanted.rounds)
    others = {name: round(statistics.median(found.others for found in rounds[name]), 3) for name in ("busy", "unheld")}
    return {
        "agents": wanted.agents,
        "status_ms": {name: _median_ms(found.status_s for found in some) for name, some in rounds.items()},
        "interactive_ms": {name: _median_ms(found.interactive_s for found in some) for name, some in rounds.items()},
        "batch_throughput_ratio": None if others["busy"] > _OTHERS_MOST else round(_work(rounds["busy"]) / _work(rounds["unheld"]), 3),
        "others": others,
    }


def _round(ours: SupervisedRun, repo: Repository, task_class: TaskClass | None, wanted: Crowd) -> _Round:
    crowd: list[Agent] = []
    if task_class is not None:
        busy = TaskSpec("busy", "busy", "shell", (sys.executable, "-I", "-S", "-c", _BUSY), together="crowd", task_class=task_class)
        crowd = ours.agents(repo, busy, wanted.agents)
    try:
        work, others = _work_per_s(crowd, wanted.window_s)
        samples = range(wanted.samples if task_class is not TaskClass.INTERACTIVE else _SAMPLES_UNHELD)
        status = [status_once_s(ours.home.root) for _ in samples]
        return _Round(status, [_interactive_s(ours, repo) for _ in samples], work, others)
    finally:
        if crowd:
            ours.finish(crowd)


def _interactive_s(ours: SupervisedRun, repo: Repository) -> float:
    """From handing over an interactive task that does nothing until the ledger knows that it is done."""
    began = time.monotonic()
    run = ours.submit(repo, [TaskSpec("true", "true", "shell", ("true",), task_class=TaskClass.INTERACTIVE)])
    until(lambda: all(view.final for view in ours.views(run)), "an interactive task", _LOOK_S)
    return time.monotonic() - began


def _work_per_s(crowd: Sequence[Agent], seconds: float) -> tuple[float, float]:
    if not crowd:
        return 0.0, 0.0
    before, (work, cpu_s) = psutil.cpu_times(), _done(crowd)
    time.sleep(seconds)
    after, (work_then, cpu_then_s) = psutil.cpu_times(), _done(crowd)
    idle_s = after.idle + after.iowait - before.idle - before.iowait
    theirs_s = cpu_then_s - cpu_s + idle_s  # what was idle they could have used
    return (work_then - work) / theirs_s, max(0.0, 1 - theirs_s / (sum(after) - sum(before)))


def _done(crowd: Sequence[Agent]) -> tuple[float, float]:
    """Rounds of work and processor time of all up to now."""
    said = [_RECORD.unpack((agent.directory / "out" / "work").read_bytes()) for agent in crowd]
    return sum(rounds for rounds, _ in said), sum(cpu_s for _, cpu_s in said)


def _work(rounds: Sequence[_Round]) -> float:
    return statistics.median(found.work_per_s for found in rounds)


def _median_ms(rounds: Any) -> float:
    return milli(statistics.median(second for some in rounds for second in some))
