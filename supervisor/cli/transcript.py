"""`nightcrew logs --transcript`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain

from agents import protocols
from agents.kinds import kinds
from agents.protocols import Entry
from supervisor.cli import common
from supervisor.core.errors import NotFound
from supervisor.faces import transcript
from supervisor.ledger.queries import TaskView


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


def show(view: TaskView, pieces: Iterator[bytes], *, as_json: bool) -> None:
    """Print them. Raises as `entries`."""
    found = entries(view, pieces)
    for line in map(json.dumps, transcript.shapes(found)) if as_json else transcript.lines(found, color=common.use_color()):
        common.show(line)
