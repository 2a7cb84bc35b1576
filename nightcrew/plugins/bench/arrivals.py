"""Agents of `nightcrew bench spawn` on their way from the order to their first byte: ours, and those of a shell script."""

from __future__ import annotations

import itertools
import os
import shlex
import statistics
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from nightcrew.plugins.bench.crews import SupervisedRun, by_hand, end_server, started_of
from nightcrew.plugins.bench.figures import median_ms, milli, quantile
from supervisor.host import files, scratch
from supervisor.host.paths import Home
from supervisor.kernel.errors import HostError, NightcrewError, TimedOut
from supervisor.kernel.spec import TaskSpec

UP_S = 300.0
_LAST = b"\0"


@dataclass(frozen=True, slots=True)
class Spawn:
    """One agent on its way from the order to its first byte: consecutive stages, in seconds, so that their sum is the whole.

    Agents that are ordered together are all counted from the one order, so `env` also holds the wait for one's turn.
    """

    env: float
    """Ours: until `launch.spec` was written (the submission and the attempt committed, the worktree made). Plain: until
    `git worktree add` returned."""
    tmux: float
    """Ours: until tmux opened the pane's terminal (`launch.spec` synced before that). Plain: until `tmux new-session` returned, or the
    first byte when that was earlier."""
    runner: float
    """Ours: until the runner claimed the attempt (`at` of `started.json`): the start of Python. Plain: there is none."""
    first_byte: float
    """Until the agent, a shell, had written a line that a reader of its FIFO got. Ours: the claim made durable and the fork before it."""

    @classmethod
    def between(cls, ordered: float, has_env: float, has_pane: float, claimed: float, first_byte: float) -> Spawn:
        """Make one from the moments at which the stages end, in seconds of one clock."""
        return cls(env=has_env - ordered, tmux=has_pane - has_env, runner=claimed - has_pane, first_byte=first_byte - claimed)

    @property
    def whole(self) -> float:
        return self.env + self.tmux + self.runner + self.first_byte


STAGES = tuple(field.name for field in fields(Spawn))

Burst = tuple[Spawn, ...]
"""Agents that were ordered together."""


def summary(bursts: Sequence[Burst]) -> dict[str, Any]:
    """Sum up one size: times of single agents over all bursts together, and the median burst's time until all were up."""
    spawns = [spawn for burst in bursts for spawn in burst]
    whole = [spawn.whole for spawn in spawns]
    return {
        "ms_p50": median_ms(whole),
        "ms_p99": milli(quantile(whole, 0.99)),
        "all_up_s": round(statistics.median(max(spawn.whole for spawn in burst) for burst in bursts), 4),
        "stages": {name: median_ms(getattr(spawn, name) for spawn in spawns) for name in STAGES},
        "rounds": len(bursts),
    }


class Arrivals:
    """Agents that each say that they are up, then wait without using anything until they are let go. A context that listens inside it.

    Two FIFOs: one in which agents write their name as their first act, and one on which they wait for a line.
    """

    def __init__(self, directory: Path) -> None:
        self._up, self._go = directory / "up", directory / "go"
        self._seen: dict[str, float] = {}
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._listen, name="arrivals")

    def __enter__(self) -> Arrivals:
        for path in (self._up, self._go):
            os.mkfifo(path, 0o600)
        # Both ends by us: nobody's open blocks, and no reader meets an end of file when the last writer leaves.
        self._up_fd = os.open(self._up, os.O_RDWR | os.O_CLOEXEC)
        self._go_fd = os.open(self._go, os.O_RDWR | os.O_CLOEXEC)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.write(self._up_fd, _LAST)
        self._reader.join()
        os.close(self._up_fd)
        os.close(self._go_fd)

    def argv(self, name: str) -> tuple[str, ...]:
        """The agent `name`: a shell that writes its name, then waits in a read."""
        return ("sh", "-c", f"echo {shlex.quote(name)} >{shlex.quote(str(self._up))}; read line <{shlex.quote(str(self._go))}")

    def wait(self, names: Collection[str], trouble: Callable[[], str] = str) -> dict[str, float]:
        """Return the monotonic seconds at which the line of each of `names` was read.

        Raises HostError with what `trouble` says, asked once a second while some are missing, and TimedOut after 300 s of silence.
        """
        deadline = time.monotonic() + UP_S
        with self._changed:
            while not self._changed.wait_for(lambda: all(name in self._seen for name in names), 1.0):
                missing = [name for name in names if name not in self._seen]
                which = f"{len(missing)} of {len(names)}"
                if why := trouble():
                    raise HostError("agents did not start", on=which, why=why)
                if time.monotonic() > deadline:
                    raise TimedOut("agents did not start", on=which, why=f"nothing of {missing[0]}")
            return {name: self._seen[name] for name in names}

    def let_go(self, count: int) -> None:
        """Let `count` waiting agents end."""
        os.write(self._go_fd, b"\n" * count)

    def _listen(self) -> None:
        held = b""
        while not held.endswith(_LAST):
            data = os.read(self._up_fd, 65536)
            now = time.monotonic()
            *lines, held = (held + data).split(b"\n")
            with self._changed:
                self._seen.update((line.decode(), now) for line in lines)
                self._changed.notify_all()


