"""Make sure that a supervisor runs, and move the providers' keys to it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.tmux import ServerGone, SessionExists, Tmux
from agents.tmux_control import PaneView
from supervisor.client import protocol
from supervisor.features.notify import notify_environment
from supervisor.gateway import engines, pages
from supervisor.host import cores, files, secrets, unix_sockets
from supervisor.host.audit_log import Audit
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.kernel import audit
from supervisor.kernel.errors import NightcrewError, NotRunning, TimedOut, one_line
from supervisor.kernel.format import duration
from supervisor.kernel.kind import PROVIDER_KEYS
from supervisor.server import gateway_process, lock
from supervisor.server.attempts import zygotes
from supervisor.store import sqlite

if TYPE_CHECKING:
    from supervisor.kernel.gateway_settings import GatewaySettings


# Start
# -----
# Making sure that a supervisor runs: in a session of our own tmux server, where a person can attach to it.


SESSION = "supervisor"
START_S = 30.0
BOUND_S = 3.0
"""A supervisor binds a socket again within a second."""
GATEWAY_S = 15.0
"""A gateway is ready in about half a second; one whose keys a program prints may take longer than a person wants to wait."""
COLUMNS = 200
"""Width of the supervisor's pane while nobody is attached."""


def ensure_running(home: Home, settings_file: Path, say: Callable[[str], None], *, take_up: bool = False) -> dict[str, Any]:
    """The `ping` of a supervisor that is ready for requests; starts one when there is none, and says so.

    `take_up`: have one that runs read its settings, and name in `outdated` what it takes up at its next start only.
    Raises what keeps it from starting, ConfigError for settings that it cannot take up, and TimedOut when it is not ready in 30 s.
    """
    with contextlib.suppress(NotRunning):
        if take_up:
            _check(home, settings_file)
        answer = protocol.call(home.daemon_socket, "ping", {"settings": take_up}, timeout_s=10.0)
        if answer["ready"]:
            return answer
    if lock.holder(home.lock) is None:
        models = _check(home, settings_file)
        if not models.upstreams:
            _offer_gateway(os.environ, say)
    with contextlib.closing(Tmux(home.tmux_socket)) as tmux:
        try:
            return _await_ready(tmux, home, settings_file, say)
        finally:
            notify_environment.withdraw(home)


def ask(home: Home, verb: str, args: dict[str, Any], *, timeout_s: float | None = 60.0) -> dict[str, Any]:
    """Ask the supervisor that runs, as `protocol.call` does. One that lives and does not listen, since it begins or its socket was
    removed, is waited for, BOUND_S at most. Raises NotRunning also when that was not enough; then it names the supervisor."""
    ends_at = time.monotonic() + BOUND_S
    while True:
        try:
            return protocol.call(home.daemon_socket, verb, args, timeout_s=timeout_s)
        except protocol.Unbound:
            pid = lock.holder(home.lock)
            if pid is None:
                raise
            if time.monotonic() > ends_at:
                raise _unreachable(home, pid) from None
        time.sleep(0.02)


def _unreachable(home: Home, pid: int) -> NotRunning:
    return NotRunning(
        "the supervisor cannot be reached",
        on=f"pid {pid}",
        why=f"its socket {home.daemon_socket} is gone; it binds it again every second, unless something is in its way",
        kept="it and its agents",
        hint=f"look what lies at {home.run_dir}; to end it: kill {pid}",
    )


def _check(home: Home, settings_file: Path) -> GatewaySettings:
    """What would keep a supervisor from starting is found here, where its class and exit code reach the person."""
    from supervisor.config import user  # who asks a supervisor that runs need not wait for pydantic

    files.private_dir(home.root)
    files.private_dir(home.run_dir)
    user.load(settings_file, len(cores.usable()))
    models = user.load_gateway(settings_file, home.keys)
    if home.ledger.exists():
        sqlite.connect_readonly(home.ledger).close()
    return models


