"""What the index takes of a file: one page a note, one page a record of a day. Pure; nothing that a file holds makes it raise."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from memory.layout import Kind, kind_of

TITLE_MAX = 200
LIST_MAX = 64
"""Globs and tags of one note that count."""
_FRONT = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?\n)?---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):[ \t]*(.*)\Z")
_QUOTED = re.compile(r"\"([^\"\\]*)\"|'([^']*)'")
_NAME = re.compile(r"\b\w+(?<=[a-z0-9])[A-Z]\w*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Page:
    """What one search can find."""

    path: str
    line: int
    """Of a record, from 1 on; 0: the whole file."""
    kind: Kind
    title: str
    tags: tuple[str, ...]
    globs: tuple[str, ...]
    """Which files of the repository it is about."""
    at: float
    """When it was written, seconds since 1970."""
    body: str
    task: str = ""
    """Who wrote it, as the file says."""
    expires: float | None = None
    """When it is no longer true, seconds since 1970; None: it says nothing of that."""


def pages(path: str, text: str, modified: float) -> list[Page]:
    """The pages of a file; none for a path at which no note lies. `modified` is seconds since 1970."""
    kind = kind_of(path)
    if kind is None:
        return []
    if kind is Kind.EPISODIC:
        return [page for number, line in enumerate(text.split("\n"), 1) if (page := _record(path, number, line, modified)) is not None]
    said, body = front_matter(text)
    title = one(said, "title") or _first_line(body) or path.rpartition("/")[2].removesuffix(".md")
    return [
        Page(
            path,
            0,
            kind,
            title[:TITLE_MAX],
            many(said, "tags"),
            many(said, "paths"),
            modified,
            body,
            one(said, "task"),
            moment(one(said, "expires")),
        )
    ]


def front_matter(text: str) -> tuple[Mapping[str, str | tuple[str, ...]], str]:
    """The keys of a note's front matter that are plain text or lists of it, and what follows. A full reader of YAML takes a millisecond a
    note, which is ten seconds for a memory of 10,000; the index needs five keys in the form that people and agents write them."""
    found = _FRONT.match(text)
    return (keys(found[1] or ""), text[found.end() :]) if found is not None else ({}, text)


def keys(front: str) -> dict[str, str | tuple[str, ...]]:
    """The keys of front matter, as `front_matter` gives them."""
    said: dict[str, str | tuple[str, ...]] = {}
    key = ""
    for line in front.split("\n"):
        bare = line.strip()
        if (begun := _KEY.match(line)) is not None:
            key, value = begun[1], begun[2].strip()
            said[key] = _value(value)
        elif key and bare.startswith("- ") and not (isinstance(said[key], str) and said[key]):
            held = said[key]
            said[key] = (*(held if isinstance(held, tuple) else ()), _scalar(bare[2:]))[:LIST_MAX]
    return said


def one(said: Mapping[str, str | tuple[str, ...]], key: str) -> str:
    """The text under a key; empty where there is none."""
    found = said.get(key, "")
    return found if isinstance(found, str) else ""


def many(said: Mapping[str, str | tuple[str, ...]], key: str) -> tuple[str, ...]:
    """The list under a key; one text is a list of one."""
    found = said.get(key, ())
    return tuple(filter(None, (found,) if isinstance(found, str) else found))


def moment(value: object) -> float | None:
    """A time as files have it, seconds since 1970 or RFC 3339; None for what is neither."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 <= value < 1e11 else None
    try:
        found = datetime.fromisoformat(str(value))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def parts_of_names(text: str) -> str:
    """The words that names in camel case are made of: FTS5 takes such a name for one word."""
    return " ".join(part for name in _NAME.findall(text) for part in _CAMEL.split(name)) if _CAMEL.search(text) else ""


def _value(text: str) -> str | tuple[str, ...]:
    if text.startswith("[") and "]" in text:
        return tuple(filter(None, map(_scalar, text[1 : text.rindex("]")].split(","))))[:LIST_MAX]
    return _scalar(text)


def _scalar(text: str) -> str:
    text = text.strip()
    if (quoted := _QUOTED.match(text)) is not None:
        return quoted[1] if quoted[1] is not None else quoted[2]
    return text.partition(" #")[0].rstrip() if not text.startswith("#") else ""


def _first_line(body: str) -> str:
    return next((line.strip("# \t\r") for line in body.split("\n") if line.strip("# \t\r")), "")


def record(line: str) -> Mapping[str, object] | None:
    """A line of a day; None for one that is torn, or no object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _record(path: str, number: int, line: str, modified: float) -> Page | None:
    found = record(line)
    if found is None:
        return None
    at = next((at for at in map(moment, (found.get("ts"), path.rpartition("/")[2].removesuffix(".jsonl"))) if at is not None), modified)
    who, task, what = (str(found.get(key) or "")[:TITLE_MAX] for key in ("agent", "task", "type"))
    tags = tuple(filter(None, (what, who)))
    return Page(path, number, Kind.EPISODIC, "", tags, (), at, str(found.get("text") or ""), task)
