"""What may be sent now under each limit of a pool: token buckets, ours and the provider's, and the dimensions that they measure."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from supervisor.gateway.admission.types import NEVER, DimensionView, Level

# Bucket
# ------
# A token bucket with debt. Pure: whoever calls it says what time it is.


MAX_STEP_S = 120.0
"""A longer step (a suspended machine, a stopped process) refills as much as this: what others spent meanwhile is not known."""
SLACK = 1e-6
"""Tokens that may be missing and still fit: a timer fires a rounding error before its deadline, and must not find the bucket not ready."""


class Bucket:
    """Holds up to `capacity`, gains `rate` a second, may be in debt. `level <= capacity` always; a clock that goes back changes nothing."""

    __slots__ = ("_at", "capacity", "level", "rate")

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        self.rate = rate
        self.capacity = capacity
        self.level = capacity
        self._at = now

    def advance(self, now: float) -> float:
        """Refill up to `now` and give the level."""
        step = now - self._at
        if step > 0:
            self._at = now
            level = self.level + self.rate * (step if step < MAX_STEP_S else MAX_STEP_S)
            self.level = level if level < self.capacity else self.capacity
        return self.level

    def spills(self, now: float) -> float:
        """What of the refill up to `now` does not fit."""
        step = min(max(0.0, now - self._at), MAX_STEP_S)
        return max(0.0, self.level + self.rate * step - self.capacity)

    def take(self, amount: float, now: float) -> None:
        """Take `amount`, whether it is there or not. A negative one gives back; what does not fit under the capacity is lost."""
        level = self.level
        step = now - self._at
        if step > 0:  # `advance`, written out: this runs four times for each request
            self._at = now
            level += self.rate * (step if step < MAX_STEP_S else MAX_STEP_S)
            if level > self.capacity:
                level = self.capacity
        level -= amount
        self.level = level if level < self.capacity else self.capacity

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until it holds `amount`, or is full when that is less; 0 when it does now."""
        lacking = min(amount, self.capacity) - self.advance(now)
        if lacking <= SLACK:
            return 0.0
        return lacking / self.rate if self.rate > 0 else NEVER

    def lower(self, ceiling: float, now: float) -> None:
        """Hold no more than `ceiling` now."""
        self.level = min(self.advance(now), ceiling)

    def fill(self, at: float) -> None:
        """It was full at `at`, which may be in the past."""
        self.level, self._at = self.capacity, at

    def tune(self, rate: float, capacity: float, now: float) -> None:
        """Another rate and capacity from now on; what is above the new capacity is lost."""
        self.level = min(self.advance(now), capacity)
        self.rate, self.capacity = rate, capacity


# Upstream bucket
# ---------------
# What the provider has left in one dimension, estimated from what we sent and from what its answers say.
#
# `level` is what it holds as far as we know: refilled at the limit, charged with inputs when they are sent and with outputs when
# they are known, corrected by headers. Where the parts of the estimate come from, and how wrong each may be:
#
# refill       `limit` of the headers, continuous (Anthropic's documentation); some refill in steps of up to `STEP_S` capacity
# what is left and the time of the full refill, see `CapacityRange` remaining    true of some moment between sending and answer
# (answers may be seconds late), rounded by up to `rounding`; nothing is said of a debt: 0 may be any number below it inputs
# estimates until the provider says them; `doubt` is how much more those may be outputs      charged at the end here, while they are
# written or at the end there, which is learned; `doubt` holds what may be written outside use  whatever is missing beyond all of
# these
#
# Two readings follow from each header. For admission the worse one counts: a level that the header can only explain as lower is
# lowered at once, and it is raised only as far as no reading of the header is lower. For outside use the better one counts: tokens
# are missing only when the header is below everything that our own doubts allow (`unused` is how much more than `level` that would
# be). So noise costs a little reserve and is never called somebody else's use.


STEP_S = 0.5
"""Providers may refill in steps, and the network delays requests by about as much."""
SLOT_S = 0.25
SLOTS = 240
"""A minute of levels is remembered: answers that are later are compared with that minute."""
WINDOW_S = 60.0
"""Outside use is what others took in so long: limits are per minute."""
MOST_S = 120.0
"""Seconds of refill: no provider's bucket holds more. An answer that says more is nonsense, or speaks of another span than a minute."""
RESET_S = 1.0
"""The reset and the response's own date are whole seconds."""
KEEP = 0.98
"""Weight that what was learned of how output is counted keeps from answer to answer."""
PRIOR = 4e6
"""Square of the tokens after which more is believed to answers than to the documentation."""
Mark = tuple[float, float, float]
"""Of a request that was sent: the level, the sum of what estimates were corrected by, and the output that was being written then."""


