"""The verbs of a day, each in an interpreter of its own. In a fork (`tests.warm`) a module that nobody imports is there all the same."""

from __future__ import annotations

import pytest

from tests import warm
from tests.support import House, shell_task, wait_until


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "COLD", True)


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
