"""The queue itself: how fast tasks are taken in, how soon a free slot is taken, how many attempts a second pass through ledger and loop."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.bench.figures import milli, quantile
from supervisor.bench.queue import fake_doors
from supervisor.bench.supervised_run import until
from supervisor.core.crew import Crew
from supervisor.core.decide import decide
from supervisor.core.errors import NightcrewError, ToolFailed
from supervisor.core.events import Secured, Submitted, TreeGone
from supervisor.core.spec import RunSpec, Submission, TaskSpec
from supervisor.core.states import End
from supervisor.core.task import Task
from supervisor.daemon import protocol
from supervisor.daemon.handlers.submit import to_wire
from supervisor.host.paths import Home
from supervisor.ledger import store

SUBMITTERS = 10
BUSY_SLOTS = 64
"""Of the supervisor whose attempts are counted: enough that it never waits for an agent."""
STARTS_SLOTS, STARTS_WORK_S = 8, 0.2
"""Of the one whose starts are timed: a slot is free 40 times a second."""


DECISIONS = 300


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
        protocol.call(self.home.daemon_socket, "submit", to_wire(order))
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
        with contextlib.closing(store.connect_readonly(self.home.ledger)) as db:
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


def decide_us(waiting: int, count: int) -> float:
    """Microseconds to decide that a task has ended and which one starts next, and to apply it, beside `waiting` ready tasks; the median."""
    crew, found = Crew(slots=STARTS_SLOTS), []
    ready = [Task(f"t{number}", number, number % 100, submitter=f"s{number % SUBMITTERS}") for number in range(waiting + count)]
    crew.apply(decide(crew, [Submitted(tuple(ready))], 0.0)[0])
    for number in range(count):
        task, attempt = next((task, task.attempt) for task in crew.living.values() if task.attempt is not None)
        crew.apply(decide(crew, [TreeGone(task.id, attempt.epoch, End.DONE, "")], float(number))[0])
        began = time.perf_counter()
        crew.apply(decide(crew, [Secured(task.id, attempt.epoch, End.DONE, "")], float(number))[0])
        found.append(time.perf_counter() - began)
    return round(statistics.median(found) * 1e6, 1)


def measure(root: Path, size: Size) -> dict[str, Any]:
    """The report's keys that are about the queue itself."""
    latencies = starts_s(root, size.waiting, size.starts)
    return {
        "enqueue_10k_s": round(accepted_s(root, size.waiting, size.rounds), 3),
        "start_ms": {"p50": milli(statistics.median(latencies)), "p99": milli(quantile(latencies, 0.99))},
        "attempts_per_s": round(attempts_per_s(root, size.attempts), 1),
        "decide_us": {str(waiting): decide_us(waiting, DECISIONS) for waiting in (100, 10_000)},
    }
