"""What becomes of a task whose agent says how it went, from its stdout to what a person reads."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from supervisor.kernel.names import trace_id
from supervisor.store import queries, sqlite
from tests.agents.protocols.scenarios import DATA
from tests.support import House

STANDS_IN = f"""#!/bin/sh
read -r prompt
name=$(printf %s "$prompt" | grep -oE '"(tool|denied|max-turns|schema)' | tr -d '"')
cat {DATA}/claude-2.1.329/$name.jsonl
echo "told to $name" >&2
[ "$name" != max-turns ]
"""
"""In the place of Claude Code: prints what it printed when its prompt was recorded, and exits as it did."""
DENIED = "it was not allowed to use Bash: python3 -c 'print(1)'"


def test_an_agents_own_words_decide_and_are_shown(house: House, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(STANDS_IN)
    program.chmod(0o755)
    tasks = [
        f'[[tasks]]\nid = "{name}"\nkind = "claude"\nprompt = "{name}\\n"\nsandbox = 0\n'
        for name in ("tool", "denied", "max-turns", "schema")
    ]
    house.start_daemon()
    assert house.run("run", house.plan("".join(tasks)), env={"PATH": f"{program.parent}:{os.environ['PATH']}"}).returncode == 1
    found = {name: house.task(name) for name in ("tool", "denied", "max-turns", "schema")}
    assert {name: str(view.state) for name, view in found.items()} == {
        "tool": "done", "denied": "failed", "max-turns": "failed", "schema": "done",
    }  # fmt: skip
    causes = [(view.result or {})["cause"] for view in found.values()]
    assert causes == ["", DENIED, "exit code 1: max_turns: Reached maximum number of turns (2)", ""]
    assert (found["schema"].result or {})["output"] == {"a": 1}
    agent = (found["tool"].result or {})["agent"]
    assert (agent["message"], agent["steps"], agent["denials"]) == ("Committed.", 3, [])
    assert json.loads((house.home.attempt(found["tool"].id, 1) / "result.json").read_text())["agent"] == agent
    _shown(house, found["denied"])
    _proven(house, found["tool"], found["denied"])


def _proven(house: House, tool: queries.TaskView, denied: queries.TaskView) -> None:
    log = (house.home.attempt(tool.id, 1) / "stdout.log").read_bytes()
    result = tool.result or {}
    assert (result["sha256"]["stdout.log"], result["trace"]) == (hashlib.sha256(log).hexdigest(), trace_id(tool.id))
    assert result["tools"]["calls"] == sum(result["tools"]["by"].values()) > 0
    told = {entry["kind"]: entry for entry in json.loads(house.ok("audit", "show", "--json", "--task", denied.id))["entries"]}
    assert (told["permission"]["decision"], told["permission"]["reason"]) == ("permission denied", "Bash: python3 -c 'print(1)'")
    assert told["tools"]["data"]["by"] == {"Bash": 1}
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        kept, spec = db.execute(
            "SELECT a.result, t.spec FROM attempt a JOIN task t ON t.id = a.task WHERE t.id = ?", (denied.id,)
        ).fetchone()
    assert told["end"]["data"]["result_sha256"] == hashlib.sha256(kept.encode()).hexdigest()
    assert told["start"]["data"]["spec_sha256"] == hashlib.sha256(spec.encode()).hexdigest()


def _shown(house: House, denied: queries.TaskView) -> None:
    table = {line.split()[2].partition("/")[2]: line for line in house.ok("status").splitlines() if line.count("/")}
    assert table["tool"].endswith("Committed.")
    assert table["denied"].endswith(DENIED), "and not its last words on stderr"
    one = house.ok("status", denied.id)
    assert "  said      I could not run it.\n  denied    Bash: python3 -c 'print(1)'\n  session   " in one
    assert "DENIED" in house.ok("logs", "--transcript", denied.id)
