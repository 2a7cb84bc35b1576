"""Run every check, and show the findings."""

from __future__ import annotations

import importlib
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from supervisor.doctor.check_context import CheckContext, Checked, Finding, State, unknown
from supervisor.kernel.errors import NightcrewError, one_line
from supervisor.kernel.format import duration

# Examine
# -------
# Running every check, whatever is broken.


GROUPS = {
    "software": "machine:SOFTWARE_CHECKS",
    "machine": "machine:CHECKS",
    "environments": "machine:ENVIRONMENTS_CHECKS",
    "state": "state:CHECKS",
    "crew": "crew:CHECKS",
    "night": "crew:NIGHT_CHECKS",
}
"""Each group of checks, in their order, and the table of them as `module:name`."""
DEADLINE_S = 45.0
"""Of a whole examination. A check that has not answered by then is unknown and left behind: its thread ends with the process."""

Check = Callable[[CheckContext], Finding]


def examine(
    context: CheckContext, checks: Mapping[str, Mapping[str, Check]] | None = None, deadline_s: float = DEADLINE_S
) -> list[Checked]:
    """Every finding, in the order of the groups. Takes at most about `deadline_s` seconds and raises nothing that a check can raise."""
    found = [(group, name, check) for group, named in (checks or _all()).items() for name, check in named.items()]
    slots: list[Finding | None] = [None] * len(found)

    def look(index: int, check: Check) -> None:
        slots[index] = _guarded(check, context)

    threads = [threading.Thread(target=look, args=(index, check), daemon=True) for index, (_, _, check) in enumerate(found)]
    for thread in threads:
        thread.start()
    ends_at = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, ends_at - time.monotonic()))
    late = unknown(f"no answer in {duration(deadline_s)}", "something that it looks at hangs", "look at the disks: dmesg, df")
    return [Checked(group, name, slots[index] or late) for index, (group, name, _) in enumerate(found)]


def _all() -> dict[str, Mapping[str, Check]]:
    return {group: _group(group) for group in GROUPS}


def _group(name: str) -> Mapping[str, Check]:
    """The checks of a group; when it cannot be imported, one that says why."""
    try:
        module, _, table = GROUPS[name].partition(":")
        checks: Mapping[str, Check] = getattr(importlib.import_module(f"supervisor.doctor.{module}"), table)
    except Exception as error:  # noqa: BLE001 - a foreign or half-installed package can raise anything, and is what doctor is asked about
        return {name: _broken(error)}
    return checks


def _broken(error: Exception) -> Check:
    why = one_line(f"{type(error).__name__}: {error}")

    def check(context: CheckContext) -> Finding:  # noqa: ARG001 - the shape of every check
        return Finding(State.FAIL, why, "nightcrew's own files, or what it needs, are not all here", "install nightcrew anew")

    return check


def _guarded(check: Check, context: CheckContext) -> Finding:
    try:
        return check(context)
    except NightcrewError as error:
        return unknown(one_line(": ".join(part for part in (error.what, error.on, error.why) if part)), fix=error.hint)
    except Exception as error:  # noqa: BLE001 - one check that no one foresaw to fail must not hide the others
        return unknown(one_line(f"{type(error).__name__}: {error}"))


def mend(checked: list[Checked]) -> list[dict[str, Any]]:
    """Do everything that is safe. Returns for each `group`, `name`, `done` (whether it worked) and `what`."""
    return [{"group": one.group, "name": one.name, **_mended(one.finding.mend)} for one in checked if one.finding.mend is not None]


def without_failed(checked: list[Checked], mended: list[dict[str, Any]]) -> list[Checked]:
    """The findings of a second examination, without the mendings that have just failed: they would fail again."""
    failed = {(one["group"], one["name"]) for one in mended if not one["done"]}
    return [replace(one, finding=replace(one.finding, mend=None)) if (one.group, one.name) in failed else one for one in checked]


def _mended(act: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"done": True, "what": act()}
    except NightcrewError as error:
        return {"done": False, "what": error.line()}
    except OSError as error:
        return {"done": False, "what": one_line(str(error))}


# Output
# ------
# Findings as a page of text, and as the object of `--json`.


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
