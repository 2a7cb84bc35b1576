"""Real command-line agents, each in a home of its own, pointed at an endpoint on this machine. They use no account and no network."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.gateway.kit import GatewayProcess, rows
from tests.gateway.simulator import Fault, Simulator
from tests.support import wait_until

CLIENTS = Path(
    os.environ.get("NIGHTCREW_CLIENTS") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "nightcrew", "clients")
)
"""Where tools/clients.sh puts them."""

Env = Mapping[str, str]
NO_ENV: Env = {}

ENOUGH_S = 150
"""Ends a client that hangs. No turn here takes so long."""


class Endpoint(Protocol):
    """What a client is pointed at: the simulated provider itself, or a gateway before it."""

    @property
    def url(self) -> str:
        """Where it listens."""
        ...

    @property
    def sim(self) -> Simulator:
        """The provider behind it."""
        ...

    def token(self, agent: str) -> str:
        """What this agent sends as its key."""
        ...

    def charged(self, agent: str) -> tuple[int, int]:
        """(input of all kinds, output) that this agent was charged."""
        ...


@dataclass(frozen=True)
class Direct:
    """The simulated provider itself; a token is a key."""

    sim: Simulator

    @property
    def url(self) -> str:
        return self.sim.url

    def token(self, agent: str) -> str:
        return f"token-of-{agent}"

    def charged(self, agent: str) -> tuple[int, int]:
        reported = self.sim.tally(self.token(agent)).reported
        return sum(tokens for kind, tokens in reported.items() if kind != "output"), reported.get("output", 0)


class Through:
    """A gateway before the simulated provider; a token is that of a running attempt."""

    def __init__(self, gate: GatewayProcess, sim: Simulator) -> None:
        self.sim = sim
        self.gate = gate
        self._tokens: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gate.port}"

    def token(self, agent: str) -> str:
        if agent not in self._tokens:
            self._tokens[agent] = self.gate.crew.agent(f"run/{agent}")
        return self._tokens[agent]

    def rows(self, agent: str) -> list[dict[str, Any]]:
        """The agent's part of the gateway's own account, once everything is settled."""
        wait_until(lambda: all(row["end"] for row in rows(self.gate.home)), "every request to be settled")
        return [row for row in rows(self.gate.home) if row["agent"] == f"run/{agent}"]

    def charged(self, agent: str) -> tuple[int, int]:
        mine = self.rows(agent)
        kinds = ("input", "cache_read", "cache_write")
        return sum(row[kind] or 0 for row in mine for kind in kinds), sum(row["output"] or 0 for row in mine)


@dataclass(frozen=True)
class Turn:
    """How a client's one turn ended. `lines` are the JSON lines that it wrote."""

    code: int
    lines: list[dict[str, Any]]
    stderr: str
    where: Path
    stdout: str = ""

    @property
    def last(self) -> dict[str, Any]:
        """The client's own last word."""
        return self.lines[-1] if self.lines else {}

    def explain(self) -> str:
        """For a failed assertion."""
        return f"exit {self.code}: {json.dumps(self.last)[:1500]}\n{self.stderr[-1500:]}"


@dataclass
class Client:
    """How to run one kind of agent; every turn has a fresh home and a fresh directory to work in."""

    binary: Path

    def run(self, argv: list[str], env: Env, where: Path) -> Turn:
        """One turn, which may not outlive the test."""
        with tempfile.TemporaryDirectory(prefix="client-home-") as home:
            all_env = {"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home, **env}
            process = subprocess.Popen(
                [str(self.binary), *argv],
                env=all_env,
                cwd=where,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            try:
                out, err = process.communicate(timeout=ENOUGH_S)
            finally:
                _end(process)
        return Turn(process.returncode, [json.loads(line) for line in out.splitlines() if line.startswith("{")], err, where, out)


def _end(process: subprocess.Popen[str]) -> None:
    """The client and whatever it started: its session is its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


class ClaudeCode(Client):
    """`claude -p`."""

    api = "anthropic"
    path = "/v1/messages"
    model = "claude-opus-5-5"

    def turn(self, endpoint: Endpoint, prompt: str, *args: str, where: Path, agent: str = "a", env: Env = NO_ENV) -> Turn:
        """Ask once. `acceptEdits` lets it write files, as root too."""
        settings = {
            "ANTHROPIC_BASE_URL": endpoint.url,
            "ANTHROPIC_AUTH_TOKEN": endpoint.token(agent),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            **env,
        }
        chosen = ["--model", self.model, "--permission-mode", "acceptEdits", "--output-format", "stream-json", "--verbose"]
        return self.run(["-p", prompt, *chosen, *args], settings, where)

    def said(self, turn: Turn) -> str:
        """The answer's text, as the client shows it."""
        return str(turn.last.get("result"))

    def went_well(self, turn: Turn) -> bool:
        """By its own protocol: `subtype` says success even of a failed call, `is_error` does not."""
        return turn.code == 0 and turn.last.get("is_error") is False

    def writing(self, path: Path, text: str) -> Fault:
        """An answer that makes it write a file."""
        return Fault(tool="Write", tool_input={"file_path": str(path), "content": text}, times=1)

    def plain(self, text: str) -> dict[str, Any]:
        """A request to the same model without anything else."""
        return {"model": self.model, "max_tokens": 10, "messages": [{"role": "user", "content": text}]}

    def tokens(self, turn: Turn) -> tuple[int, int]:
        """(input of all kinds, output) as it counted them."""
        usage = turn.last["usage"]
        kinds = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        return sum(usage[kind] for kind in kinds), usage["output_tokens"]


class Codex(Client):
    """`codex exec`."""

    api = "responses"
    path = "/v1/responses"
    model = "gpt-6.1-sol"

    def turn(self, endpoint: Endpoint, prompt: str, *args: str, where: Path, agent: str = "a", env: Env = NO_ENV) -> Turn:
        """Ask once, without its own sandbox: all that is executed here was written by the test."""
        provider = {"name": "endpoint", "base_url": f"{endpoint.url}/v1", "env_key": "ENDPOINT_TOKEN", "wire_api": "responses"}
        settings = {"model_provider": "endpoint", **{f"model_providers.endpoint.{name}": value for name, value in provider.items()}}
        chosen = [word for name, value in settings.items() for word in ("-c", f"{name}={json.dumps(value)}")]
        free = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        argv = ["exec", *free, "-m", self.model, *chosen, *args, prompt]
        return self.run(argv, {"ENDPOINT_TOKEN": endpoint.token(agent), **env}, where)

    def said(self, turn: Turn) -> str:
        """The last message's text."""
        items = [line["item"] for line in turn.lines if line["type"] == "item.completed"]
        return str([item["text"] for item in items if item["type"] == "agent_message"][-1])

    def went_well(self, turn: Turn) -> bool:
        """By its own protocol."""
        return turn.code == 0 and turn.last.get("type") == "turn.completed"

    def writing(self, path: Path, text: str) -> Fault:
        """An answer that makes it write a file. Its newest models run all tools from one script in JavaScript."""
        command = f"printf %s {shlex.quote(text)} > {shlex.quote(str(path))}"
        return Fault(tool="exec", tool_input=f"text(await tools.exec_command({{cmd: {json.dumps(command)}}}))", times=1)

    def plain(self, text: str) -> dict[str, Any]:
        """A request to the same model without anything else."""
        return {"model": self.model, "input": text}

    def tokens(self, turn: Turn) -> tuple[int, int]:
        """(input of all kinds, output) as it counted them."""
        usage = turn.last["usage"]
        return usage["input_tokens"], usage["output_tokens"]
