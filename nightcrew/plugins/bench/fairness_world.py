"""The simulated world of `bench fairness`: virtual time, a provider, clients and policies.

It is the same for every policy (numbers marked M were measured at real clients, the others are chosen; see docs/bench.md):

- **Time** is a heap of acts. No wall clock, no asyncio: an hour takes a second or two, and the same seed gives the same figures.
- **The provider** (`SimulationUpstream`) holds one bucket of tokens, full at the start, refilled without a break at `limit / 60` a second,
  of the size of one minute. A request that comes in takes its input when that fits, else it is refused with 429 and `Retry-After`: whole
  seconds until it would fit, at least 1. Its output is taken at its end and may leave the bucket in debt. The response's headers and the
  exact input come with the first byte, 1 to 3 s later; then 60 tokens a second. `remaining` is the level at the moment of the charge,
  rounded to thousands as Anthropic does. The way there and the way back take 0.05 s each.
- **An agent** (`ClientsAgent`) sends one turn after another, each for ever until it is served or given up. The mean inputs of the agents
  are spread evenly from 1,000 to 12,000 tokens; one turn's input is lognormal around its agent's mean (sigma 0.4), its output around 500
  (sigma 0.4). Greedy agents pause for 1 s in the mean, interactive ones for 60 s (exponential). A body has 3.0 to 4.2 bytes a token by
  agent, up to 5 % more or less by turn: that is all the gateway knows of a request's size. No prompt is cached.
- **A client** retries like Claude Code (M): a 429 with `Retry-After` up to 60 is waited out (up to 0.2 s longer) ten times; the eleventh
  refusal, or a longer `Retry-After`, fails the turn, and the agent goes on with its next one. It waits for a held request as long as it
  takes, as with the variables that nightcrew gives to its agents (M: to 330 s and more; 295 s without).
  The gateway answers 429 by itself when a request was held for 25 minutes, an interactive one for 4.
- **A policy** (`AdmissionPolicy`) stands between clients and provider. All policies see the same requests and the same answers.
  The gateway's policy is the real `Traffic`, told by the events that the proxy sends.

A turn's draws belong to its agent, stream and number, never to the moment at which it is made, so every policy meets the same turns.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, assert_never

from supervisor.gateway.admission.traffic import Traffic
from supervisor.gateway.admission.types import (
    SENT,
    Agent,
    Alert,
    Arrived,
    Began,
    Command,
    End,
    Ended,
    Event,
    Journal,
    LaneKey,
    Level,
    Observed,
    Refusal,
    Refused,
    Responded,
    Send,
    Tick,
    TurnAway,
    Usage,
)
from supervisor.kernel.gateway_settings import Api, GatewaySettings, Limits, Policy, Upstream
from supervisor.kernel.kind import is_patient
from supervisor.kernel.states import TaskClass

# Simulation
# ----------
# Virtual time, the provider's bucket, and what stands between it and the clients. The module's docstring says what world this is.


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


class SimulationUpstream:
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


# No gateway
# ----------


MAX_TOKENS = 64_000
"""What Claude Code asks for in every request (measured)."""


class NoGateway:
    """Let clients and provider face each other: pass on each request, and each 429 of the provider."""

    def __init__(self, world: World[SimulationUpstream]) -> None:
        self.world = world

    def arrived(self, turn: Turn) -> None:
        """Pass it on."""
        self.world.send(turn, self)

    def refused(self, turn: Turn, retry_after: int, headers: Observed) -> None:  # noqa: ARG002 - it looks at no header
        """Pass it on."""
        self.world.refuse(turn, retry_after)

    def began(self, turn: Turn, headers: Observed | None) -> None:
        """Nothing to do."""

    def ended(self, turn: Turn) -> None:
        """Pass it on."""
        self.world.finish(turn)


# Clients
# -------
# The agents and their clients. The module's docstring says how they behave and where the numbers are from.


RETRIES = 10
LONGEST_RETRY_AFTER = 60
"""Claude Code 2.1 waits out 60 s and gives up at 61 (measured, gateway field notes 1.1)."""
RETRY_JITTER_S = 0.2
BYTES_PER_TOKEN = (3.0, 4.2)
FIRST_BYTE_S = (1.0, 3.0)
LEAST_TOKENS = 50
"""No turn is smaller, neither way."""


@dataclass(frozen=True, slots=True)
class ClientsAgent:
    """One agent's habits."""

    name: str
    mean_input: float
    mean_output: float = 500.0
    sigma: float = 0.4
    """Of the lognormal around both means; 0: every turn is the mean."""
    pause_s: float = 1.0
    """Mean pause between two turns of a stream, exponential."""
    every_s: float | None = None
    """A turn is due so often, whether or not the one before is done; then it follows at once. None: closed loop."""
    streams: int = 1
    """Turns that it has open at once."""
    task_class: TaskClass = TaskClass.NORMAL


