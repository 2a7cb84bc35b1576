"""The only place that builds the supervisor's objects."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from agents.tmux import Tmux
from memory.search import SearchDesk
from memory.service.desk import MemoryDesk
from supervisor.client import start
from supervisor.config import user
from supervisor.contract import Feature, Supervisor
from supervisor.gateway.provider_keys import Form, Log, Redactor
from supervisor.host import cgroups, cores, files, scratch, secrets, unix_sockets
from supervisor.host.clock import Clock, SystemClock
from supervisor.host.paths import FAR, FAR_PREFIX, Home
from supervisor.kernel import audit
from supervisor.kernel.audit import LogFormat, Said
from supervisor.kernel.errors import ConfigError
from supervisor.server import requests
from supervisor.server.attempts.agent_environment import AgentAccess
from supervisor.server.attempts.collect import Ending, EndingDoors
from supervisor.server.attempts.isolation import Isolation
from supervisor.server.attempts.jobs import Doors
from supervisor.server.attempts.launch import Launching, Warmth
from supervisor.server.attempts.limits import LimitDesk
from supervisor.server.attempts.observe import Observer
from supervisor.server.attempts.worktree_records import Environments
from supervisor.server.attempts.zygotes import Zygotes
from supervisor.server.gateway import Gateway, GatewayKeeper, Models
from supervisor.server.hooks import Hooks
from supervisor.server.lock import DaemonLock
from supervisor.server.loop import Alerts, Loop
from supervisor.server.sockets import AgentsSocket, Server
from supervisor.server.wakeups import beside
from supervisor.snapshots.service import SnapshotDesk
from supervisor.store import sqlite
from supervisor.store.ledger import Ledger
from worktrees.git import Git
from worktrees.private_repository import RefGuard
from worktrees.repository import tracked

DYING_S = 0.5


def serve(home: Home, settings_file: Path, features: Iterable[Feature]) -> None:
    """Be the supervisor until told to stop by `down` or a signal. Blocks.

    Raises Refused when another supervisor runs, LedgerError when the ledger cannot be used, ConfigError, ToolMissing; in each case
    nothing was started and nothing was changed.
    """
    os.umask(0o077)
    files.private_dir(home.root)
    files.private_dir(home.run_dir)
    files.private_dir(home.agents_socket.parent)
    start.rotate_log(home)
    models = Models(home, settings_file)
    settings = user.settings(models.at_start, len(cores.usable()))
    lock = DaemonLock(home.lock)
    clock = SystemClock()
    unix_sockets.sweep(FAR, FAR_PREFIX, clock.wall())
    try:
        with contextlib.ExitStack() as stack:
            alerts = Alerts(_json_log(home, clock, settings.log_format))
            ledger = stack.enter_context(contextlib.closing(Ledger(home.ledger, clock.wall)))
            tmux = stack.enter_context(contextlib.closing(Tmux(home.tmux_socket)))
            tmux.ensure_server()
            files.private_dir(home.locks)
            for folder in (home.worktrees, home.root / "runs"):  # what lies there comes and goes
                scratch.spread(files.private_dir(folder))
            access = AgentAccess(home, secrets.own(home.secret), models)
            git, ref_guard = Git(home.root / "git", held=(lock.handle,)), RefGuard(clock.monotonic)
            git.moving = ref_guard.moving
            zygotes = Zygotes(home, clock, alerts.say)
            snapshots = SnapshotDesk(home, ledger, git, clock, zygotes, alerts.say, access.without_keys)
            stack.enter_context(contextlib.closing(snapshots))
            isolation = Isolation(home, settings.sandbox, shared_caches=settings.shared_caches)
            bounds = LimitDesk(home, settings, alerts.say)
            observer, made = Observer(home, tmux), Environments(git)
            launching = Launching(access, settings, made, observer, tmux, Warmth(snapshots, zygotes, isolation, bounds, ref_guard))
            ending = Ending(access, settings, EndingDoors(observer, made, tmux, bounds, ref_guard), clock)
            search = SearchDesk(settings.memory, functools.partial(_tracked, home, git))
            doors = Doors(ledger, observer, made, launching, ending, snapshots, bounds, home, tmux, search)
            loop = Loop(doors, settings, Hooks(features), clock, alerts)
            git.say = alerts.say
            snapshots.recover()
            for shortfall in (*cgroups.shortfalls(), *isolation.shortfalls()):
                loop.alert(shortfall)
            asyncio.run(_serve(loop, access, tmux, git, search, lock))
    finally:
        lock.close()


def _json_log(home: Home, clock: Clock, wanted: str) -> Log | None:
    """The log for programs, where it is asked for. Processes that we start are told by the variable. Raises ConfigError."""
    form = os.environ.get(audit.VARIABLE) or wanted
    if form not in set(LogFormat):
        raise ConfigError("bad value", on=audit.VARIABLE, why=f"{form!r} is neither text nor json")
    os.environ[audit.VARIABLE] = form
    if form == LogFormat.TEXT:
        return None
    log = Log(home.log, Redactor(), clock, form=Form(LogFormat.JSON, "nightcrew.supervisor"))
    log.say(f"the supervisor begins, pid {os.getpid()}")
    return log


async def _serve(loop: Loop, access: AgentAccess, tmux: Tmux, git: Git, search: SearchDesk, lock: DaemonLock) -> None:
    _drain_on_signals(loop, tmux)
    home, events = access.home, asyncio.get_running_loop()

    def alert(said: Said) -> None:
        events.call_soon_threadsafe(loop.alert, said)

    access.models.alert, memory = alert, MemoryDesk(loop, home, search)
    loop.services.put(access.models)
    loop.services.put(memory)
    supervisor = Supervisor(loop, home, git, tmux, access.secret, access.models.file, alert)
    async with (
        beside(_leave_when_removed(loop, lock)),
        _hints(loop, home.hint_socket),
        _tmux_socket(loop, tmux, home),
        memory.kept(),
        _gateway(loop, access, memory),
        contextlib.AsyncExitStack() as services,
    ):
        for service in loop.hooks.services:
            await services.enter_async_context(service(supervisor))
        async with Server(loop, home, memory), AgentsSocket(loop, home, access.secret, memory):
            await loop.run()


async def _leave_when_removed(loop: Loop, lock: DaemonLock) -> None:
    """End the supervisor, and none of its agents, once the state directory is removed: nothing can be committed any more."""
    while not lock.is_removed:
        await asyncio.sleep(1)
    loop.alert(f"{loop.home.root} was removed: the supervisor ends, and its agents go on")
    loop.stop(now=True)


def _tracked(home: Home, git: Git, project: str) -> list[str] | None:
    """The files of a project's repository; a reader of its own, since this is done in a thread."""
    with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
        row = db.execute("SELECT common_dir FROM project WHERE id = ?", (project,)).fetchone()
    return tracked(git, Path(row["common_dir"])) if row is not None else None


