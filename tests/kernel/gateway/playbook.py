"""A script for `Traffic`: what happens on the left of `>>`, what must be commanded on the left of `<<`.

    assert (
        Playbook(Limits(tpm=60_000))
        >> ask(1)
        << sent(1)
        >> Ended(1, End.SERVED, Usage(1000, 200))
        >> After(5)                      # nothing is commanded, although `Tick` is sent whenever it is due
    )

Tickets are numbers; every request is of 3600 bytes, so of about 1000 tokens, unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from supervisor.gateway.admission.traffic import Traffic
from supervisor.gateway.admission.types import (
    Agent,
    Alert,
    Arrived,
    Began,
    BreakerState,
    Command,
    DimensionView,
    End,
    Ended,
    Event,
    Journal,
    LaneKey,
    Level,
    Observed,
    PoolView,
    Refusal,
    Refused,
    Responded,
    Send,
    Tick,
    TurnAway,
    Usage,
)
from supervisor.kernel.gateway_settings import Api, GatewaySettings, Limits, Policy, Upstream
from supervisor.kernel.states import TaskClass

LANE = LaneKey(Api.ANTHROPIC, "opus-4")
INTERACTIVE, NORMAL, BATCH = TaskClass.INTERACTIVE, TaskClass.NORMAL, TaskClass.BATCH
UNKNOWN = Limits()
CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def upstream(name: str = "p", limits: Limits = UNKNOWN, **facts: Any) -> Upstream:
    """Without limits there are none, and none to learn, unless `learn=True` says so."""
    return Upstream(name, Api.ANTHROPIC, "http://127.0.0.1", limits=limits, **{"learn": limits != UNKNOWN, **facts})


def settings(*upstreams: Upstream, **policy: Any) -> GatewaySettings:
    return GatewaySettings(upstreams=upstreams, policy=replace(Policy(), **policy))


def ask(
    ticket: int, agent: str | Agent = "a", *, tokens: float = 1000, via: tuple[str, ...] = ("p",), lane: LaneKey = LANE, **facts: Any
) -> Arrived:
    """A request of about that many tokens: by the ratio that is assumed at first, less the caution that is added at first."""
    who = agent if isinstance(agent, Agent) else Agent(agent, 1)
    return Arrived(ticket, who, lane, facts.pop("model", "m"), via, round(tokens * 3.6 / 1.2), **facts)


LEARNING = upstream(learn=True)
"""Nobody configured a limit of it."""


@dataclass(frozen=True)
class After:
    """Time passes, in seconds; `Tick` is sent whenever it is due on the way."""

    seconds: float


@dataclass(frozen=True)
class _Like:
    """Equal to any command of a kind with these facts."""

    kind: type[Command]
    facts: dict[str, Any]

    def __eq__(self, other: object) -> bool:
        return type(other) is self.kind and all(getattr(other, name) == value for name, value in self.facts.items())


def sent(ticket: int, via: str = "p", attempt: int = 1, *, probe: bool = False) -> Send:
    return Send(ticket, via, attempt, probe)


def away(ticket: int, status: int, **facts: Any) -> _Like:
    return _Like(TurnAway, {"ticket": ticket, "status": status, **facts})


def journal(breaker: str, before: BreakerState, after: BreakerState, **facts: Any) -> _Like:
    return _Like(Journal, {"breaker": breaker, "before": before, "after": after, **facts})


def alert(**facts: Any) -> _Like:
    return _Like(Alert, facts)


class Playbook:
    """One `Traffic` and the script that it goes through. Each command that is given must be expected, in order."""

    def __init__(self, limits: Limits = UNKNOWN, *upstreams: Upstream, now: float = 1000.0, **policy: Any) -> None:
        self.now = now
        self.settings = settings(*(upstreams or (upstream(limits=limits),)), **policy)
        self.traffic = Traffic(self.settings, now)
        self._unread: list[Command] = []

    def __rshift__(self, event: Event | After | Sequence[Event]) -> Playbook:
        assert self
        if isinstance(event, After):
            self._pass(event.seconds)
            return self
        for one in event if isinstance(event, Sequence) else (event,):
            self._unread += self.traffic.handle(one, self.now)
        return self

    def __lshift__(self, expected: Command | _Like) -> Playbook:
        assert self._unread, f"expected {expected}, and nothing more was commanded"
        found = self._unread.pop(0)
        assert expected == found, f"expected {expected}, and not {found}"
        return self

    def __bool__(self) -> bool:
        assert self._unread == [], "this was commanded and not expected"
        return True

    def _pass(self, seconds: float) -> None:
        """Stops at the first moment at which something is commanded; what comes next is expected to be that."""
        end, ticks = self.now + seconds, 0
        while (wake := self.traffic.wakes_at(self.now)) is not None and wake <= end:
            assert wake >= self.now
            ticks += 1
            assert ticks < 10_000, "it wakes itself without end"
            self.now = wake
            self._unread += self.traffic.handle(Tick(), self.now)
        self.now = end

    def tell(self, event: Event | After | Sequence[Event]) -> list[Command]:
        """The same as `>>`, for tests that look at many commands: gives them, with those that were not read before."""
        before, self._unread = self._unread, []
        self >> event
        found, self._unread = before + self._unread, []
        return found


SMALL = Limits(tpm=6_000)
"""100 tokens a second: one first request of 1000 tokens (2200 with its expected output) every 22 s, and two at the start."""
SERVED = Usage(1000, 1200)


def refused(ticket: int, why: Refusal = Refusal.RATE_LIMITED, after: float | None = None, **facts: object) -> Refused:
    return Refused(ticket, why, Observed(retry_after_s=after, **facts))  # type: ignore[arg-type]


def level(play: Playbook) -> float:
    return play.traffic.view(play.now).pools[0].dimensions[-1].level


def margin(play: Playbook) -> float:
    margin: float = play.traffic.learned()["pools"][0]["margin"]
    return margin


def sends(commands: list[Command]) -> list[int]:
    return [command.ticket for command in commands if isinstance(command, Send)]


# What headers say -----------------------------------------------------------------------------------------------------------------

MINUTE = Limits(tpm=60_000)
THOUSAND = Usage(1000, 0)


def said(remaining: float | None = None, limit: float | None = 60_000, full_in_s: float | None = None, name: str = "tokens") -> Observed:
    return Observed({name: Level(limit, remaining, full_in_s)}, rounding=1000.0)


def tokens(play: Playbook) -> DimensionView:
    return pool(play).dimensions[-1]


def pool(play: Playbook) -> PoolView:
    return play.traffic.view(play.now).pools[0]


def turn(play: Playbook, ticket: int, observed: Observed, usage: Usage = THOUSAND) -> None:
    """One request that is served; the headers come with its first byte."""
    play >> ask(ticket) << sent(ticket) >> Responded(ticket, observed) >> Began(ticket, usage) >> Ended(ticket, End.SERVED, usage)
    assert play


def upstream_level(play: Playbook) -> float:
    """What the provider is thought to have left in the last dimension."""
    return play.traffic.network.pools()[0].dimensions[-1].upstream.level(play.now)
