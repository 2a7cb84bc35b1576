"""The same with real command lines: their own transcripts, in the home that their sandbox shows them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.host import files
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.gateway.clients.kit import CLIENTS, ClaudeCode, Codex
from tests.gateway.kit import upstream
from tests.gateway.simulator import Simulator
from tests.server.test_continuing import CRASH, NAMED, WORK, attempts, task
from tests.support import House, git

BIN = CLIENTS / "node_modules" / ".bin"


def runs(kind: str, command: str) -> dict[str, Any]:
    """What the model says to have a command run."""
    if kind == "claude":
        return {"tool": "Bash", "tool_input": {"command": command, "description": "it"}}
    return {"tool": "exec", "tool_input": f"text(await tools.exec_command({{cmd: {json.dumps(command)}}}))"}


def agent_home(tmp_path: Path) -> Path:
    """A home in which both were started before."""
    home = files.private_dir(tmp_path / "agent-home")
    for directory in (".claude", ".codex"):
        files.private_dir(home / directory)
    (home / ".claude.json").write_text("{}")
    return home


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "api", "model", "tier"), [("claude", "anthropic", ClaudeCode.model, 1), ("codex", "openai", Codex.model, 1)]
)
def test_a_killed_agent_goes_on_and_answers(house: House, tmp_path: Path, kind: str, api: str, model: str, tier: int) -> None:
    if not (BIN / kind).exists():
        pytest.skip(f"{kind} is not installed in {CLIENTS}: run make clients")
    if Tier(tier) not in executors.known().tiers:
        pytest.skip("this host cannot")
    files.private_dir(house.home.root)
    keys = {"kind": kind, "model": model, "sandbox": tier, "params.HOME": str(agent_home(tmp_path))}
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url, api=api)}")
        sim.faults(text="I am the copy.", contains="work of copy.")
        for command in (WORK, CRASH, "cat work"):
            sim.faults(**runs(kind, command), contains="work of one.", times=1)
        sim.faults(text="Because of MARKER.", contains="Why?", times=1)
        sim.faults(text="It is done.", contains="MARKER-42")
        house.start_daemon()
        plan = task("one", **keys) + task("copy", continue_from="one", **keys)
        house.run("run", house.plan(plan), env={"PATH": f"{BIN}:{os.environ['PATH']}"}, timeout_s=240)
        answer = house.run("ask", "one", "Why?", timeout_s=120)
    one, copy, tried = house.task("one"), house.task("copy"), attempts(house, "one")
    assert [row["end"] for row in tried] == ["lost", "done"], (tried, house.daemon_output())
    assert tried[1]["cause"] == f"resumed: lost: {NAMED}"
    assert one.result and one.result["agent"]["message"] == "It is done." and one.result["agent"]["session"]
    assert git(house.repo, "show", f"{one.branch}:work") == "begun"
    assert copy.result and copy.result["agent"]["message"] == "I am the copy.", copy.result
    assert copy.result["agent"]["session"] not in (None, one.result["agent"]["session"])
    assert answer.stdout.strip() == "Because of MARKER.", answer


@pytest.mark.soak
def test_a_copy_finds_the_providers_cache(house: House, tmp_path: Path) -> None:
    """What Claude Code sends first in a copy begins with the very bytes of its last request before: at one path, and also at another."""
    if not (BIN / "claude").exists():
        pytest.skip(f"claude is not installed in {CLIENTS}: run make clients")
    if Tier.FILES not in executors.known().tiers:
        pytest.skip("this host cannot")
    files.private_dir(house.home.root)
    keys = {"kind": "claude", "model": ClaudeCode.model, "sandbox": 1, "params.HOME": str(agent_home(tmp_path))}
    plan = ""
    for name, same in (("here", True), ("there", False)):
        plan += task(name, **keys, same_path=same) + task(f"copy-of-{name}", continue_from=name, **keys, same_path=same)
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url)}")
        for name in ("here", "there"):
            sim.faults(text="I am the copy.", contains=f"work of copy-of-{name}.")
            sim.faults(**runs("claude", "echo made > made; git status; pwd"), contains=f"work of {name}.", times=1)
        sim.faults(text="It is done.")
        house.start_daemon()
        house.run("run", house.plan(plan), env={"PATH": f"{BIN}:{os.environ['PATH']}"}, timeout_s=240)
    for name in ("here", "there"):
        begun, copy = house.task(name).result, house.task(f"copy-of-{name}").result
        assert begun and copy and begun["agent"]["steps"] == 2 and copy["agent"]["message"] == "I am the copy.", house.daemon_output()
        tokens, first = begun["tokens"], begun["first_request"]
        last = sum(tokens[kind] - first[kind] for kind in ("input", "cache_read", "cache_write"))
        assert copy["first_request"]["cache_read"] >= last, "all that the last request before had"
