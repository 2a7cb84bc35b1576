"""The page's process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import web

from supervisor import contract
from supervisor.client import protocol
from supervisor.client.crew import Lookout, ReviewActs, VerbActs
from supervisor.config import user
from supervisor.features.api import routes
from supervisor.features.api.acting import VerbDoors
from supervisor.features.api.rows import TokenBook
from supervisor.features.api.rules import Kind, Token
from supervisor.host import files, procfs, untrusted_fs
from supervisor.host.paths import Home, settings_file
from supervisor.kernel.errors import ConfigError, NightcrewError, NotFound, Refused, TimedOut, ToolFailed, UsageError
from supervisor.kernel.format import duration
from supervisor.kernel.names import Identity
from supervisor.store import sqlite
from supervisor.views.web import crew_pages, limits, pages, records
from supervisor.views.web.events import Feature, State
from supervisor.views.web.server import Connections, Server, application, logger, more_files
from supervisor.views.web.sessions import Names, Sessions, Tokens, Who

# Record
# ------
# The page's lock, and the file by which a command finds who serves it.


SCHEMA = 1
_MAX = 4096
_WAIT_S, _LOOK_S = 10.0, 0.05


@dataclass(frozen=True, slots=True)
class Record:
    """`web.json`. It stays when the server is gone: with the same secret a browser goes on with the next one."""

    secret: str
    """In hex."""
    port: int
    identity: Identity | None
    """Who serves, or served last."""

    @property
    def lives(self) -> bool:
        """Whether that process is still there."""
        if self.identity is None or self.identity.boot_id != procfs.boot_id():
            return False
        seen = procfs.look(self.identity.pid)
        return seen is not None and not seen.dead and seen.ticks == self.identity.ticks


def read(home: Home) -> Record | None:
    """None when there is none, or nothing that makes sense."""
    try:
        shape = json.loads(untrusted_fs.read_plain(home.web_record, _MAX) or b"")
        who = shape["identity"]
        found = Record(str(shape["secret"]), int(shape["port"]), Identity(int(who["pid"]), int(who["ticks"]), str(who["boot_id"])))
        bytes.fromhex(found.secret)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if shape.get("schema") == SCHEMA and len(found.secret) == 64 and 0 < found.port < 65536 else None


def new_secret() -> str:
    """For a record."""
    return secrets.token_hex(32)


def write(home: Home, secret: str, port: int) -> None:
    """Say that this process serves, when it does. Raises as `files.atomic_write`."""
    me = procfs.look(os.getpid())
    who = Identity(os.getpid(), me.ticks if me else 0, procfs.boot_id())
    shape = {"schema": SCHEMA, "secret": secret, "port": port, "identity": asdict(who)}
    files.atomic_write(home.web_record, json.dumps(shape).encode() + b"\n")


def lock(home: Home) -> int | None:
    """Be the one server of this home until the process ends: a handle, or None when another is, and has said where. One that just begins
    or ends is waited for. Raises NotFound without a state, Refused when it does neither."""
    if not home.root.is_dir():
        raise NotFound("nothing to show", on=str(home.root), why="nothing was ever run here", hint="nightcrew run PLAN")
    handle = os.open(home.web_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + _WAIT_S
    while not files.try_lock(handle):
        found = read(home)
        if found is not None and found.lives:
            os.close(handle)
            return None
        if time.monotonic() > deadline:
            os.close(handle)
            raise Refused("the page is served already", why=f"another process holds {home.web_lock} and has not said where", hint="again")
        time.sleep(_LOOK_S)
    return handle


# Serving
# -------
# The server's process, from its lock to its end.


HOST = "127.0.0.1"
PORT = 8421
LEAVE_S = 2.0
"""Seconds that answers under way have when it leaves."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asked for."""

    port: int | None
    """None: that of before, or the usual one, or when that is taken any. 0: any."""
    names: Collection[str]
    read_only: bool
    user: str


def address(secret: str, port: int, tokens: Tokens) -> str:
    """What a person opens."""
    return f"http://{HOST}:{port}/enter?token={Sessions(bytes.fromhex(secret), tokens, user='').token}"


