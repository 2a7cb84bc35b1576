"""The verbs of a day, each in an interpreter of its own. In a fork (`tests.warm`) a module that nobody imports is there all the same."""

from __future__ import annotations

import psutil
import pytest

from supervisor.host import files
from supervisor.server import lock
from supervisor.server.attempts.zygotes import place_of
from tests import warm
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, shell_task, wait_until

AGENT = '[[tasks]]\nid = "agent"\nkind = "builtin"\nprompt = "Do it."\nsandbox = 0\n'


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "COLD", True)


@pytest.mark.usefixtures("cold")
def test_a_day(house: House) -> None:
    daemon = house.start_daemon()
    assert not isinstance(daemon, warm.Forked)
    commits = "echo x=1 > made.py; git add made.py; git -c user.name=a -c user.email=a@b commit -qm made"
    house.ok("run", house.plan(shell_task("work", commits)))
    house.ok("add", "--id", "more", "echo said")
    works(house, "wait more", "status", "diff work", "report", "take work")
    house.ok("snapshot", "create", "deps", "--preload", "json")
    works(house, "fork deps -- sleep 600")
    wait_until(lambda: house.task("deps").attempt_state == "running", "it to run")
    works(house, "pause deps", "resume deps", "snapshot ls", "snapshot show deps", "kill deps", "wait deps")
    works(house, "retry deps", "kill deps", "clean --yes", "analyze --detach --agents tests", "completion bash", "down")
    assert daemon.wait(60) == 0


def works(house: House, *verbs: str) -> None:
    for words in verbs:
        done = house.run(*words.split())
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr and "itself failed" not in done.stderr, (words, done)


@pytest.mark.parametrize("is_cold", [True, pytest.param(False, marks=pytest.mark.skipif(warm.COLD, reason="about forks"))])
def test_an_agent_of_a_supervisor_in_a_pane(house: House, monkeypatch: pytest.MonkeyPatch, is_cold: bool) -> None:
    """With its gateway and the process that forks it: all three begin from nothing, as a person's do, or all three are forks of ours."""
    monkeypatch.setattr(warm, "COLD", is_cold)
    files.private_dir(house.home.root)
    know_prices(house.home)
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url)}")
        sim.faults(text="It is done.")
        assert "the gateway listens on" in house.run("up", "-d").stderr
        house.ok("run", house.plan(AGENT))
        assert house.task("agent").state == "done" and "It is done." in house.ok("logs", "agent")
        supervisor, gateway = lock.holder(house.home.lock), house.gateway()
        zygote = place_of(house.home, "kind builtin").read()
        assert supervisor and gateway and zygote
        from_nothing = [_begins_cold(pid) for pid in (supervisor, gateway.identity.pid, zygote.identity.pid)]
    assert from_nothing == [is_cold] * 3


def _begins_cold(pid: int) -> bool:
    """Whether it is no fork of ours."""
    parent = psutil.Process(pid).parent()
    return parent is None or not any("tests/warm/server.py" in word for word in parent.cmdline())
