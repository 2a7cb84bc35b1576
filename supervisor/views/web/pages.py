"""The pages beside the crew's."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from aiohttp import web

from supervisor.features.landing import rows as landing_rows
from supervisor.features.landing import view as landing_view
from supervisor.features.landing.rows import TrainRow
from supervisor.features.landing.rules import Train
from supervisor.features.night import report_pages
from supervisor.features.night import rows as night_rows
from supervisor.features.night import view as night_view
from supervisor.gateway.account import reading, schema
from supervisor.gateway.account.reading import Totals
from supervisor.host import untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel.errors import LedgerError, NightcrewError, NotFound, Refused, UsageError, one_line
from supervisor.kernel.format import rfc3339
from supervisor.results import comparison
from supervisor.store import archive, queries, sqlite
from supervisor.store.journal import LOOKED_AT
from supervisor.store.queries import LATELY, RunView, TaskView
from supervisor.store.sqlite import LEDGER, Book
from supervisor.views import document, figures, status, waits
from supervisor.views.report import pages
from supervisor.views.web.events import Feature, Page, Route, Topic, plain
from supervisor.views.web.sessions import Access, Who

# Asked
# -----
# What the address of a page asks for, and where its data lies.


Asked = Mapping[str, str]
"""The words of an address, by name."""
ROWS = 50
"""Of a page."""
BUSY_S = 1.5
"""Somebody else may hold a file for so long before a page says that it is held."""
NUMBER_MAX = 2**62


def number(asked: Asked, name: str) -> int | None:
    """A number from 0 on; None when there is none. Raises UsageError for anything else."""
    text = asked.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > NUMBER_MAX:
        raise UsageError("no number", on=name, why="it has other signs than digits, or too many")
    return int(text)


def before(asked: Asked) -> int:
    """Those before this number are asked for; without one all."""
    found = number(asked, "before")
    return NUMBER_MAX if found is None else found


@contextlib.contextmanager
def opened(path: Path, book: Book = LEDGER) -> Iterator[sqlite3.Connection]:
    """A file of ours for looking. Raises NotFound while there is none, LedgerError when it cannot be read."""
    if not path.exists():
        raise NotFound(f"no {book.name.removeprefix('the ')} yet", why=book.absent, hint=book.first)
    with contextlib.closing(sqlite.connect_readonly(path, book=book, busy_s=BUSY_S)) as db:
        yield db


# Written
# -------
# The reports of a run that were written, as pages: made anew from their JSON by our own templates, so that the page which is served
# runs exactly the script that we ship, whatever lies in the file of the page.


BYTES_MAX = 16 * 2**20
_FROM_HERE = "sandbox allow-scripts; frame-ancestors 'none'"
"""Beside the policy of a report's page: it has no origin, so it reaches neither our cookie nor our addresses."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of report."""

    file: str
    """Of its JSON, in the run's directory."""
    render: Callable[[Mapping[str, Any]], str]
    command: str


KINDS: Mapping[str, Kind] = {
    "report": Kind("report.json", pages.render_html, "nightcrew report"),
    "night": Kind("night.json", report_pages.render_html, "nightcrew night report"),
}


def report_policy() -> str:
    """The Content-Security-Policy of every page of a report, as the header that goes with it."""
    return f"{document.policy()}; {_FROM_HERE}"


def of_run(home: Home, run: str) -> list[str]:
    """The kinds of report that a run has."""
    return [name for name, kind in KINDS.items() if _is_file(home, run, kind)]


def _is_file(home: Home, run: str, kind: Kind) -> bool:
    try:
        return stat.S_ISREG((home.runs / run / kind.file).lstat().st_mode)
    except OSError:
        return False


def page(home: Home, run: str, name: str) -> str:
    """One of them as HTML. Raises NotFound when there is none of such a run, Refused when it cannot be shown."""
    with contextlib.closing(archive.reader(home.ledger, home.archive, run)) as db:
        queries.run(db, run)  # a name that it knows is no path
    kind = KINDS.get(name)
    data = untrusted_fs.read_plain(home.runs / run / kind.file, BYTES_MAX + 1) if kind is not None else None
    if kind is None or data is None:
        raise NotFound("no report was written of", on=run, hint=f"{kind.command if kind else 'nightcrew report'} {run}")
    if len(data) > BYTES_MAX:
        raise Refused("too large to show here", on=kind.file, why=f"more than {BYTES_MAX >> 20} MiB", hint=f"{kind.command} {run}")
    try:
        return kind.render(json.loads(data))
    except Exception as error:  # a file of another version, or one that somebody changed: the template meets what it does not know
        why = f"{kind.file} is not as this version writes it"
        raise Refused("cannot show the report", on=run, why=why, kept="its files", hint=f"{kind.command} {run}") from error


