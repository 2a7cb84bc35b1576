"""`nightcrew doctor --recover-ledger` for a real crew: what is damaged while agents live, with what a killed supervisor left in the log."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import pytest

from supervisor.store import backups, journal, sqlite
from tests.support import House, git, plan_of, shell_task, wait_until

PAGE = 4096


def crew(house: House, go: Path) -> None:
    """Tasks that have ended, one that an agent works on until `go` is there, and one that waits for it; the supervisor is killed."""
    daemon = house.start_daemon()
    plan = [
        shell_task("ended", "echo kept > kept"),
        shell_task("again", 'test "$NIGHTCREW_EPOCH" = 2', retries=1),
        shell_task("works", f"while ! test -e {go}; do sleep 0.05; done; echo worked > worked"),
        shell_task("waits", "echo waited", after=["works", "ended"]),
    ]
    house.ok("run", "--detach", house.plan(plan_of(plan)))
    wait_until(lambda: (house.state("ended"), house.state("again"), house.state("works")) == ("done", "done", "running"), "the crew", 30)
    wait_until(lambda: len(house.sessions()) == 1, "the ended ones to be released")
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()


def damage(house: House, how: str, rng: random.Random) -> None:
    path = house.home.ledger
    log = path.with_name("ledger.db-wal")
    assert log.stat().st_size, "all of it is in the log"
    if how == "headers":
        path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
        log.write_bytes(b"\0" * 32 + log.read_bytes()[32:])
    elif how == "zeros, and half of the log":
        path.write_bytes(bytes(path.stat().st_size))
        log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    else:
        data = bytearray(log.read_bytes())
        for at in (10, *(rng.randrange(len(data)) for _ in range(rng.choice([3, 30])))):  # the first one makes SQLite pass over all of it
            data[at] ^= 1 << rng.randrange(8)
        log.write_bytes(data)
        path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", ["headers", "zeros, and half of the log", "bits of the log"])
def test_a_crew_goes_on_after_its_ledger_was_recovered(house: House, tmp_path: Path, how: str, seed: int) -> None:
    go = tmp_path / "go"
    crew(house, go)
    damage(house, how, random.Random(seed))
    refused = house.run("up", "-d")
    assert refused.returncode != 0 and "; next: nightcrew down; nightcrew doctor --recover-ledger" in refused.stderr, refused.stderr
    spoilt = [house.home.ledger.read_bytes(), house.home.ledger.with_name("ledger.db-wal").read_bytes()]
    said = json.loads(house.ok("doctor", "--recover-ledger", "--json"))
    kept = Path(said["kept"])
    assert not said["whole"] and [kept.read_bytes(), kept.with_name(f"{kept.name}-wal").read_bytes()] == spoilt
    assert "ledger recovered" in house.ok("audit", "show") and "whole" in house.ok("audit", "verify")
    house.start_daemon()
    go.touch()
    house.wait_final()
    house.ok("add", "-f", "--id", "later", "true")
    states = {view.name: view.state for view in house.tasks()}
    assert states["later"] == "done", states
    assert states == dict.fromkeys(("ended", "again", "works", "waits", "later"), "done") and said["lost"] == []
    assert git(house.repo, "show", f"{house.task('works').branch}:worked") == "worked", "the agent went on"
    db = sqlite.connect_readonly(house.home.ledger)
    for name in ("works", "waits", "ended"):
        ends = [line["event"] for line in journal.journal_of_task(db, house.task(name).id) if line["event"].startswith("end ")]
        assert ends == ["end done"], (name, ends)
    db.close()
    assert json.loads(house.ok("doctor", "--json"))["schema"] == 1
    for words in (["status", "--all"], ["status", "--json"], ["report"], ["clean"]):
        done = house.run(*words)
        assert "Traceback" not in done.stderr, done.stderr


def test_while_a_supervisor_lives_it_is_refused(house: House) -> None:
    assert house.run("doctor", "--recover-ledger").returncode == 4
    house.start_daemon()
    house.ok("add", "-f", "--id", "one", "true")
    done = house.run("doctor", "--recover-ledger")
    assert done.returncode == 6 and "a supervisor is already running" in done.stderr and "kept: it and its agents" in done.stderr, (
        done.stderr
    )
    house.ok("down")
    assert "the ledger is whole: nothing was done" in house.ok("doctor", "--recover-ledger")
    assert house.run("doctor", "--recover-ledger", "--fix").returncode == 2
    assert house.run("doctor", "--recover-account").returncode == 4


def test_what_the_journal_lacks_is_proven_by_the_records(house: House, tmp_path: Path) -> None:
    """A copy from before a task began, and no journal: its attempt is found by its records, and judged by them."""
    house.start_daemon()
    go = tmp_path / "go"
    plan = [shell_task("first", f"while ! test -e {go}; do sleep 0.05; done"), shell_task("one", "echo kept > kept", after=["first"])]
    house.ok("run", "--detach", house.plan(plan_of(plan)))
    wait_until(lambda: house.state("first") == "running", "the first one to run", 30)
    backups.copy(house.home.ledger, sqlite.LEDGER)
    go.touch()
    house.wait_final()
    house.ok("down")
    before = house.task("one")
    for lines in (house.home.root / sqlite.RECOVERY).glob("ledger.db.journal-*"):
        lines.unlink()
    house.home.ledger.write_bytes(b"")
    said = house.ok("doctor", "--recover-ledger")
    assert f"attempt {before.id}:1: its row was lost with the damaged ledger" in said, said
    house.start_daemon()
    house.wait_final()
    after = house.task("one")
    assert (after.state, after.branch, after.end) == ("done", before.branch, "done")
    assert git(house.repo, "show", f"{after.branch}:kept") == "kept"
    assert "one" in house.ok("clean", "one", "--discard", "--yes") and not Path(str(before.worktree)).exists()
