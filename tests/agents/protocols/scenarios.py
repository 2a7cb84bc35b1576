"""Turns of the real command-line agents against the simulated provider, and what each must come to.

`tests/data/protocols/CLI-VERSION/NAME.jsonl` is what one printed. With NIGHTCREW_TEST_RECORD=1 the tests of test_real_clis.py record
them again, for the version that is installed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gateway.clients.kit import ClaudeCode, Client, Codex, Direct, Env, Turn
from tests.gateway.simulator import Fault, Simulator

DATA = Path(__file__).parents[2] / "data" / "protocols"
COMMIT = "git add -A && git -c user.name=a -c user.email=a@example.com commit -q -m note"
PYTHON = "python3 -c 'print(1)'"


class Gemini(Client):
    """`gemini -p`."""

    def turn(self, endpoint: Direct, prompt: str, *args: str, where: Path, env: Env) -> Turn:
        """Ask once."""
        home = where.with_name("home")
        (home / ".gemini").mkdir(parents=True)
        settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}}
        (home / ".gemini" / "settings.json").write_text(json.dumps(settings))
        own = {"HOME": str(home), "GEMINI_API_KEY": "key", "GOOGLE_GEMINI_BASE_URL": endpoint.url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        argv = ["-p", prompt, "-m", "gemini-2.5-pro", "--output-format", "stream-json", "--approval-mode", "auto_edit"]
        return self.run([*argv, *args], {**own, **env}, where)


class Qwen(Client):
    """`qwen -p`."""

    def turn(self, endpoint: Direct, prompt: str, *args: str, where: Path, env: Env) -> Turn:
        """Ask once."""
        own = {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": f"{endpoint.url}/v1", "OPENAI_MODEL": "gpt-6.1-sol"}
        argv = ["-p", prompt, "--auth-type", "openai", "--output-format", "stream-json", "--approval-mode", "auto-edit"]
        return self.run([*argv, *args], {**own, **env}, where)


class Opencode(Client):
    """`opencode run`. Its first request is for a title, without tools."""

    def turn(self, endpoint: Direct, prompt: str, *args: str, where: Path, env: Env) -> Turn:
        """Ask once."""
        options = {"baseURL": f"{endpoint.url}/v1", "apiKey": "key"}
        provider = {"npm": "@ai-sdk/anthropic", "name": "sim", "options": options, "models": {"opus-4": {"name": "opus-4"}}}
        config = {"autoupdate": False, "share": "disabled", "provider": {"sim": provider}, "permission": {"bash": "ask"}}
        own = {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        return self.run(["run", prompt, "-m", "sim/opus-4", "--format", "json", *args], {**own, **env}, where)


AnyClient = ClaudeCode | Codex | Gemini | Qwen | Opencode
CLIENT_OF: Mapping[str, type[AnyClient]] = {"claude": ClaudeCode, "codex": Codex, "gemini": Gemini, "qwen": Qwen, "opencode": Opencode}


@dataclass(frozen=True)
class Scenario:
    """One turn."""

    cli: str
    name: str
    code: int
    """The exit status, which does not tell what `expected` tells."""
    faults: Callable[[Path], list[Fault]]
    """What the provider answers; of where the agent works."""
    expected: Mapping[str, Any]
    """Fields of the outcome."""
    reason: str = ""
    """How its reason begins."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def play(self, client: AnyClient, sim: Simulator, where: Path, config: Path) -> Turn:
        """The turn, in a new repository at `where`."""
        where.mkdir()
        empty = "git init -q -b main && git -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m one"
        subprocess.run(["sh", "-c", empty], cwd=where, check=True)
        sim.clear()
        sim.faults(*self.faults(where))
        own = {"CLAUDE_CONFIG_DIR": str(config)} if self.cli == "claude" else {}
        return client.turn(Direct(sim), "do it", *self.args, where=where, env={**own, **self.env})


def _bash(command: str, **more: object) -> Fault:
    return Fault(tool="Bash", tool_input={"command": command, "description": "Do it", **more}, times=1)


def _exec(command: str) -> Fault:
    return Fault(tool="exec", tool_input=f"text(await tools.exec_command({{cmd: {json.dumps(command)}}}))", times=1)


def _write(where: Path) -> Fault:
    return Fault(tool="Write", tool_input={"file_path": str(where / "note.txt"), "content": "hi\n"}, times=1)


def _write_file(where: Path) -> Fault:
    return Fault(tool="write_file", tool_input={"file_path": str(where / "note.txt"), "content": "hi\n"}, times=1)


def _shell(command: str) -> Fault:
    return Fault(tool="run_shell_command", tool_input={"command": command, "is_background": False}, times=1)


def _with_tools(name: str, **given: object) -> Fault:
    return Fault(contains='"name":"bash"', tool=name, tool_input=given, times=1)


RESETS_AT = 2_000_000_000.0
SPENT = {
    f"anthropic-ratelimit-unified-{name}": text
    for name, text in {
        "status": "rejected",
        "reset": f"{RESETS_AT:.0f}",
        "representative-claim": "five_hour",
        "5h-status": "rejected",
        "5h-reset": f"{RESETS_AT:.0f}",
        "5h-utilization": "1.0",
        "overage-status": "rejected",
        "overage-disabled-reason": "org_level_disabled",
    }.items()
}
"""What Anthropic says of a subscription whose window of five hours is spent."""

