"""The audit log: what it records, and anchors that prove the rows of a table. Pure."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Audit events
# ------------
# What was done, as the audit log shows it: who decided what of which attempt, and why. Pure.
#
# The rows of the ledger's journal and the records of the audit log both are an event with some data; here they become one shape.
# Whoever journals something new gives it an event whose first words are below, and its reason as `why`, `cause` or `reason`.


_KINDS = {
    "start": ("start", "begin"),
    "end": ("end", "tree gone", "done", "failed", "cancelled", "expired", "skipped", "quarantined"),
    "kill": ("stopping",),
    "retry": ("retry", "begun anew"),
    "pause": ("paused", "resumed", "parked", "set aside", "suspended", "stopped all", "thawed"),
    "admission": ("admission", "submitted", "added by an agent", "add refused", "waiting", "ready"),
    "key": ("key", "keys"),
    "token": ("token",),
    "permission": ("permission",),
    "tools": ("tool calls",),
    "merge": ("merged", "conflict", "train"),
    "review": ("review", "reviewed"),
    "push": ("push", "pushed", "pull request"),
    "refusal": ("refused", "night refused"),
    "message": ("send", "notified"),
    "conversation": ("conversation",),
    "environment": ("snapshot", "worktree", "limits"),
    "state": ("ledger recovered", "account recovered", "account pruned", "archived", "kept no longer"),
    "machine": ("machine slept", "machine rebooted", "clock jumped"),
    "trouble": ("tampering", "alert", "rows unproven"),
}
_REASONS = ("why", "cause", "reason", "what", "question")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One thing that was done. `kind` is a word of `kinds`, "other" for an event that none of them names."""

    kind: str
    task: str | None
    epoch: int | None
    decision: str
    reason: str
    data: Mapping[str, Any]


def recorded(event: str, task: str | None, epoch: int | None, data: Mapping[str, Any]) -> Recorded:
    """An event of the journal or of the audit log. One of the audit log names its attempt in its data."""
    if task is None and isinstance(data.get("task"), str):
        task, epoch = data["task"], data.get("epoch")
    reason = next((str(data[name]) for name in _REASONS if data.get(name)), "")
    return Recorded(_kind(event), task, epoch, event, reason, data)


def kinds() -> list[str]:
    """Every word that `Recorded.kind` may be."""
    return [*_KINDS, "other"]


def _kind(event: str) -> str:
    found = (kind for kind, begins in _KINDS.items() if any(event == word or event.startswith(f"{word} ") for word in begins))
    return next(found, "other")


# Anchors
# -------
# Anchors: records of the audit log that prove the rows of a table. Pure.
#
# The ledger's journal and the gateway's account stay the only places where their rows are; an anchor holds digests of some hundred
# of them, so one sync of the disk proves them all. Its record's data:
#
#     {"table": "journal", "rows": [[101, 340]], "open": [], "marks": "<8 hex digits a row>", "sha256": "<over the digests of all rows>"}
#
# `rows` are the numbers of the rows, as ranges, in order; `open` are numbers below the last one whose rows could still change, so
# that a later anchor has them. `sha256` proves the rows, a mark only tells which of them is another.


EVENT = "rows"
"""`event` of a record that is an anchor."""
RECOVERED = {"ledger": "journal", "account": "account"}
"""After a record "NAME recovered" the table is anchored anew: its rows were read from a damaged file."""
PRUNED = "account pruned"
"""`event` of a record that says which rows of the account were removed for their age: `rows`, as in an anchor."""
UNPROVEN = "rows unproven"
"""`event` of a supervisor's record of rows of a `table` that it found without proof and anchors now: how many (`rows`), `since` when."""
MOST = 500
"""Rows of one anchor, so that its record stays well below 64 KiB."""
_MARK = 8
_ENCODER = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))
"""Made once: `json.dumps` would make one for each row."""

Rows = Mapping[int, Sequence[object]]
"""The values of rows, by number."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far the anchors of a table go."""

    last: int = 0
    """The highest number that was looked at."""
    open: tuple[int, ...] = ()
    """Numbers up to `last` that no anchor has yet."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One anchor, as it was read."""

    table: str
    numbers: tuple[int, ...]
    open: tuple[int, ...]
    marks: str
    sha256: str

    @property
    def place(self) -> Place:
        """How far the table is anchored with it."""
        return Place(max((*self.numbers, *self.open)), self.open)


def anchor(table: str, rows: Rows, still_open: Iterable[int]) -> dict[str, Any]:
    """The data of a record that proves these rows: at least one, at most MOST."""
    digests = [_digest(rows[number]) for number in sorted(rows)]
    return {
        "table": table,
        "rows": ranges(rows),
        "open": sorted(still_open),
        "marks": "".join(digest.hex()[:_MARK] for digest in digests),
        "sha256": hashlib.sha256(b"".join(digests)).hexdigest(),
    }


def read(data: Mapping[str, Any]) -> Anchor:
    """The anchor in a record's data. Raises KeyError, TypeError or ValueError for anything else."""
    return Anchor(str(data["table"]), tuple(numbers(data["rows"])), tuple(data["open"]), str(data["marks"]), str(data["sha256"]))


class Numbers:
    """A set of numbers, kept as ranges: a month's rows take little."""

    def __init__(self, some: Iterable[int] = (), pairs: Iterable[Sequence[int]] = ()) -> None:
        self._pairs = sorted([*ranges(some), *([first, last] for first, last in pairs)])
        self._firsts = [first for first, _ in self._pairs]

    def __contains__(self, number: object) -> bool:
        place = bisect_right(self._firsts, number) - 1 if isinstance(number, int) else -1
        return place >= 0 and isinstance(number, int) and number <= self._pairs[place][1]


def first_other(known: Anchor, rows: Rows, gone: Container[int]) -> tuple[int, str] | None:
    """The first row that is not as it was when it was anchored, and what became of it; None when each is. Rows of `gone` may be missing:
    then the marks of the others are compared, and not the digest of all."""
    digests = []
    for place, number in enumerate(known.numbers):
        if number not in rows:
            if number not in gone:
                return number, "it is missing"
            continue
        digests.append(_digest(rows[number]))
        if digests[-1].hex()[:_MARK] != known.marks[place * _MARK : (place + 1) * _MARK]:
            return number, "it was changed"
    if len(digests) == len(known.numbers) and hashlib.sha256(b"".join(digests)).hexdigest() != known.sha256:
        return known.numbers[0], "it was changed, or one of those anchored with it"
    return None


def ranges(some: Iterable[int]) -> list[list[int]]:
    """Numbers as [first, last] pairs, in order."""
    found: list[list[int]] = []
    for number in sorted(some):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def numbers(pairs: Iterable[Sequence[int]]) -> list[int]:
    """What `ranges` was given, in order."""
    return [number for first, last in pairs for number in range(first, last + 1)]


def _digest(values: Sequence[object]) -> bytes:
    return hashlib.sha256(_ENCODER.encode(list(values)).encode()).digest()
