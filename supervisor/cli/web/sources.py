"""Who looks for the pages beside the crew's: the files of one home, the supervisor for what it alone knows, and a command for a check that
takes long."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from supervisor.cli.web import maps
from supervisor.config import user
from supervisor.core.errors import ConfigError, NightcrewError, TimedOut, ToolFailed, UsageError
from supervisor.daemon import protocol
from supervisor.faces.web.feature import State
from supervisor.faces.web.models import audit, limits, mails, notes, resources, runs, trains, written
from supervisor.faces.web.pages import Sources
from supervisor.faces.web.plain import plain
from supervisor.host.paths import Home
from supervisor.ledger import store

ASK_S = 2.0
VERIFY_S, AGAIN_S = 60.0, 20.0
"""A check of the audit log may take so long; one that is younger than the other answers again."""


def sources(home: Home) -> Sources:
    """Of one home."""
    check, looks = Check(), limits.Looks()
    return Sources(
        reads={
            "runs": lambda asked: runs.runs(home, asked),
            "run": lambda asked: runs.run(home, {**asked, "now": str(time.time())}),
            "trains": lambda asked: trains.trains(home, asked),
            "maps": lambda asked: maps.maps(home, asked),
            "notes": lambda asked: notes.notes(home, asked),
            "note": lambda asked: notes.one_note(home, asked),
            "mails": lambda asked: mails.mails(home, asked, time.time()),
            "thread": lambda asked: mails.thread(home, asked, time.time()),
            "audit": lambda asked: audit.log(home, asked),
            "journal": lambda asked: audit.journal(home, asked),
            "audit-verify": lambda _: check.verify(),
            "resources": lambda _: _resources(home),
        },
        report=lambda run, kind: written.page(home, run, kind),
        topics={"limits": lambda rest: LimitsTopic(home, looks, rest), "ledger": lambda rest: LedgerTopic(home, rest)},
    )


def _resources(home: Home) -> Mapping[str, Any]:
    reserve = None
    with contextlib.suppress(ConfigError):  # doctor says what is wrong with it
        reserve = user.load(user.path(), usable_cores=1).cores_reserve
    try:
        found = protocol.call(home.daemon_socket, "capacity", {}, timeout_s=ASK_S)
    except NightcrewError as error:
        return resources.resources(home, None, error.line(), reserve)
    return resources.resources(home, found, "", reserve)


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
            raise TimedOut("the check was ended", why=f"it took more than {VERIFY_S:.0f} s", hint=hint) from error
        try:
            found: Mapping[str, Any] = json.loads(done.stdout)
        except ValueError as error:
            said = done.stderr.strip().partition("\n")[0] or f"exit code {done.returncode}"
            raise ToolFailed("the audit log was not checked", why=said, hint="nightcrew audit verify") from error
        return found


class LimitsTopic:
    """Tokens against the limits, for all browsers that show them. What was seen is kept while nobody looks."""

    pause_s = 2.0

    def __init__(self, home: Home, looks: limits.Looks, rest: str) -> None:
        if rest:
            raise UsageError("the topic limits has no parts", on=rest)
        self._home, self._looks = home, looks

    def look(self) -> State:
        """As `Topic.look`."""
        try:
            found: State = plain(limits.limits(self._home, self._looks, time.time()))
        except (ValueError, KeyError, TypeError) as error:  # a row, or an answer, that no version of ours makes
            return {"trouble": f"the figures cannot be read ({type(error).__name__}): nightcrew gateway status"}
        return found

    def close(self) -> None:
        """As `Topic.close`."""


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
            self._db, self._file = store.connect_readonly(self._home.ledger), file
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """As `Topic.close`."""
        if self._db is not None:
            self._db.close()
        self._db, self._file = None, 0
