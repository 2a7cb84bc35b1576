"""One message as text: a few keys between two lines of three dashes, then its words. People can read it and write one by hand.

    ---
    id: 01J...
    from: 1123-k3f9/planner
    to: 1123-k3f9/builder
    subject: "which port?"
    ---
    The words.

A key and its value stand on one line; a value is plain text, or in double quotes as JSON has it. That is a part of YAML, and all of it that
is read: what else somebody wrote there is refused, so no document can be large or endless when it is unfolded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.core.errors import Refused

HEAD_MAX = 8 * 2**10
"""Characters of the front matter."""
FILE_MAX = 64 * 2**10
"""Bytes of a message's file."""
_FENCE = "---"
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,39}):(?:[ \t]+(.*))?\Z")
_PLAIN = re.compile(r"[A-Za-z0-9/_.+:-]+\Z")


@dataclass(frozen=True, slots=True)
class Message:
    """What a file says. Nothing of `head` is to be believed: who sent it and when is in the ledger."""

    head: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


def written(message: Message) -> str:
    """The text of the file; `parse` gives the same message back. Empty values are left out."""
    lines = [f"{key}: {_value(text)}" for key, text in message.head.items() if text]
    return "\n".join([_FENCE, *lines, _FENCE, message.body.rstrip("\n"), ""])


def _value(text: str) -> str:
    return text if _PLAIN.match(text) else json.dumps(text, ensure_ascii=False)


def parse(text: str) -> Message:
    """Read a message; one without front matter is all words. Raises Refused for front matter that is broken, saying in which line."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.startswith(f"{_FENCE}\n"):
        return Message({}, text)
    head, found, body = f"\n{text[len(_FENCE) + 1 :]}\n".partition(f"\n{_FENCE}\n")
    if not found or len(head) > HEAD_MAX:
        raise _broken("its front matter has no end" if not found else f"its front matter is longer than {HEAD_MAX} characters")
    return Message(dict(_pairs(head)), body[:-1])


def _pairs(head: str) -> list[tuple[str, str]]:
    pairs = []
    for number, line in enumerate(head.split("\n"), 1):  # it begins with an empty line
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _KEY.match(line)
        if found is None:
            raise _broken(f"line {number} is not `key: value`")
        pairs.append((found[1].lower(), _read(found[2] or "", number)))
    return pairs


def _read(value: str, number: int) -> str:
    value = value.strip()
    if value[:1] == "'" and value[-1:] == "'" and len(value) > 1:
        return value[1:-1].replace("''", "'")
    if value[:1] != '"':
        return value
    try:
        text = json.loads(value)
    except (ValueError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise _broken(f"line {number}: its value in quotes does not end, or is no text")
    return text


def _broken(why: str) -> Refused:
    return Refused("not a message", why=why, kept="the file, set aside")