class _Stream:
    """One stream of an agent. Its turns and the waits of its client are drawn from two sources, so that neither changes the other."""

    def __init__(self, agent: ClientsAgent, seed: int, index: int) -> None:
        self.agent = agent
        self._draw = random.Random(f"{seed}/{agent.name}/{index}")  # noqa: S311 - a simulation, not a secret
        self._wait = random.Random(f"{seed}/{agent.name}/{index}/wait")  # noqa: S311 - the same
        self._bytes_per_token = random.Random(f"{seed}/{agent.name}").uniform(*BYTES_PER_TOKEN)  # noqa: S311 - the same
        self._first = self._draw.random()
        self._begun = 0

    def next_at(self, now: float) -> float:
        """When its next turn begins, now that it has none."""
        if self.agent.every_s is None:
            return now + self._draw.expovariate(1 / self.agent.pause_s)
        return max(now, (self._first + self._begun) * self.agent.every_s)

    def due(self, before: float) -> int:
        """How many turns an open loop wants to begin before then."""
        return 0 if self.agent.every_s is None else math.ceil(before / self.agent.every_s - self._first)

    def turn(self, number: int, now: float) -> Turn:
        """Its next turn."""
        self._begun += 1
        tokens = self._around(self.agent.mean_input)
        return Turn(
            agent=self.agent.name,
            task_class=self.agent.task_class,
            number=number,
            input=tokens,
            output=self._around(self.agent.mean_output),
            body_bytes=round(tokens * self._bytes_per_token * self._draw.uniform(0.95, 1.05)),
            first_byte_s=self._draw.uniform(*FIRST_BYTE_S),
            born=now,
        )

    def jitter(self) -> float:
        """Seconds that its client waits longer than it was told to."""
        return self._wait.uniform(0, RETRY_JITTER_S)

    def _around(self, mean: float) -> int:
        sigma = self.agent.sigma
        return max(LEAST_TOKENS, round(mean * math.exp(self._draw.gauss(0, sigma) - sigma * sigma / 2)))


class ClientStreams:
    """All agents at work. Turns begin before `until_s`; those that are open then are carried to their end."""

    def __init__(self, timeline: Timeline, agents: Sequence[ClientsAgent], seed: int, until_s: float) -> None:
        self.turns: list[Turn] = []
        """Every turn that was ever begun."""
        self.refusals: list[float] = []
        """When a client got 429."""
        self.open: set[int] = set()
        """Numbers of turns that have not ended."""
        self._timeline, self._until = timeline, until_s
        self._streams = [_Stream(agent, seed, index) for agent in agents for index in range(agent.streams)]
        self._of: dict[int, _Stream] = {}

    def start(self, policy: AdmissionPolicy) -> None:
        """Let every stream plan its first turn; all requests go to `policy`."""
        self._policy = policy
        for stream in self._streams:
            self._plan(stream)

    def refused(self, turn: Turn, retry_after: int) -> None:
        """Its client waits and comes again, or gives up."""
        self.refusals.append(self._timeline.now)
        turn.refusals += 1
        if turn.refusals > RETRIES or retry_after > LONGEST_RETRY_AFTER:
            turn.failed = True
            self._over(turn)
        else:
            self._timeline.after(retry_after + self._of[turn.number].jitter(), lambda: self._policy.arrived(turn))

    def served(self, turn: Turn) -> None:
        """Its client has everything."""
        self._over(turn)

    def offered(self) -> int:
        """Turns that open-loop agents wanted to begin before the end."""
        return sum(stream.due(self._until) for stream in self._streams)

    def _plan(self, stream: _Stream) -> None:
        when = stream.next_at(self._timeline.now)
        if when < self._until:
            self._timeline.at(when, lambda: self._begin(stream))

    def _begin(self, stream: _Stream) -> None:
        turn = stream.turn(len(self.turns), self._timeline.now)
        self.turns.append(turn)
        self.open.add(turn.number)
        self._of[turn.number] = stream
        self._policy.arrived(turn)

    def _over(self, turn: Turn) -> None:
        if turn.number not in self.open:
            raise RuntimeError(f"turn {turn.number} of {turn.agent} ended twice")
        self.open.remove(turn.number)
        turn.ended_at = self._timeline.now
        self._plan(self._of.pop(turn.number))


