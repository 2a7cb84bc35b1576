"""The real Codex tells by its hooks how it is, with a person at it and without."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.host import files
from tests.daemon.test_sending import Agent
from tests.gateway.clients.kit import CLIENTS, Codex
from tests.gateway.kit import upstream
from tests.gateway.simulator import Fault, Simulator
from tests.support import House, wait_until

CODEX = CLIENTS / "node_modules/.bin/codex"
pytestmark = pytest.mark.skipif(not CODEX.exists(), reason="make clients installs it")


def test_codex_says_how_it_is_and_esc_is_seen(house: House, tmp_path: Path) -> None:
    home = files.private_dir(tmp_path / "home")
    folder = files.private_dir(home / ".codex")
    trusted = "".join(f"[projects.{json.dumps(str(place))}]\ntrust_level = 'trusted'\n" for place in (house.repo, house.home.worktrees))
    (folder / "config.toml").write_text(trusted)
    files.private_dir(house.home.root)
    both = {"kind": "codex", "prompt": "begin", "params.HOME": str(home), "model": Codex.model}
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url, api='openai')}")
        sim.faults(Fault(tool="exec", tool_input='text(await tools.exec_command({cmd: "true"}))', times=1), Fault(hold="gate", times=1))
        house.start_daemon()
        plan = "".join(
            "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in {**both, **own}.items())
            for own in ({"id": "night"}, {"id": "day", "interactive": True, "after": ["night"]})
        )
        house.run("run", "-d", house.plan(plan), env={"PATH": f"{CODEX.parent}:{os.environ['PATH']}"})

        def explained(name: str) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(house.ok("status", name, "--explain", "--json"))["agents"][house.task(name).id]
            return found

        def said(name: str) -> dict[str, str]:
            return {piece["source"]: piece["state"] for piece in explained(name)["evidence"]}

        sim.wait_held("gate")
        wait_until(lambda: said("night").get("hook") == "working" == said("night").get("protocol"), "both of its voices")
        sim.faults(hold="door", times=1)
        sim.release("gate")
        wait_until(lambda: house.state("night") == "done", "the end of the first")
        sim.wait_held("door")
        wait_until(lambda: said("day").get("hook") == "working", "its turn")
        agent = Agent(house, "day", ready="begin")
        agent.tmux("send-keys", "-t", agent.pane, "Escape")
        wait_until(lambda: explained("day")["state"] == "interrupted", "Esc, by its hook")
        sim.release("door")
