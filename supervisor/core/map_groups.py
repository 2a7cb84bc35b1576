"""How an agent splits a map's items into parts that do not touch each other: what it is asked, and what its answer is taken for.

It answers with numbers of items, which are short, and ranges of them. Every item must be in one group. What does not hold is mended by
rule, so that the same answer always gives the same groups, and said: an item that is named twice stays where it was named first, one that
is named nowhere gets a group of its own, and what names no item is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_RANGE = re.compile(r"\s*(\d+)\s*-\s*(\d+)\s*")
_SHOWN = 5
ITEMS_MAX = 5000
"""Items of a map that one agent splits: its prompt lists them all."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "groups": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"about": {"type": "string"}, "items": {"type": "array", "items": {"type": ["integer", "string"]}}},
                "required": ["items"],
            },
        }
    },
    "required": ["groups"],
}
"""Of its answer."""


@dataclass(frozen=True, slots=True)
class Group:
    """Items that one worker does, by position. `about`: what they have in common, as the agent says."""

    items: tuple[int, ...]
    about: str = ""


@dataclass(frozen=True, slots=True)
class Groups:
    """Every item in exactly one group, in input order within each. `repairs`: what was wrong with the answer, a line each."""

    groups: tuple[Group, ...]
    repairs: tuple[str, ...] = ()


def prompt(what: str, names: Sequence[str], sizes: Sequence[int]) -> str:
    """What the agent is asked. `what` is done with each item; `sizes` are bytes."""
    listed = "\n".join(f"{place + 1}\t{size}\t{name}" for place, (name, size) in enumerate(zip(names, sizes, strict=True)))
    return "\n\n".join(
        [
            "Split this work among agents who work at the same time and cannot talk to each other. What is done with every item:",
            what,
            "The items, each with its number, its size in bytes and its name:",
            listed,
            "Items belong into one group when work on one touches another, such as a module and its tests. Items that do not touch each "
            "other belong into different groups, so that they are worked on at the same time. Look into the files where names do not say "
            "enough, and change nothing. Every item belongs to exactly one group.",
            'Your answer is JSON such as {"groups": [{"about": "what they share", "items": [1, "4-9"]}]}. Items are given by their '
            "numbers; a text names a range of them.",
        ]
    )


def read(answer: Any, count: int) -> Groups:
    """The groups of an answer for `count` items, mended where it is off."""
    given = answer.get("groups") if isinstance(answer, dict) else answer
    seen: set[int] = set()
    twice: list[int] = []
    unknown: list[str] = []
    groups = []
    for group in given if isinstance(given, list) else []:
        listed = group.get("items") if isinstance(group, dict) else group
        mine = []
        for number in _numbers(listed if isinstance(listed, list) else [], count, unknown):
            if number in seen:
                twice.append(number)
            else:
                seen.add(number)
                mine.append(number - 1)
        about = group.get("about") if isinstance(group, dict) else ""
        if mine:
            groups.append(Group(tuple(sorted(mine)), about if isinstance(about, str) else ""))
    missing = [number for number in range(1, count + 1) if number not in seen]
    groups += [Group((number - 1,)) for number in missing]
    return Groups(tuple(groups), tuple(_repairs(twice, unknown, missing)))


def _numbers(listed: Iterable[Any], count: int, unknown: list[str]) -> Iterator[int]:
    for one in listed:
        found = _RANGE.fullmatch(one) if isinstance(one, str) else None
        if found is not None and 1 <= int(found[1]) <= int(found[2]) <= count:
            yield from range(int(found[1]), int(found[2]) + 1)
            continue
        number = _number(one)
        if number is not None and 1 <= number <= count:
            yield number
        else:
            unknown.append(str(one)[:40])


def _number(one: Any) -> int | None:
    if isinstance(one, int) and not isinstance(one, bool):
        return one
    return int(one) if isinstance(one, str) and one.strip().isdecimal() and len(one) < 10 else None


def _repairs(twice: Sequence[int], unknown: Sequence[str], missing: Sequence[int]) -> Iterator[str]:
    for what, found, done in (
        ("named twice", twice, "stay where they were named first"),
        ("no items", unknown, "left out"),
        ("named nowhere", missing, "each got a group of its own"),
    ):
        if found:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            yield f"{what}: {', '.join(map(str, found[:_SHOWN]))}{more} ({done})"
