"""P11: a supervisor that stands still and goes on: nothing was given away meanwhile, nothing runs twice, and it does not
hurry after what it missed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from supervisor.kernel.errors import Refused
from supervisor.server.lock import DaemonLock
from tests.support import House, plan_of, shell_task, wait_until

SLOTS = 2
LINES = """
echo begin >> {log}; while ! [ -e {go} ]; do sleep 0.02; done; echo end >> {log}
"""


@pytest.mark.parametrize("seconds", [0, pytest.param(600, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_a_supervisor_that_was_stopped_goes_on_where_it_was(house: House, tmp_path: Path, seconds: float) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    house.config.write_text(f"slots = {SLOTS}\n{house.config.read_text()}")
    daemon = house.start_daemon()
    command = LINES.format(log=log, go=go)
    house.ok("run", "-d", house.plan(plan_of([shell_task(f"t{number}", command) for number in range(5)])))
    wait_until(lambda: log.exists() and log.read_text() == "begin\n" * SLOTS, "as many agents as there are slots")
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        with pytest.raises(Refused, match=str(daemon.pid)):  # its lock is its own while it lives
            DaemonLock(house.home.lock)
        time.sleep(seconds)  # what a person would wait: the long form only
        go.touch()
        wait_until(lambda: log.read_text().count("end") == SLOTS, "those that ran to end without it")
        assert log.read_text().count("begin") == SLOTS, "nobody else starts any"
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    house.wait_final()
    assert {(view.state, view.epoch, view.end_cause) for view in house.tasks()} == {("done", 1, "")}
    lines, alive = log.read_text().split(), 0
    for line in lines:
        alive += 1 if line == "begin" else -1
        assert alive <= SLOTS, "what it missed does not start all at once"
    assert lines.count("begin") == lines.count("end") == 5
    assert "lost" not in house.daemon_output()
