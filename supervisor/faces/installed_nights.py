"""Nights that start by themselves, as `night list`, `status` and `doctor` show them. Standard library only: `status` imports this."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from supervisor.core.errors import one_line
from supervisor.core.timetable import Timetable
from supervisor.core.units import rfc3339
from supervisor.host.paths import Home

_MAX = 2**20
Shape = Mapping[str, Any]


def every(home: Home, now: datetime) -> list[dict[str, Any]]:
    """Each installed night by its name: `name plan repo at days terms by consented next last`, the last two local times and what came of
    the newest start (`due outcome why run at`) or null. A record that cannot be read has only its `name` and what is `wrong`."""
    return [_one(home, file, now) for file in sorted((home.root / "nights").glob("*.json"))]


def _one(home: Home, file: Path, now: datetime) -> dict[str, Any]:
    try:
        shape = _read(file)
        table = Timetable(int(shape["table"]["minute"]), tuple(shape["table"]["days"]))
        return {
            "name": file.stem,
            **{key: shape[key] for key in ("plan", "repo", "base", "terms", "by", "digest")},
            "when": table.words,
            "consented": rfc3339(shape["at"]),
            "next": f"{table.next(now):%Y-%m-%d %H:%M}",
            "last": _last(home, file.stem),
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"name": file.stem, "wrong": one_line(f"{type(error).__name__}: {error}")}


def _last(home: Home, name: str) -> dict[str, Any] | None:
    try:
        shape = _read(home.root / "nights" / f"{name}.last")
        return {**{key: str(shape[key]) for key in ("due", "outcome", "why", "run")}, "at": rfc3339(shape["at"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        shape = json.loads(opened.read(_MAX))
    if not isinstance(shape, dict):
        raise TypeError("not an object")
    return shape


def lines(nights: list[dict[str, Any]]) -> Iterator[str]:
    """For people, two lines each."""
    for night in nights:
        if "wrong" in night:
            yield f"{night['name']}: cannot be read: {night['wrong']}"
            continue
        yield one_line(f"{night['name']}: {night['when']}, by {night['by']}; next {night['next']}; {night['plan']}")
        yield f"    {_last_words(night['last'])}"


def _last_words(last: Shape | None) -> str:
    if last is None:
        return "has not started yet"
    run, why = (f" as {last['run']}" if last["run"] else ""), (f": {last['why']}" if last["why"] else "")
    return one_line(f"last due {last['due']}: {last['outcome']}{run}{why}")


def not_started(home: Home, now: datetime) -> list[str]:
    """A line for each night whose newest start came to nothing."""
    found = ((night["name"], night.get("last")) for night in every(home, now))
    return [
        one_line(
            f"the night {name} of {last['due']} was {'not started' if last['outcome'] == 'failed' else last['outcome']}: {last['why']}"
        )
        for name, last in found
        if last is not None and last["outcome"] != "started"
    ]
