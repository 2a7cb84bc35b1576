"""Agents that are submitted together to a supervisor, and where the time of each went until its first byte."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from supervisor.bench.arrivals import Arrivals
from supervisor.bench.figures import Burst, Spawn
from supervisor.bench.supervised_run import SupervisedRun, until
from supervisor.core.errors import NightcrewError
from supervisor.core.records import Started, parse_started
from supervisor.core.spec import TaskSpec
from supervisor.daemon import protocol


class Bursts:
    """One supervisor and the agents that are submitted to it; a crew is known by the id of its run."""

    def __init__(self, run: SupervisedRun, repo: Path, arrivals: Arrivals) -> None:
        self._run = run
        self._repo = run.repository(repo)
        self._arrivals = arrivals
        self._names = (f"ours{number}" for number in itertools.count())

    def burst(self, count: int) -> tuple[Burst, str]:
        """Submit `count` agents as one run and wait until all are up; they are left waiting. Returns their times and the run."""
        names = list(itertools.islice(self._names, count))
        tasks = [TaskSpec(name, name, "shell", self._arrivals.argv(name)) for name in names]
        known = self._alerts()
        ordered, offset = time.monotonic(), time.time() - time.monotonic()
        crew = self._run.submit(self._repo, tasks)
        seen = self._arrivals.wait(names, lambda: "; ".join(self._alerts() - known))
        return tuple(self._spawn(view.id, ordered, offset, seen[view.name]) for view in self._run.views(crew)), crew

    def finish(self, crew: str) -> None:
        """Let the agents end and wait until their work is secured."""
        self._arrivals.let_go(len(self._run.views(crew)))
        self._run.ended(crew)

    def until_running(self, crew: str) -> None:
        """Wait until the ledger has every agent of the crew as running, in its first attempt."""
        until(lambda: all(view.attempt_state == "running" for view in self._run.views(crew)), "every agent to be seen")
        if again := [view.id for view in self._run.views(crew) if view.epoch != 1]:
            raise NightcrewError("an agent was started again", on=again[0], why="it should have been adopted")

    def runners(self, crew: str) -> list[int]:
        """Process ids of the runners of a crew that is up."""
        return [self._started(view.id).identity.pid for view in self._run.views(crew)]

    def _alerts(self) -> set[str]:
        return set(protocol.call(self._run.home.daemon_socket, "ping", {})["alerts"])

    def _started(self, task: str) -> Started:
        started = parse_started((self._run.home.attempt(task, 1) / "started.json").read_text())
        if started is None:
            raise NightcrewError("no start record of", on=task)
        return started

    def _spawn(self, task: str, ordered: float, offset: float, first_byte: float) -> Spawn:
        """Where the time went, from what the attempt left on disk; `offset` is wall clock less monotonic clock, in seconds."""
        started = self._started(task)
        has_spec = (self._run.home.attempt(task, 1) / "launch.spec").stat().st_mtime - offset
        has_pane = Path(f"/proc/{started.identity.pid}/fd/0").stat().st_ctime - offset
        return Spawn.between(ordered, has_spec, has_pane, started.at - offset, first_byte)
