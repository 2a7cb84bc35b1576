"""Lines of a stranger, and what the parsers hand back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from supervisor.kernel.errors import one_line
from supervisor.kernel.result import json_value

# Outcome
# -------
# What the parsers hand back.


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the agent counted them. `input` is what was neither read from a cache nor written to one."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an agent's work ended, as it says itself."""

    ended: bool = False
    """The protocol said that the turn ended, well or not."""
    is_error: bool = False
    reason: str = ""
    """Why it is an error, on one line; empty when it is none."""
    denials: tuple[str, ...] = ()
    """Tools that it was not allowed to use, with what it wanted of them: a line each, at most DENIALS_MAX."""
    message: str = ""
    """Its last message, at most MESSAGE_MAX characters."""
    structured: Any | None = None
    """What it gave for the schema that it was asked to fill."""
    steps: int | None = None
    """Its own count of turns; None where the protocol has none."""
    usage: Usage | None = None
    cost_usd: float | None = None
    session: str = ""
    """By which its conversation is resumed."""
    began: bool = False
    """It said that it has a conversation to work in."""
    models: tuple[str, ...] = ()
    transcript: str = ""
    """Where it says that it keeps its conversation. A path in an agent's words: for people, never opened by us."""
    spent: str = ""
    """That it gave up because a limit of its account is spent, in its own words; empty: it did not."""
    resets_at: float = 0.0
    """When that limit opens again, in seconds since 1970; 0: its protocol does not say it but in words."""
    unfinished: tuple[str, ...] = ()
    """What it had in the background and did not wait for."""


What = Literal["start", "message", "tool", "outcome", "denied", "retry", "error", "end"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened."""

    kind: What
    """`message` somebody spoke · `tool` a call · `outcome` of a call · `denied` a call that was not allowed · `retry` of a request
    that the provider refused · `end` of a turn."""
    who: str
    """`agent`, `user`, `system`; of an agent inside the agent, `agent/TOOL-ID`."""
    text: str = ""
    """At most TEXT_MAX characters."""
    tool: str = ""
    call: str = ""
    """The id that joins a call and its outcome."""
    ok: bool | None = None
    """Of an outcome or an end: whether it went well."""


MESSAGE_MAX = 8_000
TEXT_MAX = 64_000
LINE_MAX = 200
DENIALS_MAX = 20
SMALL_MAX = 20
"""Of models, and of what runs in the background."""


# Lines
# -----
# JSON lines of a stranger: objects from bytes, and values from objects, each of the type that is asked for or a harmless one.


LINE_BYTES = 16 * 2**20
"""A longer line is left out: nothing that an agent has to say takes that much."""

Object = Mapping[str, Any]


def objects(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects that have a `type`, a line each, and those in a line that is an array of them. What else there is, is left out."""
    for line in _lines(pieces):
        found = json_value(line) if _TYPE in line else None
        for one in found if isinstance(found, list) else (found,):
            if isinstance(one, dict):
                yield one


_TYPE = b'"type"'


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Line by line, in time that grows with the bytes alone; the last one counts without a line feed as well. Lines without _TYPE may be
    missing: where there are very many, it pays to pass them by."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        begin = 0
        while (end := piece.find(b"\n", begin)) >= 0:
            if size + end - begin <= LINE_BYTES:
                yield b"".join([*held, piece[begin:end]])
            held.clear()
            size, begin = 0, _next(piece, end + 1)
        size += len(piece) - begin
        if size <= LINE_BYTES:
            held.append(piece[begin:])
        else:
            held.clear()
    if held:
        yield b"".join(held)


def _next(piece: bytes, begin: int) -> int:
    """Where the next line with _TYPE begins, or the piece's last line, which may be a part of one."""
    found = piece.find(_TYPE, begin)
    return max(begin, piece.rfind(b"\n", begin, found if found >= 0 else len(piece)) + 1)


def text(shape: Object, name: str) -> str:
    """A text, or nothing."""
    found = shape.get(name)
    return found if isinstance(found, str) else ""


def inner(shape: Object, name: str) -> Object:
    """An object, or an empty one."""
    found = shape.get(name)
    return found if isinstance(found, dict) else {}


def several(shape: Object, name: str) -> list[Object]:
    """The objects in a list."""
    found = shape.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def count(shape: Object, name: str) -> int:
    """A number of things, or 0."""
    found = shape.get(name)
    return found if type(found) is int and 0 <= found < 2**53 else 0


def amount(shape: Object, name: str) -> float | None:
    """A number that is not negative, or None."""
    found = shape.get(name)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found < 1e15 else None


def short(said: str, size: int = LINE_MAX) -> str:
    """On one line of at most about `size` characters, harmless to a terminal."""
    head = one_line(" ".join(said[: 4 * size].split()))
    return head if len(head) <= size and len(said) <= 4 * size else f"{head[:size]}…"


def wanted(given: Any) -> str:
    """What a call of a tool was about, on one line: the only value that it was given, or the telling one, or all as JSON."""
    if isinstance(given, dict):
        for name in ("command", "file_path", "filePath", "path", "pattern", "url", "query", "prompt"):
            if isinstance(given.get(name), str):
                return short(given[name])
    return short(given if isinstance(given, str) else json.dumps(given) if given else "")


def name_of(shape: Object, name: str) -> str:
    """An id or a name: a short text without anything odd, or nothing."""
    found = text(shape, name)
    return found if len(found) <= 128 and found.isascii() and found.isprintable() else ""
