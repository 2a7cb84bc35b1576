"""`nightcrew bench queue`: how fast and how safe the queue of tasks is."""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from nightcrew.plugins.bench import fake_doors
from nightcrew.plugins.bench.crews import Agent, Say, SupervisedRun, in_turns, make_repository, until
from nightcrew.plugins.bench.figures import Aim, median_ms, quantiles_ms
from nightcrew.plugins.bench.spawn import status_once_s
from supervisor.client import protocol
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError, ToolFailed
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec
from supervisor.kernel.states import TaskClass
from supervisor.store import sqlite
from worktrees.repository import Repository

# Crowd
# -----
# What a person feels of a crowd of busy agents, and what it costs those: `status` and an interactive task beside agents that only
# compute.
#
# Three rounds take turns on one supervisor: nobody works; the crowd is of class batch; the crowd is unheld, of class interactive,
# whose agents are as a person's own commands. Other programs take part of the machine, and more of it from agents that give way to
# them. So the agents' work is counted by the second of processor time that nobody else used. Where others use much (`others`) it is
# not measured: who gets the processor for moments only finds its caches cold (0.8 at a share of 1 %, 1.0 at 60 %), whatever held it
# back.


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


def measure_crowd(root: Path, seed: int, wanted: Crowd) -> dict[str, Any]:
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
        "status_ms": {name: median_ms(itertools.chain.from_iterable(found.status_s for found in some)) for name, some in rounds.items()},
        "interactive_ms": {
            name: median_ms(itertools.chain.from_iterable(found.interactive_s for found in some)) for name, some in rounds.items()
        },
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


# Engine
# ------
# The queue itself: how fast tasks are taken in, how soon a free slot is taken, how many attempts a second pass through ledger and
# loop.


SUBMITTERS = 10
BUSY_SLOTS = 64
"""Of the supervisor whose attempts are counted: enough that it never waits for an agent."""
STARTS_SLOTS, STARTS_WORK_S = 8, 0.2
"""Of the one whose starts are timed: a slot is free 40 times a second."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    waiting: int = 10_000
    """Tasks that are accepted, and that wait beside each start."""
    starts: int = 400
    attempts: int = 3000
    rounds: int = 3
    """Of accepting."""


class FakeSupervisor:
    """A supervisor with fake doors, as a process of its own, and its state directory."""

    def __init__(self, root: Path, slots: int) -> None:
        self.home = Home(root)
        self._process = _started([sys.executable, "-I", "-m", fake_doors.__name__, str(root), str(slots)])

    def until_ready(self) -> None:
        """Wait until it answers. Raises TimedOut."""
        until(self._answers, "a supervisor with fake doors", 0.02)

    def _answers(self) -> bool:
        with contextlib.suppress(NightcrewError):
            return bool(protocol.call(self.home.daemon_socket, "ping", {})["ready"])
        return False

    def submit(self, tasks: tuple[TaskSpec, ...]) -> float:
        """Hand a run over; seconds until it was accepted, from the plan in memory to the answer."""
        began = time.perf_counter()
        spec = RunSpec(title="bench", tasks=tasks)
        order = Submission(f"{began}", "0123456789ab", "/bench", "/bench/.git", "0" * 40, spec, {})
        protocol.call(self.home.daemon_socket, "submit", order)
        return time.perf_counter() - began

    def ended(self) -> int:
        """How many attempts have ended. Raises ToolFailed when one is not done."""
        if self.query("SELECT count(*) FROM attempt WHERE end <> 'done'"):
            raise ToolFailed("an attempt that does nothing failed", on=str(self.home.ledger))
        return int(self.query("SELECT count(*) FROM attempt WHERE end IS NOT NULL"))

    def span_s(self) -> float:
        """Seconds from the first start to the last end."""
        return self.query("SELECT max(ended) - min(created) FROM attempt")

    def query(self, sql: str) -> float:
        """A number from its ledger."""
        with contextlib.closing(sqlite.connect_readonly(self.home.ledger)) as db:
            return float(db.execute(sql).fetchone()[0])

    def leave(self) -> list[float]:
        """Have it end; seconds from each free slot to the commit of the start that took it."""
        protocol.call(self.home.daemon_socket, "down", {"now": False})
        self._process.wait()
        return [float(second) for second in json.loads((self.home.root / fake_doors.STARTS).read_text())]

    def end(self) -> None:
        """Whatever it does."""
        self._process.kill()
        self._process.wait()


def _started(argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def supervised(root: Path, slots: int) -> Iterator[FakeSupervisor]:
    """One that is ready, and is gone afterwards."""
    one = FakeSupervisor(root, slots)
    try:
        one.until_ready()
        yield one
    finally:
        one.end()


def tasks(count: int, work_s: float) -> tuple[TaskSpec, ...]:
    """No-op tasks of several submitters."""
    return tuple(
        TaskSpec(f"t{number}", "no-op", "shell", (str(work_s),), submitter=f"s{number % SUBMITTERS}", priority=number % 100)
        for number in range(count)
    )


def accepted_s(root: Path, count: int, rounds: int) -> float:
    """Seconds until `count` tasks are accepted by a supervisor that has nothing else to do; the median round."""
    seconds = []
    for number in range(rounds):
        with supervised(root / f"accept{number}", 1) as one:
            seconds.append(one.submit(tasks(count, 3600.0)))
    return statistics.median(seconds)


def starts_s(root: Path, waiting: int, count: int) -> list[float]:
    """Seconds from each of `count` free slots to the commit of the start that took it, beside `waiting` tasks."""
    with supervised(root / "starts", STARTS_SLOTS) as one:
        one.submit(tasks(waiting, STARTS_WORK_S))
        until(lambda: one.ended() >= count + STARTS_SLOTS, f"{count} starts")
        return one.leave()[STARTS_SLOTS:]  # the first were decided on beside the submission itself


def attempts_per_s(root: Path, count: int) -> float:
    """No-op attempts a second, each with its start, its end and its release."""
    with supervised(root / "attempts", BUSY_SLOTS) as one:
        one.submit(tasks(count, 0.0))
        until(lambda: one.ended() >= count, f"{count} attempts")
        return count / one.span_s()


def measure_engine(root: Path, size: Size) -> dict[str, Any]:
    """The report's keys that are about the queue itself."""
    latencies = starts_s(root, size.waiting, size.starts)
    return {
        "enqueue_10k_s": round(accepted_s(root, size.waiting, size.rounds), 3),
        "start_ms": quantiles_ms(latencies),
        "attempts_per_s": round(attempts_per_s(root, size.attempts), 1),
    }


