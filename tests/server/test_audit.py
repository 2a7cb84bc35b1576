"""What a supervisor does is proven by the audit log, whatever ended the supervisor."""

from __future__ import annotations

import contextlib
import json
import sqlite3

from supervisor.store import sqlite
from tests.support import House, wait_until


def rows(house: House) -> int:
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        return int(db.execute("SELECT count(*) FROM journal").fetchone()[0])


def test_every_row_of_the_journal_is_proven_when_a_supervisor_has_left_or_was_killed(house: House) -> None:
    settings = house.config.read_text()
    house.config.write_text(settings.replace("disk_free_min = 0", f"disk_free_min = {2**60}"))
    first = house.start_daemon()
    wait_until(lambda: rows(house), "that nothing starts to be journalled")
    first.kill()
    first.wait()
    house.config.write_text(settings)
    house.start_daemon()
    house.ok("add", "-f", "--id", "two", "true")
    house.ok("down")
    found = json.loads(house.ok("audit", "verify", "--json"))
    assert (found["whole"], found["proven"], found["newer"], found["warnings"]) == (True, {"journal": rows(house)}, {"journal": 0}, [])
    closed = json.loads(house.ok("audit", "show", "--json", "-n", "99"))["entries"][0]
    assert (closed["kind"], closed["data"]["admitting"], closed["data"]["code"]) == ("admission", False, "disk")
    shown = json.loads(house.ok("audit", "show", "--json", "--task", "two"))["entries"]
    assert [entry["kind"] for entry in shown] == ["admission", "start", "end", "end"]
    assert {entry["trace"] for entry in shown} == {shown[0]["trace"]}
    with contextlib.closing(sqlite3.connect(house.home.ledger)) as db, db:
        db.execute("UPDATE journal SET data = '{}' WHERE event = 'start'")
        number = db.execute("SELECT seq FROM journal WHERE event = 'start'").fetchone()[0]
    changed = house.run("audit", "verify")
    assert changed.returncode == 1 and changed.stdout.startswith(f"journal, row {number}: it was changed; line "), changed.stdout
