"""Undo the Content-Encoding of an answer: nobody asked for one, and neither its usage nor our key in it could be read."""

from __future__ import annotations

import zlib

GZIP, DEFLATE = 31, 15
_RAW = -15
_WBITS = {"gzip": GZIP, "x-gzip": GZIP, "deflate": DEFLATE}


class BadEncoding(Exception):
    """The bytes are not of the encoding that the headers name, or we cannot read that encoding."""


class Decoder:
    """Decodes one body in bounded steps: `give` it what came, then `take` until that is empty."""

    def __init__(self, wbits: int, most: int) -> None:
        """`most`: bytes that `take` returns at once, however small their encoded form is."""
        self._wbits = wbits
        self._most = most
        self._inner = zlib.decompressobj(wbits)
        self._waiting = b""
        self._began = False

    def give(self, data: bytes) -> None:
        """Add what came."""
        self._waiting += data

    def take(self) -> bytes:
        """Return decoded bytes; empty if more has to come first. Raises BadEncoding."""
        while True:
            if self._inner.eof:  # a second member of a gzip file, or what follows the end, which counts for nothing
                if not self._waiting.startswith(b"\x1f\x8b"):
                    self._waiting = b""
                    return b""
                self._inner = zlib.decompressobj(self._wbits)
            before, data = len(self._waiting), self._decoded()
            if data or len(self._waiting) == before or not self._waiting:
                return data

    @property
    def is_done(self) -> bool:
        """Nothing waits, and the body is whole; also one of which nothing came."""
        return not self._waiting and (self._inner.eof or not self._began)

    def _decoded(self) -> bytes:
        data = self._waiting
        try:
            found = self._inner.decompress(data, self._most)
        except zlib.error as error:
            if self._wbits != DEFLATE or self._began:
                raise BadEncoding(str(error)) from None
            self._wbits, self._inner = _RAW, zlib.decompressobj(_RAW)  # some servers send deflate without its header
            return self._decoded()
        self._began = self._began or bool(data)
        self._waiting = self._inner.unconsumed_tail or self._inner.unused_data
        return found


def decoder(content_encoding: str, most: int) -> Decoder | None:
    """Return what decodes a body; None if it is not encoded. Raises BadEncoding if it cannot be read."""
    named = [name for part in content_encoding.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    if not named:
        return None
    if len(named) > 1 or named[0] not in _WBITS:
        raise BadEncoding(f"cannot be read here: {', '.join(named)[:60]!r}")
    return Decoder(_WBITS[named[0]], most)