# Measure
# -------
# What is run in which order, and how much of it.


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    seed: int = 1
    """Of repositories."""
    engine: Size = field(default_factory=Size)
    crowd: Crowd = field(default_factory=Crowd)


QUICK = Options(engine=Size(starts=100, attempts=500, rounds=1), crowd=Crowd(agents=10, rounds=1, samples=3))
AIMS = (
    Aim("enqueue_10k_s", 1.0, name="10,000 tasks accepted", unit="s"),
    Aim("start_ms.p50", name="a free slot until the next start is committed, p50", unit="ms"),
    Aim("start_ms.p99", 20, name="the same, p99, 10,000 waiting", unit="ms"),
    Aim("attempts_per_s", 300, at_least=True, name="no-op attempts: ledger, loop, fake doors", unit="/s"),
    Aim("crowd.agents", name="busy agents"),
    Aim("crowd.status_ms.idle", name="`status` beside no agent", unit="ms"),
    Aim("crowd.status_ms.busy", name="beside them", unit="ms"),
    Aim("crowd.interactive_ms.idle", name="an interactive task beside no agent", unit="ms"),
    Aim("crowd.interactive_ms.busy", name="beside them", unit="ms"),
    Aim("crowd.batch_throughput_ratio", 0.97, at_least=True, name="their work, of what they would do unheld", unit="x"),
)


def measure(options: Options, root: Path, say: Say) -> dict[str, Any]:
    """Return the figures; docs/bench.md describes every key. Raises what a tool or a task raises."""
    say(f"{options.engine.waiting:,} tasks, through ledger and loop with fake doors")
    report = measure_engine(files.private_dir(root / "engine"), options.engine)
    say(f"{options.crowd.agents} busy agents")
    return {**report, "crowd": measure_crowd(files.private_dir(root / "crowd"), options.seed, options.crowd)}
