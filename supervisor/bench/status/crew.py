"""A crew of real Claude Code agents that share one provider's limit: through nightcrew, and as a shell script would start them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.bench.status import claude
from supervisor.bench.supervised_run import until
from supervisor.bench.workspace import by_hand
from supervisor.core.gateway.settings import Limits
from supervisor.core.spec import TaskSpec
from supervisor.gateway.sim.child import Simulator
from supervisor.gateway.sim.faults import Fault

LIMIT = Limits(rpm=1000, tpm=80_000)
"""Of the one key; tokens of all kinds a minute, but for those that were read from the cache."""
READ_BYTES = 24_000
"""What each tool call prints for the model to read, about 6,700 tokens."""
KEY = "sk-simulated-key-of-the-benchmark"
OUTPUT = 400
"""Tokens of an answer that calls a tool."""
END_S = 1800.0


@dataclass(frozen=True, slots=True)
class Size:
    """Of a crew."""

    agents: int = 10
    tools: int = 4
    """Turns of each agent that call a tool; one more ends its work."""


@dataclass(frozen=True, slots=True)
class Fared:
    """What became of a crew."""

    failed_turns: int
    """Turns that Claude Code gave up: it ends its session with an error then."""
    upstream_429: int
    answered: int
    """By the provider, all requests of the crew."""


def _provider() -> Simulator:
    """One limit for all, in tokens of all kinds a minute."""
    return Simulator(limits=LIMIT, needs_key=False, keep_last=0, tokens_per_s=80.0)


def through_nightcrew(place: Path, repo: Path, binary: Path, size: Size) -> Fared:
    """Tasks of kind `claude`, before a gateway that was told nothing of the limit."""
    with _provider() as sim:
        _script(sim, size)
        own = claude.variables(binary, place.with_name("crew-home"), repo)
        with claude.supervised(place, size.agents, binary, sim.url) as run:
            tasks = [
                TaskSpec(f"agent{number}", "", "claude", (), own, prompt=text, model=claude.MODEL, allow=("Bash",))
                for number, text in enumerate(_messages(size))
            ]
            run_id = run.submit(run.repository(repo), tasks)
            until(lambda: all(view.final for view in run.views(run_id)), "the crew to end")
            return _fared(sim, sum(view.end != "done" for view in run.views(run_id)))


def by_script(place: Path, repo: Path, binary: Path, size: Size) -> Fared:
    """The same agents at once with the provider's key, each in a worktree of its own."""
    place.mkdir()
    with _provider() as sim, contextlib.ExitStack() as stack:
        _script(sim, size)
        env = {"ANTHROPIC_BASE_URL": sim.url, "ANTHROPIC_AUTH_TOKEN": KEY, **claude.variables(binary, place / "home", repo)}
        env |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1"}
        words = ["-p", "--output-format", "json", "--permission-mode", "acceptEdits", "--allowedTools", "Bash", "--model", claude.MODEL]
        agents = []
        for number, text in enumerate(_messages(size)):
            tree = place / f"tree{number}"
            by_hand(["git", "worktree", "add", "-q", "--detach", str(tree)], repo)
            agents.append(stack.enter_context(_agent([str(binary), *words, text], tree, env)))
        return _fared(sim, sum(_has_failed(agent) for agent in agents))


@contextlib.contextmanager
def _agent(argv: Sequence[str], where: Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """One Claude Code, with whatever it starts, for as long as the block lasts."""
    process = subprocess.Popen(
        argv, cwd=where, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, process_group=0
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _has_failed(agent: subprocess.Popen[str]) -> bool:
    """Wait for its end; whether its own last word is an error, or it had none."""
    said, _ = agent.communicate(timeout=END_S)
    try:
        return agent.returncode != 0 or json.loads(said)["is_error"] is not False
    except (ValueError, LookupError):
        return True


def _messages(size: Size) -> list[str]:
    return [f"Add discounts to part {number} of the shop, and run its tests." for number in range(size.agents)]


def _script(sim: Simulator, size: Size) -> None:
    """Each agent calls its tool so many times, then says that it is done. How far it is, the provider sees by what the tool has printed:
    a request that was refused and is sent again is the same turn. One of another model, such as one for a title, gets any answer."""
    for number, text in enumerate(_messages(size)):
        steps = [
            Fault(model=claude.MODEL, contains=text if not turn else _printed(number, turn), **_answer(number, turn, size))
            for turn in range(size.tools + 1)
        ]
        sim.faults(*reversed(steps))  # the newest that it has printed decides


def _answer(number: int, turn: int, size: Size) -> dict[str, Any]:
    if turn == size.tools:
        return {"text": "Done."}
    command = f"head -c {READ_BYTES} /dev/zero | tr '\\0' x; printf 'part%s-turn%s' {number} {turn + 1}"
    return {"tool": "Bash", "tool_input": {"command": command, "description": "Read"}, "output_tokens": OUTPUT}


def _printed(number: int, turn: int) -> str:
    """What the tool's call of a turn ends with; the call itself does not have it."""
    return f"part{number}-turn{turn}"


def _fared(sim: Simulator, failed: int) -> Fared:
    told = sim.tally()
    limited = sum(count for why, count in told.refused.items() if why.startswith("limit:"))
    return Fared(failed, limited, told.answered)
