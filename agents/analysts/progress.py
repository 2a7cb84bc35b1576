"""How far an analyst is, for who watches: short lines, since the last one is shown live."""

from __future__ import annotations

from typing import TextIO

from supervisor.host.clock import Clock

EVERY_S = 0.5


class Progress:
    """Says `security: 300 of 2,800 files`, at most every EVERY_S seconds, and once more at the end."""

    def __init__(self, name: str, clock: Clock, out: TextIO) -> None:
        self._name, self._clock, self._out = name, clock, out
        self._next = clock.monotonic() + EVERY_S

    def at(self, done: int, total: int) -> None:
        """`done` of `total` files are looked at."""
        now = self._clock.monotonic()
        if done < total and now < self._next:
            return
        self._next = now + EVERY_S
        self.say(f"{done:,} of {total:,} files")

    def say(self, text: str) -> None:
        """One more line, whenever it is."""
        print(f"{self._name}: {text}", file=self._out, flush=True)
