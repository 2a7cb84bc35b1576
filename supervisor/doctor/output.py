"""Findings as a page of text, and as the object of `--json`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from supervisor.core.errors import one_line
from supervisor.doctor.finding import Checked, State

SIGNS = {State.OK: ("✓", "32"), State.WARN: ("!", "33"), State.FAIL: ("✗", "31"), State.UNKNOWN: ("?", "36")}
"""A shape and a colour each; the shape alone is enough where there is no colour."""
_NAMES = 13
"""Columns of the longest name, `out of memory`."""
_TEXT = 2 + 2 + _NAMES + 2
_ROOM = 30
"""Columns that the text gets even on a terminal that is too narrow for it."""


def lines(checked: Sequence[Checked], width: int, *, color: bool) -> Iterator[str]:
    """A heading for each group, a line for each check, and below it, unless all is well, why it matters and what to do."""
    for number, (group, members) in enumerate(groupby(checked, lambda one: one.group)):
        if number:
            yield ""
        yield _styled(group.capitalize(), "1", color=color)
        for one in members:
            yield from _check(one, width, color=color)


def _check(one: Checked, width: int, *, color: bool) -> Iterator[str]:
    finding = one.finding
    sign, code = SIGNS[finding.state]
    well = finding.state is State.OK
    first, *rest = _wrapped(finding.seen, width) or [""]
    yield f"  {_styled(sign, code, color=color)} {one.name:<{_NAMES}}  {_styled(first, '2' if well else '', color=color)}".rstrip()
    for text in rest:
        yield " " * _TEXT + _styled(text, "2" if well else "", color=color)
    if well:
        return
    for text in _wrapped(finding.why, width):
        yield " " * _TEXT + _styled(text, "2", color=color)
    if finding.fix:  # never broken: half of a command that somebody copies must not run
        yield " " * _TEXT + "→ " + one_line(finding.fix)


def _wrapped(text: str, width: int) -> list[str]:
    """Broken only between words: a path that is too long stays whole."""
    return textwrap.wrap(one_line(text), max(_ROOM, width - _TEXT), break_long_words=False, break_on_hyphens=False)


def _styled(text: str, code: str, *, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color and code and text else text


def counts(checked: Iterable[Checked]) -> dict[str, int]:
    """How many are in each state."""
    found = dict.fromkeys(map(str, State), 0)
    for one in checked:
        found[one.finding.state] += 1
    return found


def summary(checked: Sequence[Checked]) -> str:
    """One sentence on all, with the next command where one of ours helps."""
    number = counts(checked)
    parts = {"not working": number["fail"], "to look at": number["warn"], "unknown": number["unknown"]}
    bad = [f"{count} {what}" for what, count in parts.items() if count]
    text = ", ".join([*bad, f"{number['ok']} fine"]) if bad else f"all {number['ok']} are fine"
    mendable = sum(one.finding.mend is not None for one in checked)
    return f"{text}; next: nightcrew doctor --fix mends {mendable} of them" if mendable else text


def shape(checked: Sequence[Checked], mended: list[dict[str, Any]]) -> dict[str, Any]:
    """What `--json` prints, beside `schema`."""
    return {
        "checks": [
            {
                "group": one.group,
                "name": one.name,
                "state": str(one.finding.state),
                "seen": one.finding.seen,
                "why": one.finding.why,
                "fix": one.finding.fix,
                "fixable": one.finding.mend is not None,
            }
            for one in checked
        ],
        "counts": counts(checked),
        "mended": mended,
    }