# Pages
# -----
# The pages beside the crew's: limits, runs, trains, maps, memory, mail, audit, resources. `drawing` makes elements of what
# `models` reads.
#
# A report of a run is a document of its own, under a policy of its own. A browser can only open it by its address, so the address
# holds a proof that one of our pages gave it: the cookie alone is sent to every port of this machine.


Read = Callable[[Asked], Mapping[str, Any]]
SHARED_S = 1.0
"""An answer is given to all who ask for the same in so many seconds."""
_ROWS = ("Runs", "Trains", "Maps", "Memory", "Mail", "Audit", "Resources", "More")
PAGES = (
    Page("/limits", "Limits", "limits.js", "Limits"),
    Page("/run/{run}", "Run", "rows.js"),
    *(Page(f"/{one.lower()}", one, "rows.js", one) for one in _ROWS),
)


@dataclass(frozen=True, slots=True)
class Sources:
    """Who looks. All but the topics are called in threads, and may raise NightcrewError."""

    reads: Mapping[str, Read]
    """What a page shows, as `drawing.page`, by the name that it has in its address and after `/data/`."""
    report: Callable[[str, str], str]
    """The report of a run, of a kind."""
    topics: Mapping[str, Callable[[str], Topic]]


def feature(sources: Sources) -> Feature:
    """All of them. The page More is there when another package has something to show."""
    return Feature(
        pages=PAGES if "more" in sources.reads else tuple(page for page in PAGES if page.path != "/more"),
        routes=(
            *(Route("GET", f"/data/{name}", Access.DATA, _data(read)) for name, read in sources.reads.items()),
            Route("GET", "/report/{run}/{kind}/{proof}", Access.PAGE, _report(sources)),
        ),
        topics=sources.topics,
    )


