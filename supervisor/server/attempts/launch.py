"""How an attempt begins: its environment, orders, files and session."""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents import agent_client, hook_client, runner
from agents.kinds import to_run
from agents.tmux import SessionExists, Tmux, session_name
from agents.zygote import Place, Wanted
from supervisor.host import files
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home
from supervisor.kernel import kind, limits, names, records
from supervisor.kernel import prompt as prompts
from supervisor.kernel.conversations import Origin
from supervisor.kernel.kind import CLIENT_VARIABLE, HOOK_VARIABLE
from supervisor.kernel.records import LaunchSpec
from supervisor.kernel.retry import Missed
from supervisor.kernel.settings import Settings
from supervisor.kernel.snapshots import Snapshot, SnapshotKind
from supervisor.results import comparison
from supervisor.results.comparison import Judged
from supervisor.sandbox.policy import Tier
from supervisor.server.attempts import continuing, isolation
from supervisor.server.attempts.agent_environment import INBOX, PROMPT, AgentAccess, write_inputs
from supervisor.server.attempts.isolation import Confined, Isolation
from supervisor.server.attempts.limits import LimitDesk, LimitsBounds
from supervisor.server.attempts.observe import Observer
from supervisor.server.attempts.worktree_records import Environments
from supervisor.server.attempts.zygotes import Zygotes
from supervisor.snapshots.service import SnapshotDesk
from supervisor.store.ledger import Ledger
from supervisor.store.rows import LaunchRow
from worktrees import environments, private_repository
from worktrees.environments import Environment
from worktrees.private_repository import RefGuard

# Launch files
# ------------
# What the daemon writes into an attempt's directory before the runner comes: its orders, and what the agent may read.
#
# A power cut ends whoever would read it, and the next launch writes it anew: none of it waits for the disk.


GUARD = "guard.json"
"""Digests of what steers git in the user's repository, as it was when the attempt began."""
BEGIN = "begin"
MCP_CONFIG = "mcp.json"
CORE = "core.md"
"""In the memory of a project, see `memory.files`."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What was decided about a launch."""

    inputs: dict[str, str]
    """Of `write_inputs`."""
    confined: Confined
    bounds: LimitsBounds
    warm: bool
    """A zygote forks its runner."""
    cores: tuple[int, ...]
    """`LaunchSpec.cores`."""
    cwd: str
    """Where its agent works, as that sees it."""
    origin: Origin | None = None
    """The conversation that it continues."""
    tools: bool = False
    """Its command line finds our tools, see `write_tools`."""


