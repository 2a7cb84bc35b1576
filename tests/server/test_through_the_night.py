"""A night of the whole supervisor: what needs a person is set aside, the machine is kept awake, and a restart of it goes on with both."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from supervisor.host import processes, procfs
from supervisor.store import sqlite
from tests.server.test_continuing import attempts, restart_machine
from tests.support import House, wait_until

ASKS = {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "rm -rf build"}}
INHIBIT = """#!/bin/sh
echo "$*" >> {called}
while [ "${{1#--}}" != "$1" ]; do shift; done
exec "$@"
"""
"""In the place of systemd-inhibit: writes down how it was called, and lives as the real one does."""


def history(house: House, event: str) -> list[dict[str, Any]]:
    with closing(sqlite.connect_readonly(house.home.ledger)) as db:
        return [json.loads(row["data"]) for row in db.execute("SELECT data FROM journal WHERE event = ? ORDER BY seq", (event,))]


def inhibitors(called: Path) -> list[int]:
    """The stand-ins that hold the machine awake now."""
    return [who.pid for who in processes.all_running("cat") if f"HOLDS={called}".encode() in procfs.slurp(f"/proc/{who.pid}/environ")]


def test_what_needs_a_person_is_set_aside_and_the_machine_is_kept_awake(house: House, tmp_path: Path) -> None:
    called, program = tmp_path / "called", tmp_path / "bin" / "systemd-inhibit"
    program.parent.mkdir()
    program.write_text(INHIBIT.format(called=called))
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOLDS": str(called)}
    house.config.write_text(f"slots = 1\n{house.config.read_text()}")
    asked = json.dumps({"at": time.time() - 600, "name": "PermissionRequest", "event": ASKS})
    ask = f"echo '{asked}' >> $NIGHTCREW_OUT/hooks.jsonl; sleep 600"
    plan = f"[[tasks]]\nid = \"asks\"\npriority = 90\ncommand = '''{ask}'''\n[[tasks]]\nid = \"other\"\ncommand = \"true\"\n"
    daemon = house.start_daemon(env=env)
    house.ok("night", "run", "-d", house.plan(plan), "--until", "8h")
    hooks = house.home.attempt(house.task("asks").id, 1) / "out" / "hooks.jsonl"
    wait_until(lambda: hooks.exists() and hooks.read_bytes().endswith(b"\n"), "it to ask")
    daemon.kill()  # what it asked while no supervisor heard is read by the next one
    daemon.wait()
    wait_until(lambda: inhibitors(called) == [], "what kept the machine awake to end with the supervisor")
    house.start_daemon(env=env)
    wait_until(lambda: house.state("other") == "done", "the slot to go on")
    assert (house.state("asks"), house.task("asks").paused) == ("running", "person")
    assert history(house, "set aside") == [{"question": "Bash: rm -rf build"}]
    shown = next(line for line in house.ok("status").splitlines() if "/asks" in line)
    assert shown.startswith("? needs you") and "Bash: rm -rf build" in shown
    assert [one["detail"] for one in json.loads(house.ok("status", "--json"))["needs_person"]] == ["Bash: rm -rf build"]
    assert "--what=sleep:idle:handle-lid-switch --who=nightcrew" in called.read_text()
    wait_until(lambda: inhibitors(called) == [], "the machine may sleep: nothing goes on without a person")
    house.ok("resume", "asks")
    wait_until(lambda: not house.task("asks").paused, "it to go on")
    wait_until(lambda: inhibitors(called) != [], "the machine to be kept awake again")
    house.ok("kill", "asks")
    house.wait_final()


def test_a_night_goes_on_after_a_restart_of_the_machine(house: House) -> None:
    daemon = house.start_daemon()
    work = "[ $NIGHTCREW_EPOCH = 2 ] || sleep 600"
    house.ok("night", "run", "-d", house.plan(f'[[tasks]]\nid = "two"\ncommand = "{work}"\n'), "--until", "8h")
    restart_machine(house, daemon, "two")
    house.start_daemon()
    house.wait_final()
    assert [(row["end"], row["cause"]) for row in attempts(house, "two")] == [("lost", ""), ("done", "lost: the machine was restarted")]
    wait_until(lambda: bool(history(house, "night ended")), "the night to end")
    assert len(history(house, "machine rebooted")) == 1
