"""The supervisor's report on its gateway, and how a command asks for it. Standard library only: `status` imports this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supervisor.client import protocol
from supervisor.host.paths import Home
from supervisor.kernel.admission import ADMIT, Conditions, Decision, Verdict
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.states import TaskClass

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


def to_ping(word: GatewayReport | None) -> dict[str, Any] | None:
    """The gateway's part of `ping`; None where none is needed."""
    if word is None:
        return None
    return {"troubles": list(word.troubles), "delay_s": word.delay_s, "parked": word.parked, "died": word.died}


def conditions_to_ping(now: Conditions) -> dict[str, Any]:
    """The part of `ping` that says why tasks wait."""
    held = {str(name): verdict.shape() for name, verdict in now.held.items()}
    nights = {name: verdict.shape() for name, verdict in now.nights.items()}
    return {"closed": now.closed.shape(), "held_back": held, "slots_free": now.slots.shape(), "nights": nights}


def hear(home: Home) -> Heard:
    """Ask the supervisor; one that does not run or does not answer says nothing. Blocks for at most ASK_S."""
    try:
        answer = protocol.call(home.daemon_socket, "ping", {}, timeout_s=ASK_S)
    except NightcrewError:
        return Heard()
    said, held = answer.get("gateway"), answer.get("held_back")  # another version may answer
    troubles = said.get("troubles", ()) if isinstance(said, dict) else ()
    classes = {TaskClass(name): _verdict(found) for name, found in held.items()} if isinstance(held, dict) else {}
    nights = {str(name): _verdict(found) for name, found in dict(answer.get("nights") or {}).items()}
    now = Conditions(_verdict(answer.get("closed")), classes, _verdict(answer.get("slots_free")), nights)
    return Heard(tuple(map(str, troubles)), now)


def _verdict(shape: object) -> Verdict:
    if not isinstance(shape, dict) or shape.get("decision") not in tuple(Decision):
        return ADMIT
    return Verdict(Decision(shape["decision"]), str(shape.get("code", "")), str(shape.get("words", "")), float(shape.get("since") or 0.0))
