"""The breakers of a pool, and what it does about refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

from supervisor.gateway.admission.bucket import NAMES, Dimension, Owed
from supervisor.gateway.admission.types import (
    NEVER,
    Alert,
    BreakerState,
    Command,
    End,
    Journal,
    Observed,
    PoolKey,
    Refusal,
    Refused,
    Ticket,
    TurnAway,
    Window,
)
from supervisor.kernel.format import duration
from supervisor.kernel.gateway_settings import Policy

# Breaker
# -------
# The breaker of one pool, twice: `limit` (the provider's limit is spent, or will be within the horizon) and `failures` (it is
# broken).
#
#     state      event    next        means
#     closed     trip     open        nothing is sent
#     open       trip     open        it lasts longer
#     open       probe    half-open   its time is over, and exactly one request was sent to try
#     open       clear    closed      its time is over, and it was open by the forecast alone: nobody was refused
#     half-open  well     closed      that one was answered; the ramp begins at its bottom
#     half-open  trip     open        that one was refused
#     half-open  lost     open        that one went away before anybody answered; the next may try at once
#     half-open  probe    half-open   that one was silent for `patience_s`: one more tries, and whichever is answered first decides
#
# Half-open *is* a probe on its way: its ticket is the state's own data. A full queue is no event here: the pool's buckets hold
# requests back by themselves. Rules that do not fit the table:
#
# 1. A refusal that does not come from the probe, of a request sent before the breaker opened, only makes it last longer. 2. Whoever
# waits longest is the probe, and it must fit the bucket like any other: after a 429 the bucket begins at 0. 3. While it is half-
# open or open, answers to requests that were sent before say nothing.


TRANSITIONS: Final[Mapping[tuple[BreakerState, str], BreakerState]] = {
    (BreakerState.CLOSED, "trip"): BreakerState.OPEN,
    (BreakerState.OPEN, "trip"): BreakerState.OPEN,
    (BreakerState.OPEN, "probe"): BreakerState.HALF_OPEN,
    (BreakerState.OPEN, "clear"): BreakerState.CLOSED,
    (BreakerState.HALF_OPEN, "well"): BreakerState.CLOSED,
    (BreakerState.HALF_OPEN, "trip"): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, "lost"): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, "probe"): BreakerState.HALF_OPEN,
}
BACKOFF_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
WINDOW: Final = 10
FAILURES: Final = 5
"""The failure breaker opens when so many of the last `WINDOW` requests failed."""


def backoff_s(times: int) -> float:
    """Seconds to wait after that many failures in a row (at least 1)."""
    return BACKOFF_S[min(times, len(BACKOFF_S)) - 1]


class Breaker:
    """One of the two. `until` is when it may be tried (monotonic seconds), if only once more; `probes` are the tickets that try."""

    __slots__ = ("_patience_s", "by_forecast", "name", "opened_at", "probes", "said_at", "state", "trips", "until", "why")

    def __init__(self, name: str, patience_s: float = NEVER) -> None:
        self.name = name
        self._patience_s = patience_s
        self.state = BreakerState.CLOSED
        self.why = ""
        self.said_at = 0.0
        """When `why` was told."""
        self.opened_at = 0.0
        self.until = 0.0
        self.by_forecast = False
        """It is open because of what was forecast, and for nothing that happened."""
        self.probes: frozenset[int] = frozenset()
        self.trips = 0
        """How often it opened since it was last closed."""

    def lets(self, now: float) -> bool:
        """Whether a request may be sent now, if only as the probe."""
        return self.state is BreakerState.CLOSED or now >= self.until

    def trip(self, why: str, now: float, until: float, *, by_forecast: bool = False) -> None:
        """Open it, or keep it open for longer."""
        self.by_forecast = by_forecast and (self.by_forecast or self.state is not BreakerState.OPEN)
        if self.state is not BreakerState.OPEN:
            self.opened_at = now
            self.until = until
            self.trips += 1
        self.until = max(self.until, until)
        self.why, self.said_at = why, now
        self._go("trip", frozenset())

    def try_with(self, ticket: int, now: float) -> None:
        """Its time is over, and this request is its probe."""
        self.until = now + self._patience_s
        self._go("probe", self.probes | {ticket})

    def clear(self) -> None:
        """Close it: what was forecast did not happen."""
        self.trips = 0
        self.why = ""
        self._go("clear", frozenset())

    def well(self) -> None:
        """The probe was answered."""
        self.trips = 0
        self.why = ""
        self._go("well", frozenset())

    def lost(self, ticket: int, now: float, why: str = "") -> None:
        """That probe went away unanswered, or failed for another reason, which is the newest one that is known."""
        if why:
            self.why, self.said_at = why, now
        if self.probes == {ticket}:
            self.until = now
            self._go("lost", frozenset())
        else:
            self.probes -= {ticket}

    def _go(self, event: str, probes: frozenset[int]) -> None:
        self.state = TRANSITIONS[self.state, event]
        self.probes = probes


class Outcomes:
    """The last ten answers of a pool: served or failed."""

    __slots__ = ("_last", "in_a_row")

    def __init__(self) -> None:
        self._last = 0
        self.in_a_row = 0

    @property
    def failed(self) -> int:
        """How many of them failed."""
        return self._last.bit_count()

    @property
    def bad(self) -> bool:
        """Whether these are too many."""
        return self.failed >= FAILURES

    def add(self, *, failed: bool) -> None:
        """One more."""
        if self._last or failed:
            self._last = (self._last << 1 | failed) & ((1 << WINDOW) - 1)
        self.in_a_row = self.in_a_row + 1 if failed else 0

    def clear(self) -> None:
        """Begin anew."""
        self._last = self.in_a_row = 0


# Ramp
# ----
# How fast the number of requests in flight may rise: providers refuse a sharp rise even below the limit ("acceleration limits").
#
# In each period at most twice as many as the most that were in flight in the period before. From idle:
#
#              at once   a period
#     easy     16        7 s        never refused so far: fifty agents that start together are all sent within 14 s
#     careful  2         30 s       for an hour after a 429; 1 h is a guess, the doubling in 30 s is the field notes' 6.3
#
# Sixteen at once are less than a minute's worth of any crew's usual prompts, and what the bucket holds is the stricter rule for
# most.


EASY = (16, 7.0)
CAREFUL = (2, 30.0)
CAREFUL_FOR_S = 3600.0
AFTER_TROUBLE = 2


class Ramp:
    """One pool's ramp. Times are monotonic seconds."""

    __slots__ = ("_careful_until", "_peak", "_period_end", "ceiling")

    def __init__(self, now: float) -> None:
        self._careful_until = now
        self._peak = 0
        self._period_end = now
        self.ceiling = EASY[0]

    def allows(self, in_flight: int, now: float) -> bool:
        """Whether one more may be sent."""
        if now >= self._period_end:
            self._turn(in_flight, now)
        return in_flight < self.ceiling

    def sent(self, in_flight: int) -> None:
        """So many are in flight now."""
        if in_flight > self._peak:
            self._peak = in_flight

    def rises_at(self) -> float:
        """When the ceiling may be higher."""
        return self._period_end

    def restart(self, now: float, *, careful: bool) -> None:
        """After trouble: begin again from the bottom, carefully when the provider refused for a limit."""
        if careful:
            self._careful_until = now + CAREFUL_FOR_S
        self.ceiling, self._peak = AFTER_TROUBLE, 0
        self._period_end = now + self._pace(now)[1]

    def _turn(self, in_flight: int, now: float) -> None:
        first, period = self._pace(now)
        idle = now >= self._period_end + period
        self.ceiling = max(first if idle or self.ceiling >= first else AFTER_TROUBLE, 0 if idle else 2 * self._peak)
        self._peak = in_flight
        self._period_end = now + period

    def _pace(self, now: float) -> tuple[int, float]:
        return CAREFUL if now < self._careful_until else EASY


