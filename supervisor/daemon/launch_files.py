"""What the daemon writes into an attempt's directory before the runner comes: its orders, and what the agent may read.

A power cut ends whoever would read it, and the next launch writes it anew: none of it waits for the disk.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.kinds import to_run
from supervisor.core import environment, identity, kind, processor_share, records, traces
from supervisor.core.conversations import Origin
from supervisor.core.gateway import client_env
from supervisor.core.records import LaunchSpec
from supervisor.core.sandbox import Tier
from supervisor.core.spec import Settings
from supervisor.daemon import continuing
from supervisor.daemon.agent_access import AgentAccess
from supervisor.daemon.isolation import Confined
from supervisor.daemon.limits import Bounds
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.ledger.rows import LaunchRow
from worktrees import tampering
from worktrees.environment import Environment

GUARD = "guard.json"
"""Digests of what steers git in the user's repository, as it was when the attempt began."""
BEGIN = "begin"
PROMPT = "prompt.md"
MCP_CONFIG = "mcp.json"
AFTER = "after.json"
CORE = "core.md"
"""In the memory of a project, see `memory.layout`."""
INBOX = "inbox"
"""Directory of the texts that people send to a headless agent, see `agents.turns`."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What was decided about a launch."""

    inputs: dict[str, str]
    """Of `write_inputs`."""
    confined: Confined
    bounds: Bounds
    warm: bool
    """A zygote forks its runner."""
    cores: tuple[int, ...]
    """`LaunchSpec.cores`."""
    cwd: str
    """Where its agent works, as that sees it."""
    origin: Origin | None = None
    """The conversation that it continues."""
    tools: bool = False
    """Its command line finds our tools, see `write_tools`."""


def write_inputs(home: Home, key: tuple[str, int], launch: LaunchRow, needs: list[dict[str, Any]]) -> dict[str, str]:
    """Make the attempt's directory and what its agent reads there; may be repeated. Returns the variables that say where.

    `needs` is what the tasks before it came to.
    """
    directory = home.attempt(*key)
    for folder in (directory, directory / "out", directory / "tmp", directory / INBOX):
        files.private_dir(folder)
    own = {
        "NIGHTCREW_TASK": key[0],
        "NIGHTCREW_EPOCH": str(key[1]),
        "NIGHTCREW_RUN": launch.run,
        "NIGHTCREW_OUT": str(directory / "out"),
        identity.TAG_VARIABLE: records.tag(str(home.root), *key),
        kind.MEMORY_VARIABLE: str(files.private_dir(home.memory(launch.project))),
    }
    if "TRACEPARENT" not in launch.spec.params:
        own["TRACEPARENT"] = traces.traceparent(*key)
    if launch.spec.prompt is not None:
        files.atomic_write(directory / PROMPT, launch.spec.prompt.encode(), durable=False)
        own["NIGHTCREW_PROMPT_FILE"] = str(directory / PROMPT)
    if needs:
        files.atomic_write(directory / AFTER, json.dumps({"schema": 1, "tasks": needs}).encode(), durable=False)
        own["NIGHTCREW_AFTER"] = str(directory / AFTER)
    return own


def write(access: AgentAccess, settings: Settings, key: tuple[str, int], launch: LaunchRow, made: Environment, terms: Terms) -> None:
    """Write the orders of the runner of `key` (task, epoch); may be repeated. Raises ToolFailed when the agent could not reach the
    gateway that the settings ask for, Refused when somebody else has the place of its temporary files."""
    home, spec = access.home, launch.spec
    directory = home.attempt(*key)
    if terms.confined.tier is Tier.NONE:
        files.private_dir(home.short_tmp(directory))
    tag = records.tag(str(home.root), *key)
    own = {**terms.inputs, **dict(terms.confined.variables), **access.variables(*key, spec.task_class)}
    if access.gateway_port():
        own |= client_env.past_proxies({**launch.env, **spec.params, **own})
    agent, share = to_run(spec.kind), processor_share.of(spec.task_class, settings.nice)
    place = kind.Place(
        prompt_file=str(directory / PROMPT),
        inbox=str(directory / INBOX),
        out=str(directory / "out"),
        session=continuing.session_of(home, *key),
        sandboxed=terms.confined.tier is not Tier.NONE,
        variables=own,
        origin=terms.origin,
        mcp_config=str(directory / MCP_CONFIG) if terms.tools else "",
        core="" if spec.prompt and settings.memory.brief else _core(home.memory(launch.project)),
    )
    command = kind.command(agent, spec, place)
    orders = LaunchSpec(
        task=key[0],
        epoch=key[1],
        tag=tag,
        argv=command.argv,
        cwd=terms.cwd,
        env=environment.for_agent(
            {**command.env, **access.without_keys(launch.env)}, access.without_keys(spec.params), own, attended=command.terminal
        ),
        mode="terminal" if command.terminal else agent.mode,
        stdin=command.stdin,
        timeout_s=spec.timeout_s,
        grace_s=settings.grace_s,
        log_max=settings.log_max,
        nice=share.nice,
        idle=share.idle,
        cores=terms.cores,
        rlimits=terms.bounds.rlimits,
        warm=terms.warm,
        policy=terms.confined.policy,
        wrap=(*terms.confined.wrap, *terms.bounds.wrap),
        join=terms.bounds.join,
        share=terms.bounds.share,
        mark=identity.mark(tag),
        quiet=agent.output == "json lines",
        sentinel=str(home.sentinel),
        hold=BEGIN if spec.together else "",
        gate=spec.gate,
        gate_timeout_s=spec.gate_timeout_s,
        gate_hold=records.SECURED if spec.gate else "",
        hint_socket=str(home.hint_socket),
    )
    if command.settings:
        _write_settings(directory / "out" / kind.SETTINGS / agent.settings_file, command.settings)
    for name, data in ((GUARD, json.dumps(tampering.config_guard(made.repo)).encode()), ("launch.spec", records.write_spec(orders))):
        files.atomic_write(directory / name, data, durable=False)


def _write_settings(file: Path, text: str) -> None:
    """Write what the agent's program reads as it starts. No agent of this attempt has run yet, so none can have put anything there."""
    files.private_dir(file.parent)
    files.atomic_write(file, text.encode(), durable=False)


def _core(memory: Path) -> str:
    """Where every agent of the project is told something, if it is."""
    file = memory / CORE
    return str(file) if file.is_file() and not file.is_symlink() else ""


def write_tools(directory: Path, client: Path) -> None:
    """How a command line finds our tools, in the form that most of them share. The token is in no file."""
    own = {name: f"${{{name}}}" for name in ("NIGHTCREW_TOKEN", "NIGHTCREW_AGENTS_SOCKET")}
    shape = {"mcpServers": {"crew": {"type": "stdio", "command": str(client), "args": ["mcp"], "env": own}}}
    files.atomic_write(directory / MCP_CONFIG, json.dumps(shape).encode(), durable=False)


def begin(home: Home, key: tuple[str, int]) -> None:
    """Let the command of a held attempt begin; idempotent."""
    files.atomic_write(home.attempt(*key) / BEGIN, b"")
