"""Real agents that speak the Agent Client Protocol, against the simulated provider: an edit that is granted, one that is not, two turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agents import protocols
from tests.gateway.clients.kit import CLIENTS
from tests.gateway.simulator import Fault, Simulator

BIN = CLIENTS / "node_modules/.bin"
EVERY = bool(os.environ.get("NIGHTCREW_TEST_RECORD"))
"""Gemini CLI alone is run always: each takes seconds to start."""
Made = tuple[list[str], dict[str, str], Fault]


def gemini(sim: Simulator, home: Path, note: Path) -> Made:
    (home / ".gemini").mkdir()
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}}
    (home / ".gemini/settings.json").write_text(json.dumps(settings))
    env = {"GEMINI_API_KEY": "key", "GOOGLE_GEMINI_BASE_URL": sim.url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    edit = Fault(tool="write_file", tool_input={"file_path": str(note), "content": "hi\n"}, times=1)
    return ["gemini", "--acp", "-m", "gemini-2.5-pro"], env, edit


def qwen(sim: Simulator, home: Path, note: Path) -> Made:
    env = {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": f"{sim.url}/v1", "OPENAI_MODEL": "gpt-6.1-sol"}
    edit = Fault(tool="write_file", tool_input={"file_path": str(note), "content": "hi\n"}, times=1)
    return ["qwen", "--acp", "--auth-type", "openai"], env, edit


def opencode(sim: Simulator, home: Path, note: Path) -> Made:
    options = {"baseURL": f"{sim.url}/v1", "apiKey": "key"}
    provider = {"npm": "@ai-sdk/anthropic", "name": "sim", "options": options, "models": {"opus-4": {"name": "opus-4"}}}
    config = {"autoupdate": False, "provider": {"sim": provider}, "permission": {"edit": "ask"}, "model": "sim/opus-4"}
    env = {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    edit = Fault(contains='"name":"bash"', tool="write", tool_input={"filePath": str(note), "content": "hi\n"}, times=1)
    return ["opencode", "acp"], env, edit


@pytest.mark.parametrize(
    ("cli", "allow"), [(gemini, True), (gemini, False), *((cli, yes) for cli in (qwen, opencode) for yes in (True, False) if EVERY)]
)
def test_it_edits_when_it_may_and_takes_a_second_prompt(cli: Callable[[Simulator, Path, Path], Made], allow: bool, tmp_path: Path) -> None:
    if not (BIN / cli.__name__).exists():
        pytest.skip(f"{cli.__name__} is not installed in {CLIENTS}: run make clients")
    work, inbox = tmp_path / "work", tmp_path / "inbox"
    work.mkdir()
    inbox.mkdir()
    (tmp_path / "prompt.md").write_text("do it")
    (inbox / "7.txt").write_text("and then this")
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    with Simulator() as sim:
        command, env, edit = cli(sim, tmp_path, work / "note.txt")
        sim.faults(edit, Fault(text="Written."))
        options = ["--prompt-file", str(tmp_path / "prompt.md"), "--inbox", str(inbox), *(["--allow", "edit"] if allow else [])]
        argv = [sys.executable, "-I", "-m", "agents.turns", "acp", *options, "--", str(BIN / command[0]), *command[1:]]
        own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), **env}
        ran = subprocess.run(argv, cwd=work, env=own, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    said = protocols.read("acp", ran.stdout)
    assert said is not None, ran.stderr
    assert (ran.returncode, said.message, said.is_error) == (0, "Written.", False), ran.stderr
    assert said.session
    assert [denied.partition(":")[0] for denied in said.denials] == ([] if allow else ["edit"])
    assert (work / "note.txt").exists() == allow
    assert protocols.follow("acp", protocols.Live(), ran.stdout).taken == 7
