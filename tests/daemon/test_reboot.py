"""After a restart of the machine: what was running is lost with that cause, costs nothing, and goes on with its conversation.

The machine is not restarted. All that dies with it is killed, and what is left says that it was of another boot.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest

from supervisor.host import files, processes
from supervisor.ledger import store
from tests.daemon.test_continuing import attempts, task
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, wait_until

OTHER = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def sim(house: House) -> Iterator[Simulator]:
    """A provider behind the gateway of the house."""
    files.private_dir(house.home.root)
    know_prices(house.home)
    with Simulator() as running:
        house.config.write_text(f'grace = "1s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n{upstream(house.home, running.url)}')
        yield running


def restart_machine(house: House, daemon: subprocess.Popen[bytes], *names: str) -> None:
    """Once they run, kill the supervisor and the runners, and have every record name another boot."""
    for name in names:
        wait_until(functools.partial(_runs, house, name), f"{name} to run")
    daemon.kill()
    daemon.wait()
    for name in names:
        file = house.home.attempt(house.task(name).id, 1) / "started.json"
        shape = json.loads(file.read_text())
        os.kill(shape["pid"], signal.SIGKILL)
        file.write_text(json.dumps(shape | {"boot_id": OTHER}))
    house.home.boot.write_text(f"{OTHER}\n")


def _runs(house: House, name: str) -> bool:
    return bool(house.task(name).attempt_state == "running")


def test_what_was_running_goes_on_after_a_restart_of_the_machine(house: House, sim: Simulator) -> None:
    sim.faults(tool="bash", tool_input={"command": "echo begun > work"}, contains="work of one.", times=1)
    sim.faults(hold="gate", contains="work of one.", times=1)
    sim.faults(text="It is done.", contains="You were interrupted")
    daemon = house.start_daemon()
    plan = task("one") + '[[tasks]]\nid = "two"\ncommand = "[ $NIGHTCREW_EPOCH = 2 ] || sleep 600"\n'
    house.ok("run", "--detach", house.plan(plan + '[[tasks]]\nid = "three"\nafter = ["two"]\ncommand = "true"\n'))
    sim.wait_held("gate")
    restart_machine(house, daemon, "one", "two")
    sim.release("gate")
    house.start_daemon()
    house.wait_final()
    assert {house.state(name) for name in ("one", "two", "three")} == {"done"}, house.account()
    for name, cause in (("one", "resumed: lost: the machine was restarted"), ("two", "lost: the machine was restarted")):
        assert [(row["end"], row["cause"]) for row in attempts(house, name)] == [("lost", ""), ("done", cause)]
    with closing(store.connect_readonly(house.home.ledger)) as db:
        told = [json.loads(row["data"]) for row in db.execute("SELECT data FROM journal WHERE event = 'machine rebooted'")]
        spent = {tuple(row) for row in db.execute("SELECT failures, restarts FROM task")}
    assert told == [{"from_boot": OTHER, "to_boot": processes.boot_id()}]
    assert spent == {(0, "[]")}, "it costs nothing, and is no restart of a task's own"
    assert house.daemon_output().count("the machine was restarted; what was running is run again") == 1
