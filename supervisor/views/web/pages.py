"""The pages beside the crew's."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from aiohttp import web

from supervisor.features.landing import rows as landing_rows
from supervisor.features.landing import view as landing_view
from supervisor.features.landing.rows import TrainRow
from supervisor.features.map import open_map
from supervisor.features.night import morning_report as morning_pages
from supervisor.features.night import rows as night_rows
from supervisor.features.night import view as night_view
from supervisor.features.night.rows import NightRow
from supervisor.gateway.account import queries as reading
from supervisor.gateway.account import schema
from supervisor.host import untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel.errors import LedgerError, NightcrewError, NotFound, Refused, UsageError, one_line
from supervisor.kernel.format import duration, many, money, percent, short
from supervisor.results import comparison
from supervisor.results.comparison import HEADS
from supervisor.store import archive, queries, sqlite
from supervisor.store.journal import LOOKED_AT
from supervisor.store.queries import LATELY, RunView, TaskView
from supervisor.store.sqlite import LEDGER, Book
from supervisor.views import document, figures, status, waits
from supervisor.views.report import pages
from supervisor.views.web import drawing
from supervisor.views.web.drawing import Child, Element, commands, el, link, mark, moment, note, pager, section, span, state, table
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
    "night": Kind("night.json", morning_pages.render_html, "nightcrew night report"),
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
# What serves the pages beside the crew's: limits, runs, trains, maps, memory, mail, audit, resources. A function of a page reads rows and
# draws them.
#
# A report of a run is a document of its own, under a policy of its own. A browser can only open it by its address, so the address
# holds a proof that one of our pages gave it: the cookie alone is sent to every port of this machine.


Read = Callable[[Asked], Mapping[str, Any]]
SHARED_S = 1.0
"""An answer is given to all who ask for the same in so many seconds."""
_ROWS = ("Limits", "Runs", "Trains", "Maps", "Memory", "Mail", "Audit", "Resources", "More")
PAGES = (
    Page("/run/{run}", "Run", "rows.js"),
    *(Page(f"/{one.lower()}", one, "rows.js", one) for one in _ROWS),
)


def feature(home: Home, reads: Mapping[str, Read], topics: Mapping[str, Callable[[str], Topic]]) -> Feature:
    """All of them. `reads`: what a page shows, as `drawing.page`, by the name that it has in its address and after `/data/`; called in
    threads, may raise NightcrewError. The page More is there when another package has something to show."""
    return Feature(
        pages=[page for page in PAGES if page.path != "/more" or "more" in reads],
        routes=(
            *(Route("GET", f"/data/{name}", Access.DATA, _data(read)) for name, read in reads.items()),
            Route("GET", "/report/{run}/{kind}/{proof}", Access.PAGE, _report(home)),
        ),
        topics=topics,
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


def _report(home: Home) -> Callable[[web.Request, Who | None], Any]:
    async def answer(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        run, kind, proof = (request.match_info[name] for name in ("run", "kind", "proof"))
        if not hmac.compare_digest(proof.encode(), _proof(run, kind).encode()):
            raise NotFound("this address of a report is of another time", on=run[:40], hint="open it again from the page of the run")
        return web.Response(
            text=await asyncio.to_thread(page, home, run, kind),
            content_type="text/html",
            headers={"Content-Security-Policy": report_policy()},
        )

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


def chosen(db: sqlite3.Connection, asked: Asked) -> tuple[str, Element | None]:
    """The project that is asked for, or the one that was used last, and what lets a person choose another. Raises NotFound when the ledger
    has no such project."""
    known = {str(row["id"]): str(row["root"]) for row in db.execute(_RECENT, (LATELY, PROJECTS))}
    if not known:
        raise NotFound("no project yet", why="nothing was ever run here", hint="nightcrew run PLAN, or nightcrew start")
    wanted = asked.get("project") or next(iter(known))
    if wanted not in known and db.execute("SELECT 1 FROM project WHERE id = ?", (wanted,)).fetchone() is None:
        raise NotFound("no project", on=wanted, hint="nightcrew status --all")
    options = [(name, f"{PurePath(root).name or root}  {root}") for name, root in known.items()]
    return wanted, drawing.choice(asked, "Project", "project", options, wanted)


# Runs
# ----
# Runs, the newest first, and one run with its tasks, what they waited for and what they took.


_LINKS = {"report": "Report of the run", "night": "Report of the night"}


@dataclass(frozen=True, slots=True)
class _Run:
    """A run, the night that it is, and the kinds of its reports."""

    view: RunView
    night: NightRow | None
    reports: Sequence[str]
    is_archived: bool = False

    @property
    def counts(self) -> list[Element]:
        return [span("count", state(name), f" {number} ") for name, number in self.view.counts.items()]

    @property
    def mark(self) -> Element | None:
        if self.night is None:
            return None
        return mark("N", f"night, {self.night.state}: {night_view.words(self.night.terms)}", "ask")

    @property
    def row(self) -> list[Child]:
        written = [mark("R", "night report" if kind == "night" else "report", "good") for kind in self.reports]
        marks = span("marks", self.mark, *written, mark("–", "archived", "off") if self.is_archived else None)
        view = self.view
        name = link(f"/run/{quote(view.id)}", view.id, view.id)
        return [name, view.title, span("counts", *self.counts), moment(view.created), marks, view.root]


def _run(home: Home, db: sqlite3.Connection, view: RunView, *, is_archived: bool = False) -> _Run:
    return _Run(view, night_rows.of_run(db, view.id), of_run(home, view.id), is_archived)


def runs(home: Home, asked: Asked) -> dict[str, Any]:
    """Runs, the newest first, also those that were archived."""
    before = asked.get("before", "")
    with opened(home.ledger) as db:
        views = queries.runs(db, ROWS + 1, gates=False, before=before) if not before or queries.has_run(db, before) else []
        found = [_run(home, db, view) for view in views]
        found += _archived(home, db, before if not found else "", ROWS + 1 - len(found))
    heads = ["Run", "~Title", "Tasks", "Submitted", "Marks", "~Repository"]
    shown = table("Runs, the newest first", heads, [one.row for one in found[:ROWS]])
    nothing = note("No run yet. To begin one: nightcrew run PLAN, or nightcrew start.")
    older = found[ROWS - 1].view.id if len(found) > ROWS else None
    return drawing.page("Runs", shown if found else nothing, pager(asked, "Older runs", before=older))


def _archived(home: Home, db: sqlite3.Connection, before: str, room: int) -> list[_Run]:
    """Of the archive, those that the ledger does not have: runs on their way are in both."""
    if room <= 0 or not home.archive.exists():
        return []
    found: list[RunView] = []
    with contextlib.closing(archive.connect(home.archive)) as kept:
        at = before if queries.has_run(kept, before) else ""
        while len(found) < room and (page := queries.runs(kept, ROWS, gates=False, before=at)):
            found += [view for view in page if not queries.has_run(db, view.id)]
            at = page[-1].id
        return [_run(home, kept, view, is_archived=True) for view in found[:room]]


def run(home: Home, asked: Asked, now: float) -> dict[str, Any]:
    """One run: what all of it took by the gateway's account, its tasks in the plan's order from `after` on, groups of candidates among
    them, what they waited for, and the reports. Raises NotFound."""
    name, after = asked.get("run", ""), asked.get("after", "")
    with contextlib.closing(archive.reader(home.ledger, home.archive, name)) if home.ledger.exists() else opened(home.ledger) as db:
        one = _run(home, db, queries.run(db, name))
        found = queries.some_of_run(db, name, after, ROWS + 1)
        tasks = [str(row[0]) for row in db.execute("SELECT id FROM task WHERE run = ?", (name,))]
        waited = waits.of_tasks(db, tasks, now)
        groups = comparison.of_tasks(db, [view.id for view in found[:ROWS]])
    compared = [el("div", el("h3", group["group"]), note(group["said"]), commands(group["commands"]), class_="group") for group in groups]
    view = one.view
    return drawing.page(
        f"Run {view.id}",
        el("p", el("strong", view.title), " ", *one.counts, class_="lead"),
        note(f"{view.root}, from {view.base} ({view.base_oid[:12]})"),
        el("p", one.mark, f" {one_line(one.night.why)}") if one.night else None,
        _spent(home, name),
        section("Tasks", _tasks(found[:ROWS]), pager(asked, "More tasks", after=found[ROWS - 1].id if len(found) > ROWS else None)),
        section("Groups of candidates", *compared) if compared else None,
        _waits(waited),
        _reports(one),
    )


def _spent(home: Home, name: str) -> Element:
    with contextlib.suppress(NightcrewError), opened(home.gateway_account, schema.ACCOUNT) as db:
        found = reading.of_run(db, name)
        cost = f"more than {money(found.known_usd)}" if found.cost_usd is None else money(found.cost_usd)
        return drawing.tiles(
            [
                ("Cost", cost),
                ("Tokens", short(found.tokens.total)),
                ("from the cache", short(found.tokens.cache_read)),
                ("Requests", found.requests),
                ("Waited for tokens", duration(found.wait_s)),
                ("Under way", found.under_way),
            ]
        )
    return note("No request of this run went through the gateway, or its account cannot be read.")


def _tasks(views: Iterable[TaskView]) -> Element:
    heads = ["Task", "State", "~What", "Kind", "#Time", "#Queue", "#Tokens wait", "#Person", "#Tokens", "#Cost", "Changes", "Started"]
    return table("Tasks, in the plan's order", heads, map(_task, views))


def _task(view: TaskView) -> list[Child]:
    result, begin = view.result or {}, view.started or view.created
    spent = figures.of([view.result]) or {}
    waited: Mapping[str, Any] = result.get("waits") or {}
    diff: Mapping[str, Any] = result.get("diff") or {}
    why = one_line(status.why(view) or status.last_message(view.result))
    return [
        drawing.agent(view.id, view.name),
        state(str(view.state)),
        el("span", el("bdi", view.title), " ", el("bdi", why, class_="note")),
        view.kind,
        duration(view.ended - begin if view.ended and begin else None),
        *(duration(waited.get(name)) for name in ("queue_s", "tokens_s", "human_s")),
        short(spent.get("tokens")),
        money(spent.get("cost_usd")),
        f"{diff['files']} files +{diff['plus']} −{diff['minus']}" if diff.get("files") is not None else None,
        moment(begin),
    ]


def _waits(found: Mapping[str, Any] | None) -> Element | None:
    if found is None:
        return None
    rows = [
        [one["task"], one["kind"], waits.whom(one), one["waits"], duration(one["seconds"]), duration(one["longest_s"])]
        for one in found["top"]
    ]
    heads = ["Who", "Kind", "For whom", "#Times", "#Together", "#Longest"]
    return section("What agents waited for", note(waits.sentence(found)), table("The longest waits", heads, rows))


def _reports(one: _Run) -> Element:
    name = one.view.id
    links = [el("li", link(report_address(name, kind), _LINKS[kind], kind, target="_blank", rel="noopener")) for kind in one.reports]
    written = el("ul", *links, class_="links") if links else note("None was written yet. This writes one:")
    return section("Reports", written, drawing.command(f"nightcrew {'night ' if one.night else ''}report {name}"))


# Trains
# ------
# Trains of merges and groups of candidates, the newest first, each with what a person can type.


TRAINS, ENTRIES, GROUPS = 10, 100, 20
_GROUPS = """
SELECT id FROM task WHERE ord > (SELECT coalesce(max(ord), 0) FROM task) - ? AND project = ?
AND coalesce(json_extract(spec, '$.decide'), '') <> '' ORDER BY ord DESC LIMIT ?
"""


def trains(home: Home, asked: Asked) -> dict[str, Any]:
    """Trains of a project, and on the first page the groups of the newest tasks."""
    with opened(home.ledger) as db:
        project, choice = chosen(db, asked)
        found = landing_rows.newest(db, project, at_most=TRAINS + 1, before=before(asked))
        groups = [] if asked.get("before") else _groups(db, project)
    return drawing.page(
        "Trains and candidates",
        choice,
        *([_train(one) for one in found[:TRAINS]] or [note("No train of merges yet. To try one: nightcrew land --ready --dry-run")]),
        pager(asked, "Older trains", before=found[TRAINS - 1].number if len(found) > TRAINS else None),
        section("Groups of candidates", *groups) if groups else None,
    )


def _train(row: TrainRow) -> Element:
    train = row.train
    rows = [
        [
            entry.position,
            entry.task,
            one_line(entry.title),
            state(entry.state),
            entry.reason,
            ", ".join(entry.files),
            el("code", (entry.staged or entry.tip)[:12]),
            commands(filter(None, landing_view.commands(train, entry))),
        ]
        for entry in train.entries[:ENTRIES]
    ]
    heads = ["#", "Task", "~Title", "State", "~Why", "~Files", "Commit", "To type"]
    more = len(train.entries) - ENTRIES
    gates = "; ".join(train.commands) or "none"
    return el(
        "section",
        el("h2", f"{train.id} into {train.branch} ", state(train.state)),
        note(landing_view.summary(train)),
        commands(filter(None, (train.by_hand, landing_view.next_command(train)))),
        table(f"Results of {train.id}", heads, rows),
        note(f"and {more} more: nightcrew land --status") if more > 0 else None,
        note("began ", moment(row.began), ", changed ", moment(row.changed), f"; gates: {gates}"),
        class_="train",
    )


def _groups(db: sqlite3.Connection, project: str) -> list[Element]:
    names = [str(row[0]) for row in db.execute(_GROUPS, (LOOKED_AT, project, GROUPS))]
    found = {one["group"]: one for one in comparison.of_tasks(db, names)}
    return [_group(found[name]) for name in names if name in found]


def _group(one: Mapping[str, Any]) -> Element:
    column = HEADS.index("state")
    rows = [[state(cell) if at == column else cell for at, cell in enumerate(row)] for row in comparison.cells(one)]
    why = comparison.reasons(one)
    return el(
        "div",
        el("h3", one["group"], " ", state(one["state"])),
        note(one["said"]),
        commands(one["commands"]),
        table(f"Candidates of {one['group']}", ["Place", *(name.capitalize() for name in HEADS[1:])], rows),
        drawing.folded("Why they stand so", f"why {one['group']}", el("ul", *(el("li", text) for text in why))) if why else None,
        class_="group",
    )


# Maps
# ----
# Maps, those that were written last first, read from their files: what is done, what failed, who works at what.


MAPS, WORKERS, FAILED = 20, 50, 20
TEXT = 200
"""Characters of an item, and of why it failed."""
_NAME = re.compile(r"[0-9a-f]{12}\Z")
_LEASES = "SELECT task, epoch, shard, json_array_length(positions) FROM lease ORDER BY task LIMIT ?"
_FAILURES = "SELECT name, tries, text FROM item WHERE state = 'failed' ORDER BY position LIMIT ?"


def maps(home: Home, asked: Asked) -> dict[str, Any]:
    """Maps from the `skip`th on."""
    skip = number(asked, "skip") or 0
    names = _newest(home.root / "maps")
    shown = [_map(home, name) for name in names[skip : skip + MAPS]] or [note("Nothing was mapped yet: nightcrew map --help")]
    return drawing.page("Maps", *shown, pager(asked, "Older maps", skip=skip + MAPS if len(names) > skip + MAPS else None))


def _newest(directory: Path) -> list[str]:
    found = []
    with contextlib.suppress(FileNotFoundError):
        for place in directory.iterdir():
            with contextlib.suppress(OSError):
                if _NAME.match(place.name):
                    found.append(((place / "map.db").lstat().st_mtime, place.name))
    return [name for _, name in sorted(found, reverse=True)]


def _map(home: Home, name: str) -> Element:
    try:
        with contextlib.closing(open_map.connect_readonly(open_map.file(home, name))) as db:
            return _board(name, db)
    except NightcrewError as error:
        return el("section", el("h2", name), drawing.trouble(error.line()), class_="map")


def _board(name: str, db: sqlite3.Connection) -> Element:
    about, counts = open_map.about_book(db), open_map.counts(db)
    workers = [list(row) for row in db.execute(_LEASES, (WORKERS,))]
    failures = [[_item(bytes(row["name"])), row["tries"], _item(row["text"])] for row in db.execute(_FAILURES, (FAILED,))]
    title, run, item_s = one_line(str(about["title"])) or name, about["run"], float(about["item_s"])
    ended, left = counts["done"] + counts["failed"], counts["waiting"]
    part = ended / (counts["total"] or 1)
    meter = el("progress", max=str(counts["total"] or 1), value=str(ended), aria_label=f"Items of {title} that have ended")
    soon = f", about {duration(left * item_s / len(workers))} left" if workers and item_s and left else ""
    pace = f"{duration(item_s)} an item{soon}" if item_s else "nothing was measured yet"
    return el(
        "section",
        el("h2", title, " ", state(about["state"])),
        el("p", meter, f" {ended} of {counts['total']} ({percent(part)})", class_="bar"),
        note(
            f"{counts['done']} done, {counts['failed']} failed, {left} to do; {pace}; began ",
            moment(about["began"]),
            ", ended " if about["ended"] else "",
            moment(about["ended"]),
        ),
        el("p", mark("!", one_line(str(about["why"])))) if about["why"] else None,
        el("h3", f"{many(len(workers), 'worker')} at work") if workers else None,
        table("Workers", ["Worker", "#Attempt", "#Shard", "#Items"], workers) if workers else None,
        drawing.folded(
            f"The first {many(len(failures), 'item')} that failed",
            f"failed {name}",
            table(f"Items of {title} that failed", ["~Item", "#Tries", "~Why"], failures),
        )
        if failures
        else None,
        el("p", link(f"/run/{quote(run)}", f"Its run {run}", f"run {name}")) if run else None,
        drawing.command(f"nightcrew status {run}") if counts["failed"] and run else None,
        class_="map",
    )


def _item(given: object) -> str:
    text = given.decode("utf-8", "replace") if isinstance(given, bytes) else str(given or "")
    return status.cut(one_line(text), TEXT)