class PlainGit:
    """The same work without nightcrew, as a shell script would do it: `git worktree add`, `tmux new-session`, one agent after the other,
    with a tmux server of its own and worktrees beside each other under `root`."""

    def __init__(self, root: Path, repo: Path, arrivals: Arrivals) -> None:
        self._trees = root / "trees"
        self._home = Home(root)  # for a socket whose path is short enough
        self._repo = repo
        self._arrivals = arrivals
        self._names = (f"plain{number}" for number in itertools.count())

    def start(self) -> None:
        """Have the server run already, as ours does. The worktrees lie as ours do, so that the tools are compared and not places."""
        files.private_dir(self._home.run_dir)
        self._trees.mkdir(parents=True)
        scratch.spread(self._trees)
        self._tmux("start-server", ";", "set-option", "-s", "exit-empty", "off")

    def burst(self, count: int) -> Burst:
        """Start `count` agents, wait until all are up, and end them."""
        names = list(itertools.islice(self._names, count))
        ordered = time.monotonic()
        made = {name: self._spawn(name) for name in names}
        seen = self._arrivals.wait(names)
        self._arrivals.let_go(count)
        spawns = []
        for name, (tree, pane) in made.items():
            has_pane = min(pane, seen[name])
            spawns.append(Spawn.between(ordered, tree, has_pane, has_pane, seen[name]))
        return tuple(spawns)

    def end(self) -> None:
        """End every process of this side."""
        end_server(self._home)

    def _spawn(self, name: str) -> tuple[float, float]:
        tree = self._trees / name
        by_hand(["git", "worktree", "add", "-q", "-b", f"bench/{name}", str(tree), "HEAD"], self._repo)
        has_tree = time.monotonic()
        self._tmux("new-session", "-d", "-s", name, "-c", str(tree), *self._arrivals.argv(name))
        return has_tree, time.monotonic()

    def _tmux(self, *words: str) -> None:
        by_hand(["tmux", "-f", "/dev/null", "-S", str(self._home.tmux_socket), *words], self._trees)


class Bursts:
    """One supervisor and the agents that are submitted to it together; a crew is known by the id of its run."""

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

    def once(self, count: int) -> Burst:
        """Submit a burst, let its agents end, and wait until their work is secured."""
        burst, crew = self.burst(count)
        self._arrivals.let_go(count)
        self._run.ended(crew)
        return burst

    def until_running(self, crew: str) -> None:
        """Wait until the ledger has every agent of the crew as running, in its first attempt."""
        self._run.until_running(crew)
        if again := [view.id for view in self._run.views(crew) if view.epoch != 1]:
            raise NightcrewError("an agent was started again", on=again[0], why="it should have been adopted")

    def runners(self, crew: str) -> list[int]:
        """Return the process ids of the runners of a crew that is up."""
        return [started_of(self._run.home.attempt(view.id, 1)).identity.pid for view in self._run.views(crew)]

    def _alerts(self) -> set[str]:
        return set(self._run.ask("ping")["alerts"])

    def _spawn(self, task: str, ordered: float, offset: float, first_byte: float) -> Spawn:
        """Tell where the time went, from what the attempt left on disk; `offset` is wall clock less monotonic clock, in seconds."""
        attempt = self._run.home.attempt(task, 1)
        started = started_of(attempt)
        has_spec = (attempt / "launch.spec").stat().st_mtime - offset
        has_pane = Path(f"/proc/{started.identity.pid}/fd/0").stat().st_ctime - offset
        return Spawn.between(ordered, has_spec, has_pane, started.at - offset, first_byte)
