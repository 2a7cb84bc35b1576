"""`nightcrew logs --transcript`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from agents import protocols
from agents.kinds import kinds
from agents.protocols import Entry
from supervisor.client import common
from supervisor.host.paths import Home
from supervisor.kernel.errors import NotFound
from supervisor.store import conversations, rows
from supervisor.store.queries import TaskView
from supervisor.views import transcript


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
    texts = map(json.dumps, transcript.shapes(found)) if as_json else transcript.lines(with_prompt(found, prompt), color=common.use_color())
    for line in texts:
        common.show(line)
