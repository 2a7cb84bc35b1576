"""An agent that was lost goes on with its conversation, in a new worktree that has its work; and other tasks continue it too."""

from __future__ import annotations

import functools
import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from supervisor.host import files, processes
from supervisor.sandbox import executors
from supervisor.store import queries, sqlite
from tests import warm
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git, wait_until

WORK = "echo begun > work; echo MARKER-$((6*7))"
COMMIT = "git add work && git -c user.name=a -c user.email=a@b commit -qm work && echo MARKER-$((6*7))"
CRASH = "kill -9 $PPID"
NAMED = "its agent was killed by signal 9"


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


def script(sim: Simulator, name: str, *commands: str, text: str) -> None:
    """The answers to a conversation in which the task's prompt stands: these commands, one a turn, then words."""
    for command in commands:
        sim.faults(tool="bash", tool_input={"command": command}, contains=f"work of {name}.", times=1)
    sim.faults(text=text, contains=f"work of {name}.")


def attempts(house: House, name: str) -> list[dict[str, Any]]:
    with closing(sqlite.connect_readonly(house.home.ledger)) as db:
        return queries.attempts(db, house.task(name).id)


def transcript(house: House, name: str, epoch: int) -> list[dict[str, Any]]:
    file = house.home.attempt(house.task(name).id, epoch) / "out" / "transcript.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_conversations_go_on(house: House, sim: Simulator) -> None:
    """All in one crew, since each of them waits for the pause after a loss; then once more through kills of the supervisor, and after a
    restart of the machine, when it costs nothing."""
    tiers = [tier for tier in (0, 1) if not tier or tier in executors.known().tiers]
    names = [f"tier{tier}" for tier in tiers]
    for name in ("copy-a", "copy-b"):
        script(sim, name, f"echo {name} > {name}", text=f"I am {name}.")
    for name in names:
        script(sim, name, WORK, COMMIT, CRASH, "cat work", text="It is done.")
    script(sim, "anew", WORK, CRASH, text="It is done.")
    script(sim, "gone", WORK, f"rm $NIGHTCREW_OUT/transcript.jsonl; {CRASH}", text="It is done.")
    script(sim, "broken", WORK, f"echo '{{' > $NIGHTCREW_OUT/transcript.jsonl; {CRASH}", text="It is done.")
    daemon = house.start_daemon()
    others = [task("anew", on_loss="restart"), task("gone"), task("broken")]
    copies = [task(name, continue_from=names[-1], sandbox=tiers[-1]) for name in ("copy-a", "copy-b")]
    house.ok(
        "run",
        "--detach",
        house.plan("".join([*(task(name, sandbox=tier) for name, tier in zip(names, tiers, strict=True)), *others, *copies])),
    )
    house.wait_final()
    for name in names:
        _went_on(house, name)
    for name, ends, cause in (
        ("anew", ["lost", "done"], f"lost: {NAMED}"),
        ("gone", ["lost", "done"], f"lost: {NAMED}; begun anew: there is no transcript of "),
        ("broken", ["lost", "lost", "done"], "lost: could not go on with its conversation: "),
    ):
        tried = attempts(house, name)
        assert [row["end"] for row in tried] == ends and tried[-1]["cause"].startswith(cause), (name, tried)
        assert len([line for line in transcript(house, name, len(tried)) if "You were interrupted" in json.dumps(line)]) == 0
    for name in ("copy-a", "copy-b"):
        _is_a_copy(house, name, names[-1])
    _answers(house, sim, names[-1])
    daemon.kill()
    daemon.wait()
    sim.clear()
    daemon = _supervisors_that_die_meanwhile_change_nothing(house, sim, ("conversation.begun", "launch.spawned"))
    sim.clear()
    _what_was_running_goes_on_after_a_restart_of_the_machine(house, sim, daemon)


def _went_on(house: House, name: str) -> None:
    view, tried = house.task(name), attempts(house, name)
    assert view.state == "done", house.daemon_output()
    assert [row["end"] for row in tried] == ["lost", "done"] and tried[1]["cause"] == f"resumed: lost: {NAMED}"
    assert view.result and view.result["agent"]["message"] == "It is done."
    assert view.result["commits"] == 1, "all that the task did, over both attempts"
    assert git(house.repo, "show", f"{view.branch}:work") == "begun"
    lines = transcript(house, name, 2)
    assert {line["session_id"] for line in lines} == {view.result["agent"]["session"]}
    said = json.dumps(lines)
    assert said.count("MARKER-42") == 2 and said.count("You were interrupted") == 1, "the earlier turns are there, and nothing ran twice"


