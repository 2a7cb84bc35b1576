"""What a worker wrote of its shard: `out/shard-<number>.jsonl`, a line when it begins an item and one when it has ended it.

    {"p": 17}                                               it is at the item with position 17
    {"p": 17, "ok": true, "text": "[1, 2]", "ms": 3}        `text` is the result as JSON, or says why there is none

A worker can write anything there, so it is read by the door for that, and whatever is off is left out: the item is then done again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.mapping import Key, Outcome
from supervisor.host import foreign
from supervisor.host.paths import Home

TEXT_MAX = 2**20
"""Characters of one result."""
SHARD_MAX = 64 * 2**20
"""Bytes of a file."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a file says."""

    outcomes: tuple[Outcome, ...] = ()
    begun: int | None = None
    """The position of the item that was begun last."""


def name(number: int) -> str:
    """Of the file of a shard."""
    return f"shard-{number}.jsonl"


def read(home: Home, key: Key, number: int) -> Told:
    """What the attempt wrote of the shard; nothing when there is no plain file. Raises ToolFailed when the machine could not look."""
    data = foreign.read_plain(_place(home, key) / name(number), SHARD_MAX)
    return told(data) if data else Told()


def _place(home: Home, key: Key) -> Path:
    return home.attempt(*key) / "out"


def told(data: bytes) -> Told:
    """The file's content, read. A line that was cut off does not count, and of an item only the first end does."""
    found: dict[int, Outcome] = {}
    begun = None
    for line in data.split(b"\n"):
        one = _line(line)
        if isinstance(one, Outcome):
            found.setdefault(one.position, one)
        elif one is not None:
            begun = one
    return Told(tuple(found.values()), begun)


def _line(line: bytes) -> Outcome | int | None:
    try:
        shape = json.loads(line)
        position = shape["p"]
        if not isinstance(position, int):
            return None
        if "ok" not in shape:
            return position
        text = str(shape["text"])
        text.encode()  # what is no Unicode cannot be kept
        if len(text) > TEXT_MAX:
            return None
        if shape["ok"] is True:
            json.loads(text)
        return Outcome(position, shape["ok"] is True, text, max(0, min(int(shape["ms"]), 2**40)))
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
