"""What others do instead. Each is given the kindest form of its idea: it knows a request's exact input, has no overhead and never restarts.

Where each is found in the wild: docs/bench.md.
"""

from __future__ import annotations

from collections import deque

from supervisor.bench.fairness.simulation import Bucket, Turn, Upstream, World
from supervisor.core.gateway.types import Observed

MAX_TOKENS = 64_000
"""What Claude Code asks for in every request (measured)."""
PLACES = 50
WINDOW_S = 60.0
MARGIN = 0.985
"""The token bucket of the FIFO rival is as careful as ours by default, so that only the order differs."""
EXPECTED_OUTPUT = 500.0
"""The mean that outputs are drawn from: a better guess than anyone has."""


class NoGateway:
    """Clients and provider face each other. The other policies start from here: 429s of the provider are passed on."""

    def __init__(self, world: World[Upstream]) -> None:
        self.world = world

    def arrived(self, turn: Turn) -> None:
        """Pass it on."""
        self.world.send(turn, self)

    def refused(self, turn: Turn, retry_after: int, headers: Observed) -> None:  # noqa: ARG002 - the rivals look at no header
        """Pass it on."""
        self.world.refuse(turn, retry_after)

    def began(self, turn: Turn, headers: Observed | None) -> None:
        """Nothing to do."""

    def ended(self, turn: Turn) -> None:
        """Pass it on."""
        self.world.finish(turn)


class CountAfter(NoGateway):
    """A counter for each clock minute, raised when a response has ended; requests are refused while it is at the limit."""

    def __init__(self, world: World[Upstream]) -> None:
        super().__init__(world)
        self._minute, self._used = 0, 0

    def arrived(self, turn: Turn) -> None:
        """Refuse until the next minute when this one is spent."""
        self._begin_minute()
        if self._used >= self.world.upstream.limit_tpm:
            self.world.refuse(turn, max(1, round((self._minute + 1) * WINDOW_S - self.world.now)))
        else:
            self.world.send(turn, self)

    def ended(self, turn: Turn) -> None:
        """Count it."""
        self._begin_minute()
        self._used += turn.input + turn.output
        super().ended(turn)

    def _begin_minute(self) -> None:
        minute = int(self.world.now // WINDOW_S)
        if minute != self._minute:
            self._minute, self._used = minute, 0


class Semaphore(NoGateway):
    """At most so many requests at the provider, first come first served."""

    def __init__(self, world: World[Upstream], places: int = PLACES) -> None:
        super().__init__(world)
        self._free = places
        self._queue: deque[Turn] = deque()

    def arrived(self, turn: Turn) -> None:
        """Wait for a place."""
        self._queue.append(turn)
        self._pump()

    def refused(self, turn: Turn, retry_after: int, headers: Observed) -> None:
        """Give the place back."""
        self._free += 1
        super().refused(turn, retry_after, headers)
        self._pump()

    def ended(self, turn: Turn) -> None:
        """Give the place back."""
        self._free += 1
        super().ended(turn)
        self._pump()

    def _pump(self) -> None:
        while self._free and self._queue:
            self._free -= 1
            self.world.send(self._queue.popleft(), self)


class Reserve(NoGateway):
    """A bucket of tokens; a request waits, first come first served, until its reservation fits, and is settled at its end.

    A reservation larger than the bucket goes when the bucket is full.
    """

    def __init__(self, world: World[Upstream], output: float, margin: float = 1.0) -> None:
        super().__init__(world)
        limit = margin * world.upstream.limit_tpm
        self._output = output
        self._bucket = Bucket(cap=limit, rate=limit / 60)
        self._queue: deque[Turn] = deque()
        self._wake: float | None = None

    def arrived(self, turn: Turn) -> None:
        """Wait for its turn."""
        self._queue.append(turn)
        self._pump()

    def refused(self, turn: Turn, retry_after: int, headers: Observed) -> None:
        """Give the reservation back."""
        self._bucket.spend(-self._cost(turn), self.world.now)
        super().refused(turn, retry_after, headers)
        self._pump()

    def ended(self, turn: Turn) -> None:
        """Charge what it was instead of what was reserved."""
        self._bucket.spend(turn.input + turn.output - self._cost(turn), self.world.now)
        super().ended(turn)
        self._pump()

    def _cost(self, turn: Turn) -> float:
        return turn.input + self._output

    def _pump(self) -> None:
        while self._queue and not (wait := self._bucket.wait_for(self._cost(self._queue[0]), self.world.now)):
            turn = self._queue.popleft()
            self._bucket.spend(self._cost(turn), self.world.now)
            self.world.send(turn, self)
        if self._queue:
            self._wake_in(wait)

    def _wake_in(self, seconds: float) -> None:
        """One timer: a later one is replaced, an earlier one looks again by itself."""
        when = self.world.now + max(seconds, 1e-6)  # a deadline may lie less than one float step ahead
        if self._wake is None or when < self._wake or self._wake <= self.world.now:
            self._wake = when
            self.world.timeline.at(when, self._pump)
