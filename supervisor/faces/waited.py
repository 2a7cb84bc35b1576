"""What the agents of a run waited for at the supervisor, as its reports have it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from typing import Any

from supervisor.core.analysis.types import many
from supervisor.faces.status import age
from supervisor.ledger import waits

TOP = 10
"""Waits that are named."""


def of_tasks(db: sqlite3.Connection, tasks: Collection[str], now: float) -> dict[str, Any] | None:
    """Of these tasks by `now`, seconds since 1970; None where nobody waited. `waits`: how many; `seconds`: of all of them; `refused`,
    `given_up`: those that could never end; `top`: the longest by who waited for whom, `task`, `kind`, `for`, `waits`, `seconds`,
    `longest_s`. Of one task the newest `waits.KEPT` are known."""
    found, ends = waits.waited(db, tasks, now), waits.deadlocks(db, tasks)
    if not found and not any(ends):
        return None
    return {
        "waits": sum(one.times for one in found),
        "seconds": round(sum(one.seconds for one in found), 1),
        "refused": ends[0],
        "given_up": ends[1],
        "top": [
            {
                "task": one.task, "kind": str(one.kind), "for": list(one.holders), "waits": one.times,
                "seconds": round(one.seconds, 1), "longest_s": round(one.longest_s, 1),
            }
            for one in found[:TOP]
        ],
    }  # fmt: skip


def sentence(found: Mapping[str, Any]) -> str:
    """All but the list."""
    times = many(found["waits"], "time")
    said = f"Agents waited {times} for each other, for a person, a turn or a note: {age(found['seconds'])} together."
    circles = [
        f"{found['refused']} refused at once" if found["refused"] else "",
        f"{found['given_up']} given up" if found["given_up"] else "",
    ]
    named = ", ".join(one for one in circles if one)
    return f"{said} Waits that could never end: {named}." if named else said


def whom(one: Mapping[str, Any]) -> str:
    """For whom, or for what, one of the list waited."""
    return ", ".join(one["for"]) or {"rate": "its turn at a quota", "memory": "a note"}.get(one["kind"], one["kind"])
