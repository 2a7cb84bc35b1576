"""What there is of the past beside the ledger: the records of runs, their logs, and the gateway's recordings, each with its age, its size
and what still needs it. Looking only, without the supervisor."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from supervisor.core import keep
from supervisor.core.errors import Refused
from supervisor.core.keep import Going, Keep, Limit, RunFacts, Thing
from supervisor.host import disk, foreign
from supervisor.host.paths import Home
from supervisor.ledger import archive, archiving, queries, store

RESULTS, LOGS, RECORDINGS, HISTORY = "results", "logs", "recordings", "history"
LOG_FILES = ("stdout.log", "stderr.log", "gate.log")
"""Of an attempt."""
_LEFT = "left"
_ALL_PROVEN = 1 << 62


@dataclass(frozen=True, slots=True)
class Found:
    """Everything of one sort, and what of it goes now."""

    what: str
    limit: Limit
    things: int
    size: int
    going: list[Going]

    def to_json(self) -> dict[str, Any]:
        """For `--json` and the command line; sizes are bytes, ages seconds, 0 where nothing is set."""
        shape = {"what": self.what, "age_s": self.limit.age_s, "size_max": self.limit.size, "things": self.things, "bytes": self.size}
        return {**shape, "going": [{"name": one.thing.name, "bytes": one.thing.size, "why": one.why} for one in self.going]}


class Past:
    """One look: connections that are open until it is closed."""

    def __init__(self, home: Home, now: float) -> None:
        """Raises LedgerError, and Refused for a ledger that no supervisor of this version has opened yet. `now`: wall-clock seconds."""
        self._home, self._now = home, now
        self._db = store.connect_readonly(home.ledger)
        if self._db.execute("PRAGMA user_version").fetchone()[0] != store.SCHEMA:
            self._db.close()
            raise Refused("cannot look at the past yet", on=str(home.ledger), why="an older nightcrew wrote it", hint="nightcrew up -d")
        self._kept: sqlite3.Connection | None = None
        try:
            self._kept = archive.connect(home.archive) if home.archive.exists() else None
            self._continued = archiving.continued(self._db)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Idempotent."""
        for db in (self._db, self._kept):
            if db is not None:
                db.close()

    def look(self, terms: Keep) -> list[Found]:
        """All four, whether or not anything is set: sizes are counted."""
        return [
            self._found(RESULTS, terms.results, list(self.results())),
            self._found(LOGS, terms.logs, [thing for thing in self.logs() if thing.size]),
            self._found(RECORDINGS, terms.recordings, list(self.recordings())),
            self._found(HISTORY, terms.history, self.history(), archiving.used(self._db)),
        ]

    def _found(self, what: str, limit: Limit, things: Sequence[Thing], total: int | None = None) -> Found:
        size = sum(thing.size for thing in things) if total is None else total
        return Found(what, limit, len(things), size, keep.going(things, limit, self._now, size))

    def results(self, *, sized: bool = True) -> Iterator[Thing]:
        """The directory of each run among the records. Not `sized`, their sizes are 0: counting walks them."""
        for run in _names(self._home.runs):
            facts, why = self._facts(run)
            if facts is not None and not why and self._has_left(run):
                why = "it holds files that git does not take (left/), and no other copy is known"
            thing = Thing(run, facts.ended if facts is not None else self._now, 0, why)
            yield self.measured(thing) if sized else thing

    def measured(self, thing: Thing) -> Thing:
        """One of `results` with its size."""
        return replace(thing, size=disk.used([self._home.runs / thing.name]).bytes)

    def logs(self, known: Container[str] = ()) -> Iterator[Thing]:
        """The logs of each run that has any, but of those that are `known` to have none."""
        for run in _names(self._home.runs):
            if run in known:
                continue
            facts, why = self._facts(run)
            size = sum(seen.st_blocks * 512 for _, _, seen in log_files(self._home, run))
            yield Thing(run, facts.ended if facts is not None else self._now, size, why)

    def recordings(self) -> Iterator[Thing]:
        """Each file below the recordings, by its path there."""
        for folder in _names(self._home.recordings):
            facts, _ = self._facts(folder)
            held = "its run has not ended" if facts is not None and facts.unfinished else ""
            for name in _names(self._home.recordings / folder):
                with contextlib.suppress(OSError):
                    seen = (self._home.recordings / folder / name).lstat()
                    yield Thing(f"{folder}/{name}", seen.st_mtime, seen.st_blocks * 512, held)

    def history(self) -> list[Thing]:
        """Each run of the ledger, with its share of the file."""
        weighing = archiving.sized(self._db, [one for run in queries.runs(self._db, 1 << 40) if (one := self._of(self._db, run.id))])
        try:
            while True:
                next(weighing)
        except StopIteration as whole:
            return list(whole.value)

    def why_held(self, run: str) -> str:
        """Why nothing of the run's records may go now; empty: it may."""
        return self._facts(run)[1]

    def _facts(self, run: str) -> tuple[RunFacts | None, str]:
        facts = self._of(self._db, run)
        if facts is None and self._kept is not None:
            facts = self._of(self._kept, run)
            return facts, "" if facts is not None else _UNKNOWN
        return facts, keep.held(facts) if facts is not None else _UNKNOWN

    def _of(self, db: sqlite3.Connection, run: str) -> RunFacts | None:
        return archiving.facts_of(db, run, _ALL_PROVEN, self._continued)

    def _has_left(self, run: str) -> bool:
        return any(attempt.joinpath(_LEFT).is_dir() for attempt in attempts(self._home, run))


_UNKNOWN = "neither the ledger nor the archive knows it"


def attempts(home: Home, run: str) -> Iterator[Path]:
    """The directories of a run's attempts."""
    for task in _names(home.runs / run, folders=True):
        for epoch in _names(home.runs / run / task, folders=True):
            yield home.runs / run / task / epoch


def log_files(home: Home, run: str) -> Iterator[tuple[Path, str, os.stat_result]]:
    """The logs of a run: directory, name and what it is."""
    for attempt in attempts(home, run):
        with contextlib.suppress(OSError), foreign.folder(attempt) as here:
            for name in LOG_FILES:
                if (seen := here.look(name)) is not None and stat.S_ISREG(seen.st_mode):
                    yield attempt, name, seen


def _names(place: Path, *, folders: bool = False) -> list[str]:
    """What lies there, sorted; nothing when it is no directory. `folders`: directories only, no links to any."""
    try:
        with os.scandir(place) as found:
            return sorted(entry.name for entry in found if not folders or entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
