"""What an agent said and did, in lines of text: one a call of a tool, with its outcome, and its messages in full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from agents.protocols import Entry
from supervisor.kernel.errors import one_line
from supervisor.views.status import cut

OUTCOME_MAX = 100
"""Columns of an outcome's first line."""
_GREEN, _RED, _FAINT, _BOLD = "32", "31", "2", "1"


def shapes(entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """For `--json`: schema 1, one object an entry."""
    return ({"schema": 1, **asdict(entry)} for entry in entries)


def lines(entries: Iterable[Entry], *, color: bool) -> Iterator[str]:
    """For people. A call is shown once its outcome is known; one without any at the end."""
    calls: dict[str, Entry] = {}
    for entry in entries:
        match entry.kind:
            case "tool":
                calls[entry.call] = entry
            case "outcome" | "denied":
                yield _call(calls.pop(entry.call, entry), entry, color)
            case "message":
                yield from _message(entry, color)
            case "start":
                yield _paint(f"-- {one_line(entry.text)}", _FAINT, color)
            case "retry":
                yield _paint(f"-- its request was refused and is sent again: {one_line(entry.text)}", _FAINT, color)
            case "error":
                yield _paint(f"error: {one_line(entry.text)}", _RED, color)
            case "end":
                yield _paint("-- the turn ended", _FAINT, color) if entry.ok else _paint(f"-- failed: {one_line(entry.text)}", _RED, color)
    for call in calls.values():
        yield _call(call, None, color)


def _message(entry: Entry, color: bool) -> Iterator[str]:
    said = [one_line(line.expandtabs(4)) for line in entry.text.strip().splitlines()]
    for number, line in enumerate(said):
        yield f"{_paint(one_line(entry.who), _BOLD, color)}: {line}" if number == 0 else f"  {line}".rstrip()


def _call(call: Entry, outcome: Entry | None, color: bool) -> str:
    inside = f"{one_line(call.who)}: " if "/" in call.who else ""
    asked = f"  {inside}{one_line(call.tool) or 'a tool'}  {one_line(call.text) if call is not outcome else ''}".rstrip()
    if outcome is None:
        return f"{asked}  -> {_paint('no outcome', _RED, color)}"
    if outcome.kind == "denied":
        return f"{asked}  -> {_paint('DENIED', _RED, color)}{_because(outcome)}"
    return f"{asked}  -> {_paint('ok', _GREEN, color)}" if outcome.ok else f"{asked}  -> {_paint('failed', _RED, color)}{_because(outcome)}"


def _because(outcome: Entry) -> str:
    first = next((line.strip() for line in outcome.text.splitlines() if line.strip()), "")
    return f": {cut(one_line(first), OUTCOME_MAX)}" if first else ""


def _paint(text: str, code: str, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color else text
