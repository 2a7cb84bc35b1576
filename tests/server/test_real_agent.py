"""Real agents by their kind, in a sandbox: each adds a task by our tools, edits a file and commits by its own, and the commit is in the
person's repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.kinds import kinds
from supervisor.host import files
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from supervisor.server.attempts.observe import RECORD
from tests.gateway.clients.kit import CLIENTS, ClaudeCode, Codex
from tests.gateway.kit import upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git

COMMIT = "echo work > work && git add work && git -c user.name=a -c user.email=a@b commit -qm work && git stash list && git tag mine"
BIN = CLIENTS / "node_modules" / ".bin"


CHILD = {"text": "true", "id": "child"}


def claude(sim: Simulator) -> None:
    """Its next answer adds CHILD, and the one after that runs COMMIT."""
    sim.faults(tool="mcp__crew__add_task", tool_input=CHILD, times=1)
    sim.faults(tool="Bash", tool_input={"command": COMMIT, "description": "commit"}, times=1)


def codex(sim: Simulator) -> None:
    """The same; its newest models run all tools from one script in JavaScript."""
    script = f"text(await tools.mcp__crew__add_task({json.dumps(CHILD)})); text(await tools.exec_command({{cmd: {json.dumps(COMMIT)}}}))"
    sim.faults(tool="exec", tool_input=script, times=1)


@pytest.mark.parametrize(
    ("kind", "api", "model", "will_commit", "tier"),
    [
        pytest.param("claude", "anthropic", ClaudeCode.model, claude, 1, marks=pytest.mark.soak),
        ("claude", "anthropic", ClaudeCode.model, claude, 2),
        ("codex", "openai", Codex.model, codex, 1),
    ],
)
def test_an_agent_commits_and_tags_in_its_sandbox(
    house: House, tmp_path: Path, kind: str, api: str, model: str, will_commit: Callable[[Simulator], None], tier: int
) -> None:
    if not (BIN / kind).exists():
        pytest.skip(f"{kind} is not installed in {CLIENTS}: run make clients")
    if Tier(tier) not in executors.known().tiers:
        pytest.skip("this host cannot")
    home = files.private_dir(tmp_path / "agent-home")
    for directory in (".claude", ".codex"):
        files.private_dir(home / directory)
    (home / ".claude.json").write_text("{}")
    # Its own sandbox cannot be built in ours, and the address leads past the gateway: the settings of the session go before both.
    own = {
        "sandbox": {"enabled": True, "failIfUnavailable": True, "allowUnsandboxedCommands": False},
        "env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"},
    }
    (home / ".claude/settings.json").write_text(json.dumps(own))
    files.private_dir(house.home.root)
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url, api=api)}")
        will_commit(sim)
        house.start_daemon()
        keys = {
            "id": "agent",
            "kind": kind,
            "prompt": "- commit it",
            "model": model,
            "sandbox": tier,
            "params.HOME": str(home),
            "children_max": 1,
        }
        plan = "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        house.run("run", house.plan(plan), env={"PATH": f"{BIN}:{os.environ['PATH']}"}, timeout_s=240)
        asked = sim.last()
    view = house.task("agent")
    assert view.state == "done", house.run("logs", "agent").stdout
    judged = view.result or {}
    assert judged["agent"]["session"] and judged["agent"]["denials"] == [] and judged["notes"] == []
    assert judged["agent"]["tokens"] == {kind: judged["tokens"][kind] for kind in judged["agent"]["tokens"]}, "as the gateway counted"
    assert asked and {entry["model"] for entry in asked if entry.get("model")} == {model}
    assert git(house.repo, "show", f"{view.branch}:work") == "work"
    house.wait_final()
    child = house.task("child")
    assert (child.state, child.parent, child.parent_epoch, child.tier) == ("done", view.id, 1, tier)
    assert git(house.repo, "tag", "--list") == "" and git(house.repo, "fsck") == ""
    assert house.ok("diff", "--stat", "agent").split()[0] == "work"
    told = json.loads((house.home.attempt(view.id, 1) / RECORD).read_text())
    assert told["evidence"]["state"] == "idle" and told["count"] >= 5, "start, prompt, a tool before and after, and the end of its turn"


LATE = """
import json, sys, time
time.sleep(35)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        version, info = asked["params"]["protocolVersion"], {"name": "late", "version": "1"}
        told = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif asked["method"] == "tools/list":
        told = {"tools": [{"name": "late", "description": "", "inputSchema": {"type": "object"}}]}
    else:
        told = {}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
"""


@pytest.mark.soak
def test_claude_does_not_begin_without_tools_that_start_late(tmp_path: Path) -> None:
    if not (BIN / "claude").exists():
        pytest.skip(f"claude is not installed in {CLIENTS}: run make clients")
    (tmp_path / ".claude.json").write_text("{}")
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"crew": {"command": sys.executable, "args": ["-c", LATE]}}}))
    with Simulator() as sim:
        env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "ANTHROPIC_BASE_URL": sim.url, "ANTHROPIC_API_KEY": "none"}
        argv = [
            str(BIN / "claude"),
            "-p",
            "hello",
            "--mcp-config",
            str(tmp_path / "mcp.json"),
            "--output-format",
            "stream-json",
            "--verbose",
        ]
        said = subprocess.run(
            argv, env={**env, **kinds()["claude"].env}, cwd=tmp_path, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
        )
    begun = next(line for line in map(json.loads, said.stdout.splitlines()) if line.get("subtype") == "init")
    assert "mcp__crew__late" in begun["tools"], begun["mcp_servers"]
