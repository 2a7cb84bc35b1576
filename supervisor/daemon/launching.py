"""How an attempt begins, step by step, through the doors: its environment, its orders, its session.

Everything here runs in worker threads and may be repeated: each step finds out what an interrupted one left and goes on from there.
Nothing here touches the ledger; results are handed back.
"""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents import agent_client, hook_client, runner
from agents.kinds import to_run
from agents.tmux import SessionExists, Tmux
from agents.zygote import Place, Wanted
from supervisor.core import gates, ports, records
from supervisor.core.conversations import Origin, Where, told
from supervisor.core.gates import Missed
from supervisor.core.kind import CLIENT_VARIABLE, HOOK_VARIABLE
from supervisor.core.sandbox import Tier
from supervisor.core.snapshots import Snapshot, SnapshotKind
from supervisor.core.spec import Settings
from supervisor.daemon import continuing, isolation, judges, launch_files
from supervisor.daemon.agent_access import AgentAccess
from supervisor.daemon.environments import Environments
from supervisor.daemon.isolation import Isolation
from supervisor.daemon.judges import Judged
from supervisor.daemon.limits import LimitDesk
from supervisor.daemon.observation import Observer
from supervisor.daemon.snapshots import SnapshotDesk
from supervisor.daemon.zygotes import Zygotes
from supervisor.host import files
from supervisor.host.failpoint import failpoint
from supervisor.ledger.rows import LaunchRow
from worktrees import environments, untouched
from worktrees.environment import Environment
from worktrees.tampering import RefGuard

SHOWN_BRANCHES = 1000
"""Of the tasks that a confined one comes after: git is asked for each by its name."""


@dataclass(frozen=True, slots=True)
class Spawned:
    """Where an attempt runs."""

    session_id: str
    pane_id: str
    server_pid: int


@dataclass(frozen=True, slots=True)
class Warmth:
    """What lets an attempt start warm, confined, and inside its limits."""

    snapshots: SnapshotDesk
    zygotes: Zygotes
    isolation: Isolation
    limits: LimitDesk
    refs: RefGuard