def write(access: AgentAccess, settings: Settings, key: tuple[str, int], launch: LaunchRow, made: Environment, terms: Terms) -> None:
    """Write the orders of the runner of `key` (task, epoch); may be repeated. Raises ToolFailed when the agent could not reach the
    gateway that the settings ask for, Refused when somebody else has the place of its temporary files."""
    home, spec = access.home, launch.spec
    directory = home.attempt(*key)
    if terms.confined.tier is Tier.NONE:
        files.private_dir(home.short_tmp(directory))
    tag = names.tag(str(home.root), *key)
    own = {**terms.inputs, **dict(terms.confined.variables), **access.variables(*key, spec.task_class)}
    if access.gateway_port():
        own |= kind.past_proxies({**launch.env, **spec.params, **own})
    agent, share = to_run(spec.kind), limits.processor_share_of(spec.task_class, settings.nice)
    place = kind.Place(
        prompt_file=str(directory / PROMPT),
        inbox=str(directory / INBOX),
        out=str(directory / "out"),
        session=continuing.session_of(home, *key),
        sandboxed=terms.confined.tier is not Tier.NONE,
        variables=own,
        origin=terms.origin,
        mcp_config=str(directory / MCP_CONFIG) if terms.tools else "",
        core="" if spec.prompt and settings.memory.brief else _core(home.memory(launch.project)),
    )
    command = kind.command(agent, spec, place)
    orders = LaunchSpec(
        task=key[0],
        epoch=key[1],
        tag=tag,
        argv=command.argv,
        cwd=terms.cwd,
        env=kind.for_agent(
            {**command.env, **access.without_keys(launch.env)}, access.without_keys(spec.params), own, attended=command.terminal
        ),
        mode="terminal" if command.terminal else agent.mode,
        stdin=command.stdin,
        timeout_s=spec.timeout_s,
        grace_s=settings.grace_s,
        log_max=settings.log_max,
        nice=share.nice,
        idle=share.idle,
        cores=terms.cores,
        rlimits=terms.bounds.rlimits,
        warm=terms.warm,
        policy=terms.confined.policy,
        wrap=(*terms.confined.wrap, *terms.bounds.wrap),
        join=terms.bounds.join,
        share=terms.bounds.share,
        mark=names.mark(tag),
        quiet=agent.output == "json lines",
        sentinel=str(home.sentinel),
        hold=BEGIN if spec.together else "",
        gate=spec.gate,
        gate_timeout_s=spec.gate_timeout_s,
        gate_hold=records.SECURED if spec.gate else "",
        hint_socket=str(home.hint_socket),
    )
    if command.settings:
        _write_settings(directory / "out" / kind.SETTINGS / agent.settings_file, command.settings)
    files.atomic_write(directory / GUARD, json.dumps(private_repository.config_guard(made.repo)).encode(), durable=False)
    files.atomic_write(directory / "launch.spec", records.write_spec(orders), durable=False)


def _write_settings(file: Path, text: str) -> None:
    """Write what the agent's program reads as it starts. No agent of this attempt has run yet, so none can have put anything there."""
    files.private_dir(file.parent)
    files.atomic_write(file, text.encode(), durable=False)


def _core(memory: Path) -> str:
    """Where every agent of the project is told something, if it is."""
    file = memory / CORE
    return str(file) if file.is_file() and not file.is_symlink() else ""


def write_tools(directory: Path, client: Path) -> None:
    """How a command line finds our tools, in the form that most of them share. The token is in no file."""
    own = {name: f"${{{name}}}" for name in ("NIGHTCREW_TOKEN", "NIGHTCREW_AGENTS_SOCKET")}
    shape = {"mcpServers": {"crew": {"type": "stdio", "command": str(client), "args": ["mcp"], "env": own}}}
    files.atomic_write(directory / MCP_CONFIG, json.dumps(shape).encode(), durable=False)


def begin(home: Home, key: tuple[str, int]) -> None:
    """Let the command of a held attempt begin; idempotent."""
    files.atomic_write(home.attempt(*key) / BEGIN, b"")


