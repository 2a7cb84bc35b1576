"""Named quotas: tickets of hard ceilings on other things than tokens, such as a search API. Pure: no clock, no I/O.

A quota holds `burst` tickets at most and gets one more each `period_s / limit` seconds, so in any time of t seconds it gives at most
`burst + t * limit / period_s`. Who waits gets the next ticket; tasks take turns, and one task's own waiters are served in order.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from supervisor.gateway.admission.bucket import MAX_STEP_S, SLACK, Bucket
from supervisor.kernel.gateway_settings import Quota


@dataclass(frozen=True, slots=True)
class Grant:
    """A waiter has its ticket."""

    name: str
    waiter: int


class Quotas:
    """All quotas of one supervisor. Names that it does not have raise KeyError. Times are monotonic seconds."""

    def __init__(self, quotas: Iterable[Quota], now: float, levels: Mapping[str, float] | None = None) -> None:
        """`levels`: how many tickets each quota had; one that is not in it is new, and full."""
        levels = levels or {}
        self._shelves = {quota.name: _Shelf(quota, now, levels.get(quota.name)) for quota in quotas}

    @property
    def names(self) -> Collection[str]:
        """In the order of the settings."""
        return self._shelves.keys()

    def take(self, name: str, now: float) -> float:
        """Take a ticket at once. Returns 0, or the seconds until one would be free for somebody who came now: those who wait come first."""
        shelf = self._shelves[name]
        if not shelf.waiting and shelf.take(now):
            return 0.0
        return self.next_s(name, now)

    def next_s(self, name: str, now: float) -> float:
        """Seconds until there is a ticket for somebody who comes now, if nobody leaves the queue."""
        shelf = self._shelves[name]
        return shelf.seconds_until(1 + sum(map(len, shelf.waiting.values())), now)

    def wait(self, name: str, party: str, waiter: int) -> None:
        """Stand in the queue. `party` is the task for which it waits, `waiter` a number of its own, which `granted` names in its turn."""
        self._shelves[name].waiting.setdefault(party, deque()).append(waiter)

    def leave(self, name: str, waiter: int) -> None:
        """Stop waiting. Does nothing for one that was served already."""
        self._shelves[name].leave(waiter)

    def granted(self, now: float) -> list[Grant]:
        """Serve whom there are tickets for, in their order."""
        return [Grant(name, waiter) for name, shelf in self._shelves.items() for waiter in shelf.serve(now)]

    def wakes_at(self, now: float) -> float | None:
        """When `granted` has something to do again; None while nobody waits."""
        return min((now + shelf.seconds_until(1, now) for shelf in self._shelves.values() if shelf.waiting), default=None)

    def levels(self, now: float) -> dict[str, float]:
        """How many tickets each quota has, fractions too."""
        return {name: shelf.level(now) for name, shelf in self._shelves.items()}


class _Shelf:
    """One quota and who waits for it."""

    def __init__(self, quota: Quota, now: float, level: float | None) -> None:
        self._bucket = Bucket(quota.limit / quota.period_s, max(1.0, quota.burst), now)
        if level is not None:
            self._bucket.lower(max(0.0, level), now)
        self._at = now
        self.waiting: OrderedDict[str, deque[int]] = OrderedDict()
        """Party -> its waiters. The first party is served next and goes to the end of the row then."""

    def level(self, now: float) -> float:
        """Tickets at hand. A bucket forgives at most MAX_STEP_S without a look; here every ticket is ours, so nothing is missed."""
        missed_s = now - self._at - MAX_STEP_S
        if missed_s > 0:
            self._bucket.take(-missed_s * self._bucket.rate, now)
        self._at = max(self._at, now)
        return self._bucket.advance(now)

    def take(self, now: float) -> bool:
        """Take one if there is one."""
        if self.level(now) < 1.0 - SLACK:
            return False
        self._bucket.take(1.0, now)
        return True

    def seconds_until(self, number: int, now: float) -> float:
        """Until the ticket `number` from now is at hand, if nobody else comes."""
        return max(0.0, (number - self.level(now)) / self._bucket.rate)

    def serve(self, now: float) -> Iterator[int]:
        while self.waiting and self.take(now):
            party, line = next(iter(self.waiting.items()))
            yield line.popleft()
            self.waiting.move_to_end(party)
            if not line:
                del self.waiting[party]

    def leave(self, waiter: int) -> None:
        for party, line in self.waiting.items():
            if waiter in line:
                line.remove(waiter)
                if not line:
                    del self.waiting[party]
                return
