"""The real Codex tells by its hooks how it is, with a person at it. Without one: tests/server/test_real_agent.py."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.host import files
from tests.gateway.clients.kit import CLIENTS, Codex
from tests.gateway.kit import upstream
from tests.gateway.simulator import Simulator
from tests.server.test_sending import Agent
from tests.support import House, wait_until

CODEX = CLIENTS / "node_modules/.bin/codex"
pytestmark = pytest.mark.skipif(not CODEX.exists(), reason="make clients installs it")


def test_codex_says_how_it_is_and_esc_is_seen(house: House, tmp_path: Path) -> None:
    home = files.private_dir(tmp_path / "person")
    files.private_dir(home / ".codex")
    files.private_dir(house.home.root)
    house.ok("trust", "--kind", "codex", "--yes", env={"HOME": str(home)})  # or it would ask: tests/agents/clients/test_claude_session.py
    keys = {"id": "agent", "kind": "codex", "prompt": "begin", "interactive": True, "params.HOME": str(home), "model": Codex.model}
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url, api='openai')}")
        sim.faults(hold="gate", times=1)
        house.start_daemon()
        plan = "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        house.run("run", "-d", house.plan(plan), env={"PATH": f"{CODEX.parent}:{os.environ['PATH']}"})

        def explained() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(house.ok("status", "agent", "--explain", "--json"))["agents"][house.task("agent").id]
            return found

        def said() -> dict[str, str]:
            return {piece["source"]: piece["state"] for piece in explained()["evidence"]}

        sim.wait_held("gate")
        wait_until(lambda: (said().get("hook"), said().get("title")) == ("working", "working"), "its turn, and the title that spins")
        agent = Agent(house, "agent", ready="begin")
        agent.tmux("send-keys", "-t", agent.pane, "Escape")
        wait_until(lambda: explained()["state"] == "interrupted", "Esc, by its hook")
        sim.release("gate")