@dataclass(frozen=True, slots=True)
class Source:
    """What an attempt starts in."""

    made: Environment
    lent: Snapshot | None
    """The snapshot that it was made from."""
    port: int | None
    """First port of its block; None when all blocks are taken."""
    origin: Origin | None = None
    """The conversation that its agent continues."""
    missed: Missed | None = None
    """The gate that the attempt before did not pass, when this one is for mending that."""
    start: str = ""
    """The commit that it starts at; empty: the run's base."""
    memory: str = ""
    """What the attempt before held of its memory, when it was stopped for that and this one goes on."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """How its runner is started."""

    argv: list[str]
    tier: int
    limits: str
    """What holds each limit that its task asks for, in words."""


class Launching:
    """The doors through which attempts begin. Safe to use from several threads."""

    def __init__(self, access: AgentAccess, settings: Settings, made: Environments, observer: Observer, tmux: Tmux, warmth: Warmth) -> None:
        self._access = access
        self._home = access.home
        self._settings = settings
        self._environments = made
        self._observer = observer
        self._tmux = tmux
        self._warmth = warmth
        self._turns = itertools.count()  # so that tasks which want one core get different ones

    def judging(self, row: LaunchRow, seen: Judged) -> LaunchRow:
        """As `judges.told`."""
        return judges.told(self._environments, row, seen)

    def prepare(self, task: str, epoch: int, launch: LaunchRow, lent: Snapshot | None, start: str = "") -> Environment:
        """Its worktree at the commit `start`, or at the run's base, made from the snapshot `lent` if there is one. Raises
        Refused when the branch belongs to somebody else, HostError when the snapshot is damaged, ToolFailed or DiskFull."""
        root = self._home.worktrees / launch.project
        attended = to_run(launch.spec.kind).mode == "terminal"
        shared = not self._warmth.isolation.mounts_overlays(launch.spec, attended=attended)
        warm = self._warmth.snapshots.warm(lent, root, shared=shared) if lent is not None else None
        tier = self._warmth.isolation.tier(launch.spec, attended=attended)
        after = tuple(map(records.branch_name, launch.after[:SHOWN_BRANCHES]))
        confined = environments.Confined(after) if tier is not Tier.NONE else None
        repository = self._environments.repository(launch)
        if tier is Tier.NONE:
            self._warmth.refs.begin(repository)
        made = environments.create(repository, task, epoch, start or launch.base_oid, root, warm=warm, confined=confined)
        failpoint("launch.environment")
        return replace(made, base=launch.base_oid)  # what it began with counts as the task's work too

    def order(self, task: str, epoch: int, launch: LaunchRow, source: Source, needs: list[dict[str, Any]]) -> Ordered:
        """What its runner is to do, on disk, and how the runner is started. Raises Refused when this host has no sandbox as the task asks,
        ToolFailed when the agent could not reach the gateway, HostError."""
        key, directory = (task, epoch), self._home.attempt(task, epoch)
        cwd = self._cwd(launch, source.made)
        launch = _continued(task, launch, source, cwd)
        inputs = launch_files.write_inputs(self._home, key, launch, needs) | ports.variables(source.port)
        if to_run(launch.spec.kind).has_hooks:
            inputs[HOOK_VARIABLE] = str(hook_client.program(files.private_dir(self._home.bin)))
        client = agent_client.program(files.private_dir(self._home.bin))
        inputs[CLIENT_VARIABLE] = str(client)
        if tools := bool(launch.spec.children_max or self._settings.memory.tools):
            launch_files.write_tools(directory, client)
        place = self._zygote(launch, source.lent)
        home = Path(launch.spec.params.get("HOME") or launch.env.get("HOME") or "/")
        attended = to_run(launch.spec.kind).mode == "terminal"
        same_path, memory = cwd if cwd != source.made.path else None, self._home.memory(launch.project)
        who = isolation.Attempt(launch.spec, directory, source.made, home, attended, launch.env, same_path, memory)
        confined = self._warmth.isolation.confine(who, self._access.gateway_port(), warm=place is not None)
        if source.origin is not None:
            env = {**launch.env, **launch.spec.params}
            continuing.hand_on(self._home, key, to_run(launch.spec.kind), source.origin, env)
        asked = self._warmth.limits.asked(launch.spec, source.lent.spec if source.lent is not None else None)
        agent = to_run(launch.spec.kind).is_agent
        bounds = self._warmth.limits.bind(key, asked, confined, launch.spec.task_class, agent=agent)
        wanted = launch.spec.cores or (source.lent.spec.cores if source.lent is not None else 0)
        cores = self._warmth.limits.cores(key, wanted, next(self._turns))
        terms = launch_files.Terms(inputs, confined, bounds, place is not None, cores, str(cwd), source.origin, tools)
        launch_files.write(self._access, self._settings, key, launch, source.made, terms)
        failpoint("launch.spec")
        cold = [sys.executable, "-I", "-S", str(Path(runner.__file__).parent / "main.py"), str(directory)]
        return Ordered(self._warmth.zygotes.pane(place, directory) if place is not None else cold, int(confined.tier), bounds.words)

    def _cwd(self, launch: LaunchRow, made: Environment) -> Path:
        """Where its agent works, as that sees it."""
        if not launch.spec.same_path or made.private is None:
            return made.path
        return Path(os.path.realpath(self._home.same_path(launch.project)))

    def _zygote(self, launch: LaunchRow, lent: Snapshot | None) -> Place | None:
        """The warm process that forks its runner, if its snapshot or its kind has one."""
        if lent is not None and lent.spec.kind is SnapshotKind.MEMORY:
            return self._warmth.zygotes.warm_or_cold(*self._warmth.snapshots.zygote(lent))
        preload = to_run(launch.spec.kind).preload
        return self._warmth.zygotes.warm_or_cold(f"kind {launch.spec.kind}", Wanted(preload)) if preload else None

    def spawn(self, task: str, epoch: int, made: Environment, ordered: Ordered) -> Spawned | None:
        """Its session, whose pane runs the runner. None when a session of that name is there already: then it is this attempt's own,
        made before a crash, and a look will find it. Raises DiskFull where its runner could not write its records: that would be a loss."""
        if files.is_full(self._home.attempt(task, epoch)):
            raise files.disk_full("no room to start an attempt", self._home.attempt(task, epoch), "the disk is full")
        server = self._tmux.ensure_server()
        untouched.begin(made)
        try:
            pane = self._tmux.spawn(
                records.session_name(task, epoch),
                ordered.argv,
                made.path,
                self._observer.tags(task, epoch),
            )
        except SessionExists:
            found = self._observer.panes().get((task, epoch))
            return Spawned(found.session_id, found.pane_id, server) if found is not None else None
        self._observer.spawned((task, epoch), server, pane.session_id, pane.pane_id)
        failpoint("launch.spawned")
        return Spawned(pane.session_id, pane.pane_id, server)

    def begin(self, task: str, epoch: int) -> None:
        """Let the command of a held attempt begin; idempotent."""
        launch_files.begin(self._home, (task, epoch))


def _continued(task: str, launch: LaunchRow, source: Source, cwd: Path) -> LaunchRow:
    """With what its agent is told first. A person who sits at it sees where it stood, and says themselves how it goes on."""
    origin, spec, gate = source.origin, launch.spec, source.missed
    missed = gates.told(gate, spec.gate_words, here=source.start == gate.tip) if gate is not None else ""
    stopped = f"You were stopped for your memory: {source.memory}. Do it with less." if source.memory else ""
    prompt = "\n\n".join(filter(None, (spec.prompt, missed, f"[nightcrew] {stopped}" if stopped else "")))
    if origin is None:
        return replace(launch, spec=replace(spec, prompt=prompt)) if missed or (stopped and spec.prompt) else launch
    own = origin.task == task
    where = Where(str(cwd), source.made.branch, moved=cwd == source.made.path)
    said = None if own and spec.interactive and not missed else told(origin, where, prompt, own=own, missed=missed, stopped=stopped)
    return replace(launch, spec=replace(spec, prompt=said))