@contextlib.asynccontextmanager
async def _gateway(loop: Loop, access: AgentAccess, memory: MemoryDesk) -> AsyncIterator[None]:
    """Keep the gateway running inside while it is wanted; it goes on afterwards."""
    pid, since = os.getpid(), loop.clock.wall()

    def made() -> Gateway:
        return Gateway(
            access.models,
            loop.clock,
            lambda event: loop.events([event]),
            loop.alert,
            lambda: requests.figures(loop, pid, since, memory.watch.overflows),
        )

    keeper = GatewayKeeper(access.models, loop.clock, made, lambda: bool(loop.crew.living))
    loop.services.put(keeper)
    async with beside(keeper.run(loop.alert)):
        yield


def _outlive_terminal(tmux: Tmux, home: Home) -> bool:
    """Whether to go on without the terminal. A terminal that somebody closed asks us to leave; one that died with our own tmux server
    is just the accident that we are there for, so we go on talking to the log."""
    # A dying process closes its terminals before its socket: look for a moment before believing that the server lives.
    deadline = time.monotonic() + DYING_S
    while tmux.server_pid() is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    start.redirect_to_log(home)
    return True


def _drain_on_signals(loop: Loop, tmux: Tmux) -> None:
    """The first signal drains, a second one leaves at once: what is under way is found again by recovery."""

    def asked() -> None:
        if loop.stopping:
            os._exit(130)
        loop.stop()

    def hung_up() -> None:
        if not _outlive_terminal(tmux, loop.home):
            loop.stop()

    events = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        events.add_signal_handler(number, asked)
    events.add_signal_handler(signal.SIGHUP, hung_up)


@contextlib.asynccontextmanager
async def _hints(loop: Loop, path: Path) -> AsyncIterator[None]:
    """Tell the loop of each datagram."""
    events = asyncio.get_running_loop()
    receivers: list[socket.socket] = []

    def heard(receiver: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while receiver.recv(256):
                pass
        loop.hint()

    def bind() -> None:
        path.unlink(missing_ok=True)
        unbind()
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        receivers.append(receiver)
        receiver.bind(str(path))
        events.add_reader(receiver.fileno(), heard, receiver)

    def unbind() -> None:
        for receiver in receivers:
            events.remove_reader(receiver.fileno())
            receiver.close()
        receivers.clear()

    try:
        bind()
        async with beside(unix_sockets.keep(path, bind, loop.alert)):
            yield
    finally:
        unbind()
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.asynccontextmanager
async def _tmux_socket(loop: Loop, tmux: Tmux, home: Home) -> AsyncIterator[None]:
    """A tmux server whose socket somebody removed makes it again; one that died is the loop's to start."""

    async def reach() -> None:
        await loop.jobs.within(loop.jobs.stoppers, tmux.reach)

    async with beside(unix_sockets.keep(home.tmux_socket, reach, loop.alert)):
        yield