SCENARIOS = [
    Scenario(
        "claude", "tool", 0, lambda where: [_write(where), _bash(COMMIT), Fault(text="Committed.")],
        {"ended": True, "is_error": False, "denials": (), "message": "Committed.", "steps": 3, "unfinished": ()},
        args=("--allowedTools", "Bash(git:*)"),
    ),
    Scenario(
        "claude", "denied", 0, lambda _: [_bash(PYTHON), Fault(text="I could not run it.")],
        {"ended": True, "is_error": False, "denials": (f"Bash: {PYTHON}",), "message": "I could not run it.", "steps": 2},
    ),
    Scenario(
        "claude", "529", 1, lambda _: [Fault(status=529)],
        {"ended": True, "is_error": True, "denials": (), "steps": 1},
        reason="api_error 529: API Error: 529 Overloaded", env={"CLAUDE_CODE_MAX_RETRIES": "0"},
    ),
    Scenario(
        "claude", "spent", 1, lambda _: [Fault(status=429, headers=SPENT)],
        {"ended": True, "is_error": True, "resets_at": RESETS_AT},
        reason="api_error 429: You've hit your 5-hour limit · resets May 18, 2033, 3:33am (UTC)",
        env={"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-x", "ANTHROPIC_AUTH_TOKEN": "", "TZ": "UTC"},
    ),
    Scenario(
        "claude", "max-turns", 1, lambda where: [Fault(tool="Read", tool_input={"file_path": str(where / "nowhere")})],
        {"ended": True, "is_error": True, "denials": ()},
        reason="max_turns: Reached maximum number of turns (2)", args=("--max-turns", "2"),
    ),
    Scenario(
        "claude", "json", 0, lambda _: [Fault(text="One.")],
        {"ended": True, "is_error": False, "message": "One.", "steps": 1}, args=("--output-format", "json"),
    ),
    Scenario(
        "claude", "schema", 0, lambda _: [Fault(tool="StructuredOutput", tool_input={"a": 1}, times=1), Fault(text="One.")],
        {"ended": True, "is_error": False, "structured": {"a": 1}},
        args=("--json-schema", '{"type":"object","properties":{"a":{"type":"integer"}}}'),
    ),
    Scenario(
        "claude", "background", 0, lambda _: [_bash("sleep 1", run_in_background=True), Fault(text="Started.")],
        {"ended": True, "is_error": False, "message": "Started.", "steps": 3, "unfinished": ()}, args=("--allowedTools", "Bash"),
    ),
    Scenario(
        "codex", "tool", 0, lambda where: [_exec(f"echo hi > {where}/note.txt"), _exec(COMMIT), Fault(text="Committed.")],
        {"ended": True, "is_error": False, "denials": (), "message": "Committed."},
    ),
    Scenario("codex", "failed", 1, lambda _: [Fault(status=400)], {"ended": True, "is_error": True}, reason="invalid request"),
    Scenario(
        "codex", "spent", 1, lambda _: [Fault(status=429, reason="window", retry_after="7200")],
        {"ended": True, "is_error": True}, reason="You’ve hit your usage limit.", env={"TZ": "UTC"},
    ),
    Scenario(
        "codex", "529", 1, lambda _: [Fault(status=529)],
        {"ended": True, "is_error": True}, reason="unexpected status 529",
        args=("-c", "model_providers.endpoint.request_max_retries=0", "-c", "model_providers.endpoint.stream_max_retries=0"),
    ),
    Scenario(
        "gemini", "tool", 0, lambda where: [_write_file(where), Fault(text="Written.")],
        {"ended": True, "is_error": False, "denials": (), "message": "Written.", "models": ("gemini-2.5-pro",)},
    ),
    Scenario("gemini", "failed", 144, lambda _: [Fault(status=400)], {"ended": True, "is_error": True}, reason="[API Error: "),
    Scenario(
        "qwen", "tool", 0, lambda where: [_write_file(where), Fault(text="Written.")],
        {"ended": True, "is_error": False, "denials": (), "message": "Written.", "steps": 2},
    ),
    Scenario(
        "qwen", "denied", 0, lambda _: [_shell(PYTHON), Fault(text="I could not run it.")],
        {"ended": True, "is_error": False, "denials": (f"run_shell_command: {PYTHON}",), "steps": 2},
    ),
    Scenario("qwen", "failed", 0, lambda _: [Fault(status=400)], {"ended": True, "is_error": True}, reason="API Error: 400 "),
    Scenario(
        "opencode", "tool", 0, lambda where: [_with_tools("write", filePath=f"{where}/note.txt", content="hi\n"), Fault(text="Written.")],
        {"ended": True, "is_error": False, "denials": (), "message": "Written.", "steps": 2},
    ),
    Scenario(
        "opencode", "denied", 0, lambda _: [_with_tools("bash", command=PYTHON, description="Run it"), Fault(text="Not reached.")],
        {"ended": False, "is_error": False, "denials": (f"bash: {PYTHON}",), "steps": 1},
    ),
    Scenario("opencode", "failed", 1, lambda _: [Fault(status=400)], {"ended": True, "is_error": True}, reason="invalid request"),
]  # fmt: skip
EVERY_RUN = ("claude-tool", "claude-denied", "codex-tool", "codex-failed")
"""Played with the real agent whenever it is installed; the others when they are recorded."""
