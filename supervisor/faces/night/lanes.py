"""Where the time of each agent went, as spans on the night's own axis. Pure.

The account of an attempt says how long it did what; the journal and the gateway say when. A span of a lane is what a person would see on a
screen: what is shorter than a thousandth of the night is a part of the one before it. The sums beside the lanes count everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Span = tuple[float, float, str]
"""From when to when, in seconds since 1970, and one of KINDS."""

KINDS = {
    "slot": "waiting for a slot",
    "launch": "starting",
    "work": "working",
    "tokens": "waiting for tokens",
    "paused": "paused",
    "person": "waiting for a person",
}
"""What an agent can be doing, in words; of two at the same moment the later one here is shown."""
PARTS = 1000
SPANS_MAX = 12_000
"""Of all lanes: some 700 KB of a page. With more, the parts become coarser."""

_ORDER = tuple(KINDS)


def flat(spans: Iterable[Span]) -> list[Span]:
    """The same time without two spans at one moment, in order; neighbours of one kind are one span."""
    moments: list[tuple[float, int, int]] = []
    for begin, end, kind in spans:
        if end > begin:
            place = _ORDER.index(kind)
            moments += (begin, 1, place), (end, -1, place)
    moments.sort()
    open_now, found, since = [0] * len(_ORDER), list[Span](), 0.0
    for at, change, place in moments:
        before = _foremost(open_now)
        open_now[place] += change
        if _foremost(open_now) != before:
            if before:
                _add(found, (since, at, before))
            since = at
    return found


def _foremost(counts: Sequence[int]) -> str:
    return next((kind for kind, count in zip(reversed(_ORDER), reversed(counts), strict=True) if count), "")


def _add(spans: list[Span], new: Span) -> None:
    begin, end, kind = new
    if end <= begin:
        return
    if spans and spans[-1][2] == kind and spans[-1][1] >= begin:
        begin = spans.pop()[0]
    spans.append((begin, end, kind))


def thinned(lanes: Mapping[str, Sequence[Span]], length_s: float) -> dict[str, list[Span]]:
    """The lanes with nothing in them that is too short to see, given the length of the axis."""
    shortest = length_s / PARTS
    found = {name: _thin(spans, shortest) for name, spans in lanes.items()}
    while sum(map(len, found.values())) > SPANS_MAX and shortest < length_s:
        shortest *= 2
        found = {name: _thin(spans, shortest) for name, spans in lanes.items()}
    return found


def _thin(spans: Sequence[Span], shortest: float) -> list[Span]:
    found: list[Span] = []
    for begin, end, kind in spans:
        if found and found[-1][1] >= begin and end - begin < shortest:
            last = found.pop()
            found.append((last[0], end, last[2]))
        else:
            _add(found, (begin, end, kind))
    return found