# Refusals
# --------
# What the refusals of one request say: something about its pool, or only about itself.
#
# A request that is refused again, while others that were sent after its last refusal were served, is at fault itself (a prompt on
# which the provider fails, a limit of its own that it hits). The pool's breakers do not open for it, and after a few such refusals
# it is answered. Until then it steps back, so that another request is the next probe.


FAULTS_MOST: Final = 5
"""After so many refusals that are its own fault the request is answered."""
STEP_BACK_S: Final = 30.0
"""A request at fault waits 4, 8, 16, then this many seconds longer than the breaker."""
_ACCOUNT = frozenset({Refusal.WINDOW_SPENT, Refusal.SPEND_CAP})
"""These say something about the account, whoever meets them."""


class Refusals:
    """Of one ticket, from the first on."""

    __slots__ = ("at", "by", "count", "faults", "why")

    def __init__(self) -> None:
        self.why = ""
        """In words, the newest; only an engine's."""
        self.count = 0
        self.faults = 0
        """Those that were its own fault."""
        self.at = NEVER
        self.by: set[str] = set()
        """Accounts that refused it since it last made a pause: the others are asked first."""

    def add(self, account: str, why: Refusal, now: float, *, others_served: bool) -> bool:
        """Count one more. `others_served`: the account served requests that were sent after the previous refusal.

        Returns whether this one is the request's own fault.
        """
        fault = why not in _ACCOUNT and others_served
        self.count += 1
        self.faults += fault
        self.at = now
        self.by.add(account)
        return fault

    def too_many(self, ticket: int, why: str) -> TurnAway | None:
        """The answer to a request that is at fault itself too often; none of its places is kept."""
        if self.faults < FAULTS_MOST:
            return None
        return TurnAway(ticket, 429, f"the upstream refused this request {self.count} times, and served others meanwhile: {why}", 60)


