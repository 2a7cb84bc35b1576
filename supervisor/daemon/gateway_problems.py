"""The problems in the gateway's status that a person must mend, in the words that both `doctor` and the supervisor use.

Only what waiting does not mend by itself, or has not for a minute: a limit that was reached is the gateway's daily work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from supervisor.core.errors import one_line
from supervisor.core.gateway.settings import GatewaySettings, Upstream
from supervisor.core.gateway.types import BreakerState, Refusal
from supervisor.host.paths import Home

UNSERVED_S = 60.0
"""So long an upstream may serve nothing before a person hears of it: shorter outages happen every night and mend themselves."""
DEAD_S = 10.0
"""So long no provider may serve anything before tasks are kept from starting: the breaker opens for less than that at a hiccup."""
_UNSERVED = (*map(str, (Refusal.OVERLOADED, Refusal.SERVER_ERROR, Refusal.UNREACHABLE)), "streams are cut")
RELOAD = "nightcrew gateway reload"


class GatewayProblems:
    """The problems of one gateway, from one look to the next."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._unserved_since: dict[str, float] = {}
        self.now: dict[str, str] = {}
        """What is wrong as of the last look, by what stays the same while its words change."""
        self.dead = ""
        """Why no provider that is in use serves anything, and has not for `DEAD_S`; empty: one does."""

    def look(self, status: dict[str, Any], settings: GatewaySettings, now: float) -> list[str]:
        """What is wrong now and was not at the look before. `now` is monotonic seconds."""
        failing = unserved(status)
        self._unserved_since = {account: self._unserved_since.get(account, now) for account in failing}
        self.dead = self._all_dead(status, failing, now)
        found = {said: said for said in standing(self._home, status, settings)}
        for account, words in failing.items():
            if now - self._unserved_since[account] >= UNSERVED_S:
                found[account] = f"{words} for a minute; requests wait until it does: nightcrew gateway status"
        before, self.now = self.now, found
        told = set(before) | (set(failing) if self.dead else set())  # that nothing is served at all is told as an outage
        return [said for key, said in found.items() if key not in told]

    def _all_dead(self, status: dict[str, Any], failing: dict[str, str], now: float) -> str:
        """An account is dead that cannot be reached, or that serves none of its lanes; one that nobody asks has no word."""
        asked = [pool for pool in status["pools"] if pool["breaker"] is not None]
        serve = {pool["account"] for pool in asked if not (str(pool["breaker_why"]).startswith(_UNSERVED) and _is_open(pool))}
        unreached = {pool["account"] for pool in asked if str(pool["breaker_why"]).startswith(Refusal.UNREACHABLE) and _is_open(pool)}
        if not failing or serve - unreached or any(now - since < DEAD_S for since in self._unserved_since.values()):
            return ""
        return "; ".join(words for _, words in sorted(failing.items()))


def standing(home: Home, status: dict[str, Any], settings: GatewaySettings) -> list[str]:
    """What only a person can mend: an upstream without its key, with one that is refused, or with no money left."""
    said = [one_line(str(problem)) for problem in status["problems"]]
    said += [f"{upstream.name} refuses its key: {next_step(home, upstream)}" for upstream in refused(status, settings)]
    capped = {pool["account"] for pool in _open(status) if pool["breaker_why"].startswith(Refusal.SPEND_CAP)}
    said += [f"{account} has reached its spend cap: raise it at the provider" for account in sorted(capped)]
    return list(dict.fromkeys(said))


def refused(status: dict[str, Any], settings: GatewaySettings) -> list[Upstream]:
    """Those whose key the provider did not take. One that is in the settings no more is not among them."""
    accounts = {pool["account"] for pool in _open(status) if pool["breaker_why"].startswith(Refusal.KEY_REFUSED)}
    return [upstream for upstream in settings.upstreams if upstream.owner in accounts]


def unserved(status: dict[str, Any]) -> dict[str, str]:
    """Account -> what its provider does not serve now and why, which may be over in a second; one lane stands for all that fail."""
    failing = [pool for pool in _open(status) if pool["breaker_why"].startswith(_UNSERVED)]
    return {pool["account"]: one_line(f"{pool['account']} has not served {pool['lane']} ({pool['breaker_why']})") for pool in failing}


def next_step(home: Home, upstream: Upstream) -> str:
    """What gives an upstream its key."""
    source = upstream.key
    if source.kind == "command":
        return f"let {one_line(source.argv[0])} print the right one, then {RELOAD}"
    if source.kind == "client":
        return "log in again in the agent's own client"
    return f"put the key into {source.value or home.keys / f'{upstream.name}.key'} (mode 600), then {RELOAD}"


def _open(status: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return filter(_is_open, status["pools"])


def _is_open(pool: dict[str, Any]) -> bool:
    """Whether its breaker is not closed. Pools of which only the account knows have none."""
    return pool["breaker"] not in (None, BreakerState.CLOSED)
