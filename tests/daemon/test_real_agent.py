"""A real Claude Code in a sandbox: it commits by its own tools, and the commit is in the person's repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.core.sandbox import Tier
from supervisor.host import files
from supervisor.host.sandbox import probing
from tests.gateway.clients.kit import CLIENTS, ClaudeCode
from tests.gateway.kit import upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git, shell_task

MODEL = ClaudeCode.model
COMMIT = "echo work > work && git add work && git -c user.name=a -c user.email=a@b commit -qm work && git stash list && git tag mine"


@pytest.mark.parametrize("tier", [1, 2])
def test_claude_code_commits_and_tags_in_its_sandbox(house: House, tmp_path: Path, tier: int) -> None:
    binary = CLIENTS / "node_modules" / ".bin" / "claude"
    if not binary.exists():
        pytest.skip(f"Claude Code is not installed in {CLIENTS}: run make clients")
    if Tier(tier) not in probing.known().tiers:
        pytest.skip("this host cannot")
    home = files.private_dir(tmp_path / "agent-home")
    files.private_dir(home / ".claude")
    (home / ".claude.json").write_text("{}")
    files.private_dir(house.home.root)
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url)}")
        sim.faults(tool="Bash", tool_input={"command": COMMIT, "description": "commit"}, times=1)
        words = [str(binary), "-p", "commit", "--model", MODEL, "--allowedTools", "Bash", "--output-format", "json"]
        house.start_daemon()
        house.run(
            "run", house.plan(shell_task("agent", words, sandbox=tier, params={"HOME": str(home), "DISABLE_TELEMETRY": "1"})), timeout_s=240
        )
    view = house.task("agent")
    assert view.state == "done", house.run("logs", "agent").stdout
    assert json.loads(house.ok("logs", "--stream", "stdout", "agent").splitlines()[-1])["is_error"] is False
    assert git(house.repo, "show", f"{view.branch}:work") == "work"
    assert git(house.repo, "tag", "--list") == "" and git(house.repo, "fsck") == ""