# Breaker policy
# --------------
# What a pool does about refusals: its two breakers, the margin, and who is told.
#
# what happened                      breaker    open for                                  also rate limited, too sharp a rise
# limit      Retry-After, or 1, 2, 4 .. 30 s           level to 0 or below, margin * 0.97, the ramp anew, carefully where no header
# tells limits forecast below 0                   limit      until a fiftieth of the bucket is there, at most a minute: no forecast
# is older subscription window spent          limit      until its reset spend cap reached                  limit      15 minutes
# one alert; who waits only for it gets 402 5 of the last 10 failed            failures   1, 2, 4 .. 30 s (or Retry-After, to 60)
# never called a rate limit the request's own fault            none                                                 see `refusals`
#
# 402 for a spend cap, because it is what ends a turn cleanly: clients retry 429 for minutes, each time for nothing, and do not
# retry 402.


MARGIN_CUT = 0.97
MARGIN_FLOOR = 0.85
MARGIN_GAIN = 0.005
MARGIN_EVERY_S = 60.0
LONGEST_FREEZE_S = 3600.0
"""A longer Retry-After is asked again after this: a limit a day may be meant, or nonsense."""
LONGEST_PROBE_S = 60.0
PATIENCE_S = 20.0
"""A probe of the limit breaker that was not answered for so long may sit in front of a model that thinks for minutes: one more tries."""
SPEND_CAP_S = 900.0
PARKED_S = 300.0
"""A spent window whose reset is not known is asked again after this."""
_CUT, _CLIENT_GONE = End.CUT, End.CLIENT_GONE


def jitter(seed: float, number: int) -> float:
    """0 to 1, the same for the same arguments, spread evenly over consecutive numbers (multiples of the golden ratio)."""
    return (seed + number * 0.6180339887498949) % 1.0


def _words(event: Refused) -> str:
    return f"{event.why}: {event.detail}" if event.detail else str(event.why)


@dataclass(frozen=True, slots=True)
class PoolHooks:
    """Who is told what a pool did."""

    say: list[Command]
    limits_changed: Callable[[], None]
    seed: float
    """Of jitter, 0 to 1."""


class _Pool(Protocol):
    """The part of `Pool` that this file reads and changes."""

    key: PoolKey
    policy: Policy
    dimensions: list[Dimension]
    debt_until: float
    ramp: Ramp

    @property
    def in_flight(self) -> int: ...
    def owed(self, now: float) -> Owed: ...
    def unsettled(self, index: int) -> float: ...
    def tune(self, margin: float, now: float) -> None: ...
    def saw_windows(self, windows: tuple[Window, ...], now: float) -> None: ...
    def refused_levels(self, observed: Observed, ticket: Ticket, now: float) -> None: ...


