"""Which process is the gateway, and what its status means for the crew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from supervisor.gateway import lifecycle, pages
from supervisor.host import files, processes
from supervisor.host.paths import Home
from supervisor.kernel.errors import NotRunning
from supervisor.kernel.events import TrafficChanged
from supervisor.server import gateway_process
from supervisor.server.gateway import Load, _load
from tests.support import wait_until

# Whom we take for it --------------------------------------------------------------------------------------------------------------


def write_record(home: Home, **facts: Any) -> None:
    files.private_dir(home.root)
    shape = {"schema": 1, "pid": os.getpid(), "ticks": 1, "boot_id": processes.boot_id(), "port": 8765, "version": "1", **facts}
    home.gateway_record.write_text(json.dumps(shape))


def test_a_record_that_names_another_process_is_no_gateway(tmp_path: Path) -> None:
    """Without a sandbox an agent can write that file; whoever it names must not be killed as a gateway that hangs."""
    home, other = Home(tmp_path / "home"), Home(tmp_path / "other")
    me = processes.identity(os.getpid())
    assert me is not None
    write_record(home, pid=me.pid, ticks=me.ticks)
    assert lifecycle.read_record(home) == lifecycle.Record(me, 8765, "1")
    assert gateway_process.running(home) is None
    assert not gateway_process.stop(home)
    argv = [sys.executable, "-c", "import time; time.sleep(600)", "-m", "supervisor.gateway", "--home", str(other.root)]
    with subprocess.Popen(argv) as process:
        try:
            who = processes.identity(process.pid)
            assert who is not None
            wait_until(lambda: processes.runs(process.pid, "--home", str(other.root)), "its command line")
            for place, found in ((home, False), (other, True)):
                write_record(place, pid=who.pid, ticks=who.ticks)
                assert (gateway_process.running(place) is not None) is found
            write_record(other, pid=who.pid, ticks=who.ticks + 1)
            assert gateway_process.running(other) is None, "the pid was used again"
        finally:
            process.kill()


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "7", '{"pid": "x"}', '{"schema": 1, "pid": -1, "ticks": 1, "boot_id": "", "port": 1, "version": "1"}', "[" * 99999],
)
def test_a_record_that_is_none(tmp_path: Path, text: str) -> None:
    home = Home(files.private_dir(tmp_path / "home"))
    assert lifecycle.read_record(home) is None
    home.gateway_record.write_text(text)
    assert lifecycle.read_record(home) is None


def test_nobody_listens(tmp_path: Path) -> None:
    home = Home(files.private_dir(tmp_path / "home"))
    with pytest.raises(NotRunning, match="no gateway is running"):
        pages.ask(home, pages.PING)


# Its load -------------------------------------------------------------------------------------------------------------------------


def pool(**facts: Any) -> dict[str, Any]:
    return {"breaker": "closed", "in_flight": 0, "windows": [], "lane": "anthropic/opus", "figures": None, **facts}


def lane(name: str, queued: int, delay_s: float | None) -> dict[str, Any]:
    return {"lane": name, "queued": queued, "delay_s": delay_s}


OPUS, HAIKU, GPT = "anthropic/opus", "anthropic/haiku", "openai/gpt"
USED = {"requests": 3}


SPENT, OPEN = {"spent": True}, {"spent": False}
DOWN = {"breaker": "open", "breaker_why": "it is down"}


def limits(**each: float | None) -> dict[str, Any]:
    return {"dimensions": [{"name": name, "limit_per_minute": limit} for name, limit in each.items()]}


APART, TOGETHER = limits(requests=9, input=800, output=200), limits(tokens=500, input=None)


@pytest.mark.parametrize(
    ("lanes", "pools", "load"),
    [
        ([], [], Load(False, TrafficChanged(0.0))),
        ([lane(HAIKU, 0, 1.26), lane(OPUS, 3, 40)], [], Load(True, TrafficChanged(40.0))),
        ([lane(HAIKU, 1, 1.26), lane(OPUS, 3, 40)], [], Load(True, TrafficChanged(40.0))),
        ([lane(OPUS, 3, 95), lane(GPT, 0, 2)], [], Load(True, TrafficChanged(95.0))),
        ([lane(OPUS, 3, 95), lane(GPT, 0, 2)], [pool(lane=GPT, figures=USED)], Load(True, TrafficChanged(2.0))),
        ([lane(OPUS, 3, 95), lane(GPT, 0, 0)], [pool(lane=GPT, in_flight=1)], Load(True, TrafficChanged(0.0))),
        ([lane(OPUS, 0, 50)], [pool()], Load(False, TrafficChanged(0.0))),
        ([lane(OPUS, 0, None)], [pool(in_flight=1)], Load(True, TrafficChanged(0.0))),
        ([lane(OPUS, 1, 1e300)], [pool()], Load(True, TrafficChanged(1e6))),
        ([], [pool(windows=[SPENT, OPEN]), pool(windows=[SPENT])], Load(False, TrafficChanged(0.0, parked=True))),
        ([], [pool(windows=[SPENT]), pool()], Load(False, TrafficChanged(0.0))),
        ([], [pool(windows=[SPENT]), pool(breaker=None)], Load(False, TrafficChanged(0.0, parked=True))),
        ([], [pool(**DOWN)], Load(False, TrafficChanged(0.0, closed="it is down"))),
        ([], [pool(**DOWN, windows=[SPENT])], Load(False, TrafficChanged(0.0, parked=True))),
        ([], [pool(**DOWN), pool()], Load(False, TrafficChanged(0.0))),
        ([], [pool(**DOWN, figures=USED), pool(lane=GPT)], Load(False, TrafficChanged(0.0, closed="it is down"))),
        ([], [pool(**APART), pool(**TOGETHER)], Load(False, TrafficChanged(0.0, tpm=1500.0))),
        ([], [pool(**APART, figures=USED), pool(lane=GPT, **TOGETHER)], Load(False, TrafficChanged(0.0, tpm=1000.0))),
        ([], [pool(**APART), pool(**limits(input=7))], Load(False, TrafficChanged(0.0))),
    ],
)
def test_what_its_status_means_for_the_crew(lanes: list[Any], pools: list[Any], load: Load) -> None:
    assert _load({"lanes": lanes, "pools": pools}) == load


@pytest.mark.parametrize(
    ("caps", "night"),
    [
        ({"cost_per_night": 20.0, "night_usd": 19.2}, 0.96),
        ({"cost_per_night": None, "night_usd": None}, None),
        ({"cost_per_night": 20.0}, None),
    ],
)
def test_how_much_of_the_nights_money_is_spent(caps: dict[str, Any], night: float | None) -> None:
    assert _load({"lanes": [], "pools": [], "caps": caps}).traffic == TrafficChanged(0.0, night=night)
