"""One dimension of one pool's limit: what we may still spend, and what the provider is thought to have left.

Two buckets. `bucket` is ours: it runs at a margin below the limit, and is charged with reservations. `mirror` is the provider's own as
far as we know it: it runs at the limit, is charged with inputs when they are sent and with outputs when they are known, and is corrected
by what the responses' headers say. The difference between the mirror and the headers is what others spend with the same key, learned as
a rate, by which our refill is lowered: a level that is only clamped says nothing while it is near 0.

A header says what was left at the moment when *its* request was counted, seconds before we read it. So each sent request keeps the
mirror's level of its own moment (`mark`), and only headers of requests that were sent later than the last one heard are compared.
"""

from __future__ import annotations

from typing import Final

from supervisor.core.gateway.bucket import NEVER, Bucket
from supervisor.core.gateway.nouns import DimensionView, Level

REQUESTS, INPUT, OUTPUT, TOKENS = range(4)
NAMES: Final = ("requests", "input", "output", "tokens")
AVERAGE_S = 15.0
"""Outside use is averaged over this."""
QUIET_S = 120.0
"""After so long with nothing worth calling outside use, what is still believed of it is halved."""
SILENCE_S = 20.0
"""After so long without a header, belief in outside use is halved: with nothing sent nothing is heard, and nothing would ever be."""
FALL_GAIN = 0.5
"""Weight of the newest average when it is less than what was believed: others come in bursts, and more is believed at once."""
OUTSIDE_MOST = 0.9
"""Part of the limit that others are thought to take at most: something always trickles, or nothing would ever be heard again."""
BIG = 0.03
"""Part of the capacity by which headers must differ, over a while, before it is called outside use: estimates and rounding make noise."""
VOTES = 3
"""So many headers in a row must say another capacity."""


