"""Virtual time, the provider's bucket, and what stands between it and the clients. The package's docstring says what world this is."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from supervisor.core.gateway.types import Level, Observed
from supervisor.core.states import TaskClass

LINK_S = 0.05
TOKENS_PER_S = 60.0
ROUNDING = 1000
"""Anthropic rounds `remaining` to the nearest thousand (gateway field notes, section 2)."""
SPIN = 100_000
"""So many acts at one moment are a policy that wakes itself without end."""


class Timeline:
    """Acts in the order of their times, and in the order of their making at one time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._acts: list[tuple[float, int, Callable[[], None]]] = []
        self._made = self._still = 0

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Do `act` at `when`, or now when that is past."""
        self._made += 1
        heapq.heappush(self._acts, (max(when, self.now), self._made, act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Do `act` in so many seconds."""
        self.at(self.now + seconds, act)

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Do what is due up to `until`, or up to the moment when `done` is true. Raises RuntimeError when time stands still."""
        while self._acts and self._acts[0][0] <= until and not done():
            when, _, act = heapq.heappop(self._acts)
            self._still = self._still + 1 if when == self.now else 0
            if self._still > SPIN:
                raise RuntimeError(f"{SPIN} acts at {when} s: something wakes itself without end")
            self.now = when
            act()


class Bucket:
    """A token bucket that is refilled without a break. Times are seconds and must not go back."""

    def __init__(self, cap: float, rate: float, level: float | None = None) -> None:
        self.cap, self.rate = cap, rate
        self._level, self._at = cap if level is None else level, 0.0

    def level(self, now: float) -> float:
        """Tokens in it; below 0 it is in debt."""
        self._level = min(self.cap, self._level + self.rate * (now - self._at))
        self._at = now
        return self._level

    def spend(self, tokens: float, now: float) -> None:
        """Take `tokens`, whether they are there or not; negative gives back, up to the brim."""
        self._level = min(self.cap, self.level(now) - tokens)

    def wait_for(self, tokens: float, now: float) -> float:
        """Seconds until `tokens` are there, or until it is full when it never holds so many."""
        return max(0.0, (min(tokens, self.cap) - self.level(now)) / self.rate)


@dataclass(slots=True)
class Turn:
    """One request of an agent with everything that will be true of it, and what became of it."""

    agent: str
    task_class: TaskClass
    number: int
    """Unique in one run."""
    input: int
    output: int
    body_bytes: int
    first_byte_s: float
    born: float
    refusals: int = 0
    """429s that its client got."""
    taken_at: float | None = None
    """When the provider took it."""
    ended_at: float | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Charge:
    """Tokens that the provider counted; `number` None: those of the other process."""

    at: float
    agent: str
    number: int | None
    tokens: int


class AdmissionPolicy(Protocol):
    """A policy: told what clients and provider do, it answers by `World.send`, `World.refuse` and `World.finish`."""

    def arrived(self, turn: Turn) -> None:
        """A client sent it, for the first time or again."""

    def refused(self, turn: Turn, retry_after: int, headers: Observed) -> None:
        """The provider answered 429."""

    def began(self, turn: Turn, headers: Observed | None) -> None:
        """The first byte came, with the exact input; `headers` are None when they came before it."""

    def ended(self, turn: Turn) -> None:
        """The last byte came, with the exact output."""


class Upstream:
    """The provider. Keeps account of every charge and every refusal."""

    def __init__(self, timeline: Timeline, limit_tpm: float, burst_s: float = 60.0) -> None:
        self.limit_tpm = limit_tpm
        self.bucket = Bucket(cap=burst_s * limit_tpm / 60, rate=limit_tpm / 60)
        self.charges: list[Charge] = []
        self.refusals: list[float] = []
        self._timeline = timeline

    def receive(self, turn: Turn, policy: AdmissionPolicy) -> None:
        """A request comes in."""
        now = self._timeline.now
        if self.bucket.level(now) >= turn.input:
            turn.taken_at = now
            self._charge(turn.agent, turn.number, turn.input)
            headers = self._headers()
            self._timeline.after(turn.first_byte_s + LINK_S, lambda: policy.began(turn, headers))
            self._timeline.after(turn.first_byte_s + turn.output / TOKENS_PER_S, lambda: self._end(turn, policy))
        else:
            self.refusals.append(now)
            retry_after, headers = max(1, math.ceil(self.bucket.wait_for(turn.input, now))), self._headers()
            self._timeline.after(LINK_S, lambda: policy.refused(turn, retry_after, headers))

    def take(self, agent: str, tokens: int) -> None:
        """Another process has `tokens` served, past any policy."""
        self._charge(agent, None, tokens)

    def _end(self, turn: Turn, policy: AdmissionPolicy) -> None:
        self._charge(turn.agent, turn.number, turn.output)
        self._timeline.after(LINK_S, lambda: policy.ended(turn))

    def _charge(self, agent: str, number: int | None, tokens: int) -> None:
        self.bucket.spend(tokens, self._timeline.now)
        self.charges.append(Charge(self._timeline.now, agent, number, tokens))

    def _headers(self) -> Observed:
        """What the response says of the bucket, at the moment of the charge."""
        level = self.bucket.level(self._timeline.now)
        remaining = max(0.0, float(round(level / ROUNDING) * ROUNDING))
        found = Level(self.limit_tpm, remaining, (self.bucket.cap - level) / self.bucket.rate)
        return Observed({"tokens": found}, rounding=ROUNDING)


class Clients(Protocol):
    """The other side of a policy."""

    def refused(self, turn: Turn, retry_after: int) -> None:
        """The client gets 429."""

    def served(self, turn: Turn) -> None:
        """The client has its whole answer."""


class Receiver(Protocol):
    """A provider."""

    def receive(self, turn: Turn, policy: Any) -> None:
        """A request comes in; `policy` is told what becomes of it."""


Provider = TypeVar("Provider", bound=Receiver)


@dataclass(slots=True)
class World(Generic[Provider]):
    """What a policy may do, and the clock."""

    timeline: Timeline
    upstream: Provider
    clients: Clients

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.timeline.now

    def send(self, turn: Turn, policy: AdmissionPolicy) -> None:
        """Pass it on to the provider, which answers `policy`."""
        self.timeline.after(LINK_S, lambda: self.upstream.receive(turn, policy))

    def refuse(self, turn: Turn, retry_after: int) -> None:
        """Answer 429 with `Retry-After`."""
        self.clients.refused(turn, retry_after)

    def finish(self, turn: Turn) -> None:
        """The answer was passed on to its end."""
        self.clients.served(turn)
