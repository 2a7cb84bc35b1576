"""Which notes go to the archive, and why. Pure: whoever acts on it archives by the store's door, which deletes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memory.about_files import is_dead
from memory.layout import CORE_MAX, Kind
from supervisor.core.notes import MemoryTerms
from supervisor.core.units import size

DAY_S = 86400.0
REPLACED = (Kind.SEMANTIC, Kind.PROCEDURAL)
"""Kinds of which one note may take the place of another."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One file of a memory. Moments are seconds since 1970."""

    path: str
    kind: Kind
    size: int
    changed: float
    """For records of a day: when that day was over."""
    id: str = ""
    supersedes: tuple[str, ...] = ()
    """Ids or paths of the notes that this one takes the place of."""
    expires: float | None = None
    globs: tuple[str, ...] = ()
    by_person: bool = False
    """A person wrote or approved it as it is."""


@dataclass(frozen=True, slots=True)
class Prune:
    """One file that goes."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pruning would do."""

    prunes: tuple[Prune, ...]
    days: tuple[Prune, ...]
    """Days of records, of each of which a summary is made first."""
    remarks: tuple[str, ...] = ()
    """What a person should look at: it is not pruned."""


def plan(found: Iterable[Candidate], read: Mapping[str, float], tracked: Sequence[str] | None, now: float, terms: MemoryTerms) -> Plan:
    """`read`: when each note was read last. `tracked`: the files of the repository, sorted; None: nobody knows, and no path is dead."""
    files = sorted(found, key=lambda one: one.path)
    notes = [one for one in files if one.kind in REPLACED]
    superseded = _superseded(notes, terms.approval)
    going: dict[str, str] = {}
    for one in notes:
        if why := _why(one, superseded, max(read.get(one.path, 0.0), one.changed), tracked, now, terms):
            going[one.path] = why
    left = [one for one in notes if one.kind is Kind.SEMANTIC and one.path not in going]
    going |= _over_budget(left, read, terms)
    days = [Prune(one.path, f"older than {_days(terms.episodic_s)}") for one in files if _is_old_day(one, now, terms)]
    remarks = [f"{one.path} has {size(one.size)}: agents are given its first {size(CORE_MAX)}" for one in files if _is_large_core(one)]
    return Plan(tuple(Prune(path, why) for path, why in sorted(going.items())), tuple(days), tuple(remarks))


def _superseded(notes: Sequence[Candidate], approval: frozenset[Kind]) -> dict[str, str]:
    """Which note takes the place of which, by path. Two that say it of each other both stay: nobody knows
    which is right. What an agent may not write unapproved it does not replace unapproved either."""
    by_name = {name: one for one in notes for name in (one.path, one.id) if name}
    claims = [(by_name[name], one) for one in notes for name in one.supersedes if name in by_name]
    heard = [(old, new) for old, new in claims if may_supersede(old.kind, new.kind, approval, by_person=new.by_person)]
    by_path = {old.path: new.path for old, new in heard if old.path != new.path}
    return {path: by for path, by in by_path.items() if not _comes_back(path, by_path)}


def may_supersede(old: Kind, new: Kind, approval: frozenset[Kind], *, by_person: bool) -> bool:
    """Whether the word of a note of the kind `new` counts for one of the kind `old`. `approval`: the kinds of which an agent's text waits
    for a person; `by_person`: one wrote or approved the new one as it is."""
    return old in REPLACED and new in REPLACED and (by_person or new in approval or old not in approval)


def _comes_back(path: str, by_path: Mapping[str, str]) -> bool:
    seen: set[str] = set()
    at = by_path.get(path, "")
    while at and at != path and at not in seen:
        seen.add(at)
        at = by_path.get(at, "")
    return at == path


def _why(one: Candidate, superseded: Mapping[str, str], used: float, tracked: Sequence[str] | None, now: float, terms: MemoryTerms) -> str:
    if one.expires is not None and one.expires <= now:
        return "expired"
    if by := superseded.get(one.path):
        return f"superseded by {by}"
    if tracked is not None and is_dead(one.globs, tracked):
        return f"no file is left at {', '.join(one.globs[:3])}"
    if now - used > terms.unread_s:
        return f"neither read nor changed for {_days(terms.unread_s)}"
    return ""


def _over_budget(notes: Sequence[Candidate], read: Mapping[str, float], terms: MemoryTerms) -> dict[str, str]:
    """Those that were used longest ago, until the rest fits."""
    total = sum(one.size for one in notes)
    going: dict[str, str] = {}
    for one in sorted(notes, key=lambda one: (max(read.get(one.path, 0.0), one.changed), one.path)):
        if total <= terms.semantic_max:
            break
        total -= one.size
        going[one.path] = f"facts have more than {size(terms.semantic_max)}, and this one was used longest ago"
    return going


def _is_old_day(one: Candidate, now: float, terms: MemoryTerms) -> bool:
    return one.kind is Kind.EPISODIC and now - one.changed > terms.episodic_s


def _is_large_core(one: Candidate) -> bool:
    return one.kind is Kind.CORE and one.size > CORE_MAX


def _days(seconds: float) -> str:
    count = seconds / DAY_S
    return f"{count:g} day{'' if count == 1 else 's'}"
