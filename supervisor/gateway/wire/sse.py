"""A response cut into its parts while it passes: server-sent events, or the elements of one long JSON array.

A part is a piece of the very bytes that came; joined again, the parts are the stream. What is not yet whole is kept back, up to PART_MAX.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PART_MAX = 2**20
"""Bytes. A longer event or element is handed on in pieces that nobody reads."""

_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_OUTSIDE = re.compile(rb'["{}\[\]]')
_INSIDE = re.compile(rb'["\\]')
_BOM = b"\xef\xbb\xbf"


class Part(NamedTuple):
    """Some bytes of the stream; `whole` when they are one event or element, with what separates it from the next."""

    raw: bytes
    whole: bool


class Events:
    """Server-sent events (WHATWG HTML, 9.2): ended by a blank line, with LF, CRLF or CR, over any boundaries of chunks."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_long = False
        """The event that is being received is too long to be read."""

    def whole(self, chunk: bytes) -> bytes | None:
        """All events that are whole with this chunk, in one piece (the chunk itself where that is all): most need not be taken apart.
        What begins after them is kept back. None, with nothing done: that cannot be told quickly, `feed` it."""
        end = max(chunk.rfind(b"\n\n") + 2, chunk.rfind(b"\r\n\r\n") + 4)
        if end < 4 or self._is_long or len(chunk) > PART_MAX:
            return None
        if not self._rest and end == len(chunk):
            return chunk
        events = bytes(self._rest) + chunk[:end]
        self._rest = bytearray(chunk[end:])
        return events

    def feed(self, chunk: bytes) -> list[Part]:
        """The parts that this chunk makes complete."""
        place = max(0, len(self._rest) - 3)  # a blank line may have begun in the chunk before
        data: bytes | bytearray = chunk
        if self._rest:
            self._rest += chunk
            data = self._rest
        parts, begin = [], 0
        while blank := _BLANK_LINE.search(data, place):
            if blank.end() == len(data) and data.endswith(b"\r"):
                break  # the LF of a CRLF may follow
            parts.append(Part(bytes(data[begin : blank.end()]), not self._is_long))
            self._is_long = False
            begin = place = blank.end()
        self._rest = bytearray(data[begin:]) if data is chunk or begin else self._rest
        if len(self._rest) > PART_MAX or (self._is_long and len(self._rest) > 3):
            keep = len(self._rest) - 3
            parts.append(Part(bytes(self._rest[:keep]), whole=False))
            del self._rest[:keep]
            self._is_long = True
        return parts

    def finish(self) -> list[Part]:
        """What was kept back: by the standard an event that no blank line ended is none, but some servers end so."""
        rest = bytes(self._rest)
        self._rest.clear()
        return [Part(rest, not self._is_long)] if rest else []


def data_of(event: bytes) -> bytes:
    """The data of one event: its `data` lines without their names, joined by LF. Comments and other fields are left out."""
    lines = (line[5:].removeprefix(b" ") for line in event.removeprefix(_BOM).splitlines() if line.startswith(b"data:"))
    return b"\n".join(lines)


class Elements:
    """The elements of one JSON array that comes in chunks (Gemini's stream without `alt=sse`)."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._place = 0
        """Everything of `_rest` before it was looked at."""
        self._depth = 0
        self._in_string = False
        self._is_long = False

    def feed(self, chunk: bytes) -> list[Part]:
        """The elements that this chunk makes complete; `raw` is one JSON object."""
        self._rest += chunk
        parts = []
        while found := (_INSIDE if self._in_string else _OUTSIDE).search(self._rest, self._place):
            self._place = found.end()
            mark = found[0]
            if self._in_string:
                if mark == b"\\":
                    if self._place == len(self._rest):
                        self._place -= 1  # what it escapes comes with the next chunk
                        break
                    self._place += 1
                else:
                    self._in_string = False
            elif mark == b'"':
                self._in_string = True
            else:
                parts += self._bracket(mark)
        else:
            self._place = len(self._rest)
        self._bound()
        return parts

    def _bracket(self, mark: bytes) -> list[Part]:
        self._depth += 1 if mark in b"[{" else -1
        if self._depth == 2 and mark == b"{":
            self._drop(self._place - 1)
        if self._depth != 1 or mark != b"}":
            return []
        whole = Part(bytes(self._rest[: self._place]), not self._is_long)
        self._drop(self._place)
        self._is_long = False
        return [whole]

    def _drop(self, count: int) -> None:
        del self._rest[:count]
        self._place -= count

    def _bound(self) -> None:
        if self._depth < 2 or len(self._rest) > PART_MAX:
            self._is_long = self._depth >= 2
            self._drop(self._place)