class CapacityRange:
    """What the provider's bucket can hold: the range that all answers agree on.

    `remaining + reset * refill` is the capacity, for a reset that may be off by `RESET_S` and is as late as the answer. An answer that
    contradicts those before begins anew: the limit has changed, or this is no token bucket.
    """

    __slots__ = ("least", "most")

    def __init__(self) -> None:
        self.least = 0.0
        """At least so much; 0: no answer has said it."""
        self.most = float("inf")
        """At most so much."""

    def observe(self, remaining: float, reset_s: float, late_s: float, rate: float, rounding: float) -> None:
        """One answer: the reset was `reset_s` away when it was written, `late_s` or less after the request was counted."""
        least, most = remaining - rounding / 2, remaining + rounding / 2 + (reset_s + RESET_S + late_s) * rate
        if reset_s > RESET_S:
            least += (reset_s - RESET_S) * rate
        if remaining <= rounding / 2:
            least = 0.0  # it may be in debt, and then its reset is later than what is left says
        if least > self.most or most < self.least:
            self.least, self.most = least, most
            return
        if least > self.least:
            self.least = least
        if most < self.most:
            self.most = most


class UpstreamBucket:
    """The provider's bucket of one dimension. Amounts are tokens (or requests), times monotonic seconds."""

    __slots__ = (
        "_bucket",
        "_corrected",
        "_estimates",
        "_judged_at",
        "_last",
        "_levels",
        "_missing",
        "_products",
        "_range",
        "_spilled",
        "_squares",
        "heard_at",
        "unused",
    )

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        self._bucket = Bucket(rate, capacity, now)
        self._corrected = 0.0
        """By how much levels were lowered after the fact: a level that was noted earlier is now thought lower by what came since."""
        self._squares = self._products = PRIOR
        self._last: tuple[float, Mark] | None = None
        """What the last answer left, and its mark."""
        self._estimates = 0.0
        """The part of it by which estimates of inputs were wrong."""
        self._levels: deque[list[float]] = deque(maxlen=SLOTS)
        """[since, lowest, highest] of each slot, each level with the `_corrected` of its moment added."""
        self._range = CapacityRange()
        self._missing: deque[tuple[float, float, float]] = deque()
        """(from, to, tokens) that others took; negative: fewer than was thought. What our doubts hid is found late, and may be as old as
        what was found before."""
        self._judged_at = now
        self._spilled = 0.0
        """Refill that did not fit while output was being written."""
        self.unused = 0.0
        self.heard_at = now
        """When the newest request was sent of which the provider said what it left."""

    @property
    def debt_s(self) -> float:
        """Seconds until it holds something, after a request was sent; not above 0 when it does."""
        return -self._bucket.level / self._bucket.rate

    @property
    def in_use(self) -> bool:
        """Whether others took something in the last minute."""
        return bool(self._missing)

    @property
    def rate(self) -> float:
        """Refill a second."""
        return self._bucket.rate

    @property
    def capacity(self) -> float:
        """What it holds when it is full."""
        return self._bucket.capacity

    def level(self, now: float) -> float:
        """What it holds now."""
        bucket = self._bucket
        self._spilled += bucket.spills(now)
        level = bucket.advance(now)
        if level + self.unused > bucket.capacity:
            self.unused = bucket.capacity - level
        return level

    # What we send -------------------------------------------------------------------------------------------------------------------

    def send(self, amount: float, written: float, now: float) -> Mark:
        """A request leaves and is charged so much, while so much output is `written` that is not complete. Gives its mark, for `heard`."""
        before = self.level(now) + self._corrected
        self._bucket.take(amount, now)
        after = before - amount
        levels = self._levels
        if levels:
            slot = levels[-1]
            if before > slot[2]:
                slot[2] = before
            if now - slot[0] < SLOT_S:
                if after < slot[1]:
                    slot[1] = after
                return after, self._estimates, written
        levels.append([now, after, after])
        return after, self._estimates, written

    def charge(self, amount: float, now: float) -> None:
        """An output of so many tokens is complete."""
        if amount:
            self.send(amount, 0.0, now)

    def correct(self, amount: float, now: float) -> None:
        """It counted so much more (or less) when the request was sent than `send` was told."""
        if amount:
            self._bucket.take(amount, now)
            self._corrected += amount
            self._estimates += amount

    # What it says -------------------------------------------------------------------------------------------------------------------

    def heard(
        self,
        remaining: float,
        mark: Mark,
        sent_at: float,
        doubt: tuple[float, float],
        rounding: float,
        now: float,
        *,
        judged: bool = True,
    ) -> None:
        """The answer to the request that was sent at `sent_at` says what was left. `doubt`: by how much our own requests that are under
        way may have lowered it less, and more, than what is charged for them. Not `judged`, whatever is missing is not called outside
        use: the capacity turned out to be another."""
        level = self.level(now)
        self.heard_at = sent_at
        half, remaining = rounding / 2, min(remaining, MOST_S * self.rate)
        then = mark[0] - self._corrected
        self._learn_written(remaining, mark)
        written = self.counted(mark[2])
        if (missing := then - written - remaining - half) > 0:
            self.lower(level - missing, now)
        lowest, highest = self._between(sent_at, now)
        estimates = abs(self._estimates - mark[1])
        owing = remaining <= half
        if not owing and (more := remaining - highest + written - half - doubt[0] - estimates) > 0:
            self._raise(more, now)
            lowest, highest = lowest + more, highest + more
        if judged:
            noise = rounding + STEP_S * self.rate + estimates
            beyond = -NEVER if owing else remaining - highest - doubt[0] - noise
            self._judge(remaining - lowest + doubt[1] + noise, beyond, now)
        else:
            self.unused = 0.0

    def heard_reset(self, remaining: float, reset_s: float, late_s: float, rounding: float, now: float) -> bool:
        """The same answer said when it will be full. Whether the capacity is another now."""
        found, known = self._range, self._bucket.capacity
        found.observe(remaining, reset_s, late_s, self._bucket.rate, rounding)
        capacity = min(found.least or min(known, found.most), MOST_S * self.rate)
        if -0.005 * known <= capacity - known <= 0.005 * known:
            return False
        self.resize(capacity, now)
        return True

    def assume(self, capacity: float, now: float) -> None:
        """Take it that it holds so much: no answer said its capacity."""
        self.resize(max(1.0, min(capacity, MOST_S * self.rate)), now)

    def heard_more(self, remaining: float, rounding: float, now: float) -> bool:
        """The same answer, where it says nothing of a reset. Whether the capacity is another now."""
        capacity = min(remaining, MOST_S * self.rate)
        if capacity <= self.capacity + rounding / 2:
            return False
        self.resize(capacity, now)
        return True

    def lower(self, level: float, now: float) -> None:
        """It holds no more than this, and did not when the requests under way were sent."""
        if (missing := self.level(now) - level) > 0:
            self._bucket.take(missing, now)
            self._corrected += missing
            self.unused += missing

    def lacks(self, written: float, now: float) -> float:
        """How far the provider may be below the level when so much output is written that is not complete: it was counted there, and
        what the provider gained since, while this one was full, paid for it."""
        self.level(now)
        self._spilled = min(self._spilled, written)
        return self.counted(written - self._spilled)

    def counted(self, written: float) -> float:
        """How much the provider has counted of output that is written and not complete."""
        return written * min(1.0, max(0.0, self._products / self._squares))

    def outside(self, now: float) -> float:
        """What others take, a second: what was missing in the last minute."""
        missing = self._missing
        if not missing:
            return 0.0
        since = now - WINDOW_S
        while missing and missing[0][1] <= since:
            missing.popleft()
        return max(0.0, sum(amount * _part(start, end, since) for start, end, amount in missing)) / WINDOW_S

    # Changes ------------------------------------------------------------------------------------------------------------------------

    def resize(self, capacity: float, now: float) -> None:
        """It holds so much when it is full. What is above that was never there, and nobody took it."""
        self.lower(capacity, now)
        self.unused = 0.0
        self._bucket.tune(self.rate, capacity, now)

    def relimit(self, rate: float, capacity: float, now: float) -> None:
        """The provider's limit is another. What was heard of the one before says nothing any more."""
        self.resize(capacity, now)
        self._bucket.tune(rate, capacity, now)
        self._range = CapacityRange()
        self._missing.clear()

    def begin(self, level: float, sent_at: float, now: float) -> None:
        """It holds so much, as the answer to a request that was sent at `sent_at` and what was sent since say. Marks from before mean
        nothing any more."""
        bucket = self._bucket
        bucket.take(bucket.advance(now) - min(level, bucket.capacity), now)
        self._levels.clear()
        self.unused = 0.0
        self.heard_at = sent_at

    def restore(self, spent: list[tuple[float, float]], now: float) -> None:
        """It was full, then so much was spent: (seconds ago, amount), oldest first."""
        self._bucket.fill(now - spent[0][0] if spent else now)
        for age_s, amount in spent:
            self._bucket.take(amount, now - age_s)
        self._bucket.advance(now)

    def _between(self, since: float, now: float) -> tuple[float, float]:
        """The lowest and the highest level from then on, as they are thought now."""
        lowest = highest = self._bucket.advance(now) + self._corrected
        since -= SLOT_S
        for start, low, high in reversed(self._levels):
            if start <= since:
                break
            if low < lowest:
                lowest = low
            if high > highest:
                highest = high
        return lowest - self._corrected, highest - self._corrected

    def _learn_written(self, remaining: float, mark: Mark) -> None:
        """Providers may count output while it is written, as Anthropic says, or at its end. From one answer to the next what is left
        differs by that much from what we charged, in proportion to what was being written, or not at all: a regression through 0."""
        if self._last is not None and (written := mark[2] - self._last[1][2]):
            odd = (mark[0] - self._last[1][0]) - (remaining - self._last[0])
            self._products = KEEP * self._products + odd * written
            self._squares = KEEP * self._squares + written * written
        self._last = remaining, mark

    def _raise(self, more: float, now: float) -> None:
        self._bucket.take(-more, now)
        self._corrected -= more
        self.unused -= more

    def _judge(self, above: float, beyond: float, now: float) -> None:
        """Whether others took something, or less than was thought: what is left is so much above the lowest level that it can be, and so
        much beyond the highest, if nobody else used it."""
        if above < self.unused:
            self._found(self.unused - above, now)
            self.unused = above
        elif beyond > self.unused:
            if self._missing:
                self._found(self.unused - beyond, now)
            self.unused = beyond

    def _found(self, missing: float, now: float) -> None:
        self._missing.append((max(self._judged_at, now - WINDOW_S), now, missing))
        self._judged_at = now