def serve(home: Home, wanted: Wanted, secret: str, features: Sequence[Feature], tokens: Tokens, ready: Callable[[str], None]) -> None:
    """Serve on 127.0.0.1 until SIGTERM or SIGINT; `ready` is told the address. The lock is held. Raises Refused, ToolFailed."""
    known = read(home)
    listener = _listen(wanted.port, known.port if known else PORT)
    port = int(listener.getsockname()[1])
    if known is not None and wanted.port is None and port != known.port:  # somebody else listens there, whom browsers may have told
        secret = new_secret()
    more_files()
    sessions = Sessions(bytes.fromhex(secret), tokens, user=wanted.user)
    app = application(Server(Names(port, wanted.names), sessions, wanted.read_only), features)

    def say() -> None:
        write(home, secret, port)
        ready(address(secret, port, tokens))

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(app, listener, say))


async def _serve(app: web.Application, listener: socket.socket, ready: Callable[[], None]) -> None:
    stop = asyncio.Event()
    for received in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(received, stop.set)
    connections = Connections()
    app.middlewares.append(connections.busy)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=LEAVE_S, handler_cancellation=True, logger=logger())
    await runner.setup()
    assert runner.server is not None  # noqa: S101 - it is set up
    watching = asyncio.get_running_loop().create_task(connections.watch(runner.server))
    try:
        await web.SockSite(runner, listener).start()
        ready()
        await stop.wait()
    finally:
        watching.cancel()
        await runner.cleanup()


def _listen(asked: int | None, before: int) -> socket.socket:
    ports = (asked,) if asked is not None else (before, PORT, 0)
    for port in dict.fromkeys(ports):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, port))
            listener.listen(256)
        except OSError as error:
            listener.close()
            if port == ports[-1]:
                raise _taken(port, error) from error
            continue
        return listener
    raise AssertionError(ports)


def _taken(port: int, error: OSError) -> Exception:
    if error.errno in (errno.EADDRINUSE, errno.EACCES):
        why = "another process has it" if error.errno == errno.EADDRINUSE else "it is for root alone"
        return Refused("cannot listen", on=f"{HOST}:{port}", why=why, hint="nightcrew web --port 0")
    return ToolFailed("cannot listen", on=f"{HOST}:{port}", why=error.strerror or str(error))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


# Devices
# -------
# Tokens of devices, as the page's sessions ask for them.


class Devices:
    """`Tokens` of one home. The page shows everything, so a token that does not reach everything opens nothing here."""

    def __init__(self, where: Home) -> None:
        self._book = TokenBook(where.ledger, time.monotonic, time.time)

    async def verify(self, token: str) -> Who | None:
        """As `Tokens.verify`."""
        return _who(await asyncio.to_thread(self._book.verify, token, Kind.DEVICE))

    async def holder(self, token_id: str) -> Who | None:
        """As `Tokens.holder`."""
        return _who(await asyncio.to_thread(self._book.holder, token_id, Kind.DEVICE))


def _who(token: Token | None) -> Who | None:
    if token is None or token.projects or not token.others:
        return None
    return Who(token.id, token.user, token.scopes)


# Sources
# -------
# Who looks for the pages beside the crew's: the files of one home, the supervisor for what it alone knows, and a command for a
# check that takes long.


ASK_S = 2.0
VERIFY_S, AGAIN_S = 60.0, 20.0
"""A check of the audit log may take so long; one that is younger than the other answers again."""


Shape = dict[str, Any]


def other_pages(home: Home) -> Feature:
    """The pages beside the crew's."""
    check, looks = Check(), limits.Looks()
    reads: dict[str, pages.Read] = {
        "limits": lambda asked: limits.page(home, looks, asked, time.time()),
        "runs": lambda asked: pages.runs(home, asked),
        "run": lambda asked: pages.run(home, asked, time.time()),
        "trains": lambda asked: pages.trains(home, asked),
        "maps": lambda asked: pages.maps(home, asked),
        "memory": lambda asked: records.one_note(home, asked) if asked.get("path") else records.notes(home, asked),
        "mail": lambda asked: (records.thread if asked.get("thread") else records.mails)(home, asked, time.time()),
        "audit": lambda asked: (records.journal if asked.get("of") == "journal" else records.audit)(home, asked),
        "audit-verify": lambda _: records.verdict(check.verify()),
        "resources": lambda _: _resources(home),
    }
    if any(feature.sections for feature in contract.others()):
        reads["more"] = lambda _: records.more(home)
    return pages.feature(home, reads, {"ledger": lambda rest: LedgerTopic(home, rest)})


