"""The crew for a screen that is looked at for hours: each source is asked as often as it is worth it, and an answer is kept until then."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from supervisor.cli import common, looking
from supervisor.cli.crew import takable
from supervisor.cli.crew.pages import PageReader
from supervisor.core.errors import NightcrewError
from supervisor.core.states import TaskState
from supervisor.daemon import gateway_report, lock, protocol
from supervisor.faces import conflicts, landing, waits
from supervisor.faces import status as text
from supervisor.faces.crew import Crew, Seen
from supervisor.faces.crew import crew as grouped
from supervisor.faces.doors import Page, Text
from supervisor.faces.places import Train
from supervisor.host.paths import Home
from supervisor.ledger import deliveries, mail, queries, store
from supervisor.ledger.queries import TaskView

if TYPE_CHECKING:
    from supervisor.faces.review import Review  # a start has no time for it

SHOWN, ENDED = 100, 50
"""Tasks that wait, and tasks that ended."""
ROWS_S, NEEDS_S, SLOW_S, TAKE_S = 5.0, 1.0, 2.0, 10.0
"""Seconds between two looks: at a ledger where nothing was written, at who needs a person, at the gateway and the machine, at branches."""
ABSENT = "no supervisor: agents that live go on, nothing new starts; nightcrew up -d"
STOPPED = "everything is stopped; nightcrew thaw"
T = TypeVar("T")


class Kept(Generic[T]):
    """An answer that is asked for again after some seconds."""

    def __init__(self, every_s: float, ask: Callable[[], T]) -> None:
        self._every_s, self._ask = every_s, ask
        self._next = 0.0
        self._value: T | None = None

    def get(self) -> T:
        """The answer, at most as old as that."""
        if self._value is None or time.monotonic() >= self._next:
            self._value = self._ask()
            self._next = time.monotonic() + self._every_s
        return self._value

    def forget(self) -> None:
        """Ask at the next `get`."""
        self._next = 0.0


@dataclass(frozen=True, slots=True)
class _Rows:
    """What the ledger says."""

    views: list[TaskView]
    counts: Counter[TaskState]
    waits: text.Waiting
    trains: Mapping[str, Train] = field(default_factory=dict)
    """By task, the train of each gate."""


class CrewReader:
    """Belongs to one thread."""

    def __init__(self, where: Home) -> None:
        self._where = where
        self._db: sqlite3.Connection | None = None
        self._version = -1
        self._rows = Kept(ROWS_S, self._read)
        self._asked = Kept(NEEDS_S, lambda: common.needs(where, watches=True))
        self._heard = Kept(SLOW_S, lambda: gateway_report.hear(where))
        self._gateway = Kept(SLOW_S, self._look_at_gateway)
        self._capacity = Kept(SLOW_S, self._look_at_capacity)
        self._takable = Kept(TAKE_S, lambda: takable.find(where))
        self._done = 0

    def crew(self, visible: Collection[str]) -> Crew:
        """As `Reading.crew`."""
        try:
            return self._crew(visible)
        except (NightcrewError, sqlite3.Error, OSError) as error:
            self._close()
            return grouped(Seen(supervisor=error.line() if isinstance(error, NightcrewError) else str(error)))

    def forget(self) -> None:
        """Look at everything anew: a person just changed something."""
        for one in (self._rows, self._asked, self._heard, self._takable):
            one.forget()
        self._version = -1

    def stirred(self) -> bool:
        """Whether something was committed since the last look; costs next to nothing."""
        if self._db is None:
            return self._where.ledger.exists()
        return bool(self._db.execute("PRAGMA data_version").fetchone()[0] != self._version)

    def close(self) -> None:
        """Let the ledger go; a later look opens it again."""
        self._close()

    def _crew(self, visible: Collection[str]) -> Crew:
        runs = lock.holder(self._where.lock) is not None
        self._notice_changes()
        rows = self._rows.get()
        needs = self._asked.get() if runs else common.Needs()
        gateway, capacity = self._gateway.get(), self._capacity.get() if runs else None
        limited = {
            one["name"]: "rate_limited" for one in (gateway or {}).get("agents", ()) if one.get("queued") and not one.get("in_flight")
        }
        found = self._takable.get() if self._db is not None else takable.Results()
        held = replace(
            rows.waits,
            asked={one["task"]: one for one in needs.asked},
            states={**needs.states, **limited},
            conflicts={**found.conflicts, **rows.waits.conflicts},
        )
        branches = found.to_take
        known = {view.id for view in rows.views}
        others = self._others([task for task in held.asked if task not in known])
        views = [*rows.views, *(view for view in branches if view.id not in known), *others]
        said = STOPPED if self._where.sentinel.exists() else "" if runs else ABSENT
        troubles = [f"the gateway: {one}" for one in self._heard.get().troubles] if runs else []
        seen = Seen(views, rows.counts, held, {view.id for view in branches}, found.merged, rows.trains, said, troubles, gateway, capacity)
        crew = grouped(seen, lambda view: text.detail(view, self._where.root) if view.id in visible else "")
        return replace(crew, told=needs.told, told_line=needs.line)

    def _others(self, tasks: list[str]) -> list[TaskView]:
        """Those that need a person and for which there is no room among those that wait."""
        return queries.several(self._db, tasks) if self._db is not None and tasks else []

    def _notice_changes(self) -> None:
        """SQLite counts what others committed: while that stands still, rows need not be read."""
        if self._db is None and self._where.ledger.exists():
            self._db = store.connect_readonly(self._where.ledger)
        if self._db is not None and (version := self._db.execute("PRAGMA data_version").fetchone()[0]) != self._version:
            self._version = version
            self._rows.forget()

    def _read(self) -> _Rows:
        if self._db is None:
            return _Rows([], Counter(), text.NOTHING_WAITS)
        views, counts = queries.foremost(self._db, SHOWN), queries.unfinished_counts(self._db)
        ended = queries.ended_lately(self._db, ENDED)
        known = {view.id for view in ended}
        ended += [view for view in queries.failed_before(self._db, "", ENDED) if view.id not in known]
        views += ended
        counts += text.counted(ended)
        done = sum(view.state is TaskState.DONE for view in views)
        if done != self._done:
            self._done = done
            self._takable.forget()
        runs = lock.holder(self._where.lock) is not None
        heard = self._heard.get() if runs and any(view.state is TaskState.READY for view in views) else gateway_report.Heard()
        reasons = waits.reasons(self._db, views, heard.conditions, runs=runs, wall=time.time())
        held = text.waiting((), deliveries.pending(self._db), {}, reasons, mail.asked_of_person(self._db))
        of_results = landing.of_results(self._where.root, self._db, views)
        held = replace(held, conflicts=conflicts.of_living(self._where, views), trains=of_results)
        return _Rows(views, counts, held, landing.of_gates(self._db, views))

    def _look_at_gateway(self) -> dict[str, Any] | None:
        if not self._where.gateway_record.exists():
            return None
        from supervisor.faces import gateway_json  # a fifth of what a start imports, and only for who has a gateway

        try:
            return gateway_json.look(self._where, time.time(), timeout_s=looking.GATEWAY_S)
        except NightcrewError as error:
            return {"running": False, "why": error.line(), "agents": [], "figures": {"unpriced": 0, "known_usd": 0.0, "window_s": 0.0}}

    def _look_at_capacity(self) -> dict[str, Any] | None:
        with contextlib.suppress(NightcrewError):
            return protocol.call(self._where.daemon_socket, "capacity", {}, timeout_s=common.NEEDS_S)
        return None

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db, self._version = None, -1
        self._rows.forget()


class Lookout:
    """`Reading` of one home."""

    def __init__(self, where: Home) -> None:
        self._crew, self._pages = CrewReader(where), PageReader(where)

    def crew(self, visible: Collection[str]) -> Crew:
        """As `Reading.crew`."""
        return self._crew.crew(visible)

    def page(self, view: TaskView, page: Page, mark: str) -> Text | None:
        """As `Reading.page`."""
        return self._pages.page(view, page, mark)

    def stirred(self) -> bool:
        """As `Watched.stirred`."""
        return self._crew.stirred()

    def forget(self) -> None:
        """As `Watched.forget`."""
        self._crew.forget()

    def close(self) -> None:
        """As `Watched.close`."""
        self._crew.close()

    def view(self, task: str) -> TaskView:
        """As `Looking.view`."""
        return self._pages.view(task)

    def result(self, view: TaskView, mark: str) -> tuple[Review, str] | None:
        """As `Looking.result`."""
        return self._pages.result(view, mark)
