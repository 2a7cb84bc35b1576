"""A disk that is full while work is secured, home and repository on one small file system: nothing is lost, and it goes on when there is
room again."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.client import protocol
from supervisor.sandbox import executors
from supervisor.views import status
from tests import support
from tests.support import House, git, make_repository, plan_of, shell_task, wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system, which needs root"),
]
WAL = 4_000_000
"""Bytes. SQLite's log grows to 1,000 pages, with a header each, and is used again from its start."""
LEFT = 3_000_000
AGENT = f"head -c {LEFT} /dev/urandom > left.bin; touch ready; while [ ! -e go ]; do sleep 0.1; done"


@pytest.fixture(params=[0, 1])
def tight(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """A house on one disk of 48 MB with its repository; its agents in tier 0 or 1."""
    if request.param and not any(executors.known().works.values()):
        pytest.skip("no sandbox works here")
    with support.small_disk(tmp_path / "small", "size=48m,mode=0755") as place:
        made = House(place, make_repository(place / "repo"))
        made.config.write_text(f'grace = "1s"\nsandbox = {request.param}\n[limits]\ndisk_free_min = 0\n')
        try:
            yield made
        finally:
            made.reap()


def fill(house: House, leave: int) -> Path:
    """Take all free space but `leave` bytes."""
    filler = house.home.root.parent / "filler"
    free = os.statvfs(filler.parent).f_bavail * os.statvfs(filler.parent).f_frsize
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - leave)
    return filler


def grow_log(house: House) -> None:
    """Let the ledger's log have its full size, so that the supervisor can go on committing on a full disk."""
    db = sqlite3.connect(house.home.ledger, timeout=30)
    while house.home.ledger.with_name("ledger.db-wal").stat().st_size < WAL:
        db.execute("UPDATE run SET rowid = rowid")  # what is equal it would not write
        db.commit()
    db.execute("PRAGMA wal_checkpoint")
    db.close()


def full(house: House) -> list[str]:
    """What the supervisor says of full disks, but for its audit log's; its log lies on one."""
    alerts = protocol.call(house.home.daemon_socket, "ping", {})["alerts"]
    return [alert for alert in alerts if "bytes free)" in alert and not alert.startswith("the audit log")]


def run_until_ready(house: House) -> Path:
    """Two tasks, of which `next` waits for `work`, whose agent has left its file and waits; its worktree."""
    house.start_daemon()
    house.ok("run", "--detach", house.plan(plan_of([shell_task("work", AGENT), shell_task("next", "true", after=["work"])])))
    wait_until(lambda: (at := house.task("work").worktree) and (Path(at) / "ready").exists(), "the agent to have left its file")
    return Path(house.task("work").worktree or "")


@pytest.mark.in_turns
@pytest.mark.parametrize("leave", [0, 2_500_000], ids=["nothing is free", "too little is free"])
def test_work_waits_for_room_and_is_secured(tight: House, leave: int) -> None:
    """Its duration has no waiting in it: that stands still as soon as the agent has ended, and says then what the agent itself took."""
    worktree = run_until_ready(tight)
    grow_log(tight)
    filler = fill(tight, leave)
    (worktree / "go").touch()
    wait_until(lambda: full(tight) or tight.task("work").final, "the supervisor to say that the disk is full")
    (alert,) = full(tight)
    assert alert.startswith(f"{tight.task('work').id}:1: ") and str(tight.home.root.parent) in alert, "it names the attempt and the place"
    assert (tight.state("work"), tight.task("work").attempt_state, tight.state("next")) == ("running", "collecting", "waiting")
    waits = tight.task("work")
    assert waits.ended is not None
    assert status.seconds(waits, waits.ended + 3600) == status.seconds(waits, waits.ended), "an hour of waiting is none of running"
    kept = tight.ok("clean")
    assert "its work waits to be secured" in kept and "bytes free)" in kept, kept
    filler.unlink()
    tight.wait_final()
    work = tight.task("work")
    assert (work.state, work.epoch, tight.state("next")) == ("done", 1, "done")
    record = json.loads((tight.home.attempt(work.id, 1) / "exit.json").read_text())
    assert work.ended == record["ended"] <= waits.ended and work.started == record["started"]
    assert git(tight.repo, "cat-file", "-s", f"{work.branch}:left.bin") == str(LEFT)
    assert git(tight.repo, "cat-file", "-s", f"refs/nightcrew/rescue/{work.id}/1:left.bin") == str(LEFT)
    assert not list((tight.repo / ".git" / "objects").rglob("tmp_*")), "what a git wrote that failed is gone"
    assert not list((tight.repo / ".git" / "objects").glob("nightcrew-*"))
    tight.ok("clean", "--yes", "next")


@pytest.mark.in_turns
def test_a_task_starts_when_there_is_room(tight: House) -> None:
    """There was enough for its worktree, and none for what its runner writes: that is no loss."""
    tight.start_daemon()
    tight.ok("add", "-f", "--id", "first", "true")
    grow_log(tight)
    filler = fill(tight, 600_000)
    tight.ok("add", "--id", "work", "true")
    wait_until(lambda: full(tight) or tight.task("work").final, "the supervisor to say that the disk is full")
    assert (tight.task("work").attempt_state, tight.task("work").started) == ("launching", None)
    filler.unlink()
    tight.wait_final()
    assert (tight.state("work"), tight.task("work").epoch) == ("done", 1)
