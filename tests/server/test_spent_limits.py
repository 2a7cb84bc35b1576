"""An agent whose subscription is spent waits for the reset that it said itself, over a restart of the supervisor, and then goes on."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from supervisor.kernel.format import rfc3339
from supervisor.store import sqlite
from tests.agents.protocols.scenarios import DATA, RESETS_AT
from tests.server.test_continuing import attempts
from tests.support import House, wait_until

STANDS_IN = """#!/bin/sh
[ $NIGHTCREW_EPOCH = 1 ] || exec cat {tool}
cat {spent}; exit 1
"""
"""In the place of Claude Code 2.1.329: prints what it printed when its window of five hours was spent, and the next time what it printed
when it worked."""


def test_it_is_parked_until_the_reset_and_goes_on(house: House, tmp_path: Path) -> None:
    resets_at = int(time.time()) + 3600
    program, spent = tmp_path / "bin" / "claude", tmp_path / "spent.jsonl"
    spent.write_text((DATA / "claude-2.1.329" / "spent.jsonl").read_text().replace(f"{RESETS_AT:.0f}", str(resets_at)))
    program.parent.mkdir()
    program.write_text(STANDS_IN.format(spent=spent, tool=DATA / "claude-2.1.329" / "tool.jsonl"))
    program.chmod(0o755)
    daemon = house.start_daemon()
    plan = '[[tasks]]\nid = "a"\nkind = "claude"\nprompt = "go"\nsandbox = 0\n[[tasks]]\nid = "b"\ncommand = "true"\nafter = ["a"]\n'
    house.ok("run", "--detach", house.plan(plan), env={"PATH": f"{program.parent}:{os.environ['PATH']}"})
    wait_until(lambda: house.state("a") == "parked", "it to be parked")
    wait = rfc3339(float(resets_at + 60))
    assert attempts(house, "a")[0]["end_cause"] == f"its limit is spent until {str(wait)[:19]}Z"
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        at, spent_retries, restarts = db.execute("SELECT not_before, failures, restarts FROM task WHERE name = 'a'").fetchone()
    assert (round(at), spent_retries, restarts) == (resets_at + 60, 0, "[]")
    assert "parked" in house.ok("status") and "its limit is spent until" in house.ok("status")
    daemon.kill()
    daemon.wait()
    house.start_daemon()
    assert house.state("a") == "parked", "the next supervisor knows until when"
    assert json.loads(house.ok("resume", "--json", "a"))["resumed"] == [house.task("a").id]
    house.wait_final()
    assert (house.state("a"), house.state("b"), len(attempts(house, "a"))) == ("done", "done", 2), house.account()