class Dimension:
    """Numbers are tokens (or requests), rates are a second."""

    __slots__ = (
        "_corrected", "_drift", "_drift_since", "_heard", "_heard_at", "_limit", "_margin", "_votes", "bucket", "capacity", "index",
        "mirror", "outside", "own", "told",
    )  # fmt: skip

    def __init__(self, index: int, limit: float, burst_s: float, now: float) -> None:
        """`limit`: the provider's, per minute."""
        self.index = index
        self._limit = limit
        self.own: float | None = None
        """What the user allows, per minute; it binds when it is less."""
        self.told = False
        """The provider said its limit."""
        self._margin = 1.0
        self.capacity = limit / 60 * burst_s
        self.outside = 0.0
        self.mirror = Bucket(limit / 60, self.capacity, now)
        self.bucket = Bucket(limit / 60, self.capacity, now)
        self._corrected = 0.0
        self._heard = -1
        self._heard_at = now
        self._drift = 0.0
        self._drift_since = now
        self._votes = 0

    @property
    def limit(self) -> float:
        """Per minute, as it binds us: the provider's, or the user's when that is less."""
        return self._limit if self.own is None else min(self._limit, self.own)

    def tune(self, margin: float, now: float) -> None:
        """Set both buckets' rates and capacities by limit, margin, outside use and capacity."""
        self._margin = margin
        rate, ours = self._limit / 60, self.limit / 60
        self.mirror.tune(rate - self.outside, self.capacity, now)
        free = margin * rate - self.outside
        self.bucket.tune(max((1 - OUTSIDE_MOST) * ours, min(margin * ours, free)), margin * self.capacity * ours / rate, now)

    def send(self, reserved: float, counted: float, now: float) -> float:
        """Reserve, and count in the mirror what the provider counts at once. Gives the mark of this moment."""
        self.bucket.take(reserved, now)
        self.mirror.take(counted, now)
        return self.mirror.level + self._corrected

    def settle(self, reserved: float, late: float, counted: float, now: float) -> None:
        """So much more (or less) than `send` took is reserved; the provider counted `late` more when it was sent, and `counted` now."""
        self.bucket.take(reserved, now)
        self.mirror.take(late + counted, now)
        self._corrected += late

    def forecast(self, unsettled: float, horizon_s: float, now: float) -> float:
        """What the provider will have left when all in flight is paid and others went on for so long."""
        return self.mirror.advance(now) - unsettled - self.outside * horizon_s

    def heard(self, level: Level, mark: float | None, serial: int, unsettled: float, rounding: float, now: float) -> None:
        """Headers of the request that was sent as number `serial`. `mark` None: they are as of now."""
        if level.remaining is None or serial <= self._heard:
            return
        self._heard, self._heard_at = serial, now
        self._learn_capacity(level, level.remaining, rounding, now)
        if self._votes:  # perhaps the provider's bucket is another than we think, and then nobody took what seems to be missing
            self.bucket.lower(level.remaining - unsettled, now)
            return
        expected = self.mirror.advance(now) if mark is None else mark - self._corrected
        error = expected - level.remaining if level.remaining > 0 else max(0.0, expected)
        if abs(error) > 0.6 * rounding + 0.005 * self.capacity:
            self.mirror.take(error, now)
            self._corrected += error
            self._drift += error
            self.bucket.lower(self.mirror.level - unsettled, now)
        self._learn_outside(rounding, now)

    def doubt(self, now: float) -> float:
        """Believe less in outside use when nothing was heard for a while. Gives when to doubt next; infinite without outside use."""
        while self.outside and now >= self._heard_at + SILENCE_S:
            self._heard_at += SILENCE_S
            self._halve()
            self.tune(self._margin, now)
        return self._heard_at + SILENCE_S if self.outside else NEVER

    def empty(self, remaining: float | None, unsettled: float, serial: int, now: float) -> None:
        """The provider refused the request that was sent as number `serial`. Where it says that enough is left, this is not the dimension
        that it refused for. What the mirror loses here, headers of requests that were sent before do not take once more."""
        left = 0.0 if remaining is None else remaining
        self._heard, self._heard_at = max(self._heard, serial), now
        self._sink(left, now)
        self.bucket.lower(left - unsettled if remaining else 0.0, now)

    def view(self, reserved: float, now: float) -> DimensionView:
        """For people."""
        bucket = self.bucket
        bucket.advance(now)
        saturation = 1 - bucket.level / bucket.capacity if bucket.capacity else 1.0
        return DimensionView(NAMES[self.index], self.limit, bucket.level, bucket.capacity, reserved, self.outside * 60, saturation)

    def exhausted_in_s(self, unsettled: float, spending: float, now: float) -> float | None:
        """Until the provider has nothing left, when we go on with `spending` a second and others with theirs; None: it is not falling."""
        falling = spending - self.mirror.rate
        if falling <= 0:
            return None
        return max(0.0, self.forecast(unsettled, 0.0, now) / falling)

    def relimit(self, limit: float, now: float) -> bool:
        """The provider's limit is this now, per minute. Gives whether that is new."""
        if limit == self._limit:
            return False
        capacity = self.capacity * limit / self._limit
        self._limit = limit
        self._resize(capacity, now)
        return True

    def learned(self) -> list[float]:
        """[limit per minute, capacity], for `recall`."""
        return [self._limit, self.capacity]

    def recall(self, limit: float, capacity: float, now: float) -> None:
        """As `learned` gave it. Fills the buckets: nothing was sent yet."""
        self._limit, self.capacity = limit, capacity
        self.tune(self._margin, now)
        self.restore([], now)

    def restore(self, spent: list[tuple[float, float]], now: float) -> None:
        """Begin full, and count what was spent: (seconds ago, amount), oldest first."""
        for bucket in (self.mirror, self.bucket):
            bucket.fill(now - spent[0][0] if spent else now)
            for age_s, amount in spent:
                bucket.take(amount, now - age_s)
            bucket.advance(now)

    def _learn_capacity(self, level: Level, remaining: float, rounding: float, now: float) -> None:
        if remaining > self.capacity + 0.5 * rounding:
            self._resize(remaining, now)
        elif level.full_in_s is not None:
            said = remaining + level.full_in_s * self._limit / 60
            tolerance = 0.1 * self.capacity + rounding + self._limit / 60
            self._votes = self._votes + 1 if remaining > 0 and abs(said - self.capacity) > tolerance else 0
            if self._votes >= VOTES:
                self._resize(max(said, remaining), now)

    def _halve(self) -> None:
        self.outside = self.outside / 2 if self.outside > 0.01 * self._limit / 60 else 0.0

    def _resize(self, capacity: float, now: float) -> None:
        self._votes = 0
        self._drift, self._drift_since = 0.0, now
        self._sink(capacity, now)
        self.capacity = capacity
        self.tune(self._margin, now)

    def _sink(self, level: float, now: float) -> None:
        """The mirror holds no more than this, and did not when the requests in flight were sent."""
        self._corrected += max(0.0, self.mirror.advance(now) - level)
        self.mirror.lower(level, now)

    def _learn_outside(self, rounding: float, now: float) -> None:
        elapsed = now - self._drift_since
        worth_it = abs(self._drift) >= 2.5 * rounding + BIG * self.capacity
        if elapsed < AVERAGE_S or not (worth_it or elapsed >= QUIET_S):
            return
        if worth_it:
            rate = self._limit / 60
            gain = 1.0 if self._drift > 0 else FALL_GAIN
            self.outside = min(max(0.0, self.outside + gain * self._drift / elapsed), OUTSIDE_MOST * rate)
        else:
            self._halve()
        self._drift, self._drift_since = 0.0, now
        self.tune(self._margin, now)
