"""Real command lines meet another's lease before they write: Claude Code and Codex, with the simulated provider. What their models were
told is in the transcripts that they keep."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from supervisor.host import files
from tests.gateway.clients.kit import CLIENTS, ClaudeCode, Codex
from tests.gateway.kit import upstream
from tests.gateway.simulator import Simulator
from tests.support import House, wait_until

BIN = CLIENTS / "node_modules" / ".bin"
PATCH = "*** Begin Patch\n*** Add File: src/x.py\n+x\n*** End Patch\n"


def waits(sim: Simulator, kind: str, go: Path) -> None:
    """Its first answer runs a command that ends when `go` is there: by then its worktree is known."""
    command = f"until test -e {go}; do sleep 0.05; done"
    if kind == "claude":
        sim.faults(tool="Bash", tool_input={"command": command, "description": "wait"}, times=1)
    else:
        sim.faults(tool="exec", tool_input=f"text(await tools.exec_command({{cmd: {json.dumps(command)}, yield_time_ms: 20000}}))", times=1)


def writes(sim: Simulator, kind: str, worktree: Path) -> None:
    if kind == "claude":
        sim.faults(tool="Write", tool_input={"file_path": str(worktree / "src/x.py"), "content": "x"}, times=1)
    else:
        sim.faults(tool="exec", tool_input=f"text(await tools.apply_patch({json.dumps(PATCH)}))", times=1)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rule", ["strict", "warn"])
@pytest.mark.parametrize(("kind", "api", "model"), [("claude", "anthropic", ClaudeCode.model), ("codex", "openai", Codex.model)])
def test_it_is_denied_or_told(house: House, tmp_path: Path, kind: str, api: str, model: str, rule: str) -> None:
    if not (BIN / kind).exists():
        pytest.skip(f"{kind} is not installed in {CLIENTS}: run make clients")
    home, go = files.private_dir(tmp_path / "agent-home"), tmp_path / "go"
    for directory in (".claude", ".codex"):
        files.private_dir(home / directory)
    (home / ".claude.json").write_text("{}")
    files.private_dir(house.home.root)
    with Simulator() as sim:
        memory = f'sandbox = 0\n[memory]\nleases = "{rule}"\n'
        house.config.write_text(f"{memory}[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url, api=api)}")
        waits(sim, kind, go)
        house.start_daemon()
        house.ok("add", "--id", "holder", "--paths", "src", "exec sleep 600")
        keys = {"id": "agent", "kind": kind, "prompt": "- write it", "model": model, "params.HOME": str(home)}
        plan = "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        house.run("run", "-d", house.plan(plan), env={"PATH": f"{BIN}:{os.environ['PATH']}"})
        wait_until(lambda: house.task("holder").attempt_state == "running", "the holder to run")
        wait_until(lambda: house.task("agent").worktree, "its worktree")
        worktree = Path(str(house.task("agent").worktree))
        writes(sim, kind, worktree)
        go.touch()
        wait_until(lambda: house.task("agent").final, "its end", timeout_s=100)
    kept = "".join(file.read_text() for file in home.rglob("*.jsonl"))
    holder, result = house.task("holder").id, house.task("agent").result or {}
    assert house.task("agent").state == "done", house.task("agent").end_cause
    assert f"src/x.py belongs to {holder}" in kept, house.run("logs", "agent").stdout[-3000:]
    found = {"total": 1, "paths": [{"path": "src/x.py", "holder": holder}]}
    assert result["unleased"] == (None if rule == "strict" else found)
