"""The supervisor's report on its gateway, and how a command asks for it. Standard library only: `status` imports this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.core.errors import NightcrewError
from supervisor.core.scheduler import why_held
from supervisor.daemon import protocol
from supervisor.host.paths import Home

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
    """The part of the report that concerns a person who looks at tasks."""

    troubles: tuple[str, ...] = ()
    held: Mapping[str, str] | None = None
    """Class of tasks that do not start beside others -> why."""

    def why(self, task_class: str) -> str:
        """Why ready tasks of a class wait; empty when traffic is not the reason."""
        return (self.held or {}).get(task_class, "")


def to_ping(word: GatewayReport | None, why: dict[str, str], held_back: list[str]) -> dict[str, Any]:
    """The gateway's part of `ping`: `gateway` is null where none is needed. `why`: what else keeps classes of tasks from starting."""
    if word is None:
        return {"gateway": None, "held_back": {name: why_held(0.0, parked=False) for name in held_back} | why}
    gateway = {"troubles": list(word.troubles), "delay_s": word.delay_s, "parked": word.parked, "died": word.died}
    return {"gateway": gateway, "held_back": {name: why_held(word.delay_s, parked=word.parked) for name in held_back} | why}


def hear(home: Home) -> Heard:
    """Ask the supervisor; one that does not run or does not answer says nothing. Blocks for at most ASK_S."""
    try:
        answer = protocol.call(home.daemon_socket, "ping", {}, timeout_s=ASK_S)
    except NightcrewError:
        return Heard()
    said, held = answer.get("gateway"), answer.get("held_back")  # another version may answer
    troubles = said.get("troubles", ()) if isinstance(said, dict) else ()
    return Heard(tuple(map(str, troubles)), held if isinstance(held, dict) else None)