def _resources(home: Home) -> Shape:
    reserve = None
    with contextlib.suppress(ConfigError):  # doctor says what is wrong with it
        reserve = user.load(settings_file(), usable_cores=1).cores_reserve
    try:
        found = protocol.call(home.daemon_socket, "capacity", {}, timeout_s=ASK_S)
    except NightcrewError as error:
        return records.resources(home, None, error.line(), reserve)
    return records.resources(home, found, "", reserve)


class Check:
    """`nightcrew audit verify` in a process of its own, one at a time: it reads all that was ever recorded, and is ended after a while."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._known: tuple[float, Mapping[str, Any]] | None = None

    def verify(self) -> Mapping[str, Any]:
        """As the verb's `--json`, and `took_s`. Raises TimedOut after VERIFY_S, ToolFailed with what the verb said."""
        with self._turn:
            if self._known is None or time.monotonic() - self._known[0] > AGAIN_S:
                began = time.monotonic()
                found = self._run()
                self._known = time.monotonic(), {**found, "took_s": round(time.monotonic() - began, 1)}
            return self._known[1]

    @staticmethod
    def _run() -> Mapping[str, Any]:
        words = [sys.executable, "-I", "-m", "supervisor.cli.main", "audit", "verify", "--json"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=VERIFY_S, check=False)
        except subprocess.TimeoutExpired as error:
            hint = "nightcrew audit verify"
            raise TimedOut("the check was ended", why=f"it took more than {duration(VERIFY_S)}", hint=hint) from error
        try:
            found: Mapping[str, Any] = json.loads(done.stdout)
        except ValueError as error:
            said = done.stderr.strip().partition("\n")[0] or f"exit code {done.returncode}"
            raise ToolFailed("the audit log was not checked", why=said, hint="nightcrew audit verify") from error
        return found


class LedgerTopic:
    """A number that changes with every commit: pages that show rows of the ledger ask anew then."""

    pause_s = 2.0

    def __init__(self, home: Home, rest: str) -> None:
        if rest:
            raise UsageError("the topic ledger has no parts", on=rest)
        self._home = home
        self._db: sqlite3.Connection | None = None
        self._file = 0
        """Which file it reads: another may be put in its place."""

    def look(self) -> State:
        """As `Topic.look`."""
        try:
            file = self._home.ledger.stat().st_ino
        except OSError:
            file = 0
        try:
            return {"version": f"{file}-{self._version(file)}", "trouble": ""}
        except NightcrewError as error:
            self.close()
            return {"version": "", "trouble": error.line()}

    def _version(self, file: int) -> int:
        """SQLite counts what others committed."""
        if file != self._file:
            self.close()
        if not file:
            return 0
        if self._db is None:
            self._db, self._file = sqlite.connect_readonly(self._home.ledger), file
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """As `Topic.close`."""
        if self._db is not None:
            self._db.close()
        self._db, self._file = None, 0


# Wiring
# ------
# The features of the server, with what they read by and act by. A page or an API that is added is a line of `features`.


def features(where: Home, verbs: Mapping[str, str]) -> Sequence[Feature]:
    """In the order of the navigation."""
    crew = crew_pages.CrewPage(lambda: Lookout(where), VerbActs(where, verbs))
    agent = crew_pages.feature(lambda: Lookout(where), ReviewActs(where), crew.acted)
    return (crew.feature(), agent, other_pages(where), routes.feature(where, VerbDoors(where)))


def tokens(where: Home) -> Tokens:
    """Those that a person made."""
    return Devices(where)
