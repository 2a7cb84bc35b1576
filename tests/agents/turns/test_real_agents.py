"""Real agents that get their prompts by their protocol, against the simulated provider: two turns, what is granted and what is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agents import protocols
from agents.kinds import kinds
from tests.gateway.clients.kit import CLIENTS
from tests.gateway.simulator import Fault, Simulator

BIN = CLIENTS / "node_modules/.bin"
EVERY = bool(os.environ.get("NIGHTCREW_TEST_RECORD"))
"""Gemini CLI alone is run always: each takes seconds to start."""
Made = tuple[list[str], dict[str, str], Fault, Fault]
"""Command, environment, and answers that make it edit a file and run a command."""


SHELL = Fault(tool="run_shell_command", tool_input={"command": "touch ran", "is_background": False}, times=1)


def gemini(sim: Simulator, home: Path, note: Path) -> Made:
    (home / ".gemini").mkdir()
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}}
    (home / ".gemini/settings.json").write_text(json.dumps(settings))
    env = {"GEMINI_API_KEY": "key", "GOOGLE_GEMINI_BASE_URL": sim.url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    edit = Fault(tool="write_file", tool_input={"file_path": str(note), "content": "hi\n"}, times=1)
    return ["gemini", "--acp", "-m", "gemini-2.5-pro"], env, edit, SHELL


def qwen(sim: Simulator, home: Path, note: Path) -> Made:
    env = {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": f"{sim.url}/v1", "OPENAI_MODEL": "gpt-6.1-sol"}
    edit = Fault(tool="write_file", tool_input={"file_path": str(note), "content": "hi\n"}, times=1)
    return ["qwen", "--acp", "--auth-type", "openai"], env, edit, SHELL


def opencode(sim: Simulator, home: Path, note: Path) -> Made:
    options = {"baseURL": f"{sim.url}/v1", "apiKey": "key"}
    provider = {"npm": "@ai-sdk/anthropic", "name": "sim", "options": options, "models": {"opus-4": {"name": "opus-4"}}}
    config = {"autoupdate": False, "provider": {"sim": provider}, "permission": {"edit": "ask", "bash": "ask"}, "model": "sim/opus-4"}
    env = {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    edit = Fault(contains='"name":"bash"', tool="write", tool_input={"filePath": str(note), "content": "hi\n"}, times=1)
    run = {"command": "touch ran", "description": "Run it"}
    return ["opencode", "acp"], env, edit, Fault(contains='"name":"bash"', tool="bash", tool_input=run, times=1)


def drive(tmp_path: Path, protocol: str, options: list[str], command: list[str], env: dict[str, str]) -> protocols.Outcome:
    """Two turns of an agent, the second of a text that was sent to it."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (tmp_path / "prompt.md").write_text("do it")
    (inbox / "7.txt").write_text("and then this")
    files = ["--prompt-file", str(tmp_path / "prompt.md"), "--inbox", str(inbox)]
    argv = [sys.executable, "-I", "-m", "agents.turns", protocol, *files, *options, "--", str(BIN / command[0]), *command[1:]]
    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), **env}
    ran = subprocess.run(argv, cwd=tmp_path / "work", env=own, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    said = protocols.read(protocol, ran.stdout)
    assert said is not None, ran.stderr
    assert (ran.returncode, said.message, said.is_error) == (0, "Done.", False), ran.stderr
    live = protocols.follow(protocol, protocols.Live(), ran.stdout)
    assert (live.state, live.given, live.taken) == ("idle", 7, 7)
    assert "and then this" in [one.text for one in protocols.transcript(protocol, [ran.stdout]) if one.who == "user"]
    return said


def made(tmp_path: Path, name: str) -> Path:
    """A repository for an agent that is installed; the file that it is to write."""
    if not (BIN / name).exists():
        pytest.skip(f"{name} is not installed in {CLIENTS}: run make clients")
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    return work / "note.txt"


@pytest.mark.parametrize("cli", [gemini, *((qwen, opencode) if EVERY else ())])
def test_an_acp_agent_does_what_it_may_and_takes_a_second_prompt(cli: Callable[[Simulator, Path, Path], Made], tmp_path: Path) -> None:
    note = made(tmp_path, cli.__name__)
    with Simulator() as sim:
        command, env, edit, shell = cli(sim, tmp_path, note)
        sim.faults(edit, shell, Fault(text="Done."))
        said = drive(tmp_path, "acp", ["--allow", "edit"], command, env)
    assert said.session
    assert [denied.partition(":")[0] for denied in said.denials] == ["execute"]
    assert (note.exists(), note.with_name("ran").exists()) == (True, False)


def test_claude_code_takes_a_second_prompt_and_waits_for_its_background(tmp_path: Path) -> None:
    note = made(tmp_path, "claude")
    with Simulator() as sim:
        late = {"command": f"sleep 1; touch {note}", "description": "Do it", "run_in_background": True}
        sim.faults(Fault(tool="Bash", tool_input=late, times=1), Fault(text="Done."))
        env = {"ANTHROPIC_BASE_URL": sim.url, "ANTHROPIC_AUTH_TOKEN": "key", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        words = [word for word in kinds()["claude"].headless[: kinds()["claude"].headless.index("--session-id")] if "{" not in word]
        said = drive(tmp_path, "claude", [], ["claude", *words, "--model", "claude-opus-5-5", "--allowedTools", "Bash"], env)
    assert (said.denials, said.unfinished, note.exists()) == ((), (), True)
