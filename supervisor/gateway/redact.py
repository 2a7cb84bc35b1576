"""What never gets into a log: the providers' keys in any disguise that we know of, and whatever looks like a credential.

A secret that is known is found by its fragments: any ten characters in a row that occur in it, or in its base64, hexadecimal or
URL-quoted form. So half a key, or a key between other text, in a URL or in Basic authorisation, is found like a whole one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from urllib.parse import quote

from supervisor.gateway.wire.scrub import SECRET_LEAST, in_base64, mask

_GRAM = 10
"""Characters of a fragment: fewer would find `sk-ant-` in a sentence about keys, more would let more of a split key through."""
_SHORTEST = 4
_HIDDEN = "[hidden]"
_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|[@-_])")
_NO_LETTER = re.compile(r"[^A-Za-z0-9]")
_LOOKS_SECRET = re.compile(
    r"""(?ix)
    (?P<before> \b(?:bearer|basic)\s+ | (?:authorization|(?:x-)?(?:goog-)?api[-_]?key)["']?\s*[:=]\s*["']? | [?&]key= )
    (?P<value> [^\s"'&,;]{4,} )
  | (?P<token> \bnc[tak]_[a-z0-9_-]+ | \bsk-[a-z0-9_-]{16,} | \bAIza[a-z0-9_-]{20,} )
    """
)


class Redactor:
    """Knows secrets, and cleans text of them."""

    def __init__(self) -> None:
        self._grams: set[str] = set()
        self._short: set[str] = set()

    def add(self, secret: str) -> None:
        """From now on it is hidden, and so are its other forms. Less than 4 characters is no secret."""
        if len(secret) < _GRAM:
            self._short |= {secret} if len(secret) >= _SHORTEST else set()
            return
        for form in _forms(secret):
            self._grams.update(form[start : start + _GRAM] for start in range(len(form) - _GRAM + 1))

    def clean(self, text: str) -> str:
        """`text` without terminal sequences and without secrets."""
        plain = _ANSI.sub("", text)
        for short in self._short:
            plain = plain.replace(short, _HIDDEN)
        return _LOOKS_SECRET.sub(_shown, self._without_known(plain))

    def masked(self, text: str) -> str:
        """`text` with each known fragment replaced by as many other characters; the same object when there is none."""
        for start, end in list(self._found(text)):
            text = text[:start] + mask(end - start) + text[end:]
        return text

    def _without_known(self, text: str) -> str:
        kept: list[str] = []
        shown_to = 0
        for start, end in self._found(text):
            kept += [text[shown_to:start], _HIDDEN]
            shown_to = end
        return "".join(kept) + text[shown_to:]

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        """Where known fragments lie; those that touch are one."""
        start = end = -1
        for at in range(len(text) - _GRAM + 1):
            if text[at : at + _GRAM] not in self._grams:
                continue
            if at > end:
                if end > 0:
                    yield start, end
                start = at
            end = at + _GRAM
        if end > 0:
            yield start, end


def masked(data: bytes, key: str) -> bytes:
    """`data` without this key, or ten characters in a row of it, in any disguise; of the same length. A short key (see `wire.scrub`) stays.
    It takes about 0.1 us a byte: for errors, not for streams."""
    return _knowing(key).masked(data.decode("latin-1")).encode("latin-1") if len(key) >= SECRET_LEAST else data


@functools.lru_cache(maxsize=16)
def _knowing(key: str) -> Redactor:
    redactor = Redactor()
    redactor.add(key)
    return redactor


def _forms(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogateescape")
    yield secret
    yield data.hex()
    yield quote(secret, safe="")
    yield _NO_LETTER.sub(lambda mark: f"%{ord(mark[0]):02X}", secret)
    yield _NO_LETTER.sub(lambda mark: f"\\u{ord(mark[0]):04x}", secret)
    yield from (form.decode() for form in in_base64(data))


def _shown(found: re.Match[str]) -> str:
    return f"{found['before'] or ''}{_HIDDEN}"
