"""Who works on which items of a map, and what becomes of an item. Pure."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from supervisor.kernel.format import listed

# Mapping
# -------
# Who works on which items of a map, and what becomes of an item. Pure: time is given, and all of it is seconds of one monotonic
# clock.
#
# An item is *waiting*, *leased* to one attempt of a worker, *done* or *failed*. A lease is a shard: some items in order, the
# attempt that has them, and a number that no other lease of the map has. What an attempt says counts only for the items that its
# lease still holds.
#
#     next     settles the lease before, and gives a new one
#     beat     the attempt lives and is at this item; it is told how much of its shard it keeps, since who idles may need the rest
#     settle   what it did is judged, what it did not begin waits again
#     gone     the same of an attempt that has ended: the item that it was at is charged with its death


Key = tuple[str, int]
"""A worker's task, and the epoch of its attempt."""

SHARD_S = 1.5
"""How long a shard should take."""
OVERHEAD_MAX = 0.03
"""What surrounds a shard (a look at the worktree, a fork, a request) should take no more of its time than this; it is made longer else."""
SHARD_MAX_S = 60.0
FIRST = 8
"""Items of the first shard of each worker, while nobody knows how long one takes."""
GROWTH = 8
"""A shard has at most so many times the items of the largest one before it: who met two quick items does not get a thousand slow ones."""
SHARD_ITEMS, SHARD_BYTES = 2_000, 2**20
"""The most of one shard: items, and bytes of their texts."""
DEATHS_MAX = 3
"""Attempts that may die while they work on an item. After the first it is given out alone."""
SILENT_S = 10.0
"""A worker that says nothing for so long may lose the items that it has not begun; one that works speaks every second."""
STOPPED_S = 60.0
"""The same for the item that it is at."""
WAIT_S = 0.5
"""How long a worker waits that finds nothing to do."""
_LEARNING = 0.3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a worker says of one item."""

    position: int
    ok: bool
    text: str
    """The result as JSON, or why there is none, in words."""
    ms: int


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of an item: `done`, `failed`, or `waiting` again."""

    position: int
    state: str
    tries: int
    deaths: int
    text: str = ""
    ms: int = 0


