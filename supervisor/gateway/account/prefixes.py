"""What requests share with those before them, and where they stop sharing. All of it is done on the account's thread.

A provider, and an engine, compute the beginning of a prompt once, as long as the next prompt begins with the same bytes. The text of each
agent's last prompt is held in memory alone; what is kept in the account are counts, and the place where a prompt stopped sharing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from supervisor.gateway.account.charges import OpenRow, SettledRow
from supervisor.gateway.admission.types import End
from supervisor.gateway.wire.requests import CACHE_MARKS

KEPT = "prefixes"
"""The name under which the account's memory has it: `{"prefixes": {digest: {...}}, "breaks": {agent: {...}}}`."""
EXCERPT = 40
"""Characters on each side of a break that are kept, where bodies are recorded."""
_KEPT_MAX = 200
_TEXTS_MAX = 16 * 2**20
"""Characters of all texts in memory."""
_HIT = 0.8
"""Of the prompt before: where so much was read from the cache nothing broke, whatever the texts say."""
_BETWEEN = re.compile(r"[\s,\[]*")


class Prefixes:
    """Belongs to the account's thread once it is made. As a parameter of a statement it is what is kept."""

    def __init__(self, kept: str) -> None:
        """Raises ValueError for what is not JSON."""
        self.kept: dict[str, dict[str, dict[str, Any]]] = json.loads(kept or "{}")
        self._texts: dict[tuple[str, ...], tuple[str, int]] = {}
        """Agent, session and model -> text of the last prompt, and its tokens."""

    def __conform__(self, _: object) -> str:
        return json.dumps(self.kept)

    def look(self, opened: OpenRow, row: SettledRow) -> None:
        """Count a request, and note where it stopped sharing with the one before it."""
        if row.end != End.SERVED or not row.prompt_at:
            return
        body = row.body.decode("utf-8", "replace")
        parts = [(name, CACHE_MARKS.sub("", body[start:end])) for name, start, end in row.prompt_at]
        text, usage = "".join(part for _, part in parts), row.usage
        tokens = usage.input + usage.cache_read + usage.cache_write
        head = sum(len(part) for name, part in parts[:-1])
        if {name for name, _ in parts[:-1]} <= {"tools"}:
            head += next(_blocks(parts[-1:]))[2]
        digest = hashlib.sha256(text[:head].encode("utf-8", "replace")).hexdigest()[:12]
        before = self._newest("prefixes", digest)
        before |= {"model": opened.model, "chars": head, "agent": opened.agent}
        for name, more in (("requests", 1), ("input", tokens), ("cached", usage.cache_read)):
            before[name] = before.get(name, 0) + more
        key = (opened.agent, opened.session, opened.asked)
        old, wanted = self._texts.pop(key, ("", 0))
        self._texts[key] = text, tokens
        while sum(len(kept) for kept, _ in self._texts.values()) > _TEXTS_MAX:
            del self._texts[next(iter(self._texts))]
        if not text.startswith(old[:-1]) and usage.cache_read < _HIT * wanted:  # a list that grows loses its last bracket alone
            self._broke(opened, parts, old, text, recorded=row.recorded)

    def _broke(self, opened: OpenRow, parts: list[tuple[str, str]], old: str, text: str, *, recorded: bool) -> None:
        at = len(os.path.commonprefix([old, text]))  # noqa: RUF071 - characters are what is asked for
        block, start = next(((name, begin) for name, begin, end in _blocks(parts) if at < end), ("the end", at))
        found = self._newest("breaks", opened.agent)
        found |= {"count": found.get("count", 0) + 1, "model": opened.model, "session": opened.session, "block": block}
        found |= {"offset": at - start, "shared": at, "lost": len(old) - at}
        for name, one in (("before", old), ("after", text)):
            found[name] = one[max(0, at - EXCERPT) : at + EXCERPT] if recorded else ""

    def _newest(self, kind: str, key: str) -> dict[str, Any]:
        """Its entry, which is the newest now; the oldest beyond so many is dropped."""
        entries = self.kept.setdefault(kind, {})
        entries[key] = entries.pop(key, {})
        if len(entries) > _KEPT_MAX:
            del entries[next(iter(entries))]
        return entries[key]


def _blocks(parts: list[tuple[str, str]]) -> Iterator[tuple[str, int, int]]:
    """Each block of a prompt, such as `messages[3]`, where it begins and where it ends. What is no list is one block."""
    before, decoder = 0, json.JSONDecoder()
    for name, text in parts:
        place = 0
        number = 0
        while text.startswith("[") and (between := _BETWEEN.match(text, place)) and text[between.end()] != "]":
            _, place = decoder.raw_decode(text, between.end())
            yield f"{name}[{number}]", before + between.end(), before + place
            number += 1
        if not number:
            yield name, before, before + len(text)
        before += len(text)
