"""What an answer must not carry to an agent: our own key, and headers that no client could take. Everything else passes unchanged."""

from __future__ import annotations

import functools
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


class _Forms:
    """One key as it may stand in an answer: plain, or any of its characters as `\\uXXXX`, `%XX` or `\\/`, also escaped once more."""

    def __init__(self, key: bytes) -> None:
        steps = [_step(byte) for byte in key]
        self._whole = re.compile(b"".join(steps))
        self._steps = [re.compile(step) for step in steps]
        self._first = re.compile(b"[%s%%\\\\]" % re.escape(key[:1]))
        self._has_slash = b"/" in key
        self.longest = _STEP_MAX * len(key)

    def may_be_in(self, text: bytes) -> bool:
        """Tell quickly whether `text` can hold an escaped key."""
        return b"%" in text or b"\\u00" in text or (self._has_slash and b"\\/" in text)

    def without(self, text: bytes) -> bytes:
        """Mask each key in `text`; the same object if there is none."""
        cleaned, count = self._whole.subn(lambda found: mask(len(found[0])).encode(), text)
        return cleaned if count else text

    def begun(self, text: bytes) -> int:
        """Return where a key may have begun that the end of `text` cuts; the length of `text` for nowhere."""
        for found in self._first.finditer(text, max(0, len(text) - self.longest)):
            if self._is_begun(text, found.start()):
                return found.start()
        return len(text)

    def _is_begun(self, text: bytes, at: int) -> bool:
        for step in self._steps:
            found = step.match(text, at)
            if found is None:
                return _CUT_ESCAPE.fullmatch(text, at) is not None
            at = found.end()
        return False


_STEP_MAX = 9
"""Bytes of one character in its longest form: `\\\\\\\\u0073`, `%25252573`."""
_CUT_ESCAPE = re.compile(rb"(?:\\{1,4}(?:u(?:0(?:0[0-9A-Fa-f]?)?)?)?|%[0-9A-Fa-f]{0,7})?")
"""What may be the beginning of an escaped character."""


def _step(byte: int) -> bytes:
    """The pattern of one byte of a key."""
    digits = b"".join(b"[%c%c]" % (digit, digit - 32) if digit > 57 else b"%c" % digit for digit in b"%02x" % byte)
    slash = rb"|\\{1,4}/" if byte == ord("/") else b""
    return rb"(?:%s|%%(?:25){0,3}%s|\\{1,4}u00%s%s)" % (re.escape(bytes([byte])), digits, digits, slash)


@functools.lru_cache(maxsize=64)
def _forms(key: bytes) -> _Forms:
    return _Forms(key)


class KeyFilter:
    """Takes one key, plain or escaped, out of the bytes of an answer while they pass, also where it is split over several pieces.

    The end of a piece that could be the key's beginning is kept until the next piece tells. A server-sent event ends with a line break,
    which is in no key, so no whole event is ever kept back.
    """

    def __init__(self, key: str) -> None:
        """A key of less than `SECRET_LEAST` characters is not looked for."""
        self._key = key.encode("utf-8", "surrogateescape") if len(key) >= SECRET_LEAST else b""
        self._forms = _forms(self._key)
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """What may pass now: the piece itself, the same object, when nothing of the key is in it."""
        if not self._key:
            return piece
        if self._held:
            piece = self._held + piece
            self._held = b""
        if self._key in piece or self._forms.may_be_in(piece):
            piece = self._forms.without(piece)
        if piece.endswith(b"\n"):
            return piece
        begun = self._forms.begun(piece)
        if begun < len(piece):
            self._held = piece[begun:]
            piece = piece[:begun]
        return piece

    def finish(self) -> bytes:
        """What was kept back: the answer has ended, and it was no key."""
        held, self._held = self._held, b""
        return held


def _cleaned(text: str, key: str) -> str:
    """`text` of a header without the key; the same object if there is none."""
    if len(key) < SECRET_LEAST:
        return text
    data = text.encode("utf-8", "surrogateescape")
    forms = _forms(key.encode("utf-8", "surrogateescape"))
    cleaned = forms.without(data)
    return text if cleaned is data else cleaned.decode("utf-8", "surrogateescape")


def passable(headers: Mapping[str, str], key: str) -> Mapping[str, str]:
    """An answer's headers without those that would break the client's side, and without our key; the same object when all are good.

    Left out are values that no client could read, the longest ones of more than `HEADERS_MAX` together, and headers that `Connection`
    names: they belong to the provider's connection (RFC 9110, 7.6.1).
    """
    text = " ".join(headers.values())
    if len(text) < FIELD_MAX and "Connection" not in headers and not _ODD.search(text) and _cleaned(text, key) is text:
        return headers
    hops = {name.strip().lower() for name in headers.get("Connection", "").split(",")} - {"close", "keep-alive", "content-length"}
    kept = [(name, value) for name, value in headers.items() if name.lower() not in hops and not _ODD.search(value)]
    kept = [(name, _cleaned(value, key)) for name, value in kept if _size("", value) <= FIELD_MAX]
    while kept and sum(_size(name, value) for name, value in kept) > HEADERS_MAX:
        kept.remove(max(kept, key=lambda one: _size(*one)))
    return CIMultiDict(kept)


def reason(said: str | None, key: str) -> str | None:
    """The words beside a status; None, the standard's own, for those that no client could read or that hold our key."""
    good = said is not None and _REASON.fullmatch(said) and _cleaned(said, key) is said
    return said if good else None


def _size(name: str, value: str) -> int:
    """Bytes of a header's line."""
    return len(name) + len(value.encode("utf-8", "surrogateescape")) + 4
