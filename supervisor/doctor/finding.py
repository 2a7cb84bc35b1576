"""What one look gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How well something is."""

    OK = "ok"
    WARN = "warn"
    """It works, and may hurt one night."""
    FAIL = "fail"
    """Something of nightcrew does not work."""
    UNKNOWN = "unknown"
    """It could not be looked at: no evidence of anything."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen of one thing, and what to do about it."""

    state: State
    seen: str
    why: str = ""
    """Why it matters, for whoever does not know."""
    fix: str = ""
    """What a person does about it: a command where there is one."""
    mend: Callable[[], str] | None = None
    """Does the safe part of it and says what it did. Raises NightcrewError or OSError when it cannot."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A finding with the name and the group of its check."""

    group: str
    name: str
    finding: Finding


def ok(seen: str) -> Finding:
    """All is well."""
    return Finding(State.OK, seen)


def warn(seen: str, why: str, fix: str, mend: Callable[[], str] | None = None) -> Finding:
    """It works, and may hurt one night."""
    return Finding(State.WARN, seen, why, fix, mend)


def fail(seen: str, why: str, fix: str, mend: Callable[[], str] | None = None) -> Finding:
    """Something of nightcrew does not work."""
    return Finding(State.FAIL, seen, why, fix, mend)


def unknown(seen: str, why: str = "", fix: str = "") -> Finding:
    """It could not be looked at."""
    return Finding(State.UNKNOWN, seen, why, fix)
