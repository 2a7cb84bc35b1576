"""A crew that lives long costs little and loses nothing: 200 agents that print a line a second (L01), and 200 that wait (L05)."""

from __future__ import annotations

import os
import time

import psutil
import pytest

from supervisor.client import protocol
from tests.faults.test_hang import LATER
from tests.support import House, plan_of, shell_task, wait_until

AGENTS = 200
SETTLED_S = 30.0
LINES = "while [ ! -e $NIGHTCREW_OUT/../../../../go ]; do echo line; sleep 1; done"


def soak_s() -> float:
    return float(os.environ.get("NIGHTCREW_TEST_SOAK_S", "600"))


def up(house: House, command: str) -> psutil.Process:
    """All agents at work; the supervisor."""
    house.config.write_text(house.config.read_text().replace("[limits]", f"slots = {AGENTS}\n[limits]"))
    house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([shell_task(f"a{number}", command) for number in range(AGENTS)])))
    wait_until(lambda: sum(view.state == "running" and view.pane_id is not None for view in house.tasks()) == AGENTS, "all to live", 600)
    time.sleep(SETTLED_S)  # what starting them left is over
    return psutil.Process(protocol.call(house.home.daemon_socket, "ping", {})["pid"])


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_agents_that_print(house: House) -> None:
    supervisor = up(house, LINES)
    before, files, began = supervisor.memory_info().rss, supervisor.num_fds(), supervisor.cpu_times()
    time.sleep(soak_s())
    after, cpu = supervisor.memory_info().rss, supervisor.cpu_times()
    tick_ms = protocol.call(house.home.daemon_socket, "ping", {})["tick_ms_p99"]
    percent = 100 * (cpu.user + cpu.system - began.user - began.system) / soak_s()
    files_now = supervisor.num_fds()
    print(f"{percent:.2f} % of one core, tick p99 {tick_ms} ms, {before / 1e6:.1f} -> {after / 1e6:.1f} MB, {files} -> {files_now} files")
    assert (files_now <= files + LATER, after < 200e6, percent < 50, tick_ms < 2000) == (True, True, True, True)
    assert after <= before * (1 + 0.05 * max(1.0, soak_s() / 3600))
    (house.home.root / "runs" / "go").touch()
    house.wait_final(600)
    assert {view.state for view in house.tasks()} == {"done"}


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_agents_that_wait(house: House) -> None:
    """Looking at them starts no process; whether their work conflicts is asked of git now and then."""
    supervisor = up(house, "exec sleep 36000")
    began = supervisor.cpu_times()
    time.sleep(soak_s())
    cpu = supervisor.cpu_times()
    percent = 100 * (cpu.user + cpu.system - began.user - began.system) / soak_s()
    children = 100 * (cpu.children_user + cpu.children_system - began.children_user - began.children_system) / soak_s()
    print(f"{percent:.2f} % of one core; its children {children:.2f} %")
    assert percent < 3 and children < 1