def _offer_gateway(environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """A person with a key and no gateway may not know that there is one. Nothing is stored by itself: `up` is the verb that does."""
    from supervisor.kernel.kind import PROVIDER_KEYS

    names = [name for name in PROVIDER_KEYS if environ.get(name, "").strip()]
    if names:
        is_set, gives = ("is", "it") if len(names) == 1 else ("are", "them")
        say(f"{' and '.join(names)} {is_set} set: nightcrew up -d gives {gives} to the gateway")


def await_gateway(home: Home) -> tuple[str, list[str]]:
    """How it is with the gateway of a supervisor that runs: one line, empty where none is needed, and what is wrong with it.

    Waits until it is ready, or did not start, for at most GATEWAY_S. Raises NotRunning, TimedOut when the supervisor is gone.
    """
    deadline = time.monotonic() + GATEWAY_S
    while True:
        answer = protocol.call(home.daemon_socket, "ping", {}, timeout_s=10.0)
        gateway = answer["gateway"]
        if gateway is None:
            return "", []
        if not answer["no_gateway"]:
            return _ready_gateway(home)
        if gateway["died"]:
            words = gateway_process.last_words(home) or "it said nothing"
            return f"the gateway did not start, and nothing new starts until it does: {one_line(words)}", []
        if time.monotonic() > deadline:
            return f"{answer['no_gateway']}; nothing new starts before it is ready: nightcrew gateway status", []
        time.sleep(0.02)


def _ready_gateway(home: Home) -> tuple[str, list[str]]:
    found = gateway_process.running(home)
    where = f"127.0.0.1:{found.port}" if found is not None else "its port"
    with contextlib.suppress(NightcrewError):  # that it is slow to say more is no news: the daemon tells what is wrong
        return f"the gateway listens on {where}", list(map(str, pages.ask(home, pages.STATUS)["problems"]))
    return f"the gateway listens on {where}", []


def _spawn(tmux: Tmux, home: Home, settings_file: Path) -> str | None:
    """The pane of the supervisor that this call started, or None when there is one already."""
    tmux.ensure_server()
    for pane in tmux.panes():
        if pane.session_name == SESSION and pane.closed:
            tmux.kill_session(pane.session_id)
    argv = [sys.executable, "-I", "-m", "supervisor.cli.main", "up", "--home", str(home.root), "--config", str(settings_file)]
    if form := os.environ.get(audit.VARIABLE):
        argv += ["--log-format", form]
    notify_environment.leave(home, settings_file, os.environ)
    try:
        return tmux.spawn(SESSION, argv, home.root, {"own": SESSION}, size=(COLUMNS, 50)).pane_id
    except SessionExists:
        return None


def _await_ready(tmux: Tmux, home: Home, settings_file: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Wait for a supervisor, ours or one that somebody else starts at this moment. Only the end of our own is a failure: a pane that
    died and is not ours belongs to a supervisor that was on its way out."""
    ours: str | None = None
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(NotRunning):
            answer = protocol.call(home.daemon_socket, "ping", {}, timeout_s=10.0)
            if answer["ready"]:
                return answer
        if lock.holder(home.lock) is None:
            pane = next((pane for pane in _panes(tmux) if pane.session_name == SESSION), None)
            if pane is not None and pane.closed and pane.pane_id == ours:
                words = _last_words(tmux.capture(pane.pane_id))
                tmux.kill_session(pane.session_id)
                raise NightcrewError("the supervisor did not start", why=words or "it said nothing", hint="nightcrew up")
            if pane is None or pane.closed:
                started = _spawn(tmux, home, settings_file)
                if started is not None and ours is None:
                    say("starting the supervisor (nightcrew attach supervisor to watch it)")
                ours = started or ours
        time.sleep(0.02)
    pid = lock.holder(home.lock)
    if pid is not None and not home.daemon_socket.is_socket():
        raise _unreachable(home, pid)
    raise TimedOut(
        "the supervisor did not become ready", on=f"in {duration(START_S)}", kept="the ledger", hint="nightcrew attach supervisor"
    )


def _panes(tmux: Tmux) -> list[PaneView]:
    return tmux.panes() if tmux.server_pid() is not None else []


def _last_words(screen: str) -> str:
    """Its last message, put together again from the lines into which the pane broke it."""
    lines = screen.splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("nightcrew: ")]
    message = "".join(line.ljust(COLUMNS) for line in lines[starts[-1] if starts else -1 :])
    return message.strip().removeprefix("nightcrew: ").strip()


def stop_what_was_left(home: Home) -> tuple[list[str], int]:
    """End the servers that a killed supervisor left, unless agents live. Return the ended servers, in words, and how many agents live.
    Raises Refused when a supervisor runs."""
    if not home.root.is_dir():
        return [], 0
    with contextlib.closing(lock.DaemonLock(home.lock)):  # so that none starts meanwhile
        found = _stop_servers(home)
    _fold_log(home)
    return found


def stop_servers_when_empty(home: Home) -> None:
    """After `down`: end our tmux server and the gateway unless an agent still lives, which needs both, and leave no socket and no log of
    the ledger."""
    _stop_servers(home)
    _fold_log(home)


def _stop_servers(home: Home) -> tuple[list[str], int]:
    """End the servers unless agents live; return what was ended, and how many agents live.

    Another tmux server may be left whose socket was removed, and in whose place this one was started.
    """
    files.private_dir(home.run_dir)
    ended = []
    with contextlib.closing(Tmux(home.tmux_socket)) as tmux:
        while (server := tmux.reach()) is not None:
            with contextlib.suppress(ServerGone):  # it may end by itself between two questions
                if agents := sum(1 for pane in tmux.panes() if pane.tags.get("attempt")):
                    return [], agents
                tmux.kill_server()
                ended.append(f"the tmux server (pid {server})")
    ended += [f"the gateway (pid {who.pid})" for who in gateway_process.stop(home)]
    ended += filter(None, (engines.forget(home, name) for name in engines.names(home)))
    zygotes.stop_all(home)
    unix_sockets.remove_unused(home.run_dir)
    return ended, 0


def _fold_log(home: Home) -> None:
    """Whoever closes a database last folds its log into it, but not one that may only read, as the gateway does with the ledger."""
    log = home.ledger.with_name(f"{home.ledger.name}-wal")
    with contextlib.suppress(NightcrewError):
        if log.exists() and lock.holder(home.lock) is None:
            sqlite.connect(home.ledger, create=False).close()


def wait_until_gone(home: Home, pid: int, timeout_s: float) -> bool:
    """Whether the supervisor `pid` gave its lock back in time."""
    deadline = time.monotonic() + timeout_s
    while lock.holder(home.lock) == pid:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


LOG_MAX = 8 * 2**20
"""Bytes of the supervisor's log: it is at most twice as large, with `daemon.log.1`, and what is older is gone."""


def rotate_log(home: Home) -> None:
    """Put a log that is too large aside, in place of the one before, and go on in a new one if it is ours."""
    with contextlib.suppress(OSError):  # a full disk must not stop the supervisor
        seen, ours = home.log.stat(), os.fstat(2)
        if seen.st_size > LOG_MAX:
            home.log.replace(home.log.with_name(f"{home.log.name}.1"))
            if (ours.st_dev, ours.st_ino) == (seen.st_dev, seen.st_ino):
                redirect_to_log(home)


def redirect_to_log(home: Home) -> None:
    """Talk to the log from now on: the terminal is gone."""
    fd = os.open(home.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for stream in (1, 2):
        os.dup2(fd, stream)
    os.close(fd)


# Provider keys
# -------------
# Moving the providers' keys from a person's shell into the gateway's files, where no agent can read them from an environment.


def take(home: Home, environ: Mapping[str, str], say: Callable[[str], None]) -> dict[str, str]:
    """Store each provider's key that `environ` holds and no file does yet. Returns the environment without any of them.

    Raises Refused when the key directory is not private, DiskFull.
    """
    for name, api in PROVIDER_KEYS.items():
        if key := environ.get(name, "").strip():
            file = home.keys / f"{api}.key"
            before = file.exists()
            if not secrets.store(file, key):
                say(f"{name} differs from the key in {file}, which stays in use; to change it: rm {file}, then nightcrew up -d")
            elif not before:
                Audit(home.audit, secrets.own(home.secret), SystemClock(), "supervisor").note(
                    "key stored", {"of": str(api), "in": str(file)}
                )
                say(f"kept {name} in {file} (only you can read it); agents reach the provider through the gateway, with a token")
    return {name: text for name, text in environ.items() if name not in PROVIDER_KEYS}