def _data(read: Read) -> Callable[[web.Request, Who | None], Any]:
    recent = Recent(read)

    async def answer(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        return web.Response(body=await recent.get(dict(request.query)), content_type="application/json")

    return answer


class Recent:
    """The last answers of one address. However many browsers ask for the same at once, somebody looks once, and at most every SHARED_S.
    Who has seen a commit says which, so that it gets no answer of before."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._found: dict[tuple[tuple[str, str], ...], tuple[float, asyncio.Future[bytes]]] = {}

    async def get(self, asked: Asked) -> bytes:
        """The answer as JSON. Raises what the look raised."""
        key, now = tuple(sorted(asked.items())), time.monotonic()
        self._found = {one: kept for one, kept in self._found.items() if not kept[1].done() or now - kept[0] < SHARED_S}
        if key not in self._found:
            look = asyncio.ensure_future(asyncio.to_thread(_encoded, self._read, asked))
            look.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # who asked may have left meanwhile
            self._found[key] = now, look
        return await asyncio.shield(self._found[key][1])


def _encoded(read: Read, asked: Asked) -> bytes:
    return json.dumps(plain(_read(read, asked)), separators=(",", ":"), allow_nan=False).encode("ascii")


def _read(read: Read, asked: Asked) -> Mapping[str, Any]:
    try:
        return read(asked)
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # a row that holds what no version of ours has written
        raise LedgerError("cannot show what is there", why=f"a row is not as it was written ({type(error).__name__})") from error


# Reports --------------------------------------------------------------------------------------------------------------------------


_SECRET = os.urandom(32)
"""Proves that an address of a report is from a page of this process."""


def report_address(run: str, kind: str) -> str:
    """Where a browser can open a report of a run."""
    return f"/report/{quote(run, safe='')}/{kind}/{_proof(run, kind)}"


def _proof(run: str, kind: str) -> str:
    return hmac.new(_SECRET, f"{run}\0{kind}".encode(), hashlib.sha256).hexdigest()


def _report(sources: Sources) -> Callable[[web.Request, Who | None], Any]:
    async def answer(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        run, kind, proof = (request.match_info[name] for name in ("run", "kind", "proof"))
        if not hmac.compare_digest(proof.encode(), _proof(run, kind).encode()):
            raise NotFound("this address of a report is of another time", on=run[:40], hint="open it again from the page of the run")
        page = await asyncio.to_thread(sources.report, run, kind)
        return web.Response(text=page, content_type="text/html", headers={"Content-Security-Policy": report_policy()})

    return answer


# Projects
# --------
# Which project a page shows: memory, mail and trains belong to one.


PROJECTS = 50
_RECENT = """
SELECT p.id, p.root FROM project p LEFT JOIN (
    SELECT project, max(rowid) AS newest FROM run WHERE rowid > (SELECT coalesce(max(rowid), 0) FROM run) - ? GROUP BY project
) r ON r.project = p.id ORDER BY r.newest DESC NULLS LAST, p.created DESC LIMIT ?
"""


def projects(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """`id`, `name` and `root`, the one that was used last first."""
    rows = db.execute(_RECENT, (LATELY, PROJECTS))
    return [{"id": str(row["id"]), "name": PurePath(row["root"]).name or str(row["root"]), "root": str(row["root"])} for row in rows]


def chosen(db: sqlite3.Connection, asked: Asked) -> tuple[str, list[dict[str, Any]]]:
    """The project that is asked for, or the one that was used last, and all of them. Raises NotFound when the ledger has no such one."""
    known, wanted = projects(db), asked.get("project", "")
    if not known:
        raise NotFound("no project yet", why="nothing was ever run here", hint="nightcrew run PLAN, or nightcrew start")
    if not wanted:
        return str(known[0]["id"]), known
    if db.execute("SELECT 1 FROM project WHERE id = ?", (wanted,)).fetchone() is None:
        raise NotFound("no project", on=wanted, hint="nightcrew status --all")
    return wanted, known


# Runs
# ----
# Runs, the newest first, and one run with its tasks, what they waited for and what they took.


Shape = dict[str, Any]


def runs(home: Home, asked: Asked) -> Shape:
    """`runs`, the newest first, also those that were archived; `older`: the run before which the next page begins, None at the end."""
    before = asked.get("before", "")
    with opened(home.ledger) as db:
        found = _page(db, before) if not before or queries.has_run(db, before) else []
        shapes = [_run(home, db, view) for view in found]
        shapes += _archived(home, db, before if not found else "", ROWS + 1 - len(found))
    return {"runs": shapes[:ROWS], "older": shapes[ROWS - 1]["id"] if len(shapes) > ROWS else None}


def _page(db: sqlite3.Connection, before: str) -> list[RunView]:
    return queries.runs(db, ROWS + 1, gates=False, before=before)


def _archived(home: Home, db: sqlite3.Connection, before: str, room: int) -> list[Shape]:
    """Of the archive, those that the ledger does not have: runs on their way are in both."""
    if room <= 0 or not home.archive.exists():
        return []
    found: list[RunView] = []
    with contextlib.closing(archive.connect(home.archive)) as kept:
        at = before if queries.has_run(kept, before) else ""
        while len(found) < room and (page := queries.runs(kept, ROWS, gates=False, before=at)):
            found += [view for view in page if not queries.has_run(db, view.id)]
            at = page[-1].id
        return [{**_run(home, kept, view), "archived": True} for view in found[:room]]


def _run(home: Home, db: sqlite3.Connection, view: RunView) -> Shape:
    night = night_rows.of_run(db, view.id)
    return {
        **status.run_shape(view),
        "archived": False,
        "reports": of_run(home, view.id),
        "night": None if night is None else {"state": str(night.state), "terms": night_view.words(night.terms), "why": one_line(night.why)},
    }


def run(home: Home, asked: Asked) -> Shape:
    """`run`; `spent`: what all of it took, by the gateway's account, None where nothing is known; `waits`: see `waited.of_tasks`; `tasks`,
    in the plan's order from `after` on, and `more`: the task after which the next page begins; `groups` of candidates among them. Raises
    NotFound."""
    name, after = asked.get("run", ""), asked.get("after", "")
    with contextlib.closing(archive.reader(home.ledger, home.archive, name)) if home.ledger.exists() else opened(home.ledger) as db:
        view = queries.run(db, name)
        found = queries.some_of_run(db, name, after, ROWS + 1)
        tasks = [str(row[0]) for row in db.execute("SELECT id FROM task WHERE run = ?", (name,))]
        return {
            "run": _run(home, db, view),
            "spent": _spent(home, name),
            "waits": _waits(db, tasks, float(asked.get("now") or 0.0)),
            "tasks": [_task(one) for one in found[:ROWS]],
            "more": found[ROWS - 1].id if len(found) > ROWS else None,
            "groups": comparison.of_tasks(db, [one.id for one in found[:ROWS]]),
        }


def _spent(home: Home, name: str) -> Shape | None:
    with contextlib.suppress(NightcrewError), opened(home.gateway_account, schema.ACCOUNT) as db:
        return _total(reading.of_run(db, name))
    return None


def _total(found: Totals) -> Shape:
    return {
        "requests": found.requests, "tokens": found.tokens.total,
        "cache_read": found.tokens.cache_read, "cost_usd": found.cost_usd, "known_usd": found.known_usd,
        "wait_s": round(found.wait_s, 1), "under_way": found.under_way,
    }  # fmt: skip


def _waits(db: sqlite3.Connection, tasks: list[str], now: float) -> Shape | None:
    found = waits.of_tasks(db, tasks, now)
    if found is None:
        return None
    top = [{**one, "whom": waits.whom(one)} for one in found["top"]]
    return {**found, "top": top, "said": waits.sentence(found)}


def _task(view: TaskView) -> Shape:
    """One line of a table."""
    result = view.result or {}
    spent = figures.of([view.result])
    waits: Mapping[str, Any] = result.get("waits") or {}
    diff: Mapping[str, Any] = result.get("diff") or {}
    return {
        "id": view.id, "name": view.name, "title": view.title, "kind": view.kind, "state": str(view.state),
        "why": one_line(status.why(view) or status.last_message(view.result)),
        "started": rfc3339(view.started or view.created),
        "seconds": _lasted(view), "queue_s": waits.get("queue_s"), "tokens_s": waits.get("tokens_s"), "human_s": waits.get("human_s"),
        "tokens": spent["tokens"] if spent else None, "cost_usd": spent["cost_usd"] if spent else None,
        "files": diff.get("files"), "plus": diff.get("plus"), "minus": diff.get("minus"),
    }  # fmt: skip


def _lasted(view: TaskView) -> float | None:
    begin = view.started or view.created
    return round(view.ended - begin, 1) if view.ended and begin else None


# Trains
# ------
# Trains of merges and groups of candidates, the newest first, each with what a person can type.


TRAINS, ENTRIES, GROUPS = 10, 100, 20
_GROUPS = """
SELECT id FROM task WHERE ord > (SELECT coalesce(max(ord), 0) FROM task) - ? AND project = ?
AND coalesce(json_extract(spec, '$.decide'), '') <> '' ORDER BY ord DESC LIMIT ?
"""


def trains(home: Home, asked: Asked) -> Shape:
    """`trains` of a project, and `older`: the number before which the next ones are; on the first page `groups`, of the newest tasks."""
    with opened(home.ledger) as db:
        project, projects = chosen(db, asked)
        found = landing_rows.newest(db, project, at_most=TRAINS + 1, before=before(asked))
        return {
            "project": project,
            "projects": projects,
            "trains": [_train(row) for row in found[:TRAINS]],
            "older": found[TRAINS - 1].number if len(found) > TRAINS else None,
            "groups": [] if asked.get("before") else _groups(db, project),
        }


def _train(row: TrainRow) -> Shape:
    train = row.train
    shape = landing_view.shape(row)
    entries = [
        {**one, "title": one_line(entry.title), "type": [*filter(None, landing_view.commands(train, entry))]}
        for one, entry in zip(shape["entries"], train.entries, strict=True)
    ]
    return {
        **shape,
        "began": rfc3339(row.began), "changed": rfc3339(row.changed), "said": landing_view.summary(train), "type": _commands(train),
        "entries": entries[:ENTRIES], "more_entries": max(0, len(entries) - ENTRIES),
    }  # fmt: skip


def _commands(train: Train) -> list[str]:
    return [*filter(None, (train.by_hand, landing_view.next_command(train)))]


def _groups(db: sqlite3.Connection, project: str) -> list[Shape]:
    names = [str(row[0]) for row in db.execute(_GROUPS, (LOOKED_AT, project, GROUPS))]
    found = {one["group"]: one for one in comparison.of_tasks(db, names)}
    return [found[name] for name in names if name in found]
