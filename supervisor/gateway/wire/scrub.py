"""What an answer must not carry to an agent: our own key, and headers that no client could take. Everything else passes unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping

from multidict import CIMultiDict

SECRET_LEAST = 16
"""Characters. A shorter key is a word like `ollama`, which a local server wants and which normal answers may contain."""
FIELD_MAX = 8000
"""Bytes of one header's value: aiohttp's and others' clients read lines up to 8,190."""
HEADERS_MAX = 12 * 2**10
"""Bytes of all headers. Node, and so Claude Code, reads 16 KiB with the status line."""
_ODD = re.compile(r"[^\t -~\x80-\ud7ff\ue000-\U0010ffff]")
"""Control characters, and the lone surrogates that stand for bytes that are no UTF-8. Nothing can write them again."""
_REASON = re.compile(r"[\t -~]{0,200}")


def mask(length: int) -> str:
    """What stands in the place of a secret of that length, so that no Content-Length changes."""
    return "[hidden]".ljust(length, "*")[:length]


class KeyFilter:
    """Takes one key out of the bytes of an answer while they pass, also where it is split over several pieces.

    The end of a piece that could be the key's beginning is kept until the next piece tells. A server-sent event ends with a line break,
    which is in no key, so no whole event is ever kept back.
    """

    def __init__(self, key: str) -> None:
        """A key of less than `SECRET_LEAST` characters is not looked for."""
        self._key = key.encode("utf-8", "surrogateescape") if len(key) >= SECRET_LEAST else b""
        self._mask = mask(len(self._key)).encode()
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """What may pass now: the piece itself, the same object, when nothing of the key is in it."""
        if not self._key:
            return piece
        if self._held:
            piece = self._held + piece
            self._held = b""
        if self._key in piece:
            piece = piece.replace(self._key, self._mask)
        if piece.endswith(b"\n"):
            return piece
        begun = self._begun(piece)
        if begun < len(piece):
            self._held = piece[begun:]
            piece = piece[:begun]
        return piece

    def finish(self) -> bytes:
        """What was kept back: the answer has ended, and it was no key."""
        held, self._held = self._held, b""
        return held

    def _begun(self, piece: bytes) -> int:
        """Where the key may have begun; the piece's length for nowhere."""
        at = piece.find(self._key[:1], max(0, len(piece) - len(self._key) + 1))
        while at >= 0:
            if self._key.startswith(piece[at:]):
                return at
            at = piece.find(self._key[:1], at + 1)
        return len(piece)


def passable(headers: Mapping[str, str], key: str) -> Mapping[str, str]:
    """An answer's headers without those that would break the client's side, and without our key; the same object when all are good.

    Left out are values that no client could read, the longest ones of more than `HEADERS_MAX` together, and headers that `Connection`
    names: they belong to the provider's connection (RFC 9110, 7.6.1).
    """
    text = " ".join(headers.values())
    key = key if len(key) >= SECRET_LEAST else ""
    if len(text) < FIELD_MAX and "Connection" not in headers and not (key and key in text) and not _ODD.search(text):
        return headers
    hops = {name.strip().lower() for name in headers.get("Connection", "").split(",")} - {"close", "keep-alive", "content-length"}
    kept = [(name, value) for name, value in headers.items() if name.lower() not in hops and not _ODD.search(value)]
    kept = [(name, value.replace(key, mask(len(key))) if key else value) for name, value in kept if _size("", value) <= FIELD_MAX]
    while kept and sum(_size(name, value) for name, value in kept) > HEADERS_MAX:
        kept.remove(max(kept, key=lambda one: _size(*one)))
    return CIMultiDict(kept)


def reason(said: str | None, key: str) -> str | None:
    """The words beside a status; None, the standard's own, for those that no client could read or that hold our key."""
    good = said is not None and _REASON.fullmatch(said) and not (len(key) >= SECRET_LEAST and key in said)
    return said if good else None


def _size(name: str, value: str) -> int:
    """Bytes of a header's line."""
    return len(name) + len(value.encode("utf-8", "surrogateescape")) + 4