def _is_a_copy(house: House, name: str, of: str) -> None:
    view, parent = house.task(name), house.task(of)
    assert view.state == "done" and view.result and parent.result, house.daemon_output()
    assert view.result["agent"]["session"] != parent.result["agent"]["session"]
    said = json.dumps(transcript(house, name, 1))
    assert said.count("MARKER-42") == 2 and f"This conversation is a copy of that of the task {parent.id}. You are now in " in said
    places = {line["cwd"] for line in transcript(house, name, 1) if line.get("subtype") == "init"}
    assert len(places) == (1 if view.tier else 3), "in a sandbox all of them see their worktree at one path"
    assert ("are not yours any more" in said) == (not view.tier)
    assert git(house.repo, "show", f"{view.branch}:work") == "begun" and git(house.repo, "show", f"{view.branch}:{name}") == name
    assert name not in git(house.repo, "ls-tree", "--name-only", str(parent.branch)).split()


def _answers(house: House, sim: Simulator, name: str) -> None:
    """Two questions: the second knows the first; the task stays as it ended."""
    before = house.task(name)
    sim.faults(text="Because you asked what I did first.", contains="Why did I ask that?", times=1)
    assert "It is done." in house.ok("ask", name, "What did you do first?")
    told = json.loads(house.ok("ask", "--json", name, "Why did I ask that?"))
    assert told["state"] == "done"
    assert house.task(name) == before
    said = json.dumps(transcript(house, f"{name}-ask", 1))
    assert said.count("MARKER-42") == 2 and "What did you do first?" in said
    assert house.run("ask", name, " ").returncode == 2 and house.run("ask", "nobody", "x").returncode == 4


STEPS = ("finish.noted", "finish.committed", "conversation.begun", "launch.environment", "launch.noted", "launch.spawned")


@pytest.mark.soak
def test_supervisors_that_die_meanwhile_at_every_step_change_nothing(house: House, sim: Simulator) -> None:
    _supervisors_that_die_meanwhile_change_nothing(house, sim, STEPS)


def _supervisors_that_die_meanwhile_change_nothing(house: House, sim: Simulator, steps: tuple[str, ...]) -> warm.Process:
    """The runner is killed, and then one supervisor after another while the task goes on: nothing runs twice, nothing is forgotten. The
    supervisor that is left."""
    sim.faults(tool="bash", tool_input={"command": WORK}, contains="work of one.", times=1)
    sim.faults(tool="bash", tool_input={"command": COMMIT}, contains="work of one.", times=1)
    sim.faults(hold="gate", contains="work of one.", times=1)
    sim.faults(text="It is done.", contains="You were interrupted")
    daemon = house.start_daemon()
    house.ok("run", "--detach", house.plan(task("one")))
    sim.wait_held("gate")
    daemon.kill()
    daemon.wait()
    started = json.loads((house.home.attempt(house.task("one").id, 1) / "started.json").read_text())
    os.kill(started["pid"], signal.SIGKILL)
    for step in steps:
        assert house.start_daemon(die_at=step, wait=False).wait(60) == -signal.SIGKILL, step
    sim.release("gate")
    left = house.start_daemon()
    house.wait_final()
    view, tried = house.task("one"), attempts(house, "one")
    assert [row["end"] for row in tried] == ["lost", "done"] and tried[1]["cause"] == "resumed: lost: its runner died", (
        house.daemon_output()
    )
    said = json.dumps(transcript(house, "one", 2))
    assert said.count("MARKER-42") == 2 and said.count("You were interrupted") == 1
    assert view.result and view.result["commits"] == 1 and git(house.repo, "show", f"{view.branch}:work") == "begun"
    return left


OTHER = "11111111-2222-3333-4444-555555555555"


def restart_machine(house: House, daemon: warm.Process, *names: str) -> None:
    """It is not restarted: all that dies with it is killed, and what is left says that it was of another boot.

    Once they run, kill the supervisor and the runners, and have every record name another boot.
    """
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


def _what_was_running_goes_on_after_a_restart_of_the_machine(house: House, sim: Simulator, daemon: warm.Process) -> None:
    sim.faults(tool="bash", tool_input={"command": "echo begun > work"}, contains="work of one.", times=1)
    sim.faults(hold="gate", contains="work of one.", times=1)
    sim.faults(text="It is done.", contains="You were interrupted")
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
    with closing(sqlite.connect_readonly(house.home.ledger)) as db:
        told = [json.loads(row["data"]) for row in db.execute("SELECT data FROM journal WHERE event = 'machine rebooted'")]
        spent = {tuple(row) for row in db.execute("SELECT failures, restarts FROM task WHERE run = ?", (house.task("one").run,))}
    assert told == [{"from_boot": OTHER, "to_boot": processes.boot_id()}]
    assert spent == {(0, "[]")}, "it costs nothing, and is no restart of a task's own"
    assert house.daemon_output().count("the machine was restarted; what was running is run again") == 1
