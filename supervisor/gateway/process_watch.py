"""When the gateway's process is started, believed, and given up. Pure: the daemon tells what it saw, times are monotonic seconds.

    absent ──start──> starting ──answer──> ready ──no answer──> silent ──answer──> ready
      ^                  │ START_S without an answer                │ HUNG_S without one
      └──── it died <────┴──────────────── kill ────────────────────┘

A process that lived for less than STEADY_S after it became ready, or never did, died young: the first such is started again at once, like
any other, and each further one waits twice as long, from 1 s to PAUSE_MAX_S.
"""

from __future__ import annotations

from dataclasses import dataclass

START_S = 20.0
"""It reads keys (a keyring's program may take its time), opens the account and waits up to 2 s for its port."""
HUNG_S = 10.0
UNANSWERED = 3
"""And so many unanswered questions in a row: a single late answer may only mean that we were stopped ourselves."""
STEADY_S = 60.0
PAUSE_MAX_S = 30.0


@dataclass(slots=True)
class ProcessWatch:
    """What is known of one gateway."""

    ready: bool = False
    """It answered the last question, or one that is not HUNG_S old."""
    young_deaths: int = 0
    """In a row."""
    may_start_at: float = 0.0
    _born: float | None = None
    _ready_since: float | None = None
    _silent_since: float | None = None
    _unanswered: int = 0

    @property
    def failing(self) -> bool:
        """It dies again and again."""
        return self.young_deaths > 1

    @property
    def starting(self) -> bool:
        """We started it, and it has not answered yet."""
        return self._born is not None and self._ready_since is None

    def started(self, now: float) -> None:
        """We started one."""
        self._born, self._silent_since, self._unanswered = now, now, 0

    def answered(self, now: float) -> bool:
        """It answered. Whether it was not ready before."""
        news = not self.ready
        self.ready, self._silent_since, self._unanswered = True, None, 0
        if self._ready_since is None:
            self._ready_since = now
        if now - self._ready_since >= STEADY_S:
            self.young_deaths = 0
        return news

    def unanswered(self, asked_at: float, now: float) -> bool:
        """It lives and did not answer a question. Whether it must be given up: then kill it and report it as dead."""
        if self._silent_since is None:
            self._silent_since = asked_at
        self._unanswered += 1
        silent = now - self._silent_since
        if silent >= HUNG_S:
            self.ready = False
        return silent >= (START_S if self.starting else HUNG_S) and self._unanswered >= UNANSWERED

    def died(self, now: float) -> None:
        """Its process is gone. `may_start_at` says when the next one is due."""
        steady = self._ready_since is not None and now - self._ready_since >= STEADY_S
        self.young_deaths = 0 if steady else self.young_deaths + 1
        again = self.young_deaths - 2
        self.may_start_at = now + (min(PAUSE_MAX_S, 2.0**again) if again >= 0 else 0.0)
        self.ready, self._born, self._ready_since, self._silent_since, self._unanswered = False, None, None, None, 0