# Launching
# ---------
# How an attempt begins, step by step, through the doors: its environment, its orders, its session.
#
# Everything here runs in worker threads and may be repeated: each step finds out what an interrupted one left and goes on from
# there. Nothing here touches the ledger; results are handed back.


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
    brief: str = ""
    """What its agent is told of the memory before its prompt."""


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
        """As `comparison.told`."""
        return comparison.told(self._environments.repository(row.root), row, seen)

    def prepare(self, task: str, epoch: int, launch: LaunchRow, lent: Snapshot | None, start: str = "") -> Environment:
        """Its worktree at the commit `start`, or at the run's base, made from the snapshot `lent` if there is one. Raises
        Refused when the branch belongs to somebody else, HostError when the snapshot is damaged, ToolFailed or DiskFull."""
        root = self._home.worktrees / launch.project
        attended = to_run(launch.spec.kind).mode == "terminal"
        shared = not self._warmth.isolation.mounts_overlays(launch.spec, attended=attended)
        warm = self._warmth.snapshots.warm(lent, root, shared=shared) if lent is not None else None
        tier = self._warmth.isolation.tier(launch.spec, attended=attended)
        after = tuple(map(names.branch_name, launch.after[:SHOWN_BRANCHES]))
        confined = environments.Confined(after) if tier is not Tier.NONE else None
        repository = self._environments.repository(launch.root)
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
        launch = _composed(task, launch, source, cwd)
        inputs = write_inputs(self._home, key, launch.run, launch.project, needs) | names.variables(source.port)
        if "TRACEPARENT" not in launch.spec.params:
            inputs["TRACEPARENT"] = names.traceparent(*key)
        if launch.spec.prompt is not None:
            files.atomic_write(directory / PROMPT, launch.spec.prompt.encode(), durable=False)
            inputs["NIGHTCREW_PROMPT_FILE"] = str(directory / PROMPT)
        agent = to_run(launch.spec.kind)
        programs = files.private_dir(self._home.bin)
        if agent.has_hooks:
            inputs[HOOK_VARIABLE] = str(hook_client.program(programs))
        client = agent_client.program(programs)
        inputs[CLIENT_VARIABLE] = str(client)
        if tools := bool(launch.spec.children_max or self._settings.memory.tools):
            write_tools(directory, client)
        place = self._zygote(launch, source.lent)
        env = {**launch.env, **launch.spec.params}
        home = Path(env.get("HOME") or launch.env.get("HOME") or "/")
        attended = agent.mode == "terminal"
        same_path = cwd if cwd != source.made.path else None
        memory = self._home.memory(launch.project)
        who = isolation.Attempt(launch.spec, directory, source.made, home, attended, launch.env, same_path, memory)
        confined = self._warmth.isolation.confine(who, self._access.gateway_port(), warm=place is not None)
        if source.origin is not None:
            continuing.hand_on(self._home, key, agent, source.origin, env)
        lent = source.lent.spec if source.lent is not None else None
        asked = self._warmth.limits.asked(launch.spec, lent)
        bounds = self._warmth.limits.bind(key, asked, confined, launch.spec.task_class, agent=agent.is_agent)
        wanted = launch.spec.cores or (lent.cores if lent is not None else 0)
        cores = self._warmth.limits.cores(key, wanted, next(self._turns))
        terms = Terms(inputs, confined, bounds, place is not None, cores, str(cwd), source.origin, tools)
        write(self._access, self._settings, key, launch, source.made, terms)
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
        environments.begin(made)
        try:
            pane = self._tmux.spawn(
                session_name(task, epoch),
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
        begin(self._home, (task, epoch))


def _composed(task: str, launch: LaunchRow, source: Source, cwd: Path) -> LaunchRow:
    """With what its agent is told first."""
    origin, spec, missed = source.origin, launch.spec, source.missed
    parts = prompts.Parts(
        spec.prompt,
        source.brief,
        missed,
        spec.gate_words if missed is not None else "",
        has_work=missed is not None and source.start == missed.tip,
        memory=source.memory,
        origin=origin,
        is_own=origin is not None and origin.task == task,
        where=prompts.Where(str(cwd), source.made.branch, moved=cwd == source.made.path),
        is_attended=spec.interactive,
    )
    return replace(launch, spec=replace(spec, prompt=prompts.compose_prompt(parts)))


# Port blocks
# -----------
# Which attempt has which block of ports: nobody else gets it until the attempt is released.


Key = tuple[str, int]


class PortBlocks:
    """The blocks of one supervisor's attempts, with those that the one before it gave away. Not thread safe."""

    def __init__(self, ledger: Ledger) -> None:
        self._held = {(row.task, row.epoch): row.port for row in ledger.unreleased() if row.port is not None}

    def take(self, key: Key) -> int | None:
        """The first port of its block, the same one every time; None when all blocks are taken."""
        if key not in self._held and (found := names.block(set(self._held.values()), is_free)) is not None:
            self._held[key] = found
        return self._held.get(key)

    def give_back(self, key: Key) -> None:
        """Idempotent."""
        self._held.pop(key, None)


def is_free(port: int) -> bool:
    """Whether nobody listens there on 127.0.0.1 or on every address: found by taking it for a moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
