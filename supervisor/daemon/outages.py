"""Tells people that an outage began, and that it is over: once each, and in the history."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from supervisor.core.errors import DiskFull, LedgerError
from supervisor.core.health import Outage
from supervisor.ledger.ledger import Ledger


class Outages:
    """What was told last."""

    def __init__(self, ledger: Ledger, alert: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._alert = alert
        self._told = False

    def step(self, outage: Outage | None) -> None:
        """Tell what is new, given the outage that goes on."""
        if (outage is not None) is self._told:
            return
        self._told = outage is not None
        self._alert(outage.words() if outage is not None else "the outage is over, and tasks start again")
        event, data = ("outage", {"why": outage.why}) if outage is not None else ("outage over", {})
        with contextlib.suppress(DiskFull, LedgerError):  # the alert says it too
            self._ledger.journal(None, None, event, data)
