"""Token buckets, and what a provider has left of each limit."""

from __future__ import annotations

from collections import deque

from supervisor.gateway.admission.types import NEVER

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
