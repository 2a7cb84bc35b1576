"""The real path: a supervisor in a state directory of its own, and tasks submitted through its socket."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.bench.arrivals import Arrivals
from supervisor.bench.figures import Burst, Spawn
from supervisor.bench.workspace import end_server
from supervisor.core.environment import allowed
from supervisor.core.errors import NightcrewError, TimedOut
from supervisor.core.records import Identity, parse_started
from supervisor.core.spec import RunSpec, Submission, TaskSpec
from supervisor.daemon import protocol, start
from supervisor.daemon.handlers.submit import to_wire
from supervisor.host import processes
from supervisor.host.paths import Home
from supervisor.ledger import queries, store
from worktrees.git import Git
from worktrees.repository import discover

END_S = 600.0


@dataclass(frozen=True, slots=True)
class Crew:
    """Agents that were submitted together."""

    run: str
    tasks: tuple[str, ...]


class SupervisedRun:
    """One supervisor. It is started as `nightcrew up -d` starts it: in a pane of our tmux server, live view and all. Its agents are in no
    sandbox, as those of plain git and tmux are in none."""

    def __init__(self, root: Path, repo: Path, arrivals: Arrivals, slots: int) -> None:
        self.home = Home(root)
        self._config = root.with_name(f"{root.name}.toml")
        self._config.write_text(f"slots = {slots}\nsandbox = 0\n")
        self._repo = repo
        self._arrivals = arrivals
        self._names = (f"ours{number}" for number in itertools.count())

    def start(self) -> int:
        """Have the supervisor run and be ready; its pid."""
        return int(start.ensure_running(self.home, self._config, lambda _: None)["pid"])

    def kill(self) -> None:
        """`kill -9` of the supervisor alone; its agents go on."""
        pid = int(protocol.call(self.home.daemon_socket, "ping", {})["pid"])
        who = processes.identity(pid)
        if who is not None:
            processes.send(who, signal.SIGKILL)
            until(lambda: not processes.alive(who), "the supervisor to die")

    def burst(self, count: int) -> tuple[Burst, Crew]:
        """Submit `count` agents as one run and wait until all are up; they are left waiting."""
        names = list(itertools.islice(self._names, count))
        submission = to_wire(self._submission([TaskSpec(name, name, "shell", self._arrivals.argv(name)) for name in names]))
        known = self._alerts()
        ordered, offset = time.monotonic(), time.time() - time.monotonic()
        crew = self._submit(submission)
        seen = self._arrivals.wait(names, lambda: "; ".join(self._alerts() - known))
        return tuple(self._spawn(task, ordered, offset, seen[name]) for task, name in zip(crew.tasks, names, strict=True)), crew

    def submit(self, tasks: Sequence[TaskSpec]) -> Crew:
        """Hand tasks over as one run; returns when they are committed."""
        return self._submit(to_wire(self._submission(tasks)))

    def _submit(self, submission: dict[str, Any]) -> Crew:
        answer = protocol.call(self.home.daemon_socket, "submit", submission)
        return Crew(str(answer["run"]), tuple(answer["tasks"]))

    def finish(self, crew: Crew) -> None:
        """Let the agents end and wait until their work is secured."""
        self._arrivals.let_go(len(crew.tasks))
        self._until_all(crew, lambda view: view.final, "every agent to end")

    def until_running(self, crew: Crew) -> None:
        """Wait until the ledger has every agent of the crew as running, in its first attempt."""
        self._until_all(crew, lambda view: view.attempt_state == "running", "every agent to be seen")
        again = [view.id for view in self._views(crew) if view.epoch != 1]
        if again:
            raise NightcrewError("an agent was started again", on=again[0], why="it should have been adopted")

    def runners(self, crew: Crew) -> list[Identity]:
        """The runners of a crew that is up."""
        found = (parse_started((self.home.attempt(task, 1) / "started.json").read_text()) for task in crew.tasks)
        return [started.identity for started in found if started is not None]

    def end(self) -> None:
        """End every process of this side."""
        end_server(self.home)

    def _alerts(self) -> set[str]:
        return set(protocol.call(self.home.daemon_socket, "ping", {})["alerts"])

    def _submission(self, tasks: Sequence[TaskSpec]) -> Submission:
        repository = discover(Git(self.home.root / "git"), self._repo)
        return Submission(
            key=tasks[0].name,
            project=repository.project,
            root=os.fspath(repository.root),
            common_dir=os.fspath(repository.common_dir),
            base_oid=repository.head,
            spec=RunSpec(title="bench", tasks=tuple(tasks)),
            env=allowed(os.environ),
        )

    def _spawn(self, task: str, ordered: float, offset: float, first_byte: float) -> Spawn:
        """Where the time went, from what the attempt left on disk; `offset` is wall clock less monotonic clock, in seconds."""
        records = self.home.attempt(task, 1)
        started = parse_started((records / "started.json").read_text())
        if started is None:
            raise NightcrewError("no start record of", on=task)
        terminal = Path(f"/proc/{started.identity.pid}/fd/0")
        has_spec = (records / "launch.spec").stat().st_mtime - offset
        has_pane = terminal.stat().st_ctime - offset
        claimed = started.at - offset
        return Spawn.between(ordered, has_spec, has_pane, claimed, first_byte)

    def _views(self, crew: Crew) -> list[queries.TaskView]:
        db = store.connect_readonly(self.home.ledger)
        try:
            return queries.of_run(db, crew.run)
        finally:
            db.close()

    def _until_all(self, crew: Crew, holds: Callable[[queries.TaskView], bool], what: str) -> None:
        until(lambda: all(holds(view) for view in self._views(crew)), what)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until it holds. Raises TimedOut after 600 s."""
    deadline = time.monotonic() + END_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimedOut("waited in vain for", on=what, why=f"{END_S:.0f} s passed")
        time.sleep(0.05)
