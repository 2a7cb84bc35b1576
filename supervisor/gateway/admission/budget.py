"""What agents and crew may spend, and how many tokens a request will take."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from supervisor.gateway.admission.types import Agent, Arrived, BatchEnded, BatchHold, NightCap, Ticket, Usage
from supervisor.kernel.format import money

if TYPE_CHECKING:
    from supervisor.gateway.admission.queue import FairQueue, Flow

# Estimate
# --------
# How many tokens a request will take, learned from what the requests before it took.
#
# - Input: bytes of the body over `ratio`, the bytes a token of this agent and model, and one mean deviation more: what was too much
# comes back with the first byte, what was too little may be refused. A token is never less than a byte: where the provider counts
# more tokens than there are bytes (context that it keeps itself, a picture by its address), the rest is `hidden`, and no matter of
# bytes. Both are medians of the last few turns, so one odd turn changes little. New agents begin with the median ratio of the
# model's agents, new models with 3.6. - What is cached: the client's session had so many tokens in the provider's cache after its
# last turn, on one account, for five minutes. - Output: mean plus one mean deviation of this agent's outputs, 1200 before the
# first; never `max_tokens`, which clients set to 64,000.


FIRST_RATIO = 3.6
"""Bytes of JSON a token, measured on English prompts and code."""
FIRST_SPREAD = 0.2
"""Part by which a new agent's prompts may be larger than that: 3.0 bytes a token is the least that was seen of text."""
RATIOS = (1.0, 20_000.0)
"""Nothing outside is believed. An image is a million bytes and 1500 tokens."""
HIDDEN_MOST = 2_000_000.0
"""Tokens; no more is believed. The largest context that is sold holds half of it."""
LAST = 5
"""Turns of which the median is taken."""
FIRST_OUTPUT = 1200.0
FASTEST = 300.0
"""Tokens a second that a model puts out at most, for answers of which nobody knows how far they came. A guess on the safe side: what is
sold as fast is at about 100."""
GAIN = 0.25
"""Weight of the newest turn, once there were four."""
CACHE_S = 300.0
"""How long a provider keeps a prompt cached after its last use (Anthropic's and OpenAI's short form)."""
FORGET_S = 3600.0


