"""What befell all tasks of a run, in words: from the ledger's journal and from the gateway's. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from supervisor.core.gateway.types import BreakerState
from supervisor.faces.night.facts import Event
from supervisor.faces.report.words import seconds

Row = Mapping[str, Any]


def of(journal: Iterable[Row], breakers: Iterable[Row], run: str, until: float) -> list[Event]:
    """In the order of their begin; nothing that began after `until`, and nothing of another night than `run`."""
    own = [row for row in journal if row["task"] is None and row["at"] <= until and data(row).get("run", run) == run]
    found = [*_outages(own), *_moments(own), *_breakers([row for row in breakers if row["at"] <= until])]
    return sorted(found, key=lambda event: event.at)


def data(row: Row) -> dict[str, Any]:
    """A row's JSON object; empty when it is none."""
    try:
        found = json.loads(row["data"] or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _outages(rows: Iterable[Row]) -> Iterable[Event]:
    open_now: tuple[float, str] | None = None
    for row in rows:
        if row["event"] == "outage":
            open_now = open_now or (row["at"], str(data(row).get("why", "")))
        elif row["event"] == "outage over" and open_now is not None:
            yield Event(open_now[0], row["at"], "outage", open_now[1])
            open_now = None
    if open_now is not None:
        yield Event(open_now[0], None, "outage", open_now[1])


def _moments(rows: Iterable[Row]) -> Iterable[Event]:
    for row in rows:
        if (say := _SAY.get(row["event"])) is not None:
            told = data(row)
            slept = row["event"] == "machine slept"
            begin, end = (_number(told, "from") or row["at"], _number(told, "to") or row["at"]) if slept else (row["at"], None)
            yield Event(begin, end, "night" if row["event"].startswith("night ") else "machine", say(told))


def _number(told: Mapping[str, Any], name: str) -> float:
    value = told.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _clock(told: Mapping[str, Any]) -> str:
    by = _number(told, "seconds")
    return f"the clock was set {'back' if by < 0 else 'forward'} by {seconds(abs(by))}"


def _why(words: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda told: f"{words}: {told['why']}" if told.get("why") else words


_SAY: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "machine slept": lambda told: f"the machine slept for {seconds(_number(told, 'seconds'))}",
    "clock jumped": _clock,
    "machine rebooted": _why("the machine was started anew"),
    "stopped all": _why("everything was stopped"),
    "thawed": _why("everything went on"),
    "night began": _why("the night began"),
    "night closing": _why("nothing more was started"),
    "night over": _why("what still ran was stopped"),
    "night ended": _why("the night ended"),
    "night refused": _why("the night was refused"),
}


def _breakers(rows: Iterable[Row]) -> Iterable[Event]:
    """From a breaker's opening until it let everything through again."""
    open_now: dict[tuple[str, str], tuple[float, str]] = {}
    for row in rows:
        told = data(row)
        which, why = (str(row["about"]), str(told.get("breaker", ""))), str(told.get("why", ""))
        if row["event"] == "alert":
            yield Event(row["at"], None, "breaker", str(told.get("text", "")))
        elif told.get("after") == BreakerState.OPEN:
            open_now.setdefault(which, (row["at"], f"the breaker of {which[0]} opened: {why}"))
        elif told.get("after") == BreakerState.CLOSED and which in open_now:
            at, words = open_now.pop(which)
            yield Event(at, row["at"], "breaker", words)
    for at, words in open_now.values():
        yield Event(at, None, "breaker", words)
