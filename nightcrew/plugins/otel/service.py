"""Keeps the exporter of spans running, where the settings name a receiver: a process of its own (`nightcrew.plugins.otel`), so that
neither the loop nor its interpreter ever waits for it. Its thread here reads what it says, and starts it again when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nightcrew.plugins.otel import cursor
from supervisor.config import user
from supervisor.contract import Supervisor
from supervisor.features.notify import notify_environment
from supervisor.gateway.account import queries as reading
from supervisor.gateway.account import schema
from supervisor.gateway.lifecycle import PASSED
from supervisor.host.clock import Clock
from supervisor.host.paths import Home
from supervisor.kernel import telemetry as rules
from supervisor.kernel.audit import Said
from supervisor.kernel.errors import NightcrewError, NotFound, ToolMissing, one_line
from supervisor.kernel.telemetry import Cursor, Terms
from supervisor.store import journal, sqlite

MODULE = "nightcrew.plugins.otel"
LEAVE_S = 5.0
"""So long a supervisor that leaves waits for the last spans; what is left is sent by the next one."""
YOUNG_S = 60.0
"""One that dies sooner is started again after a pause that doubles."""
LINE_MAX = 2000


def require() -> None:
    """Raises ToolMissing without the extra."""
    if importlib.util.find_spec("opentelemetry") is None or importlib.util.find_spec("opentelemetry.exporter") is None:
        raise ToolMissing(
            "no spans are sent",
            why="nightcrew's extra otel is not installed",
            hint="install nightcrew with it, as in: uv tool install 'nightcrew[otel]'",
        )


class Exporting:
    """One supervisor's exporter. `say` may be called from its thread."""

    def __init__(self, home: Home, settings_file: Path, environ: Mapping[str, str], clock: Clock, say: Callable[[str], None]) -> None:
        self._argv = [sys.executable, "-I", "-m", MODULE, "--home", str(home.root), "--config", str(settings_file)]
        self._environ = {**{name: os.environ[name] for name in PASSED if name in os.environ}, **environ}
        self._clock, self._say = clock, say
        self._over = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="telemetry", daemon=True)

    @property
    def pid(self) -> int | None:
        """Of the exporter that runs now."""
        return self._child.pid if self._child is not None else None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Let it send what it has, for LEAVE_S at most. Blocks."""
        self._over.set()
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()
        self._thread.join(LEAVE_S)
        if self._child is not None and self._thread.is_alive():
            self._child.kill()

    def _keep(self) -> None:
        deaths = 0
        while not self._over.is_set():
            began = self._clock.monotonic()
            try:
                self._run()
            except OSError as error:
                self._say(f"telemetry: {error}")
            deaths = deaths + 1 if self._clock.monotonic() - began < YOUNG_S else 1
            self._over.wait(rules.pause_s(deaths))

    def _run(self) -> None:
        """One exporter's life."""
        pipe = subprocess.PIPE
        self._child = child = subprocess.Popen(
            self._argv, env=self._environ, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True
        )
        assert child.stdin is not None  # noqa: S101 - for the type checker: both are pipes
        assert child.stdout is not None  # noqa: S101
        if self._over.is_set():  # asked while it was started
            child.stdin.close()
        for line in child.stdout:
            self._say(f"telemetry: {one_line(line[:LINE_MAX].decode('utf-8', 'replace').rstrip())}")
        code = child.wait()
        child.stdout.close()
        if not self._over.is_set():
            with contextlib.suppress(OSError):
                child.stdin.close()
            self._say(f"telemetry: the exporter ended with {code}; it is started again")


@dataclass(frozen=True, slots=True)
class Doors:
    """The clock, and whom to tell, from any thread."""

    clock: Clock
    say: Callable[[Said], None]


@contextlib.asynccontextmanager
async def serve(supervisor: Supervisor) -> AsyncIterator[None]:
    """Send spans inside, where the settings name a receiver."""
    home, settings_file, doors = supervisor.home, supervisor.settings_file, Doors(supervisor.loop.clock, supervisor.alert)
    terms = user.load_telemetry(settings_file)
    environ = notify_environment.seen(home, terms.variables)
    if not terms.endpoint:
        home.telemetry.unlink(missing_ok=True)  # whoever begins to listen is not told the history
        yield
        return
    try:
        _lay(home)
        require()
        _has_all(terms, environ)
    except NightcrewError as error:
        doors.say(error)
        yield
        return
    exporting = Exporting(home, settings_file, environ, doors.clock, doors.say)
    exporting.start()
    try:
        yield
    finally:
        await asyncio.to_thread(exporting.stop)


def _lay(home: Home) -> None:
    """Where spans are sent from, if nobody has sent any yet: before the first request is taken, so that nothing is left out."""
    if cursor.kept(home.telemetry) is not None:
        return
    with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
        newest = journal.newest_entry(db)
    request = away = 0
    if home.gateway_account.exists():
        with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
            request, away = reading.newest(db)
    cursor.keep(home.telemetry, Cursor(newest, request, (), away))


def _has_all(terms: Terms, environ: Mapping[str, str]) -> None:
    if missing := sorted(name for name in terms.variables if not environ.get(name, "").strip()):
        raise NotFound("no spans are sent", on="[telemetry] headers", why=f"{', '.join(missing)} is not set where nightcrew was started")
