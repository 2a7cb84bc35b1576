"""Agents that crash again and again, under the whole supervisor: one by itself, and a whole crew at once."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import closing
from typing import Any

from supervisor.gateway.account.charges import REFUSED, SettledRow
from supervisor.gateway.account.writer import Account
from supervisor.store import queries, sqlite
from tests.gateway.account.kit import opened, served, unpriced
from tests.support import House, wait_until

CREW = 8


def history(house: House, event: str) -> list[dict[str, Any]]:
    with closing(sqlite.connect_readonly(house.home.ledger)) as db:
        found = db.execute("SELECT task, at, data FROM journal WHERE event = ? ORDER BY seq", (event,))
        return [dict(row) for row in found]


def test_one_that_dies_at_once_for_ever_is_quarantined_and_nobody_else_notices_p08(house: House) -> None:
    daemon = house.start_daemon()
    house.ok("run", "--detach", house.plan('[[tasks]]\nid = "bad"\ncommand = "exit 1"\nretries = 100\n'))
    wait_until(lambda: house.task("bad").epoch >= 2, "its second attempt")
    daemon.kill()
    daemon.wait()
    with closing(sqlite.connect(house.home.ledger)) as db, db:
        # As if it had been run again five times just now: a test need not wait for the pauses, a minute in all.
        db.execute("UPDATE task SET restarts = ?", (json.dumps([time.time()] * 5),))
    house.start_daemon()
    house.ok("run", "--detach", house.plan('[[tasks]]\nid = "sibling"\ncommand = "true"\n', "other.toml"))
    house.wait_final()
    bad = house.task("bad")
    assert (house.state("sibling"), bad.state, bad.epoch <= 3) == ("done", "quarantined", True)
    assert bad.reason == "ended 6 times within 10m, at last failed: exit code 1"
    house.ok("retry", "bad")
    wait_until(lambda: house.task("bad").epoch > bad.epoch, "it is run again, for a person asked")
    assert not history(house, "outage")


def test_a_crew_that_crashes_at_once_is_one_outage_and_burns_nothing_p09(house: House) -> None:
    """A program that breaks under all of them, and is mended."""
    program, go = house.home.root.parent / "program", house.home.root.parent / "go"
    program.write_text(f"#!/bin/sh\n: > {go}.$$\nwhile [ ! -e {go} ]; do sleep 0.02; done\nkill -SEGV $$\n")
    program.chmod(0o755)
    plan = "".join(f'[[tasks]]\nid = "t{number}"\ncommand = "{program}"\nretries = 1\n' for number in range(CREW))
    house.start_daemon()
    house.ok("run", "--detach", house.plan(plan))
    wait_until(lambda: len(list(go.parent.glob("go.*"))) == CREW, "all of them to run")
    mended = program.with_name("mended")
    mended.write_text("#!/bin/sh\nexit 0\n")
    mended.chmod(0o755)
    mended.rename(program)  # those that run keep what they have open
    go.touch()
    house.wait_final()
    (began,), (_,) = history(house, "outage"), history(house, "outage over")
    assert "agents died within 2s, each of them failed: exit code 139" in json.loads(began["data"])["why"]
    assert house.daemon_output().count("an outage: ") == 1
    with closing(sqlite.connect_readonly(house.home.ledger)) as db:
        again = sorted((queries.attempts(db, view.id)[1] for view in house.tasks()), key=lambda row: float(row["created"]))
        spent = [tuple(row) for row in db.execute("SELECT failures, restarts FROM task")]
    assert {(str(view.state), view.epoch) for view in house.tasks()} == {("done", 2)}
    assert all(row["created"] >= again[0]["ended"] for row in again[1:]), "one probe, and then all the others"
    assert spent == [(0, "[]")] * CREW


def test_an_agent_that_its_provider_failed_was_lost_and_runs_again_at_no_cost(house: House) -> None:
    """Its last request is in the gateway's account; the one of a second agent was served, so that one failed by itself."""
    go = house.home.root.parent / "go"
    fail = f"while [ ! -e {go} ]; do sleep 0.02; done; [ $NIGHTCREW_EPOCH = 2 ]"
    house.start_daemon()
    house.ok("run", "--detach", house.plan("".join(f'[[tasks]]\nid = "{name}"\ncommand = "{fail}"\n' for name in ("served", "failed"))))
    wait_until(lambda: len(house.sessions()) == 2, "both to run")
    asyncio.run(_account(house, {"served": served(), "failed": served(end=REFUSED, status=None, flags=("unreachable",))}))
    go.touch()
    house.wait_final()
    assert (house.state("served"), house.task("served").epoch) == ("failed", 1)
    assert (house.state("failed"), house.task("failed").epoch) == ("done", 2)
    with closing(sqlite.connect_readonly(house.home.ledger)) as db:
        first = queries.attempts(db, house.task("failed").id)[0]
    assert (first["end"], first["end_cause"]) == ("lost", "its provider failed it (unreachable): exit code 1")


async def _account(house: House, requests: dict[str, SettledRow]) -> None:
    """The gateway's account, with one request of the first attempt of each task of these names."""
    book = Account(house.home.gateway_account, time.time)
    book.start(unpriced)
    for name, ended in requests.items():
        book.settle(await book.open(opened(agent=house.task(name).id, epoch=1, at=time.time())), ended)
    await book.close()
