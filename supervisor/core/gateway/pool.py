"""One account's part of a lane: its limits, what is reserved and settled in them, and whether it may be asked at all.

Life of a reservation: `send` charges the estimate; `input_known` corrects the input as soon as the provider says it; `settle` corrects the
output at the end; `refused` gives everything back. `trouble.py` decides what refusals mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from supervisor.core.gateway.bucket import NEVER, SLACK
from supervisor.core.gateway.dimension import INPUT, NAMES, OUTPUT, REQUESTS, TOKENS, Dimension
from supervisor.core.gateway.events import Refused
from supervisor.core.gateway.nouns import NOTHING_OBSERVED, Api, Observed, PoolKey, Refusal, Usage, Window
from supervisor.core.gateway.ramp import Ramp
from supervisor.core.gateway.settings import Policy, Upstream
from supervisor.core.gateway.ticket import Ticket
from supervisor.core.gateway.trouble import MARGIN_FLOOR, Trouble

if TYPE_CHECKING:
    from supervisor.core.gateway.commands import Command

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


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a pool's doings are told."""

    say: list[Command]
    limits_changed: Callable[[], None]
    seed: float
    """Of jitter, 0 to 1."""


class Pool:
    """Mutable; every method that takes `now` wants monotonic seconds that do not go back."""

    __slots__ = (
        "_changed", "_serial", "_unknown_input", "_unknown_output", "_windows", "_windows_at", "debt_until", "dimensions", "in_flight",
        "key", "pace", "policy", "ramp", "settled_input", "settled_output", "trouble", "upstream",
    )  # fmt: skip

    def __init__(self, key: PoolKey, upstream: Upstream, policy: Policy, desk: Desk, now: float) -> None:
        self.key = key
        self.upstream = upstream
        self.policy = policy
        self.in_flight = 0
        self._windows: tuple[Window, ...] = ()
        self._windows_at = now
        self.ramp = Ramp(now)
        self.pace = Pace(now)
        self.debt_until = now
        """Until then our own oversized request is being paid off: that is planned, and no reason for a forecast to open the breaker."""
        self.settled_input = self.settled_output = 0.0
        """Limited input and output of all that was settled here."""
        self._changed = desk.limits_changed
        self.dimensions: list[Dimension] = []
        self.trouble = Trouble(self, policy, desk, now)
        self._serial = 0
        self._unknown_input = 0.0
        self._unknown_output = 0.0
        limits = upstream.limits_of(key.lane.model_class).known()
        for index, name in enumerate(NAMES):
            if name in limits:
                self._dimension(index, limits[name], now).own = limits[name]

    # What it costs, and whether there is room --------------------------------------------------------------------------------------

    def amounts(self, ticket: Ticket) -> tuple[float, float, float, float]:
        """What would be reserved for it here, by dimension."""
        guess = ticket.guess
        tokens_in, tokens_out = guess.input, guess.output
        if guess.home == self.key.account:
            tokens_in = guess.warm
        if self.upstream.reserve_max_tokens and ticket.event.max_tokens is not None:
            tokens_out = float(max(1, ticket.event.max_tokens))
        return 1.0, tokens_in, tokens_out, tokens_in + tokens_out

    def fits(self, ticket: Ticket, share: float, now: float) -> bool:
        """Whether it may be sent now. `share` is the part of the bucket that its class must leave."""
        if not self.trouble.calm and not self.trouble.lets(now):
            return False
        if not self.ramp.allows(self.in_flight, now):
            return False
        amounts = self.amounts(ticket)
        for dimension in self.dimensions:
            bucket = dimension.bucket
            need = amounts[dimension.index]
            if share or dimension.outside:
                dimension.doubt(now)
                need += max(share * bucket.capacity, dimension.outside * self.policy.horizon_s)
            if bucket.advance(now) + SLACK < (need if need < bucket.capacity else bucket.capacity):
                return False
        return True

    def ready_at(self, ticket: Ticket, share: float, now: float) -> float:
        """When it would fit if nothing else happened: monotonic seconds, or infinity when only an event can change it."""
        when = self.trouble.ready_at(now)
        if not self.ramp.allows(self.in_flight, now):
            when = max(when, self.ramp.rises_at())
        amounts = self.amounts(ticket)
        for dimension in self.dimensions:
            leave = max(share * dimension.bucket.capacity, dimension.outside * self.policy.horizon_s)
            full = now + dimension.bucket.wait_s(amounts[dimension.index] + leave, now)
            when = max(when, min(full, dimension.doubt(now)))
        return when

    def headroom(self, now: float) -> float:
        """The free part of its scarcest dimension; infinite without a limit."""
        return min((d.bucket.advance(now) / d.bucket.capacity for d in self.dimensions if d.bucket.capacity > 0), default=NEVER)

    def idle(self, now: float) -> bool:
        """Nothing is in flight or spent, and the provider said nothing of its limits that would be forgotten with it."""
        if self.in_flight or not self.trouble.calm:
            return False
        return all(not one.told and one.bucket.advance(now) >= one.bucket.capacity for one in self.dimensions)

    def unsettled(self, index: int) -> float:
        """Reserved and not yet counted by the provider."""
        return self._unknown_output if index >= OUTPUT else 0.0

    def reserved(self, index: int) -> float:
        """Reserved for requests in flight of which the provider has not said yet what they took."""
        return (float(self.in_flight), self._unknown_input, self._unknown_output, self._unknown_input + self._unknown_output)[index]

    # The life of a reservation ------------------------------------------------------------------------------------------------------

    def send(self, ticket: Ticket, now: float) -> None:
        """Reserve for it."""
        if self.trouble.margin < self.policy.margin:
            self.trouble.recover(now)
        amounts = self.amounts(ticket)
        _, tokens_in, tokens_out, _ = amounts
        counted = 1.0, tokens_in, 0.0, tokens_in
        self._serial += 1
        self.in_flight += 1
        self._unknown_input += tokens_in
        self._unknown_output += tokens_out
        ticket.pool = self
        ticket.serial = self._serial
        ticket.sent_at = now
        ticket.input, ticket.output = tokens_in, tokens_out
        ticket.input_known = ticket.answered = False
        ticket.observed = None
        ticket.marks = marks = {}
        for dimension in self.dimensions:
            index = dimension.index
            marks[index] = dimension.send(amounts[index], counted[index], now)
            if dimension.bucket.level < 0:
                self.debt_until = max(self.debt_until, now - dimension.bucket.level / max(dimension.bucket.rate, SLACK))
        self.ramp.sent(self.in_flight)
        ticket.probe = not self.trouble.calm
        if ticket.probe:
            self.trouble.try_with(ticket, now)

    def input_known(self, ticket: Ticket, usage: Usage, now: float) -> None:
        """The provider said, for the first time, what the input was; its output is at least what was seen."""
        ticket.input_known = True
        self._unknown_input -= ticket.input
        more_out = max(0.0, usage.output - ticket.output)
        self._unknown_output += more_out
        self._correct(ticket, self.limited_input(usage) - ticket.input, more_out, 0.0, now)
        self._compare(ticket, now)

    def settle(self, ticket: Ticket, tokens_in: float, tokens_out: float, now: float) -> None:
        """It is over and took so much."""
        self._close(ticket)
        self._correct(ticket, tokens_in - ticket.input, tokens_out - ticket.output, tokens_out, now)
        self._compare(ticket, now)
        self.pace.add(tokens_in, tokens_out, now)
        self.settled_input += tokens_in
        self.settled_output += tokens_out

    def refused(self, ticket: Ticket, event: Refused, now: float) -> float:
        """It was not served: all is given back, but for the request itself when the provider was asked. Gives what `Trouble` does."""
        asked = event.why is not Refusal.UNREACHABLE
        self._close(ticket)
        back = -ticket.input, -ticket.output
        for dimension in self.dimensions:
            if dimension.index != REQUESTS:
                dimension.settle(_part(dimension.index, *back), _part(dimension.index, back[0], 0.0), 0.0, now)
            elif not asked:
                dimension.settle(-1.0, -1.0, 0.0, now)
        ticket.input = ticket.output = 0.0
        return self.trouble.refused(ticket, event, now)

    def limited_input(self, usage: Usage) -> float:
        """What of it counts against this pool's limit; nonsense counts as nothing."""
        tokens = usage.input if usage.input > 0 else 0
        if usage.cache_write > 0:
            tokens += usage.cache_write
        if self.upstream.cached_counts and usage.cache_read > 0:
            tokens += usage.cache_read
        return float(tokens)

    def _close(self, ticket: Ticket) -> None:
        self.in_flight -= 1
        if not ticket.input_known:
            self._unknown_input -= ticket.input
        self._unknown_output -= ticket.output
        if not self.in_flight:
            self._unknown_input = self._unknown_output = 0.0  # float rounding does not pile up

    def _correct(self, ticket: Ticket, more_in: float, more_out: float, counted_out: float, now: float) -> None:
        alarm = False
        for dimension in self.dimensions:
            index = dimension.index
            if index == INPUT:
                dimension.settle(more_in, more_in, 0.0, now)
            elif index == OUTPUT:
                dimension.settle(more_out, 0.0, counted_out, now)
            elif index == TOKENS:
                dimension.settle(more_in + more_out, more_in, counted_out, now)
            if dimension.bucket.level < 0 or dimension.outside:
                alarm = True
        ticket.input += more_in
        ticket.output += more_out
        if alarm:
            self.trouble.look(now)

    # What headers say ---------------------------------------------------------------------------------------------------------------

    def responded(self, ticket: Ticket, observed: Observed, now: float) -> None:
        """Headers of a request that is being served.

        Anthropic's are compared once the exact input is known, a moment later: before that every wrong estimate would look like
        somebody else's use. The others count an estimate of their own, and tell the exact input only at the end.
        """
        if observed is NOTHING_OBSERVED:
            return
        if observed.windows:
            self.saw_windows(observed.windows, now)
        if self.upstream.learn and observed.levels:
            self._learn_limits(observed, now)
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
                mark = ticket.marks.get(dimension.index)
                rounding = observed.rounding if dimension.index != REQUESTS else 0.0
                dimension.heard(level, mark, ticket.serial, self.unsettled(dimension.index), rounding, now)
        self.trouble.look(now)

    def refused_levels(self, observed: Observed, serial: int, now: float) -> None:
        """Headers of a refusal of the request sent as number `serial`, as of now: at least one dimension is empty."""
        if observed.windows:
            self.saw_windows(observed.windows, now)
        if self.upstream.learn:
            self._learn_limits(observed, now)
        for dimension in self.dimensions:
            level = observed.levels.get(NAMES[dimension.index])
            dimension.empty(None if level is None else level.remaining, self.unsettled(dimension.index), serial, now)

    def saw_windows(self, windows: tuple[Window, ...], now: float) -> None:
        """Remember them, and park when one is spent."""
        self._windows, self._windows_at = windows, now
        self.trouble.windows(windows, now)

    def windows(self, now: float) -> tuple[Window, ...]:
        """As last heard, with what is left of them now."""
        gone = now - self._windows_at
        left = ((window, max(0.0, window.resets_in_s - gone)) for window in self._windows)
        return tuple(replace(window, resets_in_s=left_s, spent=window.spent and left_s > 0) for window, left_s in left)

    def tune(self, margin: float, now: float) -> None:
        """Use this part of the limits."""
        for dimension in self.dimensions:
            dimension.tune(margin, now)

    # Before and after a restart -----------------------------------------------------------------------------------------------------

    def learned(self) -> dict[str, Any]:
        """JSON for `recall`."""
        return {"margin": self.trouble.margin, "limits": {NAMES[d.index]: d.learned() for d in self.dimensions if d.told}}

    def recall(self, learned: Mapping[str, Any], now: float) -> None:
        """Take over what `learned` gave. Raises KeyError, TypeError or ValueError for anything else."""
        self.trouble.margin = min(self.policy.margin, max(MARGIN_FLOOR, float(learned["margin"])))
        if self.upstream.learn:
            for name, (limit, capacity) in learned["limits"].items():
                if not (0 < limit < NEVER and 0 < capacity < NEVER):
                    raise ValueError("no limit")
                dimension = self._dimension(NAMES.index(name), float(limit), now)
                dimension.told = True
                dimension.recall(float(limit), float(capacity), now)
        self.tune(self.trouble.margin, now)

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
            dimension.own = limit
            dimension.told = dimension.told and upstream.learn
            if not dimension.told:
                dimension.relimit(limit, now)
        for dimension in [dimension for dimension in self.dimensions if NAMES[dimension.index] not in limits]:
            dimension.own = None
            if not (dimension.told and upstream.learn):
                self.dimensions.remove(dimension)
        self.trouble.margin = min(self.trouble.margin, policy.margin)
        self.tune(self.trouble.margin, now)
        self._changed()

    def _learn_limits(self, observed: Observed, now: float) -> None:
        levels = observed.levels
        for index, name in enumerate(NAMES):
            level = levels.get(name)
            if level is None or not level.limit or level.limit <= 0:
                continue
            if index == TOKENS and "input" in levels and "output" in levels and not self._knows(TOKENS):
                continue  # Anthropic's `tokens` repeats the scarcer of the two
            known = self._knows(index)
            dimension = self._dimension(index, level.limit, now)
            if known:
                if dimension.relimit(level.limit, now):
                    self._changed()
            else:
                self._catch_up(dimension, level.remaining, now)
            dimension.told = True

    def _knows(self, index: int) -> bool:
        return any(dimension.index == index for dimension in self.dimensions)

    def _dimension(self, index: int, limit: float, now: float) -> Dimension:
        """The one that there is, or a new one that begins full."""
        for dimension in self.dimensions:
            if dimension.index == index:
                return dimension
        dimension = Dimension(index, limit, self.upstream.burst_s, now)
        dimension.tune(self.trouble.margin, now)
        self.dimensions.append(dimension)
        self._changed()
        return dimension

    def _catch_up(self, dimension: Dimension, remaining: float | None, now: float) -> None:
        """A limit that was not known: what is in flight was not charged to it."""
        if remaining is not None:
            dimension.mirror.lower(remaining, now)
        dimension.bucket.lower(dimension.mirror.level - self.unsettled(dimension.index), now)


def _part(index: int, tokens_in: float, tokens_out: float) -> float:
    return tokens_in if index == INPUT else tokens_out if index == OUTPUT else tokens_in + tokens_out


def _amounts(tokens_in: float, tokens_out: float) -> tuple[float, float, float, float]:
    return 1.0, tokens_in, tokens_out, tokens_in + tokens_out
