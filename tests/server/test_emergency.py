"""The emergency stop of a whole house: it needs no supervisor, holds over restarts, and nothing starts meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.server.test_pause import COUNTS, counting, counts, replaced, stands_still
from tests.support import House, plan_of, shell_task, wait_until

pytestmark = pytest.mark.usefixtures("no_groups_left")


def test_everything_stands_still_over_restarts_and_goes_on(house: House) -> None:
    daemon = counting(house)
    name = house.task("agent").id
    assert json.loads(house.ok("stop-all", "--json")) == {"schema": 1, "stopped": [name], "moving": []}
    assert stands_still(house)
    before = counts(house)
    assert "everything is stopped (nightcrew stop-all); next: nightcrew thaw" in house.run("status").stderr
    house.ok("add", "--id", "next", "true")
    refused = house.run("pause", "agent")
    assert refused.returncode == 6 and "nightcrew thaw" in refused.stderr
    replaced(house, daemon)
    wait_until(lambda: house.run("wait", "--timeout", "0.01", "next").returncode == 124, "a supervisor to answer")
    assert (house.state("next"), counts(house), stands_still(house)) == ("ready", before, True)
    house.ok("thaw")
    deeds = [one for one in json.loads(house.ok("audit", "show", "--json"))["entries"] if one["who"] == "person"]
    assert [(one["kind"], one["decision"]) for one in deeds] == [("pause", "stopped all"), ("pause", "thawed")]
    wait_until(lambda: len(counts(house)) > len(before) and house.task("next").final, "all of it to go on")
    assert (house.state("next"), house.task("agent").epoch) == ("done", 1)
    assert house.run("thaw").returncode == 6
    (house.home.sentinel / "mine").mkdir(parents=True)
    kept = house.run("thaw")
    assert kept.returncode == 6 and "everything stays stopped" in kept.stderr
    (house.home.sentinel / "mine").rmdir()
    house.ok("thaw")
    assert not house.home.sentinel.exists(), "a directory in its place stops everything, too"
    house.ok("kill", "agent")


def test_it_needs_no_supervisor_and_what_is_stopped_can_be_ended(house: House) -> None:
    daemon = counting(house, f"trap 'echo bye; exit 0' TERM; {COUNTS}")
    daemon.kill()
    daemon.wait()
    house.ok("stop-all")
    assert stands_still(house)
    before = counts(house)
    house.start_daemon()
    house.ok("kill", "agent")
    assert (house.state("agent"), counts(house)) == ("cancelled", before), "it does not move for that"


@pytest.mark.parametrize("place", ["launch.committed", "launch.noted"])
def test_during_a_launch(house: House, place: str) -> None:
    """The supervisor dies in the middle of it, too: the command begins after the thaw, once."""
    dying = house.start_daemon(die_at=place)
    house.run("run", "-d", house.plan(plan_of([shell_task("agent", "echo up")])))
    dying.wait(30)
    house.ok("stop-all")
    house.start_daemon()
    started = house.home.attempt(house.task("agent").id, 1) / "started.json"
    wait_until(started.exists, "the runner to claim its attempt")
    assert counts(house) == [] and house.state("agent") == "running"
    house.ok("thaw")
    house.wait_final()
    assert (counts(house), house.task("agent").epoch) == (["up"], 1)


def test_what_ends_meanwhile_is_secured(house: House) -> None:
    """And what a person paused before stays paused after the thaw."""
    counting(house)
    house.ok("pause", "agent")
    ends = shell_task("ends", "echo work > file; while :; do sleep 0.02; done")
    house.ok("run", "-d", house.plan(plan_of([ends])))
    wait_until(lambda: Path(house.task("ends").worktree or "/none", "file").exists(), "the other one to work")
    before = counts(house)
    house.ok("stop-all")
    assert stands_still(house, "ends") and stands_still(house)
    house.ok("kill", "ends")
    assert house.state("ends") == "cancelled" and house.task("ends").result is not None
    house.ok("thaw")
    wait_until(lambda: not (house.home.attempt(house.task("agent").id, 1) / "stopped").exists(), "its runner to see it")
    assert stands_still(house) and counts(house) == before
    house.ok("resume", "agent")
    wait_until(lambda: len(counts(house)) > len(before), "it to count on")
    house.ok("kill", "agent")
