"""The lines of a day: what happened, a JSON object each.

    {"v": 1, "ts": 1795456800.0, "seq": 7, "agent": "claude", "task": "1123-k3f9/fix", "type": "found", "text": "...", "refs": ["src/a.py"]}

A line is added by one write, so that writers beside each other never mix theirs; whoever reads leaves out a line that a crash tore.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memory.layout import RECORD_MAX
from memory.plain_text import stripped
from memory.versions import Author
from supervisor.core.errors import UsageError

KEYS = ("type", "text", "refs")
TYPE_MAX = 40
REFS_MAX = 50
_WHY = {
    "text": "text is what happened, in words",
    "type": f"type is a word of at most {TYPE_MAX} characters",
    "refs": "refs is a list of text",
}


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line that is no record. `line` counts from 1."""

    line: int
    why: str


def line(record: Mapping[str, object], author: Author, now: float, seq: int) -> bytes:
    """A record as it is written, without the line break. Who and when is ours to say. Raises UsageError."""
    text, kind, refs = record.get("text"), record.get("type", "note"), record.get("refs", [])
    if odd := sorted(set(map(str, record)) - set(KEYS)):
        raise UsageError("not a record", on=odd[0][:TYPE_MAX], why=f"its keys are {', '.join(KEYS)}")
    if not isinstance(text, str) or not stripped(text).strip():
        raise UsageError("not a record", why=_WHY["text"])
    if not isinstance(kind, str) or not 0 < len(kind) <= TYPE_MAX:
        raise UsageError("not a record", why=_WHY["type"])
    if not isinstance(refs, list) or len(refs) > REFS_MAX or not all(isinstance(ref, str) for ref in refs):
        raise UsageError("not a record", why=_WHY["refs"])
    whole: dict[str, Any] = {"v": 1, "ts": round(now, 3), "seq": seq, "agent": author.agent, "task": author.name, "type": stripped(kind)}
    whole |= {"text": stripped(text), "refs": list(map(stripped, refs))}
    data = json.dumps(whole, ensure_ascii=False).encode()
    if len(data) >= RECORD_MAX:
        raise UsageError("the record is too large", why=f"{len(data)} bytes; a line has at most {RECORD_MAX}", hint="put it into a note")
    return data


def again(record: Mapping[str, object]) -> bytes:
    """A record that was read, as a line."""
    return json.dumps(record, ensure_ascii=False).encode()


def records(data: bytes) -> tuple[list[dict[str, Any]], list[Skipped]]:
    """The records of a day, and the lines that are none: torn, too long, or no JSON object."""
    found: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    lines = data.split(b"\n")
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        if number == len(lines):
            skipped.append(Skipped(number, "it has no end: it is being written, or was torn"))
            continue
        record = _record(text)
        if isinstance(record, dict):
            found.append(record)
        else:
            skipped.append(Skipped(number, record))
    return found, skipped


def _record(text: bytes) -> dict[str, Any] | str:
    if len(text) > RECORD_MAX:
        return f"it has {len(text)} bytes"
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return "it is not JSON"
    return record if isinstance(record, dict) else "it is not an object"
