"""The supervisor's report on its gateway, and how a command asks for it. Standard library only: `status` imports this."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.client import protocol
from supervisor.host.paths import Home
from supervisor.kernel import codec
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.pressure import Conditions

ASK_S = 1.0
"""A supervisor that does not answer must keep nobody from looking at the ledger for longer."""


@dataclass(frozen=True, slots=True)
class GatewayReport:
    """As of the daemon's last look."""

    troubles: tuple[str, ...] = ()
    """What a person has to mend."""
    delay_s: float = 0.0
    """How long a request that came now would wait."""
    parked: bool = False
    """Nothing is served before a limit's reset."""
    died: bool = False
    """The gateway that was started last, or one just before it, died within a minute; its log says why."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What the supervisor says that concerns a person who looks at tasks."""

    troubles: tuple[str, ...] = ()
    """Of the gateway."""
    conditions: Conditions | None = None
    """Why tasks that are ready do not start; None when no supervisor answered."""


def hear(home: Home) -> Heard:
    """Ask the supervisor; one that does not run or does not answer says nothing. Blocks for at most ASK_S."""
    try:
        answer = protocol.call(home.daemon_socket, "ping", {}, timeout_s=ASK_S)
    except NightcrewError:
        return Heard()
    said = answer.get("gateway") or {}  # another version may answer
    return Heard(tuple(map(str, said.get("troubles", ()))), codec.load(Conditions, answer.get("conditions") or {}))