def _part(start: float, end: float, since: float) -> float:
    """The part of a span of time that is later than `since`."""
    return 1.0 if start >= since or end <= start else (end - since) / (end - start)


# Forecast
# --------
# What the provider will have left soon. The limit breaker opens by this, before anybody is refused.
#
# `upstream` is the provider's bucket of one dimension; amounts are tokens (or requests), `now` is monotonic seconds.


RESERVE_MOST = 0.25
"""Part of the capacity that others are thought to take within the horizon at most."""
NOISE = 0.001
"""Part of the capacity by which a forecast may be below 0 and mean nothing."""
REOPEN = 0.02
"""Part of the capacity that the forecast must have again."""


def outside_use(upstream: UpstreamBucket, horizon_s: float, now: float) -> float:
    """What others take in `horizon_s` seconds when they go on; at most `RESERVE_MOST` of the capacity."""
    return min(upstream.outside(now) * horizon_s, RESERVE_MOST * upstream.capacity)


def shortage_s(upstream: UpstreamBucket, horizon_s: float, now: float) -> float:
    """Seconds until the forecast is good again, at most a minute; 0 while the provider will have something left after `horizon_s`."""
    left = upstream.level(now) - (outside_use(upstream, horizon_s, now) if upstream.in_use else 0.0)
    if left >= -NOISE * upstream.capacity:
        return 0.0
    gained_in_s = (REOPEN * upstream.capacity - left) / max(upstream.rate - upstream.outside(now), SLACK)
    return min(gained_in_s, WINDOW_S)


