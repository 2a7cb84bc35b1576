"""`nightcrew send` and the real Claude Code: its own record says when it takes a text, and that it took it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.clients.kit import CLIENTS
from tests.gateway.simulator import Simulator
from tests.server.test_sending import Agent
from tests.support import House, plan_of, shell_task, wait_until

CLAUDE = CLIENTS / "node_modules/.bin/claude"
pytestmark = pytest.mark.skipif(not CLAUDE.exists(), reason="make clients installs it")
KEY = "k" * 20


def prompts(home: Path) -> list[str]:
    """What Claude Code took as prompts, by its own transcript."""
    lines = [json.loads(line) for file in home.glob(".claude/projects/*/*.jsonl") for line in file.read_text().splitlines()]
    return [line["message"]["content"] for line in lines if line["type"] == "user" and isinstance(line["message"]["content"], str)]


def command(home: Path, url: str) -> list[str]:
    """A Claude Code that has seen its first screens, and not this directory."""
    home.mkdir()
    seen = {"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": {"approved": [KEY], "rejected": []}}
    (home / ".claude.json").write_text(json.dumps(seen))
    env = {"HOME": home, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    return ["env", *(f"{name}={value}" for name, value in env.items()), str(CLAUDE), "--permission-mode", "default"]


def chooses(agent: Agent, line: str) -> bool:
    """Whether the dialog stands on that line; else Down is pressed, which a program that has only drawn it may drop."""
    if line in agent.tmux("capture-pane", "-p", "-t", agent.pane):
        return True
    agent.tmux("send-keys", "-t", agent.pane, "Down")
    return False


def test_a_text_waits_for_the_end_of_a_dialog_and_of_a_turn_and_is_confirmed(house: House, tmp_path: Path) -> None:
    assert shutil.which("node"), "Claude Code needs it"
    with Simulator() as sim:
        house.start_daemon()
        house.ok("run", "-d", house.plan(plan_of([shell_task("agent", command(tmp_path / "claude", sim.url), kind="terminal")])))
        agent = Agent(house, "agent", ready="I trust this folder")

        def sent(number: int) -> dict[str, Any]:
            one: dict[str, Any] = json.loads(house.ok("status", "agent", "--json"))["deliveries"][number]
            assert one["state"] not in ("unconfirmed", "dropped"), json.dumps(one) + agent.tmux("capture-pane", "-p", "-t", agent.pane)
            return one

        kept = agent.send("first\nof two lines")
        assert (kept["state"], kept["why"]) == ("pending", "it has not begun its session: it starts, or shows a dialog")
        wait_until(lambda: chooses(agent, "❯ Yes"), "the answer", every_s=2.0)
        agent.tmux("send-keys", "-t", agent.pane, "Enter")
        wait_until(lambda: sent(0)["state"] == "confirmed", "the text that waited for the dialog")
        wait_until(lambda: "done" in agent.tmux("capture-pane", "-p", "-t", agent.pane), "the end of the turn")
        sim.faults(hold="gate", times=1)
        agent.send("second")
        wait_until(lambda: sent(1)["state"] == "confirmed", "the second text")
        kept = agent.send("third")
        assert (kept["state"], kept["why"]) == ("pending", "it is working")
        sim.wait_held("gate")
        sim.release("gate")
        wait_until(lambda: sent(2)["state"] == "confirmed", "the text that waited for the turn")
        # Its hook tells of a prompt before its session file has it.
        wait_until(lambda: len(prompts(tmp_path / "claude")) > 2, "the third text in its session file")
        assert prompts(tmp_path / "claude") == ["first\nof two lines", "second", "third"]
