"""Nights between the ledger, the gateway and the core: what is read at start, what the gateway says, what is done at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from supervisor.core import night_rules
from supervisor.core.admission import Decision, Verdict
from supervisor.core.crew import Crew
from supervisor.core.draft import Draft
from supervisor.core.events import NightBegan
from supervisor.core.night import Night, NightSpent, NightState
from supervisor.host.paths import Home
from supervisor.ledger import nights
from supervisor.ledger.ledger import Ledger

REPORTED_S = 86400.0
"""A night that ended longer ago gets no report by itself any more."""


def began(ledger: Ledger, run: str = "") -> Iterator[NightBegan]:
    """Those that have not ended: all of them, or the one that a run is. They belong into one decision with their tasks."""
    for row in ledger.nights.open():
        if run in ("", row.run):
            until = time.strftime("%H:%M", time.localtime(row.terms.until)) if row.terms.until else ""
            yield NightBegan(Night(row.run, row.terms, row.state, row.why, until))


def spent_by_nights(caps: Mapping[str, Any]) -> dict[str, NightSpent]:
    """By run, from the part `caps` of the gateway's status; a gateway of another version says nothing of nights."""
    return {
        str(run): NightSpent(float(said["usd"]), float(said["reserved"]), bool(said["refused"]), dict(said["tasks"]))
        for run, said in caps.get("nights", {}).items()
    }


def why_wait(crew: Crew) -> dict[str, Verdict]:
    """Why tasks wait for their nights: by run, or by `run kind` where it is what that kind costs."""
    waits = night_rules.why_wait(night_rules.Rooms(Draft(crew)), crew.start_usd) if crew.nights else ()
    return {f"{run} {kind}".strip(): Verdict(Decision.DEFER, "night", words) for run, kind, words in waits}


def unreported(ledger: Ledger, home: Home, wall: float) -> list[str]:
    """Nights of the last day that have ended and have no report: the supervisor was killed in between."""
    recent = [row.run for row in nights.every(ledger.db) if row.state is NightState.ENDED and wall - (row.ended or 0.0) < REPORTED_S]
    return [run for run in recent if not (home.root / "runs" / run / "night.json").exists()]