# Nightcrew policy
# ----------------
# Our policy in the simulated world: the real `Traffic`, told what the proxy would tell it and obeyed as the proxy would obey.


LANE = LaneKey(Api.ANTHROPIC, "opus-4")


class Gateway:
    """The gateway. The use of a limit by others and the size of requests must be learned, and the limit itself unless it is configured."""

    def __init__(self, world: World[Any], policy: Policy | None = None, limits: Limits | None = None) -> None:
        """`limits` are what the settings say; without any, every limit must be learned."""
        self._world = world
        upstream = Upstream("provider", Api.ANTHROPIC, "http://127.0.0.1", limits=limits or Limits())
        self.traffic = Traffic(GatewaySettings(upstreams=(upstream,), policy=policy or Policy()), world.now)
        self.journal: list[tuple[float, Journal | Alert]] = []
        self._turns: dict[int, Turn] = {}
        self._tickets: dict[int, int] = {}
        self._last_ticket = 0
        self._wake: float | None = None

    def arrived(self, turn: Turn) -> None:
        """Each request has a ticket of its own, also when it is one that comes again; the body is what tells."""
        self._last_ticket += 1
        self._turns[self._last_ticket], self._tickets[turn.number] = turn, self._last_ticket
        self._tell(
            Arrived(
                self._last_ticket,
                Agent(turn.agent, epoch=1, task_class=turn.task_class, patient=is_patient(turn.task_class)),
                LANE,
                model="claude-opus-4-8",
                upstreams=("provider",),
                body_bytes=turn.body_bytes,
                max_tokens=MAX_TOKENS,
                body_key=f"{turn.agent}/{turn.number}",
                session=turn.agent,
            )
        )

    def waiting(self) -> list[Turn]:
        """Turns that were not sent yet, or were refused."""
        return [self._turns[ticket] for ticket, one in self.traffic.tickets.items() if one.where != SENT]

    def outside(self, name: str) -> float:
        """What it takes for the use of one limit by others, per minute."""
        pools = self.traffic.view(self._world.now).pools
        return sum(dimension.outside_per_minute for pool in pools for dimension in pool.dimensions if dimension.name == name)

    def refused(self, turn: Turn, retry_after: int, headers: Observed) -> None:
        """A 429: the client hears nothing of it."""
        self._tell(Refused(self._tickets[turn.number], Refusal.RATE_LIMITED, replace(headers, retry_after_s=float(retry_after))))

    def responded(self, turn: Turn, headers: Observed) -> None:
        """The head came before the first byte."""
        self._tell(Responded(self._tickets[turn.number], headers))

    def began(self, turn: Turn, headers: Observed | None) -> None:
        """message_start came, in one piece with the head unless that came before."""
        ticket = self._tickets[turn.number]
        if headers is not None:
            self._tell(Responded(ticket, headers))
        self._tell(Began(ticket, Usage(input=turn.input, output=1)))

    def ended(self, turn: Turn) -> None:
        """The whole answer came."""
        ticket = self._tickets.pop(turn.number)
        del self._turns[ticket]
        self._tell(Ended(ticket, End.SERVED, Usage(input=turn.input, output=turn.output)))
        self._world.finish(turn)

    def _tell(self, event: Event) -> None:
        self._obey(self.traffic.handle(event, self._world.now))
        wake = self.traffic.wakes_at(self._world.now)
        if wake is not None and (self._wake is None or wake < self._wake):
            self._wake = wake
            self._world.timeline.at(wake, lambda: self._tick(wake))

    def _tick(self, planned: float) -> None:
        if planned == self._wake:
            self._wake = None
            self._tell(Tick())

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Send():
                    self._world.send(self._turns[command.ticket], self)
                case TurnAway():
                    turn = self._turns.pop(command.ticket)
                    del self._tickets[turn.number]
                    if command.retry_after_s is None:
                        raise RuntimeError(f"{turn.agent} turned away for good: {command.status} {command.why}")
                    self._world.refuse(turn, command.retry_after_s)
                case Journal() | Alert():
                    self.journal.append((self._world.now, command))
                case _:
                    assert_never(command)
