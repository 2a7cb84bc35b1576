"""The gate of a task under the whole supervisor: what it says decides, it sees what the agent saw, and the next attempt is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from supervisor.host import files
from supervisor.host.sandbox import probing
from supervisor.ledger import queries, store
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git, wait_until


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
    return "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in {"id": name, **keys}.items())


def ends(house: House, name: str) -> list[tuple[str, str]]:
    """How its attempts ended and why."""
    with closing(store.connect_readonly(house.home.ledger)) as db:
        return [(row["end"], row["end_cause"]) for row in queries.attempts(db, house.task(name).id)]


def record(house: House, name: str, epoch: int, file: str) -> str:
    return (house.home.attempt(house.task(name).id, epoch) / file).read_text()


def test_a_gate_decides_and_a_failed_one_is_tried_once_more(house: House, sim: Simulator) -> None:
    """All in one crew, since each of them waits for the pause after a failure."""
    sim.faults(tool="bash", tool_input={"command": "echo wrong > work"}, contains="the agent's work.", times=1)
    sim.faults(tool="bash", tool_input={"command": "echo right > work"}, contains="did not pass its gate", times=1)
    sim.faults(text="It is done.", contains="the agent's work.")
    tier = max(tier for tier in (0, 1) if not tier or tier in probing.known().tiers)
    seen = f"cat made; test -e {house.home.ledger} && echo the ledger"
    plan = (
        task("good", command="echo made > made", gate=f"{seen}; true", sandbox=tier)
        + task("bad", command="true", gate="printf '\\033[1mno\\033[0m'; exit 3")
        + task("agent", kind="builtin", prompt="Do the agent's work.", gate="grep right work", sandbox=tier)
    )
    house.start_daemon()
    house.ok("run", "--detach", house.plan(plan))
    house.wait_final()

    good = house.task("good")
    assert good.result is not None and (good.state, ends(house, "good")) == ("done", [("done", "")])
    assert good.result["gate"]["passed"] and record(house, "good", 1, "gate.log").splitlines()[0] == "made"
    assert (good.result["gate"]["said"] == "made") == bool(tier), "a gate sees what its agent sees"
    assert (house.task("bad").state, ends(house, "bad")) == ("failed", [("failed", "gate: exit code 3")] * 2)
    assert house.ok("logs", "--stream", "gate", "bad") == "\x1b[1mno\x1b[0m"
    assert f"gate      exit code 3; what it printed: nightcrew logs --stream gate {house.task('bad').id}\n" in house.ok("status", "bad")
    prompt = record(house, "bad", 2, "prompt.md")
    assert "did not pass its gate (exit code 3)" in prompt and "\x1b" not in prompt and "[1mno" in prompt

    agent = house.task("agent")
    assert (agent.state, ends(house, "agent")) == ("done", [("failed", "gate: exit code 1"), ("done", "")]), house.account()
    assert git(house.repo, "show", f"{agent.branch}:work") == "right"
    with closing(store.connect_readonly(house.home.ledger)) as db:
        assert queries.attempts(db, agent.id)[1]["cause"] == "resumed: failed: gate: exit code 1"
    assert record(house, "agent", 2, "out/transcript.jsonl").count("did not pass its gate") == 1


def test_a_gate_goes_on_while_no_supervisor_lives_and_runs_once(house: House) -> None:
    go = house.home.root.parent / "go"
    daemon = house.start_daemon()
    gate = f"echo ran; while [ ! -e {go} ]; do sleep 0.02; done"
    house.ok("run", "--detach", house.plan(task("one", command="true", gate=gate)))
    log = house.home.attempt(house.task("one").id, 1) / "gate.log"
    wait_until(lambda: log.exists() and log.read_text(), "the gate to begin")
    daemon.kill()
    daemon.wait()
    go.touch()
    house.start_daemon()
    house.wait_final()
    assert (house.task("one").state, ends(house, "one"), log.read_text()) == ("done", [("done", "")], "ran\n")


def test_a_gate_that_meets_a_limit_says_which(house: House) -> None:
    house.start_daemon()
    house.ok("run", "--detach", house.plan(task("one", command="true", gate="while :; do :; done", cpu_max="1s")))
    house.wait_final()
    assert all(cause.startswith("gate: cpu_max: it used ") for _, cause in ends(house, "one")), ends(house, "one")
