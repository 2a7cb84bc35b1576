"""Looks at the ledger and the account for the page: at most one every few seconds, however often the page is asked for, in a thread, and
in bounded steps. What a look counted is shown when it is on the disk: no counter goes back over the death of any process.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from supervisor.core.errors import NightcrewError, ToolFailed
from supervisor.core.metrics import catalog
from supervisor.core.metrics.counts import Counts
from supervisor.gateway.account import counting as account_counting
from supervisor.gateway.account import schema
from supervisor.gateway.account.writer import Account
from supervisor.ledger import counting, store
from supervisor.ledger.counting import Moment

EVERY_S = 5.0
"""A page is at most so much older than its scrape."""
TOLD_S = 30.0
"""A supervisor that has said nothing for so long is gone, or hangs."""
STEPS = 20
"""Of one look; what is left then is counted by the next one."""
NAME = "metrics"
"""Of the row of the account's `memory`."""
_UNREADABLE = (NightcrewError, sqlite3.Error, ValueError, KeyError, TypeError)
Said = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What the last look found."""

    counts: Counts
    moment: Moment = field(default_factory=Moment)
    sources: Mapping[str, bool] = field(default_factory=dict)
    """Whether each could be read."""
    disk: tuple[int, int] | None = None
    """Bytes free and in all."""


class Looks:
    """Belongs to one event loop."""

    def __init__(self, root: Path, ledger: Path, account: Account, now: Callable[[], float]) -> None:
        """`root`: the state's directory; `now`: monotonic seconds."""
        self._root, self._ledger, self._account, self._now = root, ledger, account, now
        self._kept = ""
        self._found: Found | None = None
        self._looked_at = -EVERY_S
        self._look: asyncio.Task[None] | None = None
        self._trouble: NightcrewError | None = None
        self._said: Said = {}
        self._said_at = -TOLD_S

    def told(self, said: Said) -> None:
        """What the supervisor says of itself and its agents; it says so again and again."""
        self._said, self._said_at = said, self._now()

    @property
    def said(self) -> Said | None:
        """What it said last; None when that was too long ago."""
        return self._said if self._now() - self._said_at < TOLD_S else None

    async def fresh(self) -> Found:
        """What was found at most EVERY_S ago. Who asks while a look is under way waits for that one. Raises NightcrewError when no look
        has succeeded: what was counted before is not known then, and counters that begin at 0 would say that nothing was."""
        if self._look is None and (self._found is None or self._now() - self._looked_at >= EVERY_S):
            self._look = asyncio.get_running_loop().create_task(self._again())
        if self._look is not None:
            await asyncio.shield(self._look)
        if self._found is None:
            raise self._trouble or ToolFailed("nothing was counted yet", on=str(self._ledger))
        return self._found

    async def close(self) -> None:
        """Let the look under way end."""
        if self._look is not None:
            await asyncio.wait([self._look])

    async def _again(self) -> None:
        try:
            found, text = await asyncio.to_thread(self._read, self._kept, self._said)
            if text != self._kept:
                await self._account.keep(NAME, text)
                self._kept = text
            self._found = found
        except NightcrewError as error:  # it could not be written: what was shown before is shown again
            self._trouble = error
            if self._found is not None:
                self._found = replace(self._found, sources={**self._found.sources, "account": False})
        finally:
            self._looked_at, self._look = self._now(), None

    def _read(self, kept: str, said: Said) -> tuple[Found, str]:
        """In a thread."""
        counts = _counts(kept or self._account.kept(NAME))
        before = self._found.moment if self._found is not None else Moment()
        counts, moment, ledger = self._of_ledger(counts, before)
        counts, account = self._of_account(counts)
        if said:
            counts.ratchet(catalog.FS_OVERFLOWS, of=f"supervisor {said['pid']} {said['since']}", what="overflows", to=said["overflows"])
        return Found(counts, moment, {"ledger": ledger, "account": account}, _disk(self._root)), counts.to_json()

    def _of_ledger(self, counts: Counts, before: Moment) -> tuple[Counts, Moment, bool]:
        """With what is new in the ledger, or as it was when that cannot be read."""
        if not self._ledger.exists():
            return counts, Moment(), True
        trial, moment = counts.copy(), before
        try:
            with contextlib.closing(store.connect_readonly(self._ledger)) as db:
                for _ in range(STEPS):
                    moment, more = counting.count(db, trial)
                    if not more:
                        break
        except _UNREADABLE:
            return counts, before, False
        return trial, moment, True

    def _of_account(self, counts: Counts) -> tuple[Counts, bool]:
        trial = counts.copy()
        try:
            with contextlib.closing(schema.connect_readonly(self._account.path)) as db:
                for _ in range(STEPS):
                    if not account_counting.count(db, trial):
                        break
        except _UNREADABLE:
            return counts, False
        return trial, True


def _counts(kept: str) -> Counts:
    """What was kept; of what cannot be read the counters begin anew, which Prometheus takes for a restart."""
    if not kept:
        return Counts()
    try:
        return Counts.from_json(kept)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Counts()


def _disk(root: Path) -> tuple[int, int] | None:
    try:
        found = shutil.disk_usage(root)
    except OSError:
        return None
    return found.free, found.total
