"""The simulated provider's state, shared by all its connections, and the same controls in Python that `/sim/...` gives over HTTP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from supervisor.gateway.sim.account import Accounts
from supervisor.gateway.sim.batches import Batches
from supervisor.gateway.sim.faults import Fault, FaultBook
from supervisor.gateway.sim.settings import SimSettings
from supervisor.gateway.sim.stats import Stats
from supervisor.host.clock import Clock, SystemClock


class Provider:
    """One provider. `clock` moves its buckets and windows and dates its headers; `rng` decides lengths and chances."""

    def __init__(self, settings: SimSettings, *, clock: Clock | None = None, rng: random.Random | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        rng = rng or random.Random(settings.seed)  # noqa: S311 - lengths of answers, no secret
        self.accounts = Accounts(settings, self.clock, rng)
        self.faults = FaultBook(rng)
        self.stats = Stats(settings.keep_last)
        self.batches = Batches(settings, self.clock, rng, (self.accounts, self.faults, self.stats))
        self._held: dict[str, asyncio.Event] = {}

    def fault(self, faults: Iterable[Fault]) -> None:
        """Put these faults behind those that are in force."""
        self.faults.add(faults)

    async def held(self, name: str) -> None:
        """Wait until `name` is released."""
        self.stats.held[name] += 1
        try:
            await self._held.setdefault(name, asyncio.Event()).wait()
        finally:
            self.stats.held[name] -= 1

    def release(self, name: str) -> None:
        """Let every answer go that waits for `name` now, and every batch that is held; later ones wait anew."""
        self.batches.release()
        self._held.pop(name, asyncio.Event()).set()
