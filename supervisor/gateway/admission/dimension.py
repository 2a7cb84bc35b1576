"""One dimension of one pool's limit: what may be sent now.

Two buckets must have room for a request. `bucket` is ours: it runs at a margin below the limit and is charged with reservations, so that in
the long run no more is sent than the limit gives. `upstream` is the provider's own, as far as its headers tell; before it has said
anything (`told`), it only forecasts. Of the provider's level a reserve is left alone, so that what is not known yet does no harm:

- A header is as old as its answer is late. Until the next one somebody else may begin to use the limit, and take up to
  `UNKNOWN_SHARE` of it: that is left alone. It costs nothing while the limit is in use: the reserve stands, and the refill flows through.
- Outside use that is known goes on for the breaker's horizon.
- Output is counted when it is produced. What is reserved and not counted yet is paid out of the level and of the refill until then.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from supervisor.gateway.admission import bucket
from supervisor.gateway.admission.bucket import MOST_S, SLACK, Bucket, Mark, UpstreamBucket
from supervisor.gateway.admission.types import NEVER, DimensionView, Level

REQUESTS, INPUT, OUTPUT, TOKENS = range(4)
NAMES: Final = ("requests", "input", "output", "tokens")
UNKNOWN_SHARE = 0.6
"""Part of a limit that others may begin to use before we hear of it."""
SILENT_S = 6.0
"""When no answer is awaited and none came for so long, the next request is all that is at stake: what is not counted on grows no further.
With answers that are later than this it is the same at every moment: a reserve that followed each answer would make sending pulse."""
ROUNDING_MOST = 0.1
"""Part of the capacity that is kept because of rounding at most."""
PAID_PART = 0.6
"""Part of the refill that is counted on for output that is counted later."""


class Owed(NamedTuple):
    """What is under way in a pool, and how late its answers come."""

    output: float
    """Expected of all, with what is written of it."""
    with_it: float
    """The same with the request that asks; less than the sum of both, since the errors of many make up for one another."""
    written: float
    """Written by now."""
    late_s: float
    """From sending to the head of an answer."""
    lasts_s: float
    """From sending to its end."""
    unanswered: int
    """How many requests have no head yet."""


class Dimension:
    """Numbers are tokens (or requests), rates are a second."""

    __slots__ = ("_heard", "_horizon_s", "_limit", "_margin", "_rounding", "bucket", "index", "own", "told", "upstream")

    def __init__(self, index: int, limit: float, burst_s: float, horizon_s: float, now: float) -> None:
        """`limit`: the provider's, per minute. `horizon_s`: how far the breaker looks ahead."""
        self.index = index
        self._limit = limit
        self._horizon_s = horizon_s
        self.own: float | None = None
        """What the user allows, per minute; it binds when it is less."""
        self.told = False
        """The provider said its limit."""
        self._margin = 1.0
        self._rounding = 0.0
        self._heard = -1
        """Number of the newest request of which a header was heard."""
        rate = limit / 60
        self.upstream = UpstreamBucket(rate, rate * burst_s, now)
        self.bucket = Bucket(rate, rate * burst_s, now)

    @property
    def limit(self) -> float:
        """The limit that holds, per minute: the provider's, or the user's when that is less."""
        return self._limit if self.own is None else min(self._limit, self.own)

    def tune(self, margin: float, now: float) -> None:
        """Set our bucket's rate and capacity by limit, margin and the provider's capacity."""
        self._margin = margin
        part = margin * self.limit / self._limit
        self.bucket.tune(part * self._limit / 60, part * self.upstream.capacity, now)

    # Whether there is room ----------------------------------------------------------------------------------------------------------

    def fits(self, need: float, share: float, owed: Owed, now: float) -> bool:
        """Whether `need` may be sent now, and that part of the capacity left. `owed` is the pool's `owed`."""
        if self._paced:
            bucket = self.bucket
            wanted = need + share * bucket.capacity
            if bucket.advance(now) + SLACK < (wanted if wanted < bucket.capacity else bucket.capacity):
                return False
        if not self.told:
            return True
        upstream = self.upstream
        wanted = self._wanted(need, owed, now) + max(share * upstream.capacity, self._reserve(owed, now, now))
        return upstream.level(now) + SLACK >= (wanted if wanted < upstream.capacity or self._in_flight(owed) else upstream.capacity)

    def fits_at(self, need: float, share: float, owed: Owed, now: float) -> float:
        """When it would fit if nothing else happened: monotonic seconds, or infinity when only an event can change it."""
        wait = 0.0
        if self._paced:
            wait = self.bucket.wait_s(need + share * self.bucket.capacity, now)
        if self.told:
            upstream = self.upstream
            wanted = self._wanted(need, owed, now) + max(share * upstream.capacity, self._reserve(owed, NEVER, now))
            if wanted > upstream.capacity and self._in_flight(owed):
                return NEVER
            lacking = min(wanted, upstream.capacity) - upstream.level(now)
            wait = max(wait, lacking / upstream.rate if lacking > SLACK else 0.0)
        return now + wait

    @property
    def _paced(self) -> bool:
        """Whether our own bucket binds: the provider has said nothing, or the user allows less."""
        return not self.told or self.own is not None

    def available(self, owed: Owed, now: float) -> float:
        """What may be sent at once."""
        level = self.bucket.advance(now) if self._paced else NEVER
        if not self.told:
            return level
        return min(level, self.upstream.level(now) - self._wanted(0.0, owed, now) - self._reserve(owed, now, now))

    def _reserve(self, owed: Owed, until: float, now: float) -> float:
        """What is left alone of the provider's level, when nothing is heard until then."""
        upstream = self.upstream
        rate, capacity = upstream.rate, upstream.capacity
        stale_s, most_s = until - upstream.heard_at, owed.late_s + SILENT_S
        if owed.late_s >= SILENT_S or (not owed.unanswered and stale_s > most_s):
            stale_s = most_s
        rounding = min(self._rounding, ROUNDING_MOST * capacity)
        if not upstream.in_use:
            return rounding + min(UNKNOWN_SHARE * rate * stale_s, UNKNOWN_SHARE * capacity)
        others = upstream.outside(now)
        unknown = min(max(UNKNOWN_SHARE * rate, others) * stale_s, UNKNOWN_SHARE * capacity)
        return rounding + unknown + bucket.outside_use(upstream, self._horizon_s, now)

    def _wanted(self, need: float, owed: Owed, now: float) -> float:
        """What the provider will count for `need`, and still counts for output that is under way. Output is counted when it is written, so
        the refill until then pays for a part of it."""
        if self.index < OUTPUT:
            return need
        if self.index == TOKENS:
            return need + owed.output
        upstream = self.upstream
        paid = min(PAID_PART * upstream.rate, upstream.rate - upstream.outside(now)) * owed.lasts_s
        return max(upstream.lacks(owed.written, now), owed.with_it - paid)

    def _in_flight(self, owed: Owed) -> bool:
        """Whether what is wanted becomes less by requests that end, so that waiting for a full bucket would be too early."""
        return self.index >= OUTPUT and owed.output > 0

    # What is sent, and what the provider says ---------------------------------------------------------------------------------------

    def send(self, reserved: float, counted: float, written: float, now: float) -> Mark:
        """Reserve, and count what the provider counts at once. `written`: output of others that is not complete. Gives the mark of this
        moment, for `heard`."""
        if self._paced:
            self.bucket.take(reserved, now)
        return self.upstream.send(counted, written if self.index >= OUTPUT else 0.0, now)

    def settle(self, reserved: float, late: float, counted: float, now: float) -> None:
        """So much more (or less) than `send` took is reserved; the provider counted `late` more when it was sent, and `counted` now."""
        if self._paced:
            self.bucket.take(reserved, now)
        self.upstream.correct(late, now)
        self.upstream.charge(counted, now)

    def heard(
        self,
        level: Level,
        mark: Mark | None,
        sent: tuple[int, float],
        doubt: tuple[float, float],
        rounding: float,
        now: float,
    ) -> None:
        """Headers of the request that was sent as (number, when). `mark` None: before this limit was known. `doubt` as
        `UpstreamBucket.heard` wants it."""
        if level.remaining is None or sent[0] <= self._heard:
            return
        self._heard = sent[0]
        self._rounding = rounding
        upstream = self.upstream
        if level.full_in_s is None:
            resized = upstream.heard_more(level.remaining, rounding, now)
        else:
            resized = upstream.heard_reset(level.remaining, level.full_in_s, now - sent[1], rounding, now)
        if resized:
            self.tune(self._margin, now)
        if mark is None:
            upstream.lower(level.remaining, now)
        else:
            upstream.heard(level.remaining, mark, sent[1], doubt, rounding, now, judged=not resized)

    def begin(self, level: Level, sent: tuple[int, float], since: tuple[float, float], rounding: float, now: float) -> None:
        """The provider said this limit, which was not known, to the request that was sent as (number, when). `since`: (reserved, counted)
        of all that is under way and is not in what the provider said."""
        self.told = True
        self._heard = sent[0]
        self._rounding = rounding
        upstream = self.upstream
        if level.remaining is not None:
            if level.full_in_s is not None:
                upstream.heard_reset(level.remaining, level.full_in_s, now - sent[1], rounding, now)
            elif self.own is None:  # it may hold less than a minute's refill; more is believed when more was left
                upstream.assume(level.remaining + (self.index == REQUESTS), now)
            self.tune(self._margin, now)
        reserved, counted = since
        left = upstream.capacity if level.remaining is None else level.remaining
        upstream.begin(left - counted, sent[1], now)
        self.bucket.lower(min(left, self.bucket.capacity) - reserved, now)

    def empty(self, remaining: float | None, serial: int, now: float) -> None:
        """The provider refused the request that was sent as number `serial`. Where it says that enough is left, this is not the dimension
        that it refused for. Headers of earlier requests must not subtract this loss again."""
        self._heard = max(self._heard, serial)
        self.upstream.lower(remaining or 0.0, now)
        if not remaining or not self.told:
            self.bucket.lower(remaining or 0.0, now)

    def outside(self, now: float) -> float:
        """What others take, per second."""
        return self.upstream.outside(now)

    def debt_s(self) -> float:
        """Seconds until what was just sent is paid, when that was larger than what was there; not above 0 when it was not."""
        return -self.bucket.level / self.bucket.rate if self._paced else self.upstream.debt_s

    def shortage_s(self, now: float) -> float:
        """See `forecast.shortage_s`."""
        return bucket.shortage_s(self.upstream, self._horizon_s, now)

    def view(self, reserved: float, owed: Owed, now: float) -> DimensionView:
        """For people."""
        capacity = self.bucket.capacity if self._paced else self.upstream.capacity
        level = self.available(owed, now)
        saturation = 1 - level / capacity if capacity else 1.0
        return DimensionView(NAMES[self.index], self.limit, level, capacity, reserved, self.outside(now) * 60, saturation)

    # Changes ------------------------------------------------------------------------------------------------------------------------

    def restrict(self, own: float, reserved: float, now: float) -> None:
        """The user allows so much per minute. `reserved` is under way: our bucket does not hold it when nobody restricted it before."""
        begins, self.own = self.own is None, own
        self.tune(self._margin, now)
        if begins:
            self.bucket.fill(now)
            self.bucket.take(reserved, now)

    def relimit(self, limit: float, now: float) -> bool:
        """The provider's limit is this now, per minute. Gives whether that is new."""
        if limit == self._limit:
            return False
        self.upstream.relimit(limit / 60, self.upstream.capacity * limit / self._limit, now)
        self._limit = limit
        self.tune(self._margin, now)
        return True

    def learned(self) -> list[float]:
        """[limit per minute, capacity], for `recall`."""
        return [self._limit, self.upstream.capacity]

    def recall(self, limit: float, capacity: float, now: float) -> None:
        """As `learned` gave it. Fills the buckets: nothing was sent yet."""
        self._limit = limit
        self.upstream = UpstreamBucket(limit / 60, min(capacity, MOST_S * limit / 60), now)
        self.tune(self._margin, now)
        self.restore([], now)

    def restore(self, spent: list[tuple[float, float]], now: float) -> None:
        """Begin full, and count what was spent: (seconds ago, amount), oldest first."""
        self.upstream.restore(spent, now)
        self.bucket.fill(now - spent[0][0] if spent else now)
        for age_s, amount in spent:
            self.bucket.take(amount, now - age_s)
        self.bucket.advance(now)
