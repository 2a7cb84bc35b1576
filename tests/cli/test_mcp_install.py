"""`nightcrew mcp install`, by the real clients' own commands, in a home of the test's own."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from tests.gateway.clients.kit import CLIENTS
from tests.support import House

BIN = CLIENTS / "node_modules" / ".bin"


def prepared(tmp_path: Path, client: str) -> dict[str, str]:
    """The environment of a person who has only `client`, and a file of its settings."""
    if not (BIN / client).exists():
        pytest.skip(f"{client} is not installed in {CLIENTS}: run make clients")
    person = tmp_path / "person"
    (person / ".codex").mkdir(parents=True)
    (person / ".claude.json").write_text(
        json.dumps({"projects": {"/x": {"hasTrustDialogAccepted": True}}, "mcpServers": {"other": {"command": "true"}}})
    )
    (person / ".codex" / "config.toml").write_text('# mine\nmodel = "m"\n[mcp_servers.other]\ncommand = "true"\n')
    return {"HOME": str(person), "PATH": f"{BIN}:{os.environ['PATH']}"}


def test_claude_is_told_by_its_own_command_once(house: House, tmp_path: Path) -> None:
    env = prepared(tmp_path, "claude")
    file = Path(env["HOME"]) / ".claude.json"
    before = file.read_text()
    shown = house.ok("mcp", "install", "claude", "--print", env=env)
    assert shown.startswith("claude mcp add --scope user nightcrew -- ") and file.read_text() == before
    refused = house.run("mcp", "install", "claude", env=env)
    assert refused.returncode != 0 and "this runs: claude mcp add" in refused.stderr and file.read_text() == before, "nobody said yes"
    house.ok("mcp", "install", "claude", "--yes", env=env)
    told = json.loads(file.read_text())
    assert told["projects"]["/x"]["hasTrustDialogAccepted"] and told["mcpServers"]["other"] == {"command": "true"}
    assert told["mcpServers"]["nightcrew"]["args"][-1] == "mcp"
    after = file.read_text()
    assert "knows nightcrew already" in house.run("mcp", "install", "claude", "--yes", env=env).stderr and file.read_text() == after


def test_codex_is_told_by_its_own_command(house: House, tmp_path: Path) -> None:
    env = prepared(tmp_path, "codex")
    file = Path(env["HOME"]) / ".codex" / "config.toml"
    house.ok("mcp", "install", "codex", "--yes", env=env)
    told = tomllib.loads(file.read_text())
    assert told["model"] == "m" and told["mcp_servers"]["other"] == {"command": "true"} and "# mine" in file.read_text()
    assert told["mcp_servers"]["nightcrew"]["args"][-1] == "mcp"
    assert "codex has one file" in house.run("mcp", "install", "codex", "--scope", "local", env=env).stderr


def test_a_client_that_is_not_there(house: House, tmp_path: Path) -> None:
    done = house.run("mcp", "install", "codex", "--yes", env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 2 and "no program codex" in done.stderr