def exhausted_in_s(upstream: UpstreamBucket, unsettled: float, spending: float, now: float) -> float | None:
    """Seconds until the provider has nothing left, when we spend `spending` a second and others go on; None: its level is not falling.

    `unsettled` is what is under way and not counted yet.
    """
    falling = spending + upstream.outside(now) - upstream.rate
    return max(0.0, (upstream.level(now) - unsettled) / falling) if falling > 0 else None


# Dimension
# ---------
# One dimension of one pool's limit: what may be sent now.
#
# Two buckets must have room for a request. `bucket` is ours: it runs at a margin below the limit and is charged with reservations,
# so that in
# the long run no more is sent than the limit gives. `upstream` is the provider's own, as far as its headers tell; before it has said
# anything (`told`), it only forecasts. Of the provider's level a reserve is left alone, so that what is not known yet does no harm:
#
# - A header is as old as its answer is late. Until the next one somebody else may begin to use the limit, and take up to
#   `UNKNOWN_SHARE` of it: that is left alone. It costs nothing while the limit is in use: the reserve stands, and the refill flows
# through.
# - Outside use that is known goes on for the breaker's horizon.
# - Output is counted when it is produced. What is reserved and not counted yet is paid out of the level and of the refill until then.


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
        return rounding + unknown + outside_use(upstream, self._horizon_s, now)

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
        return shortage_s(self.upstream, self._horizon_s, now)

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