class BreakerPolicy:
    """One pool's. `calm` is true while both breakers are closed: the usual case, asked for each request."""

    __slots__ = (
        "_margin_at", "_outcomes", "_pool", "_say", "_seed", "_served", "answered_at", "calm", "failures", "limit", "margin",
        "spend_capped",
    )  # fmt: skip

    def __init__(self, pool: _Pool, policy: Policy, desk: PoolHooks, now: float) -> None:
        self._pool = pool
        self._say = desk.say
        self._outcomes = Outcomes()
        self._margin_at = now
        self._seed = desk.seed
        self.margin = policy.margin
        self._served = -NEVER
        """When the last sent request that was served was sent."""
        self.answered_at = -NEVER
        """When a request was last found to be served."""
        self.limit = Breaker("limit", PATIENCE_S)
        self.failures = Breaker("failures")
        self.calm = True
        self.spend_capped = False
        """The account's spend cap was reached, and no request was served since."""

    # Asked before each request ------------------------------------------------------------------------------------------------------

    def lets(self, now: float) -> bool:
        """Whether a request may be sent now, if only as the probe."""
        return self.limit.lets(now) and self.failures.lets(now)

    def ready_at(self, now: float) -> float:
        """When `lets` will be true by time alone; infinite while the failures' probe is on its way."""
        return max([now, *(breaker.until for breaker in (self.limit, self.failures) if breaker.state is not BreakerState.CLOSED)])

    def served_since(self, when: float) -> bool:
        """Whether a request that was sent after that was served."""
        return self._served > when

    def woke(self, seconds: float) -> None:
        """The machine slept for so long: what was to open meanwhile may be tried now."""
        for breaker in (self.limit, self.failures):
            breaker.until -= seconds

    def capped(self, now: float) -> bool:
        """The spend cap is reached and it is not yet time to try again."""
        return self.spend_capped and self.limit.state is BreakerState.OPEN and now < self.limit.until

    def worst(self) -> Breaker:
        """The worse state of the pool's two breakers; of two that are not closed, the one with the newest reason."""
        if self.failures.state is BreakerState.CLOSED:
            return self.limit
        if self.limit.state is BreakerState.CLOSED:
            return self.failures
        return max(self.failures, self.limit, key=lambda breaker: breaker.said_at)

    # What happens to requests -------------------------------------------------------------------------------------------------------

    def try_with(self, ticket: Ticket, now: float) -> None:
        """It is sent as the probe of whichever breaker is open."""
        if self.limit.state is BreakerState.OPEN and self.limit.by_forecast:
            self.limit.clear()
            self._calm()
            self._journal(self.limit, BreakerState.OPEN, "what was forecast did not happen", now)
        ticket.probe = not self.calm
        for breaker in (self.limit, self.failures):
            if (before := breaker.state) is not BreakerState.CLOSED:
                breaker.try_with(ticket.id, now)
                self._journal(breaker, before, breaker.why, now)

    def answered(self, ticket: Ticket, now: float) -> None:
        """The provider serves it, or answered that the request is wrong: so it works."""
        if ticket.answered:
            return
        ticket.answered = True
        self.answered_at = now
        if ticket.sent_at > self._served:
            self._served = ticket.sent_at
        if not self.calm:
            for breaker in self._probed_by(ticket):
                self._close(breaker, now)

    def ended(self, ticket: Ticket, end: End, now: float) -> None:
        """A request that was sent came to its end; an answer that says that the request is wrong is an answer."""
        if end is _CLIENT_GONE:
            self.lost(ticket, now)
            return
        cut = end is _CUT
        self._outcomes.add(failed=cut)
        if not cut:
            self.answered(ticket, now)
            return
        if ticket.id in self.failures.probes or (self._outcomes.bad and self.failures.state is BreakerState.CLOSED):
            self._failing("streams are cut", 0.0, now)
        self.lost(ticket, now)

    def lost(self, ticket: Ticket, now: float) -> None:
        """It went away before the provider answered."""
        self._lose(ticket, "the probe's client went away", now)

    def refused(self, ticket: Ticket, event: Refused, now: float) -> float:
        """It was not served. Gives the seconds until it should queue again; 0: the breakers alone decide."""
        if ticket.refusals is None:
            ticket.refusals = Refusals()
        before = ticket.refusals.at
        if ticket.refusals.add(self._pool.key.account, event.why, now, others_served=self.served_since(before)):
            self._lose(ticket, f"the probe was refused, and others were served: {_words(event)}", now)
            return min(event.observed.retry_after_s or 0.0, LONGEST_PROBE_S)
        match event.why:
            case Refusal.RATE_LIMITED | Refusal.ACCELERATION:
                self._limited(ticket, event, now)
            case Refusal.WINDOW_SPENT:
                self._window_spent(ticket, event.observed, now)
            case Refusal.SPEND_CAP:
                self._spend_cap(ticket, now)
            case Refusal.KEY_REFUSED:
                self._lose(ticket, _words(event), now)
                return backoff_s(ticket.refusals.count)  # once more, and `Network` believes it
            case Refusal.OVERLOADED | Refusal.SERVER_ERROR | Refusal.UNREACHABLE:
                return self._failed(ticket, event, now)
            case _:
                assert_never(event.why)
        return 0.0

    def _limited(self, ticket: Ticket, event: Refused, now: float) -> None:
        """429 for a limit."""
        if self.limit.state is not BreakerState.OPEN or ticket.sent_at > self.limit.opened_at:
            self.margin = max(MARGIN_FLOOR, self.margin * MARGIN_CUT)
            self._margin_at = now
            self._pool.tune(self.margin, now)
        self._pool.refused_levels(event.observed, ticket, now)
        said = event.observed.retry_after_s
        freeze = backoff_s(self.limit.trips + 1) if said is None else min(max(said, 0.0), LONGEST_FREEZE_S)
        freeze += jitter(self._seed, ticket.id) * min(1.0, 0.1 + 0.1 * freeze)
        told = any(dimension.told for dimension in self._pool.dimensions)
        self._pool.ramp.restart(now, careful=event.why is Refusal.ACCELERATION or not told)
        self._trip_limit(_words(event), now + freeze, now)
        for breaker in self._probed_by(ticket):
            self._close(breaker, now)  # the failure breaker's probe: whoever counts is not broken

    def _window_spent(self, ticket: Ticket, observed: Observed, now: float) -> None:
        """The subscription's window is spent: park until its reset."""
        if observed.windows:
            self._pool.saw_windows(observed.windows, now)
        if self.limit.state is not BreakerState.OPEN:
            said = observed.retry_after_s
            self._trip_limit("subscription window spent", now + (PARKED_S if said is None else max(1.0, said)), now)
        for breaker in self._probed_by(ticket):
            self._close(breaker, now)

    def windows(self, windows: tuple[Window, ...], now: float) -> None:
        """Park when one of them is spent."""
        for window in windows:
            if window.spent and window.resets_in_s > 0:
                later = jitter(self._seed, len(self._pool.key.account))
                self._trip_limit(f"subscription window {window.name} is spent", now + window.resets_in_s + later, now)

    def _spend_cap(self, ticket: Ticket, now: float) -> None:
        """429 for money: only a person can change that."""
        if not self.spend_capped:
            self.spend_capped = True
            account = self._pool.key.account
            self._say.append(Alert(f"spend cap {account}", f"the provider refuses {account}: its spend cap is reached; raise it there"))
        self._trip_limit("spend cap reached", now + SPEND_CAP_S, now)
        for breaker in self._probed_by(ticket):
            self._close(breaker, now)

    def _failed(self, ticket: Ticket, event: Refused, now: float) -> float:
        """529, 5xx or no connection. Gives the seconds until this request may be tried again."""
        self._outcomes.add(failed=True)
        said = min(event.observed.retry_after_s or 0.0, LONGEST_PROBE_S)
        probe = ticket.id in self.failures.probes
        if ticket.id in self.limit.probes:
            self.limit.lost(ticket.id, now, _words(event))
            self._journal(self.limit, BreakerState.HALF_OPEN, f"the probe failed: {event.why}", now)
        if probe or (self._outcomes.bad and self.failures.state is BreakerState.CLOSED):
            self._failing(_words(event), said + jitter(self._seed, ticket.id), now)
        wait = max(said, backoff_s(self._outcomes.in_a_row))
        return wait * (1 + 0.1 * jitter(self._seed, ticket.id + ticket.attempt))

    def look(self, now: float) -> None:
        """Open the limit breaker when the forecast says that others, or wrong estimates, take what is left."""
        if self.limit.state is not BreakerState.CLOSED or now < self._pool.debt_until:
            return
        for dimension in self._pool.dimensions:
            shortage_s = dimension.shortage_s(now)
            if shortage_s:
                why = f"{NAMES[dimension.index]} would be gone within {duration(self._pool.policy.horizon_s)}"
                self._trip(self.limit, why, now + shortage_s, now, by_forecast=True)
                return

    def recover(self, now: float) -> None:
        """Raise the margin a little for each minute without a 429."""
        minutes = int((now - self._margin_at) / MARGIN_EVERY_S)
        if minutes:
            self.margin = min(self._pool.policy.margin, self.margin + MARGIN_GAIN * minutes)
            self._margin_at += MARGIN_EVERY_S * minutes
            self._pool.tune(self.margin, now)

    # Changes ------------------------------------------------------------------------------------------------------------------------

    def _probed_by(self, ticket: Ticket) -> list[Breaker]:
        return [breaker for breaker in (self.limit, self.failures) if ticket.id in breaker.probes]

    def _lose(self, ticket: Ticket, why: str, now: float) -> None:
        for breaker in self._probed_by(ticket):
            breaker.lost(ticket.id, now)
            self._journal(breaker, BreakerState.HALF_OPEN, why, now)

    def _failing(self, why: str, at_least_s: float, now: float) -> None:
        self._trip(self.failures, why, now + max(at_least_s, backoff_s(self.failures.trips + 1)), now)

    def _trip_limit(self, why: str, until: float, now: float) -> None:
        self._trip(self.limit, why, until, now)

    def _trip(self, breaker: Breaker, why: str, until: float, now: float, *, by_forecast: bool = False) -> None:
        before = breaker.state
        breaker.trip(why, now, until, by_forecast=by_forecast)
        self.calm = False
        if before is not BreakerState.OPEN:
            self._journal(breaker, before, why, now)

    def _close(self, breaker: Breaker, now: float) -> None:
        breaker.well()
        if breaker is self.failures:
            self._outcomes.clear()
        else:
            self.spend_capped = False
        self._calm()
        self._pool.ramp.restart(now, careful=False)
        self._journal(breaker, BreakerState.HALF_OPEN, "the probe was served", now)

    def _calm(self) -> None:
        self.calm = self.limit.state is BreakerState.CLOSED and self.failures.state is BreakerState.CLOSED

    def _journal(self, breaker: Breaker, before: BreakerState, why: str, now: float) -> None:
        numbers = {
            "margin": self.margin,
            "in_flight": float(self._pool.in_flight),
            "for_s": max(0.0, breaker.until - now) if breaker.until < NEVER else 0.0,
        }
        if breaker is self.failures:
            numbers[f"failed_of_{WINDOW}"] = float(self._outcomes.failed)
        for dimension in self._pool.dimensions:
            name = NAMES[dimension.index]
            numbers[f"{name}_level"] = dimension.available(self._pool.owed(now), now)
            numbers[f"{name}_upstream"] = dimension.upstream.level(now)
            numbers[f"{name}_unsettled"] = self._pool.unsettled(dimension.index)
            numbers[f"{name}_outside_per_minute"] = dimension.outside(now) * 60
        self._say.append(Journal(self._pool.key, breaker.name, before, breaker.state, why, numbers))
