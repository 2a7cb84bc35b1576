"""What an agent said and did, read from its log, in lines of text: one a call of a tool, with its outcome, and its messages in full."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from agents import protocols
from agents.kinds import kinds
from agents.protocols import Entry
from supervisor.client import common
from supervisor.host.paths import Home
from supervisor.kernel.errors import NotFound, one_line
from supervisor.store import conversations, rows
from supervisor.store.queries import TaskView
from supervisor.views.status import cut


def entries(view: TaskView, pieces: Iterator[bytes]) -> Iterator[Entry]:
    """What a task's agent said and did, as the pieces of its stdout come. Raises NotFound when they are no stream that we read."""
    kind = kinds().get(view.kind)
    head = b""
    while not (protocol := kind.protocol if kind is not None and kind.protocol else protocols.recognised(head)):
        piece = next(pieces, b"") if len(head) < protocols.HEAD else b""
        if not piece:
            why = "its stdout is no stream of JSON that nightcrew reads"
            raise NotFound("no transcript of", on=view.id, why=why, hint=f"nightcrew logs {view.id}")
        head += piece
    return iter(protocols.transcript(protocol, chain([head], pieces)))


def readable(view: TaskView, head: bytes) -> bool:
    """Return whether a task's stdout, which begins with `head`, is a stream of JSON to show as a transcript."""
    kind = kinds().get(view.kind)
    is_headless = kind is not None and bool(kind.protocol) and not view.interactive
    return is_headless or bool(protocols.recognised(head))


def kept(where: Home, view: TaskView) -> Path | None:
    """Return the file in which the program of an agent in its own interface keeps the conversation; None where we cannot read one."""
    from supervisor.server.attempts import continuing

    kind = kinds().get(view.kind)
    if kind is None or kind.protocol != "claude":
        return None
    with contextlib.closing(common.ledger(where, view.id)) as db:
        held = conversations.one(db, view.id, view.epoch)
        return None if held is None else continuing.transcript_of(where, rows.launch(db, view.id), kind, held)


def with_prompt(found: Iterable[Entry], prompt: str) -> Iterator[Entry]:
    """The same with the task's prompt as the first message, unless the stream has it itself."""
    waits = bool(prompt)
    for entry in found:
        if waits and entry.kind != "start":
            waits = False
            if (entry.kind, entry.who) != ("message", "user"):
                yield Entry("message", "user", prompt)
        yield entry
    if waits:
        yield Entry("message", "user", prompt)


def show(view: TaskView, pieces: Iterator[bytes], *, as_json: bool, prompt: str = "") -> None:
    """Print them, for people with the task's prompt. Raises as `entries`."""
    found = entries(view, pieces)
    texts = map(json.dumps, shapes(found)) if as_json else lines(with_prompt(found, prompt), color=common.use_color())
    for line in texts:
        common.show(line)


# Lines
# -----


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
