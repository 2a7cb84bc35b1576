"""The simulated world of `bench fairness`: virtual time, a provider, clients and policies.

It is the same for every policy (numbers marked M were measured at real clients, the others are chosen; see docs/bench.md):

- **Time** is a heap of acts. No wall clock, no asyncio: an hour takes a second or two, and the same seed gives the same figures.
- **The provider** (`Provider`) holds one bucket of tokens, full at the start, refilled without a break at `limit / 60` a second,
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from nightcrew.plugins.sim.account import Bucket
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
    Interrupt,
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
OTHER = "another process"
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
    """What the provider took of the binding limit; `number` None: by the other process."""

    at: float
    agent: str
    number: int | None
    tokens: float


class AdmissionPolicy(Protocol):
    """A policy: told what clients and provider do, it answers by `World.send`, `World.refuse` and `World.finish`."""

    def arrived(self, turn: Turn) -> None:
        """A client sent it, for the first time or again."""

    def refused(self, turn: Turn, retry_after: int, headers: Observed) -> None:
        """The provider answered 429."""

    def responded(self, turn: Turn, headers: Observed) -> None:
        """The head came before the first byte."""

    def began(self, turn: Turn, headers: Observed | None) -> None:
        """The first byte came, with the exact input; `headers` are None when they came before it."""

    def ended(self, turn: Turn) -> None:
        """The last byte came, with the exact output."""


PIECE_S = 1.0
"""Output that is charged while it is produced is charged so often."""
SPARE = 0.05
"""Part of the capacity that must be left beside the largest waiting request before nothing being sent is called a stall."""


@dataclass(frozen=True, slots=True)
class Other:
    """Somebody else with the same key, who takes `share` of each limit from `start_s` to `end_s`, something each `every_s` in the mean."""

    share: float
    start_s: float = 0.0
    end_s: float = math.inf
    every_s: float = 1.0
    pauses: bool = False
    """Its first request comes after a pause, and not at `start_s`."""
    name: str = "other"
    """Of its source of chance."""


@dataclass(frozen=True, slots=True)
class Case:
    """One provider and one crew. Limits are per minute: of `requests`, `input`, `output`, or of `tokens` of both kinds."""

    limits: Mapping[str, float]
    binding: str
    """The limit that the crew could use up."""
    agents: int = 16
    mean_input: float = 3_000.0
    mean_output: float = 300.0
    burst_s: float = 60.0
    """Seconds of refill that each bucket holds."""
    head_s: float | None = 0.0
    """The head of an answer comes so late, its first byte after it; None: with the first byte."""
    other: Other | None = None
    factor: float = 1.0
    """What every limit is multiplied with at a third of the run."""
    remembered: float | None = None
    """The gateway remembers the limits as so many times what they are; None: it remembers nothing."""
    produced: bool = False
    """Output is charged while it is produced, and not at the end."""


class Provider:
    """Takes `World.send`'s requests, and keeps account.

    A request is taken when its input (or a full bucket, when it is larger than that) and one token of output are there. Its input is
    charged at once, its output at its end or while it is produced. Heads say the levels of the moment of the charge.
    """

    def __init__(self, timeline: Timeline, case: Case, seed: int, until_s: float) -> None:
        self.case = case
        self.buckets = {name: Bucket(limit, case.burst_s * limit / 60, 0.0) for name, limit in case.limits.items()}
        self.refusals: list[float] = []
        self.charges: list[Charge] = []
        self.unwritten = 0.0
        """Output of requests that were taken, and is not charged yet."""
        self.heard_at: float | None = None
        """When the first head was out."""
        self.sent_at = self.paced_s = 0.0
        """When the newest request came in, and how long the limit takes to give what that takes."""
        self._timeline = timeline
        self._draw = random.Random(f"{seed}/{case.other.name if case.other else OTHER}")  # noqa: S311 - a simulation, not a secret
        self._until = until_s
        if other := case.other:
            first_s = self._draw.expovariate(1 / other.every_s) if other.pauses else 0.0
            timeline.at(other.start_s + first_s, lambda: self._others_take(other))
        if case.factor != 1.0:
            timeline.at(until_s / 3, lambda: self._change(case.factor))

    def has_room(self, waiting: Sequence[Turn]) -> bool:
        """Whether it has room for any of them, for all output under way, and `SPARE` beside that."""
        now, tokens = self._timeline.now, max(turn.input for turn in waiting)
        written = self.unwritten + max(turn.output for turn in waiting)
        need = {"requests": 1.0, "input": tokens, "output": written, "tokens": tokens + written}
        return all(bucket.level(now) >= min(need[name] + SPARE * bucket.capacity, bucket.capacity) for name, bucket in self.buckets.items())

    def receive(self, turn: Turn, policy: AdmissionPolicy) -> None:
        """A request comes in."""
        now = self.sent_at = self._timeline.now
        self.paced_s = self._paced_s(turn)
        need = {"requests": 1.0, "input": float(turn.input), "output": 1.0, "tokens": float(turn.input)}
        wait_s = max(bucket.wait_s(need[name], now) for name, bucket in self.buckets.items())
        if wait_s > 0:
            self.refusals.append(now)
            head, retry_after = self._head(), max(1, math.ceil(wait_s))
            self._hear((self.case.head_s or 0.0) + LINK_S, lambda: policy.refused(turn, retry_after, head))
            return
        turn.taken_at = now
        self._charge(turn, {"requests": 1.0, "input": turn.input, "tokens": turn.input})
        self.unwritten += turn.output
        self._answer(turn, policy, self._head())

    def given(self, since: float, until: float) -> float:
        """What the binding limit gave in that time, at its rates."""
        first, change = self.case.limits[self.case.binding] / 60, self._until / 3
        before = max(0.0, min(until, change) - since)
        return first * (before + self.case.factor * (until - since - before))

    def _paced_s(self, turn: Turn) -> float:
        """How long the binding limit takes to give what the turn takes, beside the other one."""
        binding = self.case.binding
        amount = {"requests": 1.0, "input": turn.input, "output": turn.output, "tokens": turn.input + turn.output}[binding]
        share = self.case.other.share if self.case.other else 0.0
        return amount / (self.buckets[binding].per_minute / 60 * (1 - share))

    def _hear(self, seconds: float, act: Callable[[], None]) -> None:
        def heard() -> None:
            self.heard_at = self.heard_at or self._timeline.now
            act()

        self._timeline.after(seconds, heard)

    def _answer(self, turn: Turn, policy: AdmissionPolicy, head: Observed) -> None:
        begins_s, made_s = turn.first_byte_s, turn.output / TOKENS_PER_S
        if self.case.head_s is None:
            self._hear(begins_s + LINK_S, lambda: policy.began(turn, head))
        else:
            head_s = self.case.head_s + LINK_S
            begins_s += head_s
            self._hear(head_s, lambda: policy.responded(turn, head))
            self._timeline.after(begins_s, lambda: policy.began(turn, None))
        pieces = max(1, math.ceil(made_s / PIECE_S)) if self.case.produced else 1
        for number in range(1, pieces + 1):
            self._timeline.after(begins_s + made_s * number / pieces, lambda: self._write(turn, turn.output / pieces))
        self._timeline.after(begins_s + made_s + LINK_S, lambda: policy.ended(turn))

    def _write(self, turn: Turn, tokens: float) -> None:
        self.unwritten -= tokens
        self._charge(turn, {"output": tokens, "tokens": tokens})

    def _charge(self, turn: Turn | None, amounts: Mapping[str, float]) -> None:
        now = self._timeline.now
        for name, bucket in self.buckets.items():
            if name in amounts:
                bucket.draw(amounts[name], now)
                if name == self.case.binding:
                    agent, number = (turn.agent, turn.number) if turn is not None else (OTHER, None)
                    self.charges.append(Charge(now, agent, number, amounts[name]))

    def _others_take(self, other: Other) -> None:
        if self._timeline.now <= other.end_s:
            part = other.share * other.every_s / 60 * self._draw.uniform(0.5, 1.5)
            self._charge(None, {name: part * bucket.per_minute for name, bucket in self.buckets.items()})
            self._timeline.after(self._draw.expovariate(1 / other.every_s), lambda: self._others_take(other))

    def _change(self, factor: float) -> None:
        for bucket in self.buckets.values():
            bucket.change(bucket.per_minute * factor, bucket.capacity * factor, self._timeline.now)

    def _head(self) -> Observed:
        """Say the levels as Anthropic does: tokens rounded to thousands, the full refill in whole seconds of the moment that it is sent."""
        now = self._timeline.now
        sent, levels = now + (self.case.head_s or 0.0), {}
        for name, bucket in self.buckets.items():
            level = bucket.level(now)
            remaining = math.floor(level) if name == "requests" else round(level / ROUNDING) * ROUNDING
            full_in_s = math.ceil(now + bucket.full_in_s(now)) - math.floor(sent)
            levels[name] = Level(bucket.per_minute, max(0.0, float(remaining)), max(0.0, float(full_in_s)))
        return Observed(levels, rounding=ROUNDING)


class Clients(Protocol):
    """The other side of a policy."""

    def refused(self, turn: Turn, retry_after: int) -> None:
        """The client gets 429."""

    def served(self, turn: Turn) -> None:
        """The client has its whole answer."""


@dataclass(slots=True)
class World:
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

    def __init__(self, world: World) -> None:
        self.world = world

    def arrived(self, turn: Turn) -> None:
        """Pass it on."""
        self.world.send(turn, self)

    def refused(self, turn: Turn, retry_after: int, headers: Observed) -> None:  # noqa: ARG002 - it looks at no header
        """Pass it on."""
        self.world.refuse(turn, retry_after)

    def responded(self, turn: Turn, headers: Observed) -> None:
        """Nothing to do."""

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

    def __init__(self, world: World, policy: Policy | None = None, limits: Limits | None = None) -> None:
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
                case Interrupt():
                    raise RuntimeError("no engine serves here")
                case Journal() | Alert():
                    self.journal.append((self._world.now, command))
                case _:
                    assert_never(command)
