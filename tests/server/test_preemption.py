"""Agents that make room for a more important task: between two requests, or in the middle of one, and parked after a while."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.host import files
from supervisor.server import lock
from supervisor.store import sqlite
from tests.gateway.clients.kit import CLIENTS, ClaudeCode
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.server.test_continuing import attempts, task
from tests.server.test_continuing_real import BIN, agent_home
from tests.server.test_pause import stands_still
from tests.support import House, plan_of, shell_task, wait_until

pytestmark = pytest.mark.usefixtures("no_groups_left")
UNTIL_GO = "while [ ! -e go ]; do sleep 0.02; done"


@pytest.fixture
def sim(house: House) -> Iterator[Simulator]:
    """A provider, and a house with one slot."""
    files.private_dir(house.home.root)
    know_prices(house.home)
    with Simulator() as found:
        yield found


def configure(house: House, sim: Simulator, queue: str) -> None:
    house.config.write_text(f"slots = 1\n[limits]\ndisk_free_min = 0\n[queue]\n{queue}\n{upstream(house.home, sim.url)}")


def begin(house: House, *, env: dict[str, str] | None = None, **keys: Any) -> None:
    """The agent that will have to make room. A supervisor before this one is killed, and leaves its gateway and its warm process."""
    if (before := lock.holder(house.home.lock)) is not None:
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: lock.holder(house.home.lock) is None, "the kernel to give the lock back")
    house.start_daemon()
    done = house.run("run", "-d", house.plan(task("agent", priority=10, **keys)), env=env)
    assert done.returncode == 0, done


def hurry(house: House, command: str = UNTIL_GO) -> None:
    house.ok("run", "-d", house.plan(plan_of([shell_task("urgent", command, preempt=True)])))


def ends(house: House, name: str = "agent") -> list[str | None]:
    """Of its requests, in their order; None of one that is under way."""
    with contextlib.closing(sqlite3.connect(house.home.gateway_account)) as db:
        return [end for (end,) in db.execute("SELECT end FROM request WHERE agent = ? ORDER BY rowid", (house.task(name).id,))]


def spent(house: House) -> tuple[int, str]:
    """The agent's failures and restarts."""
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        return tuple(db.execute("SELECT failures, restarts FROM task WHERE id = ?", (house.task("agent").id,)).fetchone())


def test_it_makes_room_and_has_lost_nothing(house: House, sim: Simulator) -> None:
    """One supervisor after the other, with settings of its own, at one gateway."""
    for part in (_is_paused_between_two_requests, _is_parked_after_a_while_and_goes_on_with_its_conversation, _is_stopped_with_everything):
        part(house, sim)
        sim.clear()


def _is_paused_between_two_requests(house: House, sim: Simulator) -> None:
    """And is what it was before once the other one has ended: no answer was cut, and none asked for again."""
    configure(house, sim, 'preempt_within = "10m"')
    works = {"command": "while [ ! -e on ]; do sleep 0.02; done"}
    sim.faults(tool="bash", tool_input=works, contains="Do the work", hold="answer", times=1)
    sim.faults(text="It is done.", contains="Do the work")
    begin(house)
    sim.wait_held("answer")
    hurry(house)
    wait_until(lambda: house.task("agent").paused_for == house.task("urgent").id, "it to be asked for room")
    assert not stands_still(house) and house.state("urgent") == "ready", "its request is under way"
    sim.release("answer")
    wait_until(lambda: house.task("urgent").attempt_state == "running", "the other one to run")
    assert stands_still(house) and ends(house) == ["served"]
    assert f"made room for {house.task('urgent').id}, waits for a slot" in house.ok("status")
    Path(house.task("urgent").worktree or "", "go").touch()
    Path(house.task("agent").worktree or "", "on").touch()
    house.wait_final()
    assert (house.state("agent"), house.task("agent").epoch, ends(house)) == ("done", 1, ["served", "served"])


@pytest.mark.parametrize(
    "place",
    [
        "pause.stopped",
        "resume.committed",
        pytest.param("pause.committed", marks=pytest.mark.soak),
        pytest.param("resume.started", marks=pytest.mark.soak),
    ],
)
def test_a_supervisor_that_is_killed_in_the_middle_of_it(house: House, place: str) -> None:
    """The next one makes the room, and gives it back: nothing begins twice."""
    house.config.write_text("slots = 1\n" + house.config.read_text())
    dying = house.start_daemon(die_at=place)
    house.run("run", "-d", house.plan(plan_of([shell_task("agent", f"echo up; {UNTIL_GO}", priority=10)])))
    wait_until(lambda: house.task("agent").attempt_state == "running", "the agent to run")
    house.run("run", "-d", house.plan(plan_of([shell_task("urgent", "true", preempt=True)])))
    dying.wait(30)
    house.start_daemon()
    wait_until(lambda: house.task("urgent").final and not house.task("agent").paused, "the urgent one to end, and the agent to go on")
    Path(house.task("agent").worktree or "", "go").touch()
    house.wait_final()
    assert [(house.state(name), house.task(name).epoch) for name in ("agent", "urgent")] == [("done", 1)] * 2
    assert (house.home.attempt(house.task("agent").id, 1) / "stdout.log").read_text() == "up\n"


