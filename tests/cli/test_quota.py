"""`nightcrew quota`, for people and inside agents."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from supervisor.client import protocol
from supervisor.host import files, processes
from tests.cli.terminal import COMMAND
from tests.support import House, wait_until

NIGHTCREW = f"{sys.executable} -I -m supervisor.cli.main"


@pytest.fixture
def quotas(house: House) -> House:
    """One quota that refills at once, one that does not within any test."""
    house.config.write_text(
        house.config.read_text() + '[quota.quick]\nrate = "3600/min"\nburst = 1\n[quota.slow]\nrate = "1/day"\nburst = 2\n'
    )
    house.start_daemon()
    return house


def test_a_ticket_now_or_none_with_the_time_of_the_next(quotas: House) -> None:
    assert json.loads(quotas.ok("quota", "slow", "--json")) == {
        "schema": 1,
        "quota": "slow",
        "taken": True,
        "waited_s": pytest.approx(0, abs=30),
    }
    assert quotas.ok("quota", "slow") == ""
    spent = quotas.run("quota", "slow", "--json")
    assert spent.returncode == 7
    told = json.loads(spent.stdout)
    assert (told["quota"], told["taken"]) == ("slow", False) and 86_000 < told["next_s"] <= 86_400
    assert spent.stderr.startswith("nightcrew: no ticket of slow: the next one in ") and spent.stderr.count("\n") == 1
    assert spent.stderr.endswith("next: nightcrew quota slow --wait\n")


def test_waiting_for_ones_turn_ends_with_a_ticket_or_in_time(quotas: House) -> None:
    for _ in range(3):
        assert json.loads(quotas.ok("quota", "quick", "--wait", "--json"))["taken"] is True
    for _ in range(2):
        quotas.ok("quota", "slow")
    late = quotas.run("quota", "slow", "--wait", "--timeout", "0.2")
    assert late.returncode == 124 and late.stderr.startswith("nightcrew: no ticket of slow: 200ms passed; the next one in ")


def test_no_such_quota_names_the_nearest(quotas: House) -> None:
    near, far = quotas.run("quota", "quik"), quotas.run("quota", "tokens")
    assert (near.returncode, far.returncode) == (4, 4)
    assert near.stderr.startswith("nightcrew: no quota is called quik: did you mean quick?; next: ")
    assert far.stderr.startswith("nightcrew: no quota is called tokens: known: quick, slow; next: ")


def test_a_timeout_without_waiting_is_a_mistake(house: House) -> None:
    done = house.run("quota", "slow", "--timeout", "5")
    assert done.returncode == 2 and done.stderr.startswith("nightcrew: --timeout goes with --wait; next: ")


def test_without_a_supervisor(house: House) -> None:
    assert house.run("quota", "slow").returncode == 5


def test_an_agent_takes_its_tickets_at_its_own_door(quotas: House) -> None:
    """Its environment names no state directory, and it could not use `daemon.sock` from inside a sandbox."""
    script = f"unset NIGHTCREW_HOME; {NIGHTCREW} quota slow && {NIGHTCREW} quota slow --json && {NIGHTCREW} quota slow; echo $? >&2"
    quotas.ok("add", "--id", "agent", "-f", script)
    view = quotas.task("agent")
    errors = quotas.home.attempt(view.id, 1) / "stderr.log"
    assert errors.read_text().splitlines()[-1] == "7"
    assert quotas.run("quota", "slow").returncode == 7, "a person has no other bucket"


def test_a_crowd_gets_no_more_than_the_quota_and_everybody_is_served(house: House) -> None:
    house.config.write_text(house.config.read_text() + '[quota.search]\nrate = "100/s"\nburst = 1\n')
    house.start_daemon()
    args = {"quota": "search", "wait_s": None}
    since = time.monotonic()
    with ThreadPoolExecutor(40) as crowd:
        told = list(crowd.map(lambda _: protocol.call(house.home.daemon_socket, "quota", args), range(40)))
    assert [answer["taken"] for answer in told] == [True] * 40
    assert time.monotonic() - since >= 39 / 100


def test_who_leaves_takes_no_ticket_along(quotas: House) -> None:
    for _ in range(2):
        quotas.ok("quota", "slow")
    with subprocess.Popen([*COMMAND, "quota", "slow", "--wait"], env=quotas.env, stderr=subprocess.DEVNULL) as waiting:
        wait_until(lambda: next_s(quotas) > 90_000, "it to stand in the queue")
        waiting.kill()
    wait_until(lambda: next_s(quotas) < 90_000, "its place to be free again")


def next_s(house: House, name: str = "slow") -> float:
    """Seconds until the next ticket; 0 when there was one, which this then took."""
    return float(json.loads(house.run("quota", name, "--json").stdout).get("next_s", 0.0))


def test_tickets_are_counted_over_a_kill_of_the_supervisor_and_who_waits_finds_the_next_one(house: House) -> None:
    plain = house.config.read_text()
    house.config.write_text(plain + '[quota.slow]\nrate = "1/day"\n[quota.soon]\nrate = "1/day"\n')
    daemon = house.start_daemon()
    house.ok("quota", "slow")
    house.ok("quota", "soon")
    kept = json.loads(house.home.quotas.read_text())
    assert kept["boot_id"] == processes.boot_id() and kept["levels"]["slow"] < 0.01
    with subprocess.Popen([*COMMAND, "quota", "soon", "--wait"], env=house.env) as waiting:
        wait_until(lambda: next_s(house, "soon") > 90_000, "it to stand in the queue")
        daemon.kill()
        daemon.wait()
        assert house.run("quota", "slow").returncode == 5
        house.config.write_text(plain + '[quota.slow]\nrate = "1/day"\n[quota.soon]\nrate = "20/min"\n')
        house.start_daemon()
        assert waiting.wait(60) == 0
    assert house.run("quota", "slow").returncode == 7, "it is as spent as before"


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"schema": 2, "levels": {}}', '{"schema": 1, "boot_id": "", "at": 0, "levels": 5}'])
def test_a_file_that_cannot_be_read_means_that_nothing_is_left(house: House, damage: str) -> None:
    house.config.write_text(house.config.read_text() + '[quota.slow]\nrate = "1/day"\nburst = 2\n')
    files.private_dir(house.home.root)
    house.home.quotas.write_text(damage)
    house.start_daemon()
    assert house.run("quota", "slow").returncode == 7
    assert "every quota starts with nothing left" in house.daemon_output()


def test_after_a_reboot_nothing_is_gained_for_the_time_that_nobody_saw(house: House) -> None:
    house.config.write_text(house.config.read_text() + '[quota.slow]\nrate = "1/day"\nburst = 2\n[quota.new]\nrate = "1/day"\n')
    files.private_dir(house.home.root)
    now = time.monotonic()
    house.home.quotas.write_text(json.dumps({"schema": 1, "boot_id": "another", "at": now - 1e6, "levels": {"slow": 1.2}}))
    house.start_daemon()
    assert [house.run("quota", "slow").returncode for _ in range(2)] == [0, 7]
    assert house.run("quota", "new").returncode == 0, "a quota that the file does not know is new"
