"""One account's part of a lane: limits, requests in flight and pace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from supervisor.gateway.admission.breaker import MARGIN_FLOOR, BreakerPolicy, PoolHooks, Ramp
from supervisor.gateway.admission.bucket import INPUT, NAMES, OUTPUT, REQUESTS, TOKENS, Dimension, Owed
from supervisor.gateway.admission.types import (
    NEVER,
    NOTHING_OBSERVED,
    DimensionView,
    Level,
    Observed,
    PoolKey,
    Refusal,
    Refused,
    Ticket,
    TurnAway,
    Usage,
    Window,
)
from supervisor.kernel.gateway_settings import Api, Policy, Upstream

if TYPE_CHECKING:
    from supervisor.gateway.admission.budget import Guess
    from supervisor.gateway.admission.types import Ticket


# In flight
# ---------
# The requests of one pool that are in flight: what is reserved for them, and how wrong that may be.


FIRST_SPEED = 60.0
"""Tokens of output a second, before an answer was measured."""
FIRST_LASTS_S = 10.0
"""Seconds from sending to the end, before a request was measured."""
FALL = 0.1
"""Weight of the newest request where it is quicker than those before; one that is slower counts at once."""
FASTER = 1.5
"""Output may be written so many times faster than the mean."""
LEAST_DOUBT = 0.05
SIGMAS = 1.0
"""Mean deviations by which all outputs together may be more than expected."""
IN_FLIGHT_REQUESTS, IN_FLIGHT_INPUT, IN_FLIGHT_OUTPUT, IN_FLIGHT_TOKENS = range(4)


class InFlight:
    """Amounts are tokens, times monotonic seconds."""

    __slots__ = (
        "_answered", "_answered_sum", "_deviation", "_input_doubt", "_promised", "_speed", "_tickets", "_variance", "input", "lasts_s",
        "late_s", "output",
    )  # fmt: skip

    def __init__(self) -> None:
        self._tickets: dict[int, Ticket] = {}
        self.input = 0.0
        """Reserved for inputs that the provider has not said."""
        self.output = 0.0
        """Reserved for output; the provider may have counted part of it."""
        self._input_doubt = 0.0
        self._answered = 0
        self._answered_sum = 0.0
        """Of the times at which the provider began to answer."""
        self._promised = 0.0
        self._deviation = self._variance = 0.0
        """Sums of the deviations in `output`, and of their squares."""
        self._speed = FIRST_SPEED
        self.late_s = 0.0
        """From sending to the head of the answer: the slowest of late."""
        self.lasts_s = FIRST_LASTS_S
        """From sending to the end, in the mean."""

    def __len__(self) -> int:
        return len(self._tickets)

    def add(self, ticket: Ticket) -> None:
        """It was sent, with its reservation."""
        self._tickets[ticket.id] = ticket
        self.input += ticket.input
        self.output += ticket.output
        ticket.doubt = ticket.input * max(2 * ticket.guess.habit.spread, LEAST_DOUBT)
        self._input_doubt += ticket.doubt
        ticket.deviation = caution(ticket.guess)
        self._vary(ticket, 1)
        if ticket.api is not Api.ANTHROPIC:
            self._promised += ticket.event.max_tokens or ticket.guess.output

    def expected_output(self, more: Guess | None = None) -> float:
        """Of all together, and of one more. Each is reserved with its deviation; the sum of many varies by less than the sum of what each
        may vary by."""
        output, deviation, variance = self.output, self._deviation, self._variance
        if more is not None:
            its = caution(more)
            output, deviation, variance = output + more.output, deviation + its, variance + its * its
        return output - deviation + min(deviation, SIGMAS * math.sqrt(max(0.0, variance)))

    @property
    def unanswered(self) -> int:
        """How many of them have no head yet."""
        return len(self._tickets) - self._answered

    def answered(self, ticket: Ticket, now: float) -> None:
        """The head of its answer came."""
        self.late_s = _slowest(self.late_s, now - ticket.sent_at)
        self._answered += 1
        self._answered_sum += now
        ticket.answered_at = now

    def input_known(self, ticket: Ticket) -> None:
        """The provider said its input."""
        self.input -= ticket.input
        self._input_doubt -= ticket.doubt

    def more_output(self, tokens: float) -> None:
        """More is reserved for its output."""
        self.output += tokens

    def close(self, ticket: Ticket) -> None:
        """It is over: free its reservation, as `add` and the later calls set it."""
        del self._tickets[ticket.id]
        if not self._tickets:  # float rounding does not pile up
            self.input = self.output = self._input_doubt = self._answered_sum = self._promised = 0.0
            self._deviation = self._variance = 0.0
            self._answered = 0
            return
        if not ticket.input_known:
            self.input_known(ticket)
        self.output -= ticket.output
        self._vary(ticket, -1)
        if ticket.answered_at is not None:
            self._answered -= 1
            self._answered_sum -= ticket.answered_at
        if ticket.api is not Api.ANTHROPIC:
            self._promised -= ticket.event.max_tokens or ticket.guess.output

    def served(self, ticket: Ticket, tokens_out: float, now: float) -> None:
        """It was served to its end, and wrote so much."""
        self.lasts_s += FALL * (now - ticket.sent_at - self.lasts_s)
        if ticket.answered_at is not None and now - ticket.answered_at >= 1.0:
            self._speed += FALL * (tokens_out / (now - ticket.answered_at) - self._speed)

    def lasting_s(self) -> float:
        """From sending to the end: as it was of late, and not less than what is expected now takes to be written."""
        each = self.expected_output() / len(self._tickets) if self._tickets else 0.0
        return max(self.lasts_s, each / self._speed)

    def reserved(self, index: int) -> float:
        """For requests of which the provider has not said yet what they took."""
        return (float(len(self._tickets)), self.input, self.output, self.input + self.output)[index]

    def written(self, now: float) -> float:
        """Output that has been written by now, of answers that are not complete."""
        return self._speed * (self._answered * now - self._answered_sum)

    def doubt(self, index: int, now: float) -> tuple[float, float]:
        """How much less, and how much more, than what is charged for them the provider may have counted by now: inputs may be off by as
        much as their estimates are, and output may be counted while it is written, at the speed at which it may have been."""
        if index == IN_FLIGHT_REQUESTS:
            return 0.0, 1.0
        if index == IN_FLIGHT_INPUT:
            return self._input_doubt, self._input_doubt
        output = FASTER * self.written(now) + self._promised
        return (0.0, output) if index == IN_FLIGHT_OUTPUT else (self._input_doubt, self._input_doubt + output)

    def _vary(self, ticket: Ticket, sign: int) -> None:
        self._deviation += sign * ticket.deviation
        self._variance += sign * ticket.deviation * ticket.deviation

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets.values())


def caution(guess: Guess) -> float:
    """The part of a guessed output that is a deviation; of an agent that was never seen half of it."""
    return guess.output - guess.mean_output if guess.habit.turns else guess.output / 2


def _slowest(before: float, newest: float) -> float:
    return newest if newest > before else before + FALL * (newest - before)


# Pace
# ----
# What one pool spends a second, of late.


PACE_S = 15.0


class Pace:
    """Requests, input and output that were settled lately, a second: over the period before this one and what there is of this."""

    __slots__ = ("_before", "_since", "_sums")

    def __init__(self, now: float) -> None:
        self._since = now
        self._sums = [0.0, 0.0, 0.0]
        self._before = [0.0, 0.0, 0.0]

    def add(self, tokens_in: float, tokens_out: float, now: float) -> None:
        """Count a request."""
        if now - self._since >= PACE_S:
            self._before = self._sums if now - self._since < 2 * PACE_S else [0.0, 0.0, 0.0]
            self._sums = [0.0, 0.0, 0.0]
            self._since = now
        sums = self._sums
        sums[0] += 1
        sums[1] += tokens_in
        sums[2] += tokens_out

    def rate(self, index: int, now: float) -> float:
        """A second, in one dimension."""
        elapsed = now - self._since
        if elapsed >= 2 * PACE_S:
            return 0.0
        sums = [before + ours for before, ours in zip(self._before, self._sums, strict=True)]
        return (sums[1] + sums[2] if index == TOKENS else sums[index]) / (elapsed + PACE_S)


# Unknown limit
# -------------
# While a pool's limits are not known, few requests are sent: the answer to the first one says them.


PATIENCE_S = 15.0
"""One more request is sent after so long without an answer to the first: models think for minutes."""
REMEMBERED_PART = 0.1
"""Of limits that are remembered and not confirmed so much may be under way at once: ten times too much is no refusal yet."""


class UnknownLimit:
    """Times are monotonic seconds."""

    __slots__ = ("_since", "known")

    def __init__(self, now: float, *, known: bool) -> None:
        self.known = known
        """The limits are known, or there are none to learn."""
        self._since = now

    def begin(self, now: float) -> None:
        """A request is sent while none is under way."""
        self._since = now

    def allows(self, amounts: tuple[float, ...], under_way: InFlight, dimensions: Sequence[Dimension], now: float) -> bool:
        """Whether one more may be sent: the first, one more in a while, and what is little of the limits that are remembered. `amounts` is
        what it needs, by dimension."""
        if self.known or not under_way or now >= self.next_at(len(under_way)):
            return True
        return bool(dimensions) and all(
            under_way.reserved(one.index) + amounts[one.index] <= REMEMBERED_PART * one.upstream.capacity for one in dimensions
        )

    def next_at(self, in_flight: int) -> float:
        """When one more may be sent beside so many that are not answered."""
        return self._since + PATIENCE_S * in_flight


# Pool
# ----
# One account's part of a lane: its limits, what is reserved and settled in them, and whether it may be asked at all.
#
# Life of a reservation: `send` charges the estimate; `input_known` corrects the input as soon as the provider says it; `settle`
# corrects the output at the end; `refused` gives everything back. `breaker_policy.py` decides what refusals mean.


class Pool:
    """Mutable; every method that takes `now` wants monotonic seconds that do not go back."""

    __slots__ = (
        "_changed", "_limits_serial", "_proving", "_serial", "_under_way", "_windows", "_windows_at", "breakers",
        "debt_until", "dimensions", "key", "pace", "policy", "ramp", "settled_input", "settled_output", "upstream",
    )  # fmt: skip

    def __init__(self, key: PoolKey, upstream: Upstream, policy: Policy, desk: PoolHooks, now: float) -> None:
        self.key = key
        self.upstream = upstream
        self.policy = policy
        self._under_way = InFlight()
        self._windows: tuple[Window, ...] = ()
        self._windows_at = now
        self.ramp = Ramp(now)
        self.pace = Pace(now)
        self.debt_until = now
        """Until then the bucket pays off an oversized request of our own. The forecast does not open the breaker for that."""
        self.settled_input = self.settled_output = 0.0
        """Limited input and output of all that was settled here."""
        self._changed = desk.limits_changed
        self.dimensions: list[Dimension] = []
        self.breakers = BreakerPolicy(self, policy, desk, now)
        self._serial = 0
        self._limits_serial = -1
        """Number of the newest request whose answer said limits."""
        limits = upstream.limits_of(key.lane.model_class).known()
        self._proving = UnknownLimit(now, known=bool(limits) or not upstream.learn)
        for index, name in enumerate(NAMES):
            if name in limits:
                self._dimension(index, limits[name], now).restrict(limits[name], 0.0, now)

    # What it costs, and whether there is room --------------------------------------------------------------------------------------

    def amounts(self, ticket: Ticket) -> tuple[float, float, float, float]:
        """What would be reserved for the request in this pool, by dimension."""
        guess = ticket.guess
        tokens_in, tokens_out = guess.input, guess.output
        if guess.home == self.key.account:
            tokens_in = guess.warm
        if self.upstream.reserve_max_tokens and ticket.event.max_tokens is not None:
            tokens_out = float(max(1, ticket.event.max_tokens))
        return 1.0, tokens_in, tokens_out, tokens_in + tokens_out

    @property
    def in_flight(self) -> int:
        """How many requests are under way."""
        return len(self._under_way)

    def owed(self, now: float, more: Ticket | None = None) -> Owed:
        """What is in flight, and would be with one more request: for `Dimension.fits`."""
        under_way = self._under_way
        with_it = under_way.expected_output(more.guess if more is not None else None)
        return Owed(
            under_way.expected_output(), with_it, under_way.written(now), under_way.late_s, under_way.lasting_s(), under_way.unanswered
        )

    def fits(self, ticket: Ticket, share: float, now: float) -> bool:
        """Whether it may be sent now. `share` is the part of the bucket that its class must leave."""
        if not self.breakers.calm and not self.breakers.lets(now):
            return False
        if not self.ramp.allows(len(self._under_way), now):
            return False
        amounts = self.amounts(ticket)
        if not self._proving.allows(amounts, self._under_way, self.dimensions, now):
            return False
        owed = self.owed(now, ticket)
        return all(dimension.fits(amounts[dimension.index], share, owed, now) for dimension in self.dimensions)

    def ready_at(self, ticket: Ticket, share: float, now: float) -> float:
        """When it would fit if nothing else happened: monotonic seconds, or infinity when only an event can change it."""
        when = self.breakers.ready_at(now)
        if not self.ramp.allows(len(self._under_way), now):
            when = max(when, self.ramp.rises_at())
        amounts = self.amounts(ticket)
        if not self._proving.allows(amounts, self._under_way, self.dimensions, now):
            when = max(when, self._proving.next_at(len(self._under_way)))
        owed = self.owed(now, ticket)
        return max([when, *(dimension.fits_at(amounts[dimension.index], share, owed, now) for dimension in self.dimensions)])

    def never(self, ticket: Ticket) -> TurnAway | None:  # noqa: ARG002 - for `EngineSlots`
        """Why no waiting helps the request here; a provider's limit refuses nothing by itself."""
        return None

    def victim(self, now: float) -> Ticket | None:  # noqa: ARG002 - for `EngineSlots`
        """The request to interrupt for a more urgent one; a provider serves what it was sent."""
        return None

    @property
    def state(self) -> str:
        """What an engine's process does; empty: this is no engine."""
        return ""

    def headroom(self, now: float) -> float:
        """The free part of its scarcest dimension; infinite without a limit."""
        owed = self.owed(now)
        return min((d.available(owed, now) / d.bucket.capacity for d in self.dimensions if d.bucket.capacity > 0), default=NEVER)

    def idle(self, now: float) -> bool:
        """Whether it may be forgotten: nothing is in flight or spent, and it learned nothing of the provider's limits."""
        if self._under_way or not self.breakers.calm:
            return False
        return all(not one.told and one.bucket.advance(now) >= one.bucket.capacity for one in self.dimensions)

    def unsettled(self, index: int) -> float:
        """Reserved and not yet counted by the provider."""
        return self._under_way.output if index >= OUTPUT else 0.0

    def reserved(self, index: int) -> float:
        """Reserved for requests in flight of which the provider has not said yet what they took."""
        return self._under_way.reserved(index)

    def views(self, now: float) -> tuple[DimensionView, ...]:
        """Its dimensions, for people."""
        return tuple(dimension.view(self.reserved(dimension.index), self.owed(now), now) for dimension in self.dimensions)

    # The life of a reservation ------------------------------------------------------------------------------------------------------

    def send(self, ticket: Ticket, now: float) -> None:
        """Reserve for it."""
        if self.breakers.margin < self.policy.margin:
            self.breakers.recover(now)
        amounts = self.amounts(ticket)
        _, tokens_in, tokens_out, _ = amounts
        counted = 1.0, tokens_in, 0.0, tokens_in
        self._serial += 1
        if not self._under_way:
            self._proving.begin(now)
        ticket.serial = self._serial
        ticket.sent_at = now
        ticket.input, ticket.output = tokens_in, tokens_out
        ticket.input_known = ticket.answered = False
        ticket.observed = ticket.answered_at = None
        written = self._under_way.written(now)
        self._under_way.add(ticket)
        ticket.marks = marks = {}
        for dimension in self.dimensions:
            index = dimension.index
            marks[index] = dimension.send(amounts[index], counted[index], written, now)
            if (debt_s := dimension.debt_s()) > 0:
                self.debt_until = max(self.debt_until, now + debt_s)
        self.ramp.sent(len(self._under_way))
        ticket.probe = not self.breakers.calm
        if ticket.probe:
            self.breakers.try_with(ticket, now)

    def input_known(self, ticket: Ticket, usage: Usage, now: float) -> None:
        """The provider said, for the first time, what the input was; its output is at least what was seen."""
        ticket.input_known = True
        self._under_way.input_known(ticket)
        more_out = max(0.0, usage.output - ticket.output)
        self._under_way.more_output(more_out)
        self._correct(ticket, self.limited_input(usage) - ticket.input, more_out, 0.0, now)
        self._compare(ticket, now)

    def settle(self, ticket: Ticket, tokens_in: float, tokens_out: float, now: float) -> None:
        """It is over and took so much."""
        self._under_way.close(ticket)
        self._correct(ticket, tokens_in - ticket.input, tokens_out - ticket.output, tokens_out, now)
        self._compare(ticket, now)
        self.pace.add(tokens_in, tokens_out, now)
        self.settled_input += tokens_in
        self.settled_output += tokens_out

    def served(self, ticket: Ticket, tokens_out: float, now: float) -> None:
        """It was served to its end, and wrote so much."""
        self._under_way.served(ticket, tokens_out, now)

    def refused(self, ticket: Ticket, event: Refused, now: float) -> float:
        """It was not served: all is given back, but for the request itself when the provider was asked.

        Returns what `BreakerPolicy.refused` returns.
        """
        asked = event.why is not Refusal.UNREACHABLE
        self._under_way.close(ticket)
        back = -ticket.input, -ticket.output
        for dimension in self.dimensions:
            if dimension.index not in ticket.marks:
                continue
            if dimension.index != REQUESTS:
                dimension.settle(_part(dimension.index, *back), _part(dimension.index, back[0], 0.0), 0.0, now)
            elif not asked:
                dimension.settle(-1.0, -1.0, 0.0, now)
        ticket.input = ticket.output = 0.0
        return self.breakers.refused(ticket, event, now)

    def limited_input(self, usage: Usage) -> float:
        """What of it counts against this pool's limit; nonsense counts as nothing."""
        tokens = usage.input if usage.input > 0 else 0
        if usage.cache_write > 0:
            tokens += usage.cache_write
        if self.upstream.cached_counts and usage.cache_read > 0:
            tokens += usage.cache_read
        return float(tokens)

    def _correct(self, ticket: Ticket, more_in: float, more_out: float, counted_out: float, now: float) -> None:
        alarm = False
        for dimension in self.dimensions:
            index = dimension.index
            more = more_in if index in ticket.marks else 0.0
            if index == INPUT:
                dimension.settle(more, more, 0.0, now)
            elif index == OUTPUT:
                dimension.settle(more_out, 0.0, counted_out, now)
            elif index == TOKENS:
                dimension.settle(more + more_out, more, counted_out, now)
            if dimension.bucket.level < 0 or dimension.upstream.in_use:
                alarm = True
        ticket.input += more_in
        ticket.output += more_out
        if alarm:
            self.breakers.look(now)

    # What headers say ---------------------------------------------------------------------------------------------------------------

    def responded(self, ticket: Ticket, observed: Observed, now: float) -> None:
        """Headers of a request that is being served.

        Anthropic's are compared once the exact input is known, a moment later: before that every wrong estimate would look like
        somebody else's use. The others count an estimate of their own, and tell the exact input only at the end.
        """
        if ticket.answered_at is None:
            self._under_way.answered(ticket, now)
        self._proving.known = True
        if observed is NOTHING_OBSERVED:
            return
        if observed.windows:
            self.saw_windows(observed.windows, now)
        if self.upstream.learn and observed.levels:
            self._learn_limits(observed, ticket, now)
            ticket.observed = observed
            if self.key.lane.api is not Api.ANTHROPIC or ticket.input_known:
                self._compare(ticket, now)

    def _compare(self, ticket: Ticket, now: float) -> None:
        observed, ticket.observed = ticket.observed, None
        if observed is None:
            return
        for dimension in self.dimensions:
            level = observed.levels.get(NAMES[dimension.index])
            if level is not None:
                index = dimension.index
                rounding = observed.rounding if index != REQUESTS else 0.0
                sent = ticket.serial, ticket.sent_at
                dimension.heard(level, ticket.marks.get(index), sent, self._under_way.doubt(index, now), rounding, now)
        self.breakers.look(now)

    def refused_levels(self, observed: Observed, ticket: Ticket, now: float) -> None:
        """Headers of a refusal of that request, as of now: at least one dimension is empty."""
        if observed.windows:
            self.saw_windows(observed.windows, now)
        if self.upstream.learn:
            self._learn_limits(observed, ticket, now)
        for dimension in self.dimensions:
            level = observed.levels.get(NAMES[dimension.index])
            dimension.empty(None if level is None else level.remaining, ticket.serial, now)

    def saw_windows(self, windows: tuple[Window, ...], now: float) -> None:
        """Remember them, and park when one is spent."""
        self._windows, self._windows_at = windows, now
        self.breakers.windows(windows, now)

    def windows(self, now: float) -> tuple[Window, ...]:
        """As last heard, with what is left of them now."""
        gone = now - self._windows_at
        left = ((window, max(0.0, window.resets_in_s - gone)) for window in self._windows)
        return tuple(replace(window, resets_in_s=left_s, spent=window.spent and left_s > 0) for window, left_s in left)

    def woke(self, seconds: float) -> None:
        """The machine slept for so long. What it has left of its limits is not guessed: the next answer says."""
        self._windows_at -= seconds
        self.breakers.woke(seconds)

    def tune(self, margin: float, now: float) -> None:
        """Use this part of the limits from now on."""
        for dimension in self.dimensions:
            dimension.tune(margin, now)

    # Before and after a restart -----------------------------------------------------------------------------------------------------

    def learned(self) -> dict[str, Any]:
        """JSON for `recall`."""
        return {"margin": self.breakers.margin, "limits": {NAMES[d.index]: d.learned() for d in self.dimensions if d.told}}

    def recall(self, learned: Mapping[str, Any], now: float) -> None:
        """Take over what `learned` gave. Raises KeyError, TypeError or ValueError for anything else."""
        self.breakers.margin = min(self.policy.margin, max(MARGIN_FLOOR, float(learned["margin"])))
        if self.upstream.learn:
            for name, (limit, capacity) in learned["limits"].items():
                if not (0 < limit < NEVER and 0 < capacity < NEVER):
                    raise ValueError("no limit")
                dimension = self._dimension(NAMES.index(name), float(limit), now)
                dimension.told = True
                dimension.recall(float(limit), float(capacity), now)
        self.tune(self.breakers.margin, now)

    def restore(self, charges: list[tuple[float, Usage]], now: float) -> None:
        """Begin with what was spent so many seconds ago, oldest first."""
        for dimension in self.dimensions:
            spent = [(age, _amounts(self.limited_input(usage), max(0, usage.output))[dimension.index]) for age, usage in charges]
            dimension.restore(spent, now)

    def reload(self, upstream: Upstream, policy: Policy, now: float) -> None:
        """Other settings from now on."""
        self.upstream, self.policy = upstream, policy
        limits = upstream.limits_of(self.key.lane.model_class).known()
        for name, limit in limits.items():
            dimension = self._dimension(NAMES.index(name), limit, now)
            dimension.restrict(limit, self.reserved(dimension.index), now)
            dimension.told = dimension.told and upstream.learn
            if not dimension.told:
                dimension.relimit(limit, now)
        for dimension in [dimension for dimension in self.dimensions if NAMES[dimension.index] not in limits]:
            dimension.own = None
            if not (dimension.told and upstream.learn):
                self.dimensions.remove(dimension)
        if not limits and upstream.learn and not any(dimension.told for dimension in self.dimensions):
            self._proving.known = False
        self.breakers.margin = min(self.breakers.margin, policy.margin)
        self.tune(self.breakers.margin, now)
        self._changed()

    def _learn_limits(self, observed: Observed, ticket: Ticket, now: float) -> None:
        levels = observed.levels
        if ticket.serial < self._limits_serial:
            return  # an answer that was overtaken: its limits may be older
        for index, name in enumerate(NAMES):
            level = levels.get(name)
            if level is None or not level.limit or level.limit <= 0:
                continue
            if index == TOKENS and "input" in levels and "output" in levels and not self._knows(TOKENS):
                continue  # Anthropic's `tokens` repeats the scarcer of the two
            self._limits_serial = ticket.serial
            self._proving.known = True
            known = self._knows(index)
            dimension = self._dimension(index, level.limit, now)
            if not known or dimension.relimit(level.limit, now):
                self._catch_up(dimension, level, observed.rounding, ticket, now)
                self._changed()
            dimension.told = True

    def _knows(self, index: int) -> bool:
        return any(dimension.index == index for dimension in self.dimensions)

    def _dimension(self, index: int, limit: float, now: float) -> Dimension:
        """The one that there is, or a new one that begins full."""
        for dimension in self.dimensions:
            if dimension.index == index:
                return dimension
        dimension = Dimension(index, limit, self.upstream.burst_s, self.policy.horizon_s, now)
        dimension.tune(self.breakers.margin, now)
        self.dimensions.append(dimension)
        self._changed()
        return dimension

    def _catch_up(self, dimension: Dimension, level: Level, rounding: float, ticket: Ticket, now: float) -> None:
        """A limit that was not known, said to that request: what is under way was not charged to it. What the provider has left holds what
        was sent up to that request, and not what was sent later."""
        index, reserved, counted = dimension.index, 0.0, 0.0
        for one in self._under_way:
            if one.serial > ticket.serial:
                one.marks[index] = None
                counted += _amounts(one.input, 0.0)[index]
                reserved += _amounts(one.input, one.output)[index]
            else:
                one.marks.pop(index, None)
                reserved += one.output if index >= OUTPUT else 0.0
        sent = ticket.serial, ticket.sent_at
        dimension.begin(level, sent, (reserved, counted), rounding if index != REQUESTS else 0.0, now)


def _part(index: int, tokens_in: float, tokens_out: float) -> float:
    return tokens_in if index == INPUT else tokens_out if index == OUTPUT else tokens_in + tokens_out


def _amounts(tokens_in: float, tokens_out: float) -> tuple[float, float, float, float]:
    return 1.0, tokens_in, tokens_out, tokens_in + tokens_out
