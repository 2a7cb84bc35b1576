"""What is written on a disk that fails, at every k-th call of the system: [python, on_a_failing_disk.py, DIRECTORY], with failing_disk.c
loaded before everything else. Prints a line of JSON for each kind of file: how many faults it met. Fails where a record reads as valid that
is not whole, or where what was acknowledged is gone."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

from agents.runner import loop
from supervisor.gateway.account import schema
from supervisor.gateway.account.writer import Account
from supervisor.host import audit_log, files
from supervisor.host.audit_log import Audit
from supervisor.host.clock import SystemClock
from supervisor.kernel import records
from supervisor.kernel.audit import Verdict
from supervisor.kernel.errors import HostError
from supervisor.store import sqlite
from supervisor.store.ledger import Ledger
from tests.gateway.account import kit as calls
from tests.store.kit import submission

SECRET = b"s" * 32
_DISK = ctypes.CDLL(None)
MODES = {"EIO once": 0, "a short write": 1, "EIO from then on": 2}
_MOST = 200
"""Calls of one piece of work: it makes some dozens."""


def swept(prepare: Callable[[int], Callable[[], None]], check: Callable[[int, bool], None]) -> int:
    """Fail at each k in each mode until all goes well; how often it failed. `prepare(number)` gives what is done while the disk may fail,
    `check(number, acknowledged)` looks at what it left."""
    number = faults = 0
    for mode in MODES.values():
        for k in range(1, _MOST):
            number += 1
            act, acknowledged = prepare(number), False
            _DISK.arm(k, mode)
            with contextlib.suppress(OSError, HostError, sqlite3.Error):
                act()
                acknowledged = True
            failed = _DISK.disarm()
            check(number, acknowledged)
            if not failed:
                break
            faults += 1
        else:
            raise AssertionError(f"it never ended well in mode {mode}")
    return faults


def of_a_file(top: Path) -> int:
    file, old, new = top / "result.json", b"old\n" * 5000, b"new\n" * 7000

    def prepare(_: int) -> Callable[[], None]:
        file.write_bytes(old)
        return lambda: files.atomic_write(file, new)

    def check(_: int, acknowledged: bool) -> None:
        assert file.read_bytes() == new or (file.read_bytes() == old and not acknowledged)
        assert os.listdir(top) == ["result.json"]

    return swept(prepare, check)


def of_the_audit_log(top: Path) -> int:
    log = top / "audit.jsonl"
    Audit(log, SECRET, SystemClock(), "test").note("first", {})
    known = {"whole": 1}

    def prepare(number: int) -> Callable[[], None]:
        return lambda: Audit(log, SECRET, SystemClock(), "test").note("next", {"number": number, "text": "x" * 3000})

    def check(_: int, acknowledged: bool) -> None:
        found = audit_log.verify(log, SECRET)
        assert not found.why and known["whole"] + acknowledged <= found.records <= known["whole"] + 1, (found, known, acknowledged)
        known["whole"] = found.records

    faults = swept(prepare, check)
    Audit(log, SECRET, SystemClock(), "test").note("last", {})
    assert audit_log.verify(log, SECRET) == Verdict(known["whole"] + 1)
    return faults


def of_an_exit_record(top: Path) -> int:
    os.chdir(top)
    shape: dict[str, object] = {
        "schema": 1, "task": "r/a", "epoch": 1, "code": 0, "signal": None, "why": "exit", "detail": "x" * 2000,
        "started": 1.0, "ended": 2.0, "duration_s": 1.0, "cpu_s": 1.0,
    }  # fmt: skip

    def prepare(_: int) -> Callable[[], None]:
        Path("exit.json").unlink(missing_ok=True)
        return lambda: loop.ExitRecord().write(shape)

    def check(_: int, acknowledged: bool) -> None:
        there = Path("exit.json").exists()
        assert there >= acknowledged
        assert not there or records.parse_exit(Path("exit.json").read_text()) is not None

    return swept(prepare, check)


def of_the_ledger(top: Path) -> int:
    file = top / "ledger.db"
    Ledger(file, SystemClock().wall).close()

    def prepare(number: int) -> Callable[[], None]:
        ledger = Ledger(file, SystemClock().wall)

        def act() -> None:
            with contextlib.closing(ledger):
                ledger.submit(submission("a", "b", "c", key=str(number)), f"0731-{number:04}")

        return act

    def check(number: int, acknowledged: bool) -> None:
        with contextlib.closing(sqlite.connect(file)) as db:
            tasks = db.execute("SELECT count(*) FROM task WHERE run = ?", (f"0731-{number:04}",)).fetchone()[0]
        assert tasks == 3 or (tasks == 0 and not acknowledged), (number, tasks, acknowledged)

    return swept(prepare, check)


def of_the_account(top: Path) -> int:
    file = top / "gateway.db"
    said: dict[str, int] = {}

    async def call() -> None:
        book = Account(file, SystemClock().wall)
        book.start(calls.price)
        try:
            said["id"] = await book.open(calls.opened())
        finally:
            await book.close()

    def prepare(_: int) -> Callable[[], None]:
        with contextlib.closing(schema.connect(file)):
            said.clear()
        return lambda: asyncio.run(call())

    def check(_: int, acknowledged: bool) -> None:
        with contextlib.closing(schema.connect(file)) as db:
            rows = [row["id"] for row in db.execute("SELECT id FROM request")]
        assert not (acknowledged or "id" in said) or said["id"] in rows

    return swept(prepare, check)


if __name__ == "__main__":
    for work in (of_a_file, of_the_audit_log, of_an_exit_record, of_the_ledger, of_the_account):
        place = Path(sys.argv[1]) / work.__name__
        place.mkdir()
        print(json.dumps({"of": work.__name__, "faults": work(place)}), flush=True)
