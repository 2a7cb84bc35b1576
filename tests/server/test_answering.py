"""`nightcrew answer`: the key of a dialog that is known, in the pane that shows it, once and for what the person saw."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from supervisor.client import protocol
from supervisor.host import attempt_tokens, files, secrets
from supervisor.kernel.errors import Refused
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.gateway.clients.kit import ClaudeCode
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.server.test_sending import Agent
from tests.server.test_sending_claude import CLAUDE
from tests.support import House, at_once, plan_of, shell_task, wait_until

SCREEN = Path(__file__).parent.parent / "data/screens/claude-2.1.329/permission.txt"
DIALOG = f"cat {SCREEN}; stty -icanon -echo min 1; key=$(dd bs=1 count=1 2>/dev/null | od -An -tx1); clear; echo got $key; sleep 600"


def start(house: House, script: str) -> Agent:
    house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([shell_task("agent", script, kind="terminal")])))
    return Agent(house, "agent", ready="")


@pytest.mark.in_turns
@pytest.mark.parametrize(("word", "byte"), [("yes", "31"), ("no", "1b")])
def test_the_key_of_the_dialog_is_pressed_and_nothing_else(house: House, word: str, byte: str) -> None:
    agent = start(house, DIALOG)
    agent.await_screen("Esc to cancel")
    answer = json.loads(house.ok("answer", "agent", word, "--json"))
    assert answer["gone"] and answer["allowed"] == (word == "yes")
    agent.await_screen(f"got {byte}")
    told = json.loads(house.ok("status", "agent", "--json"))["journal"]
    assert [entry["data"]["allowed"] for entry in told if entry["event"] == "permission answered"] == [word == "yes"]
    again = house.run("answer", "agent", word)
    assert again.returncode == 6 and "it shows no dialog that nightcrew knows" in again.stderr, "a late key goes nowhere"


def test_of_parallel_answers_one_is_pressed_and_none_reaches_the_next_question(house: House, tmp_path: Path) -> None:
    go, keys = tmp_path / "go", tmp_path / "keys"
    ask = f"cat {SCREEN}; key=$(dd bs=1 count=1 2>/dev/null | od -An -tx1); clear; echo $key >> {keys}"
    agent = start(house, f"stty -icanon -echo min 1; {ask}; while [ ! -e {go} ]; do sleep 0.05; done; {ask}; sleep 600")
    agent.await_screen("Esc to cancel")
    answers = at_once(house.home.daemon_socket, [("answer", {"task": agent.view.id, "allow": True, "asked": ""})] * 5)
    assert sorted(answer["ok"] for answer in answers) == [False] * 4 + [True]
    assert {answer["error"]["why"] for answer in answers if not answer["ok"]} == {"another answer to it is under way"}
    go.touch()
    agent.await_screen("Esc to cancel")
    house.ok("answer", "agent", "no")
    wait_until(lambda: len(keys.read_text().split()) == 2, "the second key")
    assert keys.read_text().split() == ["31", "1b"]


def test_a_question_that_nobody_saw_is_not_answered(house: House) -> None:
    agent = start(house, DIALOG)
    agent.await_screen("Esc to cancel")
    task = agent.view.id
    wait_until(lambda: protocol.call(house.home.daemon_socket, "needs", {})["agents"], "it to be seen")
    with pytest.raises(Refused, match="it asks something else by now"):
        protocol.call(house.home.daemon_socket, "answer", {"task": task, "allow": True, "asked": "Bash: rm -rf build"})
    assert "got" not in agent.tmux("capture-pane", "-p", "-t", agent.pane)
    assert house.run("answer", "nobody", "yes").returncode == 4


def test_a_dialog_that_comes_unasked_needs_a_person_and_an_answer_ends_what_a_hook_said(house: House) -> None:
    """One that nightcrew does not know, of an agent that rests; and a question whose refusal no hook and no record tells of."""
    agent = start(house, f"cat {SCREEN.parent}/unknown.txt; read line; {DIALOG}")
    task = agent.view.id
    token = attempt_tokens.derive(secrets.own(house.home.secret), task, 1)

    def tells(name: str, **more: object) -> None:
        event = {"name": name, "event": {"session_id": "own", **more}}
        protocol.call(house.home.agents_socket, "hook", event, timeout_s=30, token=token)

    def needs() -> list[tuple[str, str]]:
        return [(one["state"], one["detail"]) for one in protocol.call(house.home.daemon_socket, "needs", {})["agents"]]

    tells("SessionStart")
    agent.await_screen("Esc to cancel")
    wait_until(lambda: needs() == [("waiting_input", "it shows a dialog that nightcrew does not know")], "it to be seen")
    refused = house.run("answer", "agent", "no")
    assert refused.returncode == 6 and "nightcrew attach" in refused.stderr
    agent.tmux("send-keys", "-t", agent.pane, "Enter")
    agent.await_screen("Do you want to")
    tells("PermissionRequest", tool_name="Bash", tool_input={"command": "make"})
    wait_until(lambda: needs() == [("waiting_permission", "Bash: make")], "the question")
    assert json.loads(house.ok("answer", "agent", "no", "--json"))["gone"]
    assert needs() == []
    answer = protocol.call(house.home.daemon_socket, "needs", {})
    assert answer["states"] == {task: "interrupted"}


@pytest.mark.one_in(2)
@pytest.mark.skipif(not CLAUDE.exists(), reason="make clients installs it")
@pytest.mark.parametrize(("word", "tier"), [("yes", 0), ("no", 0), ("no", 1)])
def test_the_real_claude_code_hears_the_answer_and_goes_on(house: House, tmp_path: Path, word: str, tier: int) -> None:
    if tier and Tier(tier) not in executors.known().tiers:
        pytest.skip("this host cannot")
    home = files.private_dir(tmp_path / "claude")
    trusted = {str(house.repo): {"hasTrustDialogAccepted": True}}
    (home / ".claude.json").write_text(json.dumps({"hasCompletedOnboarding": True, "theme": "dark", "projects": trusted}))
    files.private_dir(home / ".claude")
    keys = {"id": "agent", "kind": "claude", "prompt": "begin", "interactive": True, "params.HOME": str(home), "model": ClaudeCode.model}
    files.private_dir(house.home.root)
    know_prices(house.home)
    made = tmp_path / "made.txt"
    with Simulator() as sim:
        house.config.write_text(f"sandbox = {tier}\n[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url)}")
        sim.faults(tool="Write", tool_input={"file_path": str(made), "content": "x"}, times=1)
        house.start_daemon()
        plan = "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        house.run("run", "-d", house.plan(plan), env={"PATH": f"{CLAUDE.parent}:{os.environ['PATH']}"})
        wait_until(lambda: _asks(house), "the question", 120)
        house.ok("answer", "agent", word)
        if word == "yes":
            wait_until(made.exists, "what it was allowed")
            return
        wait_until(lambda: not _asks(house), "nobody to be asked any more", 30)
        house.ok("send", "agent", "do something else")
        wait_until(lambda: _deliveries(house) == ["confirmed"], "the text to be taken", 120)
    assert not made.exists()


def _deliveries(house: House) -> list[str]:
    return [one["state"] for one in json.loads(house.ok("status", "agent", "--json"))["deliveries"]]


def _asks(house: House) -> bool:
    found = protocol.call(house.home.daemon_socket, "needs", {})["agents"]
    return bool(found) and found[0]["state"] == "waiting_permission"
