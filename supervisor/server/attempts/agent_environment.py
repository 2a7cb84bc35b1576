"""The environment variables of an agent: where its files are, and how it reaches supervisor and gateway without a provider's key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supervisor.gateway import lifecycle
from supervisor.host import attempt_tokens, files, untrusted_fs
from supervisor.kernel import kind, names
from supervisor.kernel.errors import ToolFailed

if TYPE_CHECKING:
    from supervisor.host.paths import Home
    from supervisor.kernel.gateway_settings import GatewaySettings
    from supervisor.kernel.states import TaskClass
    from supervisor.server.gateway import Models

PROMPT = "prompt.md"
AFTER = "after.json"
INBOX = "inbox"
"""Directory of the texts that people send to a headless agent, see `agents.turns`."""

SPEC_MAX = 2**22
"""Bytes of `launch.spec`."""


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """How this supervisor's agents reach it, the gateway and the models."""

    home: Home
    secret: bytes
    models: Models

    @property
    def settings(self) -> GatewaySettings:
        """Of the gateway, as they are now."""
        return self.models.now()

    def variables(self, task: str, epoch: int, task_class: TaskClass) -> dict[str, str]:
        """The agent's variables. They are ours: neither the shell's nor a task's `params` override them, or an agent could go past the
        gateway and its limits. Raises ToolFailed when upstreams are configured and no gateway has ever been ready."""
        token = attempt_tokens.derive(self.secret, task, epoch)
        own = {"NIGHTCREW_TOKEN": token, "NIGHTCREW_AGENTS_SOCKET": str(self.home.agents_socket)}
        settings = self.settings
        if not settings.upstreams:
            return own
        gateway = lifecycle.read_record(self.home)  # also of one that is being started again: its port stays
        if gateway is None:
            raise ToolFailed("no gateway to send the agent to", on=str(self.home.gateway_record), hint="nightcrew doctor")
        return {**own, **kind.block(settings, gateway.port, token, patient=kind.is_patient(task_class))}

    def reaches_gateway(self, task: str, epoch: int) -> bool:
        """Return whether the attempt was started with the gateway's variables: settings may have changed since."""
        token = attempt_tokens.derive(self.secret, task, epoch).encode()
        orders = untrusted_fs.read_plain(self.home.attempt(task, epoch) / "launch.spec", SPEC_MAX) or b""
        entries = [entry for entry in orders.split(b"\0") if entry.startswith(b"env=")]
        return any(token in entry and not entry.startswith(b"env=NIGHTCREW_TOKEN=") for entry in entries)

    def gateway_port(self) -> int:
        """Where the gateway listens on 127.0.0.1, also one that is being started again; 0 when nothing goes through one."""
        gateway = lifecycle.read_record(self.home) if self.settings.upstreams else None
        return gateway.port if gateway is not None else 0

    def without_keys(self, environ: Mapping[str, str]) -> dict[str, str]:
        """`environ` without the keys of every provider whose key the gateway holds; who logs in by itself keeps its own."""
        held = {upstream.api for upstream in self.settings.upstreams if upstream.key.kind != "client"}
        return {name: text for name, text in environ.items() if kind.PROVIDER_KEYS.get(name) not in held}


def write_inputs(home: Home, key: tuple[str, int], run: str, project: str, needs: list[dict[str, Any]]) -> dict[str, str]:
    """Make the attempt's directory and what its agent reads there; may be repeated. Returns the variables that say where.

    `run`, `project`: of the task. `needs`: what the tasks before it came to.
    """
    directory = home.attempt(*key)
    for folder in (directory, directory / "out", directory / "tmp", directory / INBOX):
        files.private_dir(folder)
    own = {
        "NIGHTCREW_TASK": key[0],
        "NIGHTCREW_EPOCH": str(key[1]),
        "NIGHTCREW_RUN": run,
        "NIGHTCREW_OUT": str(directory / "out"),
        names.TAG_VARIABLE: names.tag(str(home.root), *key),
        kind.MEMORY_VARIABLE: str(files.private_dir(home.memory(project))),
    }
    if needs:
        files.atomic_write(directory / AFTER, json.dumps({"schema": 1, "tasks": needs}).encode(), durable=False)
        own["NIGHTCREW_AFTER"] = str(directory / AFTER)
    return own