class Habit:
    """What one agent's turns with one model were like."""

    __slots__ = ("_hidden", "_ratios", "deviation", "hidden", "mean", "ratio", "spread", "turns", "used_at")

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self.hidden = 0.0
        """Input tokens that its bodies do not show."""
        self._ratios = [ratio]
        self._hidden = [0.0]
        self.spread = FIRST_SPREAD
        """Mean deviation of the ratio, as a part of it."""
        self.mean = self.deviation = 0.0
        self.turns = 0
        self.used_at = 0.0

    def least_input(self, body_bytes: float) -> int:
        """Tokens of a body of which each is as long as those of the turn, among the last, with the longest."""
        return round(body_bytes / max(self._ratios) + self.hidden)

    @property
    def known(self) -> bool:
        """At least one turn of its own was seen."""
        return len(self._ratios) > 1 or self.turns > 0

    def saw_input(self, body_bytes: float, tokens: float) -> None:
        """One turn's body, and what the provider counted."""
        shown = tokens <= body_bytes
        hidden = 0.0 if shown else min(tokens - body_bytes / self.ratio, HIDDEN_MOST)
        if hidden or len(self._hidden) > 1:
            _keep(self._hidden, hidden)
            self.hidden = sorted(self._hidden)[(len(self._hidden) - 1) // 2]
        if shown:
            ratio = _within(body_bytes / tokens)
            self.spread += GAIN * (min(1.0, abs(ratio - self.ratio) / self.ratio) - self.spread)
            _keep(self._ratios, ratio)
            self.ratio = sorted(self._ratios)[len(self._ratios) // 2]

    def saw_output(self, tokens: float) -> None:
        """One turn wrote so much."""
        self.turns += 1
        gain = 1 / self.turns if self.turns < 1 / GAIN else GAIN
        off = abs(tokens - self.mean) if self.turns > 1 else tokens / 2
        self.mean += gain * (tokens - self.mean)
        self.deviation += gain * (off - self.deviation)


@dataclass(slots=True)
class Guess:
    """What one request will take. `warm`: tokens of `input` that count when it goes to the account `home`, where the rest is cached."""

    input: float
    output: float
    warm: float
    home: str
    habit: Habit
    """Of its agent and model: where what it took is learned."""
    mean_output: float
    """`output` with no caution."""


@dataclass(slots=True)
class _Warm:
    account: str
    tokens: float
    at: float


class Estimator:
    """All habits, and what is cached where."""

    def __init__(self) -> None:
        self._habits: dict[tuple[str, str], Habit] = {}
        self._models: dict[str, float] = {}
        self._warm: dict[tuple[str, str, str], _Warm] = {}

    def habit(self, agent: str, model: str) -> Habit:
        """One agent's habit with one model."""
        habit = self._habits.get((agent, model))
        if habit is None:
            habit = self._habits[agent, model] = Habit(self._typical(model))
        return habit

    def _typical(self, model: str) -> float:
        """The median ratio of the model's agents. What was known before counts as two agents, so that no single one decides."""
        before = self._models.get(model, FIRST_RATIO)
        ratios = [habit.ratio for (_, its), habit in self._habits.items() if its == model and habit.known]
        return sorted([before, before, *ratios])[(len(ratios) + 1) // 2]

    def guess(self, event: Arrived, now: float) -> Guess:
        """What this request will take. All numbers are at least 1."""
        habit = self.habit(event.agent.name, event.model)
        habit.used_at = now
        tokens = event.body_bytes / habit.ratio * (1 + habit.spread) + habit.hidden
        if tokens < 1:
            tokens = 1.0
        mean = habit.mean if habit.turns else FIRST_OUTPUT
        output = mean + habit.deviation
        if event.max_tokens is not None and event.max_tokens < output:
            output = float(event.max_tokens)
        if output < 1:
            output = 1.0
        mean = min(max(mean, 1.0), output)
        warm = self._warm.get((event.agent.name, event.model, event.session)) if self._warm else None
        if warm is None or now - warm.at > CACHE_S:
            return Guess(tokens, output, tokens, "", habit, mean)
        return Guess(tokens, output, max(1.0, tokens - warm.tokens), warm.account, habit, mean)

    def expected(self, event: Arrived, guess: Guess, account: str) -> Usage:
        """What this request will take on this account when it is like those before it: for an account, so with no margin."""
        habit = guess.habit
        tokens = round(event.body_bytes / habit.ratio + habit.hidden)
        output = habit.mean if habit.turns else self._typical_output(event.model)
        if event.max_tokens is not None and event.max_tokens < output:
            output = float(event.max_tokens)
        cached = 0
        if guess.home == account and (warm := self._warm.get((event.agent.name, event.model, event.session))):
            cached = min(round(warm.tokens), tokens)
        return Usage(input=max(1, tokens) - cached, output=max(1, round(output)), cache_read=cached)

    def _typical_output(self, model: str) -> float:
        """The median of what the model's agents put out."""
        means = sorted(habit.mean for (_, its), habit in self._habits.items() if its == model and habit.turns)
        return means[len(means) // 2] if means else FIRST_OUTPUT

    def saw_input(self, event: Arrived, habit: Habit, account: str, usage: Usage, now: float) -> None:
        """The provider said what the input was. `habit` is the guess's."""
        prompt = usage.input + usage.cache_read + usage.cache_write
        if prompt <= 0:
            return
        habit.saw_input(event.body_bytes, prompt)
        cached = usage.cache_read + usage.cache_write
        if cached > 0:
            self._warm[event.agent.name, event.model, event.session] = _Warm(account, cached, now)
        elif self._warm:
            self._warm.pop((event.agent.name, event.model, event.session), None)

    def forget(self, now: float) -> None:
        """Drop what was not used for an hour; what a model is like stays."""
        self._models = self._all_typical()
        self._warm = {key: warm for key, warm in self._warm.items() if now - warm.at <= CACHE_S}
        self._habits = {key: habit for key, habit in self._habits.items() if now - habit.used_at <= FORGET_S}

    def _all_typical(self) -> dict[str, float]:
        return {
            model: self._typical(model)
            for model in self._models.keys() | {model for (_, model), habit in self._habits.items() if habit.known}
        }

    def learned(self) -> dict[str, Any]:
        """JSON for `recall`."""
        habits = [[*key, h.ratio, h.mean, h.deviation, h.turns] for key, h in self._habits.items()]
        return {"models": self._all_typical(), "habits": habits}

    def recall(self, learned: object, now: float) -> None:
        """Take over what `learned` gave before a restart; what is not understood is left out."""
        if not isinstance(learned, dict):
            return
        with suppress(AttributeError, TypeError, ValueError):
            self._models.update({str(model): _within(float(ratio)) for model, ratio in learned["models"].items()})
        for entry in learned.get("habits") or ():
            with suppress(TypeError, ValueError):
                agent, model, ratio, mean, deviation, turns = entry
                habit = self._habits[str(agent), str(model)] = Habit(_within(float(ratio)))
                habit.mean, habit.deviation, habit.turns = max(0.0, float(mean)), max(0.0, float(deviation)), max(0, int(turns))
                habit.used_at = now


def _keep(seen: list[float], value: float) -> None:
    seen.append(value)
    if len(seen) > LAST:
        del seen[0]


def _within(ratio: float) -> float:
    least, most = RATIOS
    return least if ratio < least else most if ratio > most else ratio


# Pot
# ---
# Dollars that several agents spend together: the crew's of 12 hours, and those of one night.
#
# What was spent and the most that the requests in flight can cost never are more than the cap together: a request that does not fit
# waits until one of those has ended, and is refused when it would not fit even then.


CENT = 1e-9
"""Dollars: what float sums may be off."""


class Spent(Protocol):
    """What was spent, as far as it counts."""

    def add(self, amount: float, now: float) -> object:
        """So much more."""

    def sum(self, now: float) -> float:
        """All of it."""


class Total:
    """What counts for good."""

    def __init__(self, usd: float) -> None:
        self._usd = usd

    def add(self, amount: float, now: float) -> None:  # noqa: ARG002 - as `Spent`
        """So much more, or less."""
        self._usd = max(0.0, self._usd + amount)

    def sum(self, now: float) -> float:  # noqa: ARG002 - as `Spent`
        """All of it."""
        return self._usd


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: at `until`, or (None) when a request of the same cap has ended."""

    until: float | None
    pot: Pot | None = None
    """The cap is one that others share, and not its agent's own."""


@dataclass(frozen=True, slots=True)
class Never:
    """It can never be sent; `why` is for the person whose agent stops."""

    why: str


class Pot:
    """One of them."""

    def __init__(self, key: str, whose: str, cap: float | None, spent: Spent) -> None:
        self.key, self.whose = key, whose
        self.cap = cap
        self.spent = spent
        self.bounds = 0.0
        """The most that the requests in flight can cost."""
        self.in_flight = 0
        self.held: list[Any] = []
        """The `Budget` of each agent whose next request waits until one in flight ends."""
        self.refused = False
        """One was refused that would have fit when nothing was spent."""

    def verdict(self, bound: float, now: float) -> Wait | Never | None:
        """Whether a request that can cost so much may go now (None)."""
        if self.cap is None or (spent := self.spent.sum(now)) + self.bounds + bound <= self.cap + CENT:
            return None
        if self.in_flight and spent + bound <= self.cap + CENT:
            return Wait(None, self)
        self.refused = self.refused or bound <= self.cap + CENT
        return Never(too_dear(f"{self.key} of {self.whose}", self.cap, spent, bound))

    def open(self, bound: float | None) -> None:
        """One is sent."""
        self.in_flight += 1
        self.bounds += bound or 0.0

    def close(self, bound: float | None) -> None:
        """It is over."""
        self.in_flight -= 1
        self.bounds = self.bounds - (bound or 0.0) if self.in_flight else 0.0  # float rounding does not pile up


def too_dear(what: str, cap: float, spent: float, bound: float) -> str:
    """What is told of a request that does not fit."""
    costs = f"this request can cost at most {money(bound)}; a smaller max_tokens lowers that"
    return f"{what} is {money(cap)}: {money(spent)} is spent, and {costs}"


# Sliding window
# --------------
# What was spent in the last span of time, kept in slots, so that a minute of thousands of requests is sixty numbers.


Slot = list[float]
"""[number of the slot, amount]; a slot that fell out of the span has the number -1."""


class SlidingWindow:
    """A sliding sum. An amount leaves it when its whole slot is older than the span: up to one `step_s` late, never early.

    What was spent beyond a cap is owed: it is part of the sum, and moves into the span as what was spent before leaves it. So a span holds
    at most the cap, and whoever passed the cap pays for it in the spans after, however many pass it at once.
    """

    __slots__ = ("_owed", "_slots", "_slots_kept", "_step_s", "_total")

    def __init__(self, span_s: float = 60.0, step_s: float = 1.0) -> None:
        self._step_s = step_s
        self._slots_kept = int(span_s / step_s)
        self._slots: deque[Slot] = deque()
        self._total = 0.0
        """Of all slots."""
        self._owed = 0.0

    def add(self, amount: float, now: float) -> Slot:
        """Count `amount` as spent now. The slot is for `change`."""
        slots = self._slots
        if not slots or slots[-1][0] < now // self._step_s:
            self._forget(now // self._step_s)
            slots.append([now // self._step_s, 0.0])
        slot = slots[-1]
        slot[1] += amount
        self._total += amount
        return slot

    def add_below(self, cap: float, amount: float, now: float) -> Slot:
        """The same; what does not fit below `cap` is owed."""
        room = max(0.0, cap - self.sum(now))
        self._owed += max(0.0, amount - room)
        return self.add(min(amount, room), now)

    def change(self, slot: Slot, delta: float) -> None:
        """Correct an amount that was counted. What is given back goes to what is owed first; else nothing happens when the slot left the
        span."""
        if delta < 0 and self._owed:
            paid = min(self._owed, -delta)
            self._owed -= paid
            delta += paid
        if slot[0] >= 0:
            delta = max(delta, -slot[1])  # what was counted there and given back to what is owed is not given back twice
            slot[1] += delta
            self._total += delta

    def forgive(self) -> None:
        """Nothing is owed any more: there is no cap."""
        self._owed = 0.0

    def sum(self, now: float) -> float:
        """The amount of the span before now, and what is owed."""
        self._forget(now // self._step_s)
        return self._total + self._owed

    def at_most_at(self, amount: float, now: float) -> float:
        """When the sum will be `amount` or less, if nothing is added: now, or the end of a slot."""
        total, when, owed = self.sum(now), now, self._owed
        slots = deque((number, spent) for number, spent in self._slots)
        while total > amount and slots:
            number, spent = slots.popleft()
            left = number + self._slots_kept + 1
            moved = min(spent, owed)
            if moved > 0:
                slots.append((left, moved))
                owed -= moved
            total -= spent - max(0.0, moved)
            when = left * self._step_s
        return when

    def _forget(self, number: float) -> None:
        slots = self._slots
        while slots and slots[0][0] + self._slots_kept < number:
            old = slots.popleft()
            self._total -= old[1]
            moved = min(old[1], self._owed)
            if moved > 0:
                slots.append([old[0] + self._slots_kept + 1, moved])
                self._total += moved
                self._owed -= moved
            old[0] = -1
        if not slots:
            self._total = 0.0  # float rounding does not pile up


# Budget
# ------
# What one agent may spend: tokens per minute, dollars and tokens per task; and what the crew may spend in 12 hours.
#
# A cap holds its own agent back and nobody else. A request counts as what it is expected to take, and is corrected when that is
# known, as in a pool, but with no caution for the output: what it was short counts from then on, and until it is paid for by
# minutes that hold no more than the cap, nothing goes. So over time an agent takes at most its cap. A single request larger than
# the cap goes alone, when the minute before it was empty.
#
# One minute can hold more: what the answers under way put out beyond what was expected of them is not known before they end. An
# answer grows by at most `MINUTE_MOST` tokens in a minute, and not above its `max_tokens`; by how much all of one agent's together
# may be above what is expected is bounded by `DOUBT` caps, or `FEW` answers where that is more. So a minute holds at most 5 caps;
# below a cap of 18,000 that is the cap and 72,000. Less would hold back agents whose answers are as they were: to use a cap of C
# with answers of which each takes 75 tokens a second, input included, C / 60 / 75 have to be under way at once, and that many may
# be off by 18,000 * C / 4,500 = 4 C.


NIGHT_S = 12 * 3600.0
NIGHT_STEP_S = 600.0
IDLE_S = 3600.0
"""After so long away an agent's last minute is forgotten."""
LEAST_WEIGHT = 0.01
MINUTE_MOST = 60 * FASTEST
DOUBT = 4.0
FEW = 4
"""What the client of one agent sends at once though its cap is small: a turn, its title, two helpers."""


class Demand(Protocol):
    """What asks for room below the caps: a request, or a batch of them."""

    pots: tuple[Any, ...]
    """Those that hold room for it, once it has that."""

    @property
    def bound(self) -> float | None: ...
    @property
    def bound_tokens(self) -> int: ...
    @property
    def model(self) -> str: ...
    @property
    def to_engine(self) -> bool: ...


@dataclass(slots=True)
class Purse:
    """Dollars or tokens of one task: what was spent, and the most that its requests in flight can take."""

    spent: float = 0.0
    bounds: float = 0.0

    def room(self, cap: float, bound: float, *, others: bool) -> bool | None:
        """Whether the most that one more can take fits below the cap; None: it may when the `others` in flight have ended."""
        if self.spent + self.bounds + bound <= cap + CENT:
            return True
        return None if others and self.spent + bound <= cap + CENT else False

    def close(self, bound: float, took: float, *, last: bool) -> None:
        """One in flight is over; `last`: no other is."""
        self.bounds = 0.0 if last else self.bounds - bound  # float rounding does not pile up
        self.spent += took


class Budget:
    """One agent: its caps, what it spent, and its requests."""

    __slots__ = (
        "agent", "batches", "capped", "cost_known", "doubts", "engine_s", "held", "in_flight", "money", "pots", "queued", "recent",
        "seen_at", "tokens", "was_held", "weight",
    )  # fmt: skip

    def __init__(self, agent: Agent, pots: tuple[Pot, ...], spent: tuple[float, float, float] | None) -> None:
        self.recent = SlidingWindow()
        """Tokens charged against limits."""
        usd, tokens, self.engine_s = spent or (0.0, 0.0, 0.0)
        """`engine_s`: seconds that engines worked for it."""
        self.money, self.tokens = Purse(usd), Purse(tokens)
        """`tokens` are input and output without what was read from a cache."""
        self.cost_known = spent is not None
        self.doubts = 0.0
        """By how many tokens the requests in flight may pass in a minute what is expected of them."""
        self.in_flight = 0
        self.batches = 0
        """That live. They are no requests under way: nobody waits until they end."""
        self.queued = 0
        self.held: list[tuple[FairQueue[Any], Flow[Any]]] = []
        """Flows set aside until this budget allows more."""
        self.was_held = False
        """A cap of its own held its next request."""
        self.seen_at = 0.0
        self.meet(agent, pots)

    def meet(self, agent: Agent, pots: tuple[Pot, ...]) -> None:
        """The agent came again, perhaps with other caps. `pots`: those that it shares with others."""
        self.agent, self.pots = agent, pots
        self.weight = max(agent.weight, LEAST_WEIGHT)
        self.capped = agent.capped or agent.tpm_max is not None or any(pot.cap is not None for pot in pots)
        if agent.tpm_max is None:
            self.recent.forgive()

    def verdict(self, ticket: Ticket, now: float) -> Wait | Never | None:
        """Whether its caps let this request go now (None)."""
        return self.by_totals(ticket, now) or self._by_tokens(ticket, now)

    def hold(self, rank: FairQueue[Any], flow: Flow[Any]) -> None:
        """Its requests are set aside until it allows more."""
        self.was_held = True
        self.held.append((rank, flow))

    def open(self, ticket: Ticket, now: float) -> None:
        """It is sent: count what is expected of it, and the most it can cost."""
        self.in_flight += 1
        ticket.counted = ticket.input + ticket.guess.mean_output
        ticket.slot = self._count(ticket.counted, now)
        self.doubts += _doubt(ticket)
        self._reserve(ticket)

    def open_batch(self, batch: BatchHold) -> None:
        """It is made: count the most that it can take and cost."""
        self.batches += 1
        self._reserve(batch)

    def _reserve(self, demand: Demand) -> None:
        self.tokens.bounds += demand.bound_tokens
        if demand.bound is not None:
            self.money.bounds += demand.bound
        demand.pots = self.pots
        for pot in demand.pots:
            pot.open(demand.bound)

    def correct(self, ticket: Ticket, now: float, *, over: bool) -> None:
        """Correct the charge: overestimates are removed, underestimates count now."""
        more = ticket.input + (ticket.output if over else ticket.guess.mean_output) - ticket.counted
        ticket.counted += more
        if more > 0:
            self._count(more, now)
        elif more:
            self.recent.change(ticket.slot, more)

    def close(self, ticket: Ticket, cost_usd: float | None, tokens: float | None, now: float) -> None:
        """It is over. Where its cost or tokens are not known, their bound is charged."""
        self._landed(ticket)
        self._charge(ticket, cost_usd, tokens, now)

    def close_batch(self, batch: BatchHold, cost_usd: float | None, tokens: float | None, now: float) -> None:
        """It has ended, and what it took is known; None as for a request."""
        self.batches -= 1
        self._charge(batch, cost_usd, tokens, now)

    def _charge(self, demand: Demand, cost_usd: float | None, tokens: float | None, now: float) -> None:
        cost = demand.bound if cost_usd is None else max(0.0, cost_usd)
        self._release(demand, cost or 0.0, demand.bound_tokens if tokens is None else tokens)
        if cost is not None:
            self.cost_known = True
            for pot in demand.pots if cost else ():
                pot.spent.add(cost, now)

    def take_back(self, ticket: Ticket) -> None:
        """It was not served: nothing was spent."""
        self.recent.change(ticket.slot, -ticket.counted)
        self._landed(ticket)
        self._release(ticket, 0.0, 0.0)

    def recost(self, usd: float, tokens: float, now: float, surplus: float = 0.0) -> None:
        """What it was charged before the start turned out to be so much more or less. That is in `spent` where a cap needs it. A night was
        charged the bound of what nobody knew: `surplus` is by how much that was more than the charge."""
        if self.agent.capped:
            self.money.spent = max(0.0, self.money.spent + usd)
            self.tokens.spent = max(0.0, self.tokens.spent + tokens)
        crew, *nights = self.pots
        crew.spent.add(usd, now)
        for night in nights:
            night.spent.add(usd - surplus, now)

    def _landed(self, ticket: Ticket) -> None:
        self.in_flight -= 1
        self.doubts = self.doubts - _doubt(ticket) if self.in_flight else 0.0

    def _release(self, demand: Demand, usd: float, tokens: float) -> None:
        last = not (self.in_flight or self.batches)
        self.money.close(demand.bound or 0.0, usd, last=last)
        self.tokens.close(demand.bound_tokens, tokens, last=last)
        for pot in demand.pots:
            pot.close(demand.bound)

    def by_totals(self, demand: Demand, now: float) -> Wait | Never | None:
        """The verdict by what a task and the night may take in all. `Never` also while others are in flight, when it could not go even if
        those took nothing."""
        seconds = self.agent.engine_seconds_max
        if seconds is not None and demand.to_engine and self.engine_s >= seconds:
            return Never(f"engine_seconds_max of the task {self.agent.name} is {seconds:,.0f}: {self.engine_s:,.0f} are used")
        cap, bound = self.agent.tokens_max, demand.bound_tokens
        if cap is not None and not (room := self.tokens.room(cap, bound, others=self.in_flight + self.batches > 0)):
            return Wait(None) if room is None else Never(_too_many(self.agent.name, cap, self.tokens.spent, bound))
        return self._by_cost(demand, now)

    def _by_cost(self, demand: Demand, now: float) -> Wait | Never | None:
        bound, shared = demand.bound, [pot for pot in self.pots if pot.cap is not None]
        cap = None if bound is None and self.agent.cost_assumed else self.agent.cost_max
        if cap is None and not shared:
            return None
        if bound is None:
            key, model = "cost_max" if cap is not None else shared[0].key, demand.model
            return Never(f'{model} has no known price, so {key} cannot be kept; give it one in the settings: [prices."{model}"]')
        if cap is not None and not (room := self.money.room(cap, bound, others=self.in_flight + self.batches > 0)):
            return Wait(None) if room is None else Never(too_dear(f"cost_max of the task {self.agent.name}", cap, self.money.spent, bound))
        for pot in shared:
            if (verdict := pot.verdict(bound, now)) is not None:
                return verdict
        return None

    def _by_tokens(self, ticket: Ticket, now: float) -> Wait | None:
        cap = self.agent.tpm_max
        if cap is None:
            return None
        room = max(0.0, cap - ticket.guess.warm - ticket.guess.mean_output)
        if self.recent.sum(now) > room:
            return Wait(self.recent.at_most_at(room, now))
        if self.in_flight >= FEW and self.doubts + _doubt(ticket) > DOUBT * cap:
            return Wait(None)
        return None

    def _count(self, tokens: float, now: float) -> Slot:
        cap = self.agent.tpm_max
        return self.recent.add(tokens, now) if cap is None else self.recent.add_below(max(cap, 1.0), tokens, now)


class Budgets:
    """The budgets of all agents that were ever heard of, and the crew's night.

    What an agent spent is remembered for good, the rest until it has been away for an hour.
    """

    def __init__(self, cost_per_night: float | None) -> None:
        self.budgets: dict[str, Budget] = {}
        self.night = Pot("cost_per_night", "the crew", cost_per_night, SlidingWindow(NIGHT_S, NIGHT_STEP_S))
        self.nights: dict[str, Pot] = {}
        """By run, of those with a cap that were heard of."""
        self._spent: dict[str, tuple[float, float, float]] = {}
        """Dollars, tokens and engine seconds of agents that are not in `budgets`."""
        self._took: dict[str, SlidingWindow] = {}
        """Tokens of agents that did not come since the start."""

    def meet(self, agent: Agent, now: float) -> Budget:
        """Its budget, with the caps that it has now."""
        budget = self.budgets.get(agent.name)
        if budget is None:
            budget = self.budgets[agent.name] = Budget(agent, self._pots(agent), self._spent.pop(agent.name, None))
            budget.recent = self._took.pop(agent.name, budget.recent)
        elif budget.agent is not agent:
            budget.meet(agent, self._pots(agent))
        budget.seen_at = now
        return budget

    def _pots(self, agent: Agent) -> tuple[Pot, ...]:
        if agent.night is None:
            return (self.night,)
        pot = self.night_of(agent.night, 0.0)
        pot.cap = agent.night.cost_max
        return self.night, pot

    def night_of(self, night: NightCap, spent: float) -> Pot:
        """What a night spends; `spent` before it was heard of. What is known already is not told again."""
        made = Pot("cost_max", f"the night {night.run}", night.cost_max, Total(spent))
        return self.nights.setdefault(night.run, made)

    def open_batch(self, batch: BatchHold, now: float, *, checked: bool = True) -> Wait | Never | None:
        """Reserve what a batch can take, None; or say why its caps do not let it be made. Not `checked`, it is made already."""
        budget = self.meet(batch.agent, now)
        if checked and (refused := budget.by_totals(batch, now)) is not None:
            return refused
        budget.open_batch(batch)
        return None

    def close_batch(self, ended: BatchEnded, now: float) -> Budget:
        """It has ended. Its agent may have come again since, with other caps."""
        budget = self.budgets[ended.batch.agent.name]
        budget.close_batch(ended.batch, ended.cost_usd, ended.tokens, now)
        return budget

    def most_waiting(self) -> int:
        """How many requests wait of whoever has the most."""
        return max((budget.queued for budget in self.budgets.values()), default=0)

    def spent(self, agent: str, usd: float, tokens: float = 0.0, engine_s: float = 0.0) -> None:
        """What its task has taken so far."""
        if budget := self.budgets.get(agent):
            budget.money.spent, budget.tokens.spent, budget.engine_s = usd, tokens, engine_s
        else:
            self._spent[agent] = usd, tokens, engine_s

    def recost(self, agent: str, usd: float, tokens: float, now: float, surplus: float = 0.0) -> None:
        """What its task was charged turned out to be so much more or less, see `Budget.recost`. For agents that came already."""
        if agent in self.budgets:
            self.budgets[agent].recost(usd, tokens, now, surplus)

    def past(self, agent: str, usd: float, tokens: float, now: float) -> None:
        """Count what a task took past the gateway, against every cap that its requests count against."""
        if agent in self.budgets:
            self.budgets[agent].recost(usd, tokens, now)
            return
        if agent in self._spent:
            money, taken, engine_s = self._spent[agent]
            self._spent[agent] = money + usd, taken + tokens, engine_s
        self.night.spent.add(usd, now)
        if night := self.nights.get(agent.partition("/")[0]):
            night.spent.add(usd, now)

    def took(self, agent: str, tokens: float, at: float) -> None:
        """What it took before the start, at a moment that is not before the last one told. For agents that did not come yet."""
        self._took.setdefault(agent, SlidingWindow()).add(tokens, at)

    def cap_night(self, usd: float | None) -> None:
        """Another cap from now on."""
        self.night.cap = usd
        for budget in self.budgets.values():
            budget.meet(budget.agent, budget.pots)

    def freed(self, budget: Budget, demand: Demand) -> list[Budget]:
        """The budgets that may let more through, now that this request or batch of `budget` ended."""
        freed = [budget] if budget.held else []
        for pot in demand.pots:
            freed += pot.held
            pot.held = []
        return list(dict.fromkeys(freed))

    def forget(self, now: float) -> None:
        """Drop who has been away for an hour, and minutes from before the start."""
        self._took.clear()
        for name, budget in list(self.budgets.items()):
            if not (budget.in_flight or budget.batches or budget.queued) and now - budget.seen_at > IDLE_S:
                if budget.cost_known or budget.tokens.spent:
                    self._spent[name] = budget.money.spent, budget.tokens.spent, budget.engine_s
                del self.budgets[name]


def _doubt(ticket: Ticket) -> float:
    """Tokens by which its output may pass in a minute what is expected of it."""
    asked = ticket.event.max_tokens
    return MINUTE_MOST if asked is None else min(MINUTE_MOST, max(0.0, asked - ticket.guess.mean_output))


def _too_many(task: str, cap: float, spent: float, bound: float) -> str:
    took = f"{spent:,.0f} are taken, and this request can take at most {bound:,.0f}; a smaller max_tokens lowers that"
    return f"tokens_max of the task {task} is {cap:,.0f}: {took}"