def test_claude_code_is_paused_in_the_middle_of_an_answer(house: House, sim: Simulator, tmp_path: Path) -> None:
    """The gateway reads the answer to its end meanwhile, so that its tokens are counted; Claude Code goes on, and asks nothing again."""
    if not (BIN / "claude").exists():
        pytest.skip(f"claude is not installed in {CLIENTS}: run make clients")
    configure(house, sim, "preempt_within = 0.2")
    sim.faults(text="One two three four five six. " * 20, contains="Do the work", then="pings", after=8, for_s=4.0)
    keys = {"kind": "claude", "model": ClaudeCode.model, "sandbox": 0, "params.HOME": str(agent_home(tmp_path))}
    begin(house, env={"PATH": f"{BIN}:{os.environ['PATH']}"}, **keys)
    wait_until(lambda: house.home.gateway_account.exists() and None in ends(house), "its request", timeout_s=150)
    hurry(house)
    wait_until(lambda: house.task("urgent").attempt_state == "running", "the other one to run")
    assert stands_still(house) and house.task("agent").paused == "slot"
    wait_until(lambda: None not in ends(house), "the answer to be read to its end")
    asked = len(ends(house))
    assert stands_still(house) and set(ends(house)) == {"served"}
    Path(house.task("urgent").worktree or "", "go").touch()
    house.wait_final()
    view = house.task("agent")
    assert (view.state, view.epoch, len(ends(house)), set(ends(house))) == ("done", 1, asked, {"served"}), house.daemon_output()
    assert view.result and view.result["agent"]["message"].startswith("One two three")


def _is_parked_after_a_while_and_goes_on_with_its_conversation(house: House, sim: Simulator) -> None:
    configure(house, sim, "preempt_within = 0\npark_after = 0.01")
    sim.faults(tool="bash", tool_input={"command": "echo begun > work; touch began; while [ ! -e go ]; do sleep 0.02; done"}, times=1)
    sim.faults(text="It is done.")
    begin(house)
    wait_until(lambda: Path(house.task("agent").worktree or "/none", "began").exists(), "it to work")
    hurry(house)
    wait_until(lambda: [row["end"] for row in attempts(house, "agent")] == ["lost"], "it to be parked")
    assert house.state("agent") == "ready" and house.state("urgent") == "running"
    Path(house.task("urgent").worktree or "", "go").touch()
    house.wait_final()
    first, second = attempts(house, "agent")
    assert (first["end_cause"], second["cause"]) == ("parked after a long pause", "resumed: lost: parked after a long pause")
    assert second["end"] == "done" and spent(house) == (0, "[]"), "it costs nothing, and is no restart of the task's own"


@pytest.mark.soak
def test_claude_code_is_stopped_with_everything(house: House, sim: Simulator, tmp_path: Path) -> None:
    if not (BIN / "claude").exists():
        pytest.skip(f"claude is not installed in {CLIENTS}: run make clients")
    _is_stopped_with_everything(house, sim, kind="claude", model=ClaudeCode.model, sandbox=0, **{"params.HOME": str(agent_home(tmp_path))})


def _is_stopped_with_everything(house: House, sim: Simulator, **keys: Any) -> None:
    """In the middle of an answer, which is cut within a second or so, and asked for again after the thaw."""
    configure(house, sim, "")
    sim.faults(text="One two three. " * 20, contains="Do the work", then="pings", after=8, times=1)
    sim.faults(text="It is done.", contains="Do the work")
    begin(house, env={"PATH": f"{BIN}:{os.environ['PATH']}"}, **keys)
    wait_until(lambda: house.home.gateway_account.exists() and None in ends(house), "its request", timeout_s=150)
    house.ok("stop-all")
    wait_until(lambda: ends(house) == ["client gone"], "it to be cut: the provider would send pings for ever")
    assert stands_still(house)
    house.ok("thaw")
    house.wait_final(timeout_s=120)
    assert (house.state("agent"), house.task("agent").epoch, ends(house)[-1]) == ("done", 1, "served"), house.daemon_output()
    assert (house.task("agent").result or {})["agent"]["message"] == "It is done."
