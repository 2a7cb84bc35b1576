"""Whether an agent gave up because a limit of its account was spent, and until when it had better wait: its protocol says it, or the
gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents.kinds import Kind
from agents.protocols import spent
from supervisor.core.conversations import is_limited
from supervisor.core.errors import NightcrewError
from supervisor.daemon import kind_protocol
from supervisor.gateway import status_client
from supervisor.host.paths import Home

AFTER_S = 60.0
"""It begins again so long after the moment that was said: clocks differ, and both CLIs say whole minutes."""
UNKNOWN_S = 900.0
"""One that says no moment is tried again after this."""
LONGEST_S = 8 * 86400.0
"""No window is longer than a week; a moment beyond this is nonsense."""
_ASK_S = 1.0


def until(home: Home, kind: Kind, directory: Path, cause: str, now: float) -> float:
    """Until when the agent should not begin again, in seconds since 1970; 0 when no limit is to blame. `directory` has the records of an
    attempt that failed by `cause`; `now` is wall-clock seconds. Blocks for at most a second, while it asks the gateway."""
    said = kind_protocol.heard(kind, directory)
    if said is not None and said.spent:
        return _after(said.resets_at or spent.resets_at(said.spent, now), now)
    if not is_limited(cause):
        return 0.0
    opens_in_s = parked_s(_status(home))
    return _after(now + opens_in_s, now) if opens_in_s else 0.0


def _after(moment: float, now: float) -> float:
    known = 0.0 < moment <= now + LONGEST_S
    return max(moment, now) + AFTER_S if known else now + UNKNOWN_S


def _status(home: Home) -> dict[str, Any]:
    try:
        return status_client.ask(home, status_client.NOW, timeout_s=_ASK_S)
    except NightcrewError:  # no gateway, or none that answers: then nobody says that a window is spent
        return {"pools": []}


def parked_s(status: dict[str, Any]) -> float:
    """In how many seconds the first pool opens, by the gateway's status page, when a window of each is spent; 0 when one is not."""
    pools = [pool for pool in status["pools"] if pool["breaker"] is not None]
    spent_s = [max((window["resets_in_s"] for window in pool["windows"] if window["spent"]), default=0.0) for pool in pools]
    return min(spent_s, default=0.0)
