"""An agent that was lost goes on with its conversation, in a new worktree that has its work; and other tasks continue it too."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from supervisor.host import files
from supervisor.host.sandbox import probing
from supervisor.ledger import conversations, queries, store
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git, wait_until

WORK = "echo begun > work; echo line >> $NIGHTCREW_OUT/lines; echo MARKER-$((6*7))"
COMMIT = "git add work && git -c user.name=a -c user.email=a@b commit -qm work && echo MARKER-$((6*7))"
CRASH = "kill -9 $PPID"


@pytest.fixture
def sim(house: House) -> Iterator[Simulator]:
    """A provider behind the gateway of the house."""
    files.private_dir(house.home.root)
    know_prices(house.home)
    with Simulator() as running:
        house.config.write_text(f'grace = "1s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n{upstream(house.home, running.url)}')
        yield running


def task(name: str, **keys: Any) -> str:
    """A table of a plan."""
    said = {"id": name, "kind": "builtin", "prompt": f"Do the work of {name}.", **keys}
    return "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in said.items())


def script(sim: Simulator, *commands: str, contains: str, text: str) -> None:
    """The answers to a conversation that contains a text: these commands, one a turn, then words."""
    for command in commands:
        sim.faults(tool="bash", tool_input={"command": command}, contains=contains, times=1)
    sim.faults(text=text, contains=contains)


def attempts(house: House, name: str) -> list[dict[str, Any]]:
    with closing(store.connect_readonly(house.home.ledger)) as db:
        return queries.attempts(db, house.task(name).id)


@pytest.mark.parametrize("tier", [0, 1])
def test_an_agent_that_was_killed_goes_on(house: House, sim: Simulator, tier: int) -> None:
    if tier not in probing.known().tiers and tier:
        pytest.skip("this host cannot")
    script(sim, WORK, COMMIT, CRASH, "cat work", contains="work of one.", text="It is done.")
    house.start_daemon()
    house.ok("run", "--detach", house.plan(task("one", sandbox=tier)))
    house.wait_final()
    view, tried = house.task("one"), attempts(house, "one")
    assert view.state == "done", house.daemon_output()
    assert [row["end"] for row in tried] == ["lost", "done"] and tried[1]["cause"].startswith("resumed: lost: its agent was killed by signal 9")
    assert view.result["agent"]["message"] == "It is done." and view.result["commits"] == 1, "what the task did, over both attempts"
    assert git(house.repo, "show", f"{view.branch}:work") == "begun"
    lines = [json.loads(line) for line in (house.home.attempt(view.id, 2) / "out" / "transcript.jsonl").read_text().splitlines()]
    assert {line["session_id"] for line in lines} == {view.result["agent"]["session"]}
    said = json.dumps(lines)
    assert said.count("MARKER-42") == 2 and said.count("You were interrupted") == 1, "each command ran once, and the earlier turns are there"
    assert tried[0]["result"] and json.loads(tried[0]["result"])["agent"]["session"] == view.result["agent"]["session"]
