"""Hooks of a living agent: they say how it is, through a crash of the supervisor too, and cannot speak for another or without end."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agents import hook_client
from agents.agent_state import DETAIL_MAX
from supervisor.client import protocol
from supervisor.host import attempt_tokens, files, secrets
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.kernel.errors import Refused, UsageError
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from supervisor.server import lock
from supervisor.server.attempts import observe
from supervisor.server.attempts.observe import AgentEvidence
from tests.gateway.kit import StandingClock
from tests.support import House, plan_of, shell_task, wait_until

CLIENT = f"{shlex.quote(sys.executable)} -I -S {shlex.quote(str(Path(hook_client.__file__).with_name('client.py')))}"
EACH = f"""
while :; do
    for file in *.event; do
        [ -e "$file" ] && {CLIENT} "${{file%.event}}" < "$file" && mv "$file" "$file.told"
    done
    sleep 0.02
done
"""
"""An agent that runs its hook for each file NAME.event that appears beside it."""


class Agent:
    def __init__(self, house: House, tier: int) -> None:
        self.house = house
        house.ok("run", "-d", house.plan(plan_of([shell_task("agent", EACH, sandbox=tier)])))
        wait_until(lambda: house.task("agent").attempt_state == "running", "it to run")
        where = house.task("agent").worktree
        assert where is not None
        self.where = Path(where)
        self.session = house.task("agent").id

    def again(self) -> None:
        self.house.start_daemon()

    def crash(self) -> None:
        pid = lock.holder(self.house.home.lock)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: lock.holder(self.house.home.lock) is None, "the kernel to give the lock back")

    def hook(self, name: str, **event: Any) -> None:
        draft = self.where / "draft"
        draft.write_text(json.dumps({"session_id": self.session, **event}))
        draft.rename(self.where / f"{name}.event")
        wait_until(lambda: (self.where / f"{name}.event.told").exists(), "the hook to end")
        (self.where / f"{name}.event.told").unlink()

    def explained(self, name: str = "agent") -> dict[str, Any]:
        shape = json.loads(self.house.ok("status", name, "--explain", "--json"))
        found: dict[str, Any] = shape["agents"][self.house.task(name).id]
        return found

    def state(self) -> str:
        return str(self.explained()["state"])

    def token(self, name_of: str = "agent") -> str:
        return attempt_tokens.derive(secrets.own(self.house.home.secret), self.house.task(name_of).id, 1)

    def ask(self, name: object, event: object, name_of: str = "agent") -> None:
        self.call(self.token(name_of), name, event)

    def call(self, token: str, name: object, event: object) -> None:
        protocol.call(self.house.home.agents_socket, "hook", {"name": name, "event": event}, timeout_s=30, token=token)


def history(house: House) -> list[dict[str, Any]]:
    """What was done to the agent."""
    found: list[dict[str, Any]] = json.loads(house.ok("audit", "show", "--json", "--task", "agent", "-n", "1000"))["entries"]
    return found


@pytest.fixture
def house(lasting: House) -> House:
    return lasting


@pytest.fixture
def agent(house: House) -> Agent:
    return Agent(house, 0)


@pytest.mark.parametrize("tier", [0, 2])
def test_hooks_say_how_it_is_from_every_tier(house: House, tier: int) -> None:
    if Tier(tier) not in executors.known().tiers and tier:
        pytest.skip("this host cannot")
    agent = Agent(house, tier)
    assert agent.state() == "working", "nothing but its process is known"
    assert house.ok("status").startswith("● running ")
    agent.hook("SessionStart")
    assert agent.state() == "idle"
    assert house.ok("status").startswith("◦ idle ")
    assert json.loads(house.ok("status", "--json"))["agent_states"] == {house.task("agent").id: "idle"}
    agent.hook("PermissionRequest", tool_name="Bash", tool_input={"command": "rm -rf build"})
    shape = agent.explained()
    assert (shape["state"], shape["needs_person"], shape["detail"]) == ("waiting_permission", True, "Bash: rm -rf build")
    assert [(one["source"], one["why"]) for one in shape["evidence"]] == [("hook", "decides"), ("process", "is overruled")]
    shown = house.ok("status", "agent", "--explain").splitlines()
    assert shown[0].startswith(house.task("agent").id + "  waiting_permission for ") and shown[0].endswith(": Bash: rm -rf build")
    agent.hook("PreToolUse", tool_name="Read", tool_input={})
    agent.hook("PostToolUse", tool_name="Bash", tool_input={"command": "rm -rf build"})
    house.ok("kill", "agent")
    wait_until(lambda: house.task("agent").final, "its end")
    assert agent.state() == "stopped"
    told = [(one["decision"], one["reason"]) for one in history(house) if one["kind"] == "permission"]
    assert told == [("permission asked", "Bash: rm -rf build"), ("permission granted", "Bash: rm -rf build")]
    assert [one["data"] for one in history(house) if one["kind"] == "tools"] == [{"calls": 1, "by": {"Read": 1}}]


def test_an_agent_in_a_sandbox_reaches_the_next_supervisor_too(house: House) -> None:
    if Tier.FILES not in executors.known().tiers:
        pytest.skip("this host cannot")
    agent = Agent(house, 1)
    agent.hook("SessionStart")
    agent.crash()
    agent.again()
    assert agent.state() == "idle", "it has read by now what was said while nobody listened"
    agent.hook("UserPromptSubmit")
    assert next((one["source"], one["state"]) for one in agent.explained()["evidence"]) == ("hook", "working")


def test_a_crash_of_the_supervisor_loses_nothing_that_was_said(agent: Agent) -> None:
    agent.hook("UserPromptSubmit")
    agent.hook("PermissionRequest", tool_name="Bash", tool_input={})
    agent.hook("PreToolUse", tool_name="Read", tool_input={})
    agent.crash()
    agent.again()
    assert agent.state() == "waiting_permission", "what was asked is still open"
    agent.hook("PreToolUse", tool_name="Read", tool_input={})
    assert agent.state() == "waiting_permission", "whatever other tools begin"
    agent.crash()
    agent.hook("PostToolUse", tool_name="Bash", tool_input={})
    agent.hook("Stop")
    agent.again()
    assert agent.state() == "idle", "what nobody took was kept"
    agent.hook("UserPromptSubmit")
    agent.crash()
    agent.again()
    assert agent.state() == "working", "and is not believed again later"


def test_who_waits_for_a_person_is_shown_first(agent: Agent) -> None:
    house = agent.house
    house.ok("add", "--id", "other", "sleep 600")
    wait_until(lambda: house.task("other").attempt_state == "running", "the other to run")
    agent.hook("UserPromptSubmit")
    assert json.loads(house.ok("status", "--json"))["needs_person"] == []
    agent.hook("PermissionRequest", tool_name="Bash", tool_input={"command": "make"})
    (asked,) = json.loads(house.ok("status", "--json"))["needs_person"]
    assert (asked["task"], asked["state"], asked["detail"]) == (house.task("agent").id, "waiting_permission", "Bash: make")
    first, second = house.ok("status").splitlines()[:2]
    assert first.startswith("? needs you ") and "/agent " in first and "Bash: make" in first and "/other" in second
    agent.hook("PostToolUse", tool_name="Bash", tool_input={"command": "make"})
    assert "needs you" not in house.ok("status")


def test_a_nested_agent_does_not_speak_for_it(agent: Agent) -> None:
    agent.hook("PermissionRequest", tool_name="Bash", tool_input={})
    agent.hook("Stop", session_id="nested")
    (own, _) = agent.explained()["evidence"]
    assert (agent.state(), own["source"], own["why"]) == ("waiting_permission", "hook", "decides")


def test_a_flood_is_refused_and_shown(agent: Agent) -> None:
    token, over = agent.token(), threading.Event()

    def flood() -> int:
        for _ in range(int(observe.BURST) * 50):
            if over.is_set():
                return 0
            try:
                agent.call(token, "UserPromptSubmit", {"session_id": agent.session})
            except Refused as error:
                if "too many hooks" not in error.line():
                    raise
                over.set()
                return 1
        return 0

    with ThreadPoolExecutor(8) as many:  # one at a time is no flood on a busy machine
        refused = sum(each.result() for each in [many.submit(flood) for _ in range(8)])
    assert refused
    shape = agent.explained()
    assert (shape["state"], shape["look"]) == ("working", f"hooks left out because it sends too many: {refused}")


def test_one_that_speaks_for_another_is_refused_and_shown(agent: Agent) -> None:
    house = agent.house
    house.ok("add", "--id", "forger", "sleep 600")
    wait_until(lambda: house.task("forger").attempt_state == "running", "the forger to run")
    agent.hook("UserPromptSubmit")
    agent.ask("UserPromptSubmit", {"session_id": f"{agent.session} of its own"}, name_of="forger")
    with pytest.raises(Refused, match="another agent speaks in it"):
        agent.ask("Stop", {"session_id": agent.session}, name_of="forger")
    assert agent.state() == "working"
    forger = agent.explained("forger")
    assert (forger["state"], forger["look"]) == ("working", "hooks left out because they name another agent's session: 1")
    agent.ask("Stop", {"session_id": f"{agent.session} of its own"}, name_of="forger")
    assert (agent.state(), agent.explained("forger")["state"]) == ("working", "idle")


def test_who_names_a_session_first_silences_nobody(agent: Agent) -> None:
    agent.house.ok("add", "--id", "forger", "sleep 600")
    wait_until(lambda: agent.house.task("forger").attempt_state == "running", "the forger to run")
    agent.ask("UserPromptSubmit", {"session_id": agent.session}, name_of="forger")
    agent.hook("PermissionRequest", tool_name="Bash", tool_input={})
    assert agent.state() == "waiting_permission"


def test_what_is_no_event_is_refused(agent: Agent) -> None:
    for name, event in ((5, {}), (None, None), ("Stop", []), ("Stop", "text")):
        with pytest.raises(UsageError, match="not a request"):
            agent.ask(name, event)


DAMAGED = ("", "[]", "{", '{"session": 1}', '{"session": "s", "count": 1, "pending": 5, "evidence": {}}', "[" * 60_000)


def test_a_record_that_is_damaged_is_nothing_known(agent: Agent) -> None:
    agent.hook("UserPromptSubmit")
    records = agent.house.home.attempt(agent.house.task("agent").id, 1)
    for text in DAMAGED:
        agent.crash()
        (records / observe.RECORD).write_text(text)
        (records / "out" / hook_client.KEPT).write_text(text + '\n{"at": 9e18, "name": "Stop", "event": {}}\n')
        agent.again()
        assert (agent.state(), agent.explained()["evidence"][0]["source"]) == ("working", "process"), text[:60]


KEY = ("1122-k3f9/agent", 1)
ASKS = {"session_id": "own", "tool_name": "Bash", "tool_input": {"command": "make"}}


@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: text[:40])
def test_who_reads_a_damaged_record_reads_on(tmp_path: Path, text: str) -> None:
    home = Home(tmp_path)
    record = files.private_dir(home.attempt(*KEY) / "out").parent / observe.RECORD
    record.write_text(text)
    kept = home.attempt(*KEY) / "out" / hook_client.KEPT
    kept.write_text(text + "\n" + json.dumps({"at": 1.0, "name": "PermissionRequest", "event": ASKS}) + "\n")
    assert known(home) == "waiting_permission"


def test_of_what_nobody_took_only_the_end_is_read(tmp_path: Path) -> None:
    """An agent may have filled the file: reading all of it on the loop's thread would stop the supervisor for seconds."""
    home = Home(tmp_path)
    kept = files.private_dir(home.attempt(*KEY) / "out") / hook_client.KEPT
    later = json.dumps({"at": 2.0, "name": "PreToolUse", "event": {**ASKS, "tool_name": "Read"}}) + "\n"
    first = json.dumps({"at": 1.0, "name": "PermissionRequest", "event": ASKS}) + "\n"
    kept.write_text(first + later)
    assert known(home) == "waiting_permission"
    kept.write_text(first + later * (300_000 // len(later)))
    assert known(home) == "working"


def test_long_permissions_that_are_all_open_outlive_the_supervisor(tmp_path: Path) -> None:
    home = Home(tmp_path)
    files.private_dir(home.attempt(*KEY) / "out")
    before = AgentEvidence(home, SystemClock())
    for number in range(100):
        before.hook(KEY, "PermissionRequest", {**ASKS, "tool_input": {"command": f"{number} " + "\U0001f600" * 20_000}})
    (piece,) = before.of(KEY)[1]
    assert len(piece.detail) == DETAIL_MAX
    assert AgentEvidence(home, SystemClock()).of(KEY)[1] == [piece]


def test_what_is_told_of_permissions_is_little_when_it_is_much(tmp_path: Path) -> None:
    home = Home(tmp_path)
    files.private_dir(home.attempt(*KEY) / "out")
    heard = AgentEvidence(home, StandingClock())
    told = [heard.hook(KEY, "PermissionRequest", {**ASKS, "tool_input": {"command": str(number)}}) for number in range(150)]
    assert sum(map(len, told)) <= observe.ASKING_BURST and len(told[0]) == 1


def known(home: Home) -> str:
    (piece,) = AgentEvidence(home, SystemClock()).of(KEY)[1]
    return str(piece.state)