@dataclass(slots=True)
class Lease:
    """The shard of one attempt."""

    number: int
    positions: list[int]
    given: float
    heard: float
    at: int = 0
    """Index of the item that it is at."""

    @property
    def unbegun(self) -> int:
        return max(0, len(self.positions) - self.at - 1)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a shard took: seconds in all, and of these seconds around the items."""

    shard_s: float = 0.0
    around_s: float = 0.0


@dataclass(slots=True)
class Board:
    """The items of one map that are not done, and the leases. `sizes`: the bytes of each item, by its position."""

    sizes: Sequence[int]
    retries: int
    least: int = 1
    """Items of a shard, as long as there are enough: a worker that does several at once needs so many."""
    groups: Mapping[int, int] = field(default_factory=dict)
    """By position, the group of an item. A shard never has items of two, and what a worker holds of one is not divided."""
    waiting: deque[int] = field(default_factory=deque)
    suspects: deque[int] = field(default_factory=deque)
    """Items at which a worker died: each is given out alone, so that it takes no others along."""
    tries: dict[int, int] = field(default_factory=dict)
    deaths: dict[int, int] = field(default_factory=dict)
    leases: dict[Key, Lease] = field(default_factory=dict)
    last_number: int = 0
    idle: dict[Key, float] = field(default_factory=dict)
    """Attempts that found nothing to do, and when."""
    changed: set[Key] = field(default_factory=set)
    """Whose leases changed since somebody emptied this."""
    item_s: float = 0.0
    """How long an item takes a worker, by the newest shards; 0: nobody knows."""
    around_s: float = 0.0
    """How long what surrounds the items of a shard takes."""
    proven: int = FIRST
    """The most items of a shard, by how large those before were."""
    mean_size: float = 0.0

    def __post_init__(self) -> None:
        self.mean_size = sum(self.sizes) / len(self.sizes) if self.sizes else 0.0

    @property
    def left(self) -> int:
        """Items that are neither done nor failed."""
        return len(self.waiting) + len(self.suspects) + sum(len(lease.positions) for lease in self.leases.values())

    # Giving ---------------------------------------------------------------------------------------------------------------------------

    def give(self, key: Key, now: float) -> Lease | None:
        """A shard for an attempt that has none; None when there is nothing for it now."""
        positions = self._shard()
        if not positions:
            self._take_from_silent(now)
            positions = self._shard()
        if not positions:
            self.idle[key] = now
            return None
        self.idle.pop(key, None)
        self.last_number += 1
        self.changed.add(key)
        self.leases[key] = Lease(self.last_number, positions, now, now)
        return self.leases[key]

    def may_leave(self) -> bool:
        """Whether who finds nothing to do is needed no more: each item that is left has a worker of its own."""
        return self.left <= len(self.leases)

    def _shard(self) -> list[int]:
        if not self.waiting:
            return [self.suspects.popleft()] if self.suspects else []
        taken = [self.waiting.popleft()]
        even = math.ceil(len(self.waiting) / (len(self.leases) + 1))
        most = min(max(self._most(), self.least), max(even, self._worthwhile()))
        group = self.groups.get(taken[0])
        weight, size = self._weight(taken[0]), self.sizes[taken[0]]
        while self.waiting and len(taken) < SHARD_ITEMS:
            weight += self._weight(self.waiting[0])
            size += self.sizes[self.waiting[0]]
            if self.groups.get(self.waiting[0]) != group or (group is None and (weight > most or size > SHARD_BYTES)):
                break
            taken.append(self.waiting.popleft())
        return taken

    def _most(self) -> float:
        """How many items of the usual size make a shard."""
        if not self.item_s:
            return FIRST
        target = min(SHARD_MAX_S, max(SHARD_S, self.around_s / OVERHEAD_MAX))
        return max(1.0, min(self.proven, target / self.item_s))

    def _worthwhile(self) -> float:
        """How many items take as long as what surrounds a shard, twice: fewer are no shard of their own, and are not taken from anybody."""
        return max(1.0, 2 * self.around_s / self.item_s) if self.item_s else 1.0

    def _weight(self, position: int) -> float:
        """How much work an item is, 1 in the mean: half of it is the same for all, half goes by its size."""
        return 0.5 + 0.5 * self.sizes[position] / self.mean_size if self.mean_size else 1.0

    def _take_from_silent(self, now: float) -> None:
        for key, lease in list(self.leases.items()):
            silent = now - lease.heard
            if silent > STOPPED_S:
                self.waiting.extend(lease.positions)
                self.changed.add(key)
                del self.leases[key]
            elif silent > SILENT_S and lease.unbegun:
                self._cut(key, lease.at + 1)

    def _cut(self, key: Key, keep: int) -> None:
        lease = self.leases[key]
        self.waiting.extend(lease.positions[keep:])
        del lease.positions[keep:]
        self.changed.add(key)

    # Hearing --------------------------------------------------------------------------------------------------------------------------

    def beat(self, key: Key, number: int, at: int, now: float) -> int:
        """How many items of its shard the attempt keeps, from the first on; 0 when the shard is not its any more."""
        lease = self.leases.get(key)
        if lease is None or lease.number != number:
            return 0
        lease.heard, lease.at = now, max(lease.at, min(at, len(lease.positions)))
        if not self.groups and not self.waiting and lease.unbegun >= self._worthwhile() and self._is_wanted(now):
            self._cut(key, lease.at + 1 + lease.unbegun // 2)
        return len(lease.positions)

    def _is_wanted(self, now: float) -> bool:
        """Whether somebody idles who asked lately. One answer is for one who idles: the others' beats help the rest."""
        for key, since in list(self.idle.items()):
            del self.idle[key]
            if now - since < 4 * WAIT_S:
                return True
        return False

    def settle(self, key: Key, number: int, outcomes: Iterable[Outcome], spent: Spent) -> list[Judged]:
        """Judge what the attempt did of the shard `number`; all else of it waits again, before others. Nothing when it is not its any
        more."""
        lease = self.leases.get(key)
        if lease is None or lease.number != number:
            return []
        judged = self._judged(lease, outcomes)
        self._learn(len(judged), spent)
        self._give_back(key, {one.position for one in judged})
        return judged

    def gone(self, key: Key, outcomes: Iterable[Outcome], begun: int | None, cause: str) -> list[Judged]:
        """The same of an attempt that has ended; `begun` is the position that it was at. `cause`: how it ended, in words."""
        self.idle.pop(key, None)
        lease = self.leases.get(key)
        if lease is None:
            return []
        judged = self._judged(lease, outcomes)
        known = {one.position for one in judged}
        if begun in lease.positions and begun not in known:
            judged.append(self._died(begun, cause))
            known.add(begun)
        self._give_back(key, known)
        return judged

    def _judged(self, lease: Lease, outcomes: Iterable[Outcome]) -> list[Judged]:
        held, found = set(lease.positions), []
        for one in outcomes:
            if one.position in held:
                held.remove(one.position)
                found.append(self._judge(one))
        return found

    def _judge(self, one: Outcome) -> Judged:
        tries = self.tries.get(one.position, 0) + 1
        deaths = self.deaths.get(one.position, 0)
        if one.ok:
            return Judged(one.position, "done", tries, deaths, one.text, one.ms)
        if tries > self.retries:
            return Judged(one.position, "failed", tries, deaths, one.text, one.ms)
        self.tries[one.position] = tries
        self.waiting.append(one.position)  # after all others: what failed it may have passed by then
        return Judged(one.position, "waiting", tries, deaths, one.text, one.ms)

    def _died(self, position: int, cause: str) -> Judged:
        tries = self.tries.get(position, 0)
        deaths = self.deaths[position] = self.deaths.get(position, 0) + 1
        if deaths >= DEATHS_MAX:
            return Judged(position, "failed", tries, deaths, f"{deaths} workers died of it, the last one: {cause}")
        self.suspects.append(position)
        return Judged(position, "waiting", tries, deaths, f"its worker died: {cause}")

    def _give_back(self, key: Key, without: set[int]) -> None:
        lease = self.leases.pop(key)
        self.changed.add(key)
        self.waiting.extendleft(position for position in reversed(lease.positions) if position not in without)

    def _learn(self, items: int, spent: Spent) -> None:
        if not items or spent.shard_s <= 0:
            return
        each = max(1e-6, (spent.shard_s - spent.around_s) / items)
        known = self.item_s
        self.item_s = known + _LEARNING * (each - known) if known else each
        self.proven = max(self.proven, GROWTH * items)
        self.around_s += _LEARNING * (spent.around_s - self.around_s) if self.around_s else spent.around_s


def occurrences(names: Iterable[tuple[bytes, str]]) -> Iterator[int]:
    """For each item by its name and key, how often the same came before: a workload may hold a line twice."""
    seen: dict[tuple[bytes, str], int] = {}
    for one in names:
        yield seen.get(one, 0)
        seen[one] = seen.get(one, 0) + 1


# Map groups
# ----------
# How an agent splits a map's items into parts that do not touch each other: what it is asked, and what its answer is taken for.
#
# It answers with numbers of items, which are short, and ranges of them. Every item must be in one group. What does not hold is
# mended by rule, so that the same answer always gives the same groups, and said: an item that is named twice stays where it was
# named first, one that is named nowhere gets a group of its own, and what names no item is left out.


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
            yield f"{what}: {listed([str(one) for one in found], _SHOWN)} ({done})"
