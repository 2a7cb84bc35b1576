"""The pages of memory, mail, audit and resources, drawn from what is kept of them. What agents wrote is shown as text."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from memory import files, note
from memory import mail as mail_rows
from memory.files import Layout, is_conflict
from memory.listing import Entry, Listing
from memory.mail import PERSON, Mail
from memory.note import Wanted, cleaned
from memory.versions import Versions
from memory.writing import QUARANTINE, limit, place
from supervisor import contract
from supervisor.features.audit import rules as audit_rules
from supervisor.features.audit.rules import Recorded, recorded
from supervisor.features.capacity import commands as capacity
from supervisor.host import audit_log, cores, secrets, untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel.audit import trusted
from supervisor.kernel.errors import NotFound, UsageError, one_line
from supervisor.kernel.format import UNKNOWN, duration, many, size
from supervisor.kernel.path_globs import kind_of
from supervisor.kernel.states import TaskState
from supervisor.store import queries
from supervisor.store.queries import TaskView
from supervisor.views.web import drawing
from supervisor.views.web.drawing import (
    Child,
    Element,
    address,
    agent,
    commands,
    el,
    foreign,
    link,
    mark,
    moment,
    pager,
    section,
    span,
    state,
    table,
    trouble,
)
from supervisor.views.web.drawing import note as said
from supervisor.views.web.pages import ROWS, Asked, before, chosen, number, opened

Shape = Mapping[str, Any]


# Audit
# -----
# What was done, the newest first: the records of the audit log, read from its end, and the rows of the journal that they prove.


TAIL = 256 * 2**10
"""Bytes of a look at the log: an anchor has up to some kilobytes, and `ROWS` of other records some 20."""
LONG = 300
"""Characters of a value that are shown."""


def audit(home: Home, asked: Asked) -> dict[str, Any]:
    """Records, those before the byte `before`. Raises NotFound while there is no log, or no secret to check it by."""
    secret = _secret(home)
    found = _lines(home, number(asked, "before"))
    if found is None:
        raise NotFound("there is no audit log", on=home.audit.name, hint="nightcrew up -d")
    rows, others, oldest = list[list[Child]](), 0, 0
    for at, line in reversed(found):
        oldest, shape = at, trusted(secret, line)
        if shape is None:
            others += 1
        else:
            rows.append(_record(shape))
        if len(rows) == ROWS:
            break
    head = audit_log.read_head(home.audit, secret)
    last = UNKNOWN if head is None else head.seq
    explained = "Each record has the mark of the one before; anchors prove rows of the journal and of the account."
    check = el("load", "Check the chain and the rows", href="/data/audit-verify")
    return drawing.page(
        "Audit",
        _tabs(journal=False),
        section("Is it whole?", check, drawing.command("nightcrew audit verify")),
        section(
            "Records",
            said(f"The head says that the log ends at record {last}. {explained}"),
            el("p", mark("!", f"{others} lines here are no records of ours")) if others else None,
            table("Records, the newest first", ["#", "When", "Who", "What", "Task", "~More", "Chain"], rows),
            pager(asked, "Older records", before=oldest or None),
        ),
    )


def _tabs(*, journal: bool) -> Element:
    return drawing.tabs("Which records", ("/audit", "Audit log", not journal), ("/audit?of=journal", "Journal", journal))


def _secret(home: Home) -> bytes:
    if not home.secret.exists():
        raise NotFound("the audit log cannot be read", why="no supervisor ever ran here, or its secret is gone", hint="nightcrew up -d")
    return secrets.own(home.secret)


def _lines(home: Home, end: int | None) -> list[tuple[int, bytes]] | None:
    """Whole lines before the byte `end`, or at the end of the log, each with where it begins; None when there is no log. What a writer
    has just begun is left out."""
    try:
        with untrusted_fs.open_plain(home.audit) as file:
            stop = min(os.fstat(file.fileno()).st_size, end if end is not None else 2**62)
            start = max(0, stop - TAIL)
            file.seek(start)
            data = file.read(stop - start)
    except OSError:
        return None
    skipped = data.find(b"\n") + 1 if start else 0
    found, at = list[tuple[int, bytes]](), start + skipped
    for line in data[skipped : data.rfind(b"\n") + 1].splitlines(keepends=True):
        found.append((at, line))
        at += len(line)
    return found


def _record(shape: Shape) -> list[Child]:
    one, data = recorded(str(shape["event"]), None, None, shape["data"]), shape["data"]
    is_anchor = shape["event"] == audit_rules.EVENT
    return [
        shape["seq"],
        moment(shape["at"]),
        shape["who"],
        mark("A", "proves rows", "ask") if is_anchor else shape["event"],
        _task(one),
        _anchored(data) if is_anchor else _told(data),
        span("chain", el("code", str(shape["prev"])[:12]), " → ", el("code", str(shape["mac"])[:12])),
    ]


def _task(one: Recorded) -> Element | None:
    return agent(one.task, f"{one.task}:{one.epoch}" if one.epoch else one.task) if one.task else None


def _anchored(data: Mapping[str, Any]) -> str:
    ranges = data.get("rows") or []
    first, last = (ranges[0][0], ranges[-1][1]) if ranges else (0, 0)
    return f"{data.get('table')}, rows {first} to {last}, sha256 {str(data.get('sha256'))[:12]}"


def _told(data: Mapping[str, Any]) -> str:
    parts = [f"{name} {_short(value)}" for name, value in data.items() if value not in (None, "", {}) and name not in ("task", "epoch")]
    return one_line(", ".join(parts))[: 4 * LONG]


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= LONG else f"{text[:LONG]}…"


def verdict(found: Shape) -> dict[str, Any]:
    """What a check of the audit log found."""
    rows = "".join(f", {count} rows of the {name}" for name, count in found["proven"].items())
    newer = ", ".join(f"{count} of the {name}" for name, count in found["newer"].items() if count)
    if found["whole"]:
        answer = el("p", mark("D", "whole", "good"), f" {found['records']} records{rows}, in {duration(found['took_s'])}")
    else:
        row = f", row {found['row']}" if found["row"] else ""
        where = f"{found['table']}{row}: " if found["table"] else f"line {found['line']}: " if found["line"] else ""
        answer = el("p", mark("!", "not whole"), f" {where}{found['why']}")
    warnings = [el("p", mark("?", text, "ask")) for text in found["warnings"]]
    return drawing.page("", answer, said(f"newer rows, which no record proves yet: {newer}") if newer else None, *warnings)


def journal(home: Home, asked: Asked) -> dict[str, Any]:
    """Rows of the ledger's journal, those before the number `before`."""
    with opened(home.ledger) as db:
        found = db.execute("SELECT * FROM journal WHERE seq < ? ORDER BY seq DESC LIMIT ?", (before(asked), ROWS + 1)).fetchall()
    rows = []
    for row in found[:ROWS]:
        one = recorded(row["event"], row["task"], row["epoch"], json.loads(row["data"]))
        rows.append([row["seq"], moment(row["at"]), one.kind, row["event"], _task(one), _told(one.data)])
    return drawing.page(
        "Journal",
        _tabs(journal=True),
        table("The journal, the newest first", ["#", "When", "Kind", "What", "Task", "~More"], rows),
        pager(asked, "Older rows", before=found[ROWS - 1]["seq"] if len(found) > ROWS else None),
    )


# Mail
# ----
# Who wrote to whom: the messages of a project, the newest first, and one thread with its words. To look claims nothing: a message
# that waits for its recipient goes on waiting.


THREAD = 50
"""Messages of a thread, the newest."""


def mails(home: Home, asked: Asked, now: float) -> dict[str, Any]:
    """Messages of a project, those before the message `before`; with `box=person` what waits for a person alone."""
    box = PERSON if asked.get("box") == PERSON else ""
    with opened(home.ledger) as db:
        project, choice = chosen(db, asked)
        found = mail_rows.newest(db, project, asked.get("before", ""), ROWS + 1, recipient=box)
        answered = mail_rows.answered(db, [one.id for one in found]) if found else set()
    rows = [
        [
            moment(one.sent),
            one.sender,
            one.recipient,
            str(one.type),
            link(address(asked, thread=one.thread, before=None), one.subject or "(no subject)", one.id),
            state(str(one.state)),
            _marks(one, now, is_answered=one.id in answered),
            one.tokens,
            commands(_commands(one)),
        ]
        for one in found[:ROWS]
    ]
    kinds = (("All", ""), ("For you, unread", PERSON))
    heads = ["Sent", "From", "To", "Type", "~Subject", "State", "Marks", "#Tokens", "To type"]
    return drawing.page(
        "Mail",
        choice,
        drawing.tabs("Which mail", *((address(asked, box=of, before=None), text, box == of) for text, of in kinds)),
        table("Mail, the newest first", heads, rows) if rows else said("Nothing waits for you." if box else "Nobody wrote to anybody yet."),
        pager(asked, "Older mail", before=found[ROWS - 1].id if len(found) > ROWS else None),
    )


def _marks(one: Mail, now: float, *, is_answered: bool) -> Element | None:
    marks: list[Child] = []
    if one.needs_reply_by is not None and not is_answered:
        marks.append(mark("!", "reply overdue") if now > one.needs_reply_by else mark("?", "needs a reply", "ask"))
    if one.priority != "normal":
        marks.append(mark("·", str(one.priority), "off"))
    return span("marks", *marks, one.why) if marks or one.why else None


def _commands(one: Mail) -> list[str]:
    """What a person can do about a message to them."""
    name = quote(one.id[-mail_rows.SHORT :])
    return [f"nightcrew mail read {name}", f"nightcrew mail reply {name} TEXT"] if one.recipient == PERSON and one.is_open else []


def thread(home: Home, asked: Asked, now: float) -> dict[str, Any]:
    """The newest messages of a thread with their words, oldest first. Raises NotFound."""
    with opened(home.ledger) as db:
        found = mail_rows.of_thread(db, asked.get("thread", ""), THREAD)
        answered = mail_rows.answered(db, [one.id for one in found]) if found else set()
        texts = [cleaned(mail_rows.words(db, one.id) or "") for one in found]
    if not found:
        raise NotFound("no such thread", on=asked.get("thread", "")[:40], hint="nightcrew mail ls --all")
    messages = [
        el(
            "article",
            el("h2", one.subject or "(no subject)"),
            said(
                moment(one.sent),
                f" {one.sender} to {one.recipient}, {one.type} ",
                state(str(one.state)),
                " ",
                _marks(one, now, is_answered=one.id in answered),
            ),
            foreign(text, f"Words of {one.id}") if text else said("Its words are gone."),
            class_="mail",
        )
        for one, text in zip(found, texts, strict=True)
    ]
    return drawing.page(
        "Thread",
        el("p", link(address(asked, thread=None), "All mail", "back")),
        said("Written by others. To look here claims nothing: what waits for an agent, or for you, goes on waiting."),
        said("Only the newest messages of this thread are shown.") if len(found) == THREAD else None,
        *messages,
    )


# Notes
# -----
# What agents know together: the notes of a project, one note with its versions and who read it, and what waits for a person.
#
# Notes are agents' words: they are shown without what hides from a reader, and beside who wrote them.


READERS, CHANGES, WAITING = 10, 20, 50
_QUARANTINED = mark("!", "quarantined")
_KNOWN = """
SELECT k.path, k.version, c.size, c.number, c.author, c.epoch, c.action, c.at, x.data FROM known k
LEFT JOIN change c ON c.number = (SELECT max(number) FROM change WHERE path = k.path AND state = 'done')
LEFT JOIN content x ON x.version = k.version
WHERE k.path > ? ORDER BY k.path LIMIT ?
"""
_READERS = "SELECT task, given, read, last FROM reading WHERE path = ? ORDER BY given + read DESC, task LIMIT ?"


def notes(home: Home, asked: Asked) -> dict[str, Any]:
    """Notes of a project by their paths, those after `after`; on the first page also what is in quarantine until a person says something,
    and the newest changes."""
    with opened(home.ledger) as db:
        project, choice = chosen(db, asked)
    there, after = Layout(home.project(project)), asked.get("after", "")
    known: list[sqlite3.Row] = []
    changes: list[Shape] = []
    with _book(there) as kept:
        if kept is not None:
            known = kept.db.execute(_KNOWN, (after, ROWS + 1)).fetchall()
            changes = [] if after else note.page(kept, Wanted(limit=CHANGES))["changes"]
    waiting = [] if after else Listing(there.root, "quarantine").entries()[:WAITING]
    warning = said("Agents wrote this, and no agent is given it before somebody approves it.")
    heads = ["Note", "~Title", "Kind", "#Size", "Written", "Mark", "To type"]
    quarantine = table("Quarantined notes", heads, [_waits(asked, one) for one in waiting])
    shown = table("Notes", ["Note", "~Title", "Kind", "By", "Last", "#Size", "When", "Marks"], [_note(asked, row) for row in known[:ROWS]])
    newest = [
        [
            moment(one["at"]),
            one["action"],
            _note_link(asked, one["path"]),
            _author(one),
            el("code", one["version"] or "removed"),
            _QUARANTINED if one["path"].startswith(QUARANTINE) else None,
        ]
        for one in changes
    ]
    return drawing.page(
        "Memory",
        choice,
        section("Waiting for a person", warning, quarantine) if waiting else None,
        section(
            "Notes",
            shown if known else said("Nothing is known yet: nightcrew mem put semantic/NAME.md"),
            pager(asked, "More notes", after=known[ROWS - 1]["path"] if len(known) > ROWS else None),
        ),
        section("The newest changes", table("Changes", ["When", "What", "Note", "By", "Version", "Mark"], newest)) if changes else None,
    )


@contextlib.contextmanager
def _book(there: Layout) -> Iterator[Versions | None]:
    """None where nothing was ever written through nightcrew."""
    if not there.book.exists():
        yield None
        return
    with contextlib.closing(Versions(there.book, reads=True)) as kept:
        yield kept


def _note_link(asked: Asked, path: str) -> Element:
    return link(address(asked, path=path, after=None), path, f"note {path}")


def _author(one: Shape | sqlite3.Row) -> str:
    name = one["author"] or "unknown"
    return f"{name}:{one['epoch']}" if one["epoch"] else str(name)


def _size(bytes_: int | None) -> str | None:
    return None if bytes_ is None else size(bytes_)


def _note(asked: Asked, row: sqlite3.Row) -> list[Child]:
    path = str(row["path"])
    kind = kind_of(path.removeprefix(QUARANTINE))
    meta = note.parse(bytes(row["data"]).decode("utf-8", "replace")).meta if row["data"] is not None and path.endswith(".md") else {}
    marked = mark("?", "conflict", "ask") if is_conflict(path) else None
    return [
        _note_link(asked, path),
        str(meta.get("title") or ""),
        str(kind) if kind else "",
        _author(row),
        row["action"],
        _size(row["size"]),
        moment(row["at"]),
        _QUARANTINED if path.startswith(QUARANTINE) else marked,
    ]


def _waits(asked: Asked, one: Entry) -> list[Child]:
    path, name = f"{QUARANTINE}{one.path}", quote(one.path)
    typed = [f"nightcrew mem show {quote(path)}", f"nightcrew mem approve {name}", f"nightcrew mem reject {name}"]
    return [_note_link(asked, path), one.title, str(one.kind), size(one.size), moment(one.mtime), _QUARANTINED, commands(typed)]


def one_note(home: Home, asked: Asked) -> dict[str, Any]:
    """A note of a project as it is, or as it was by `version`, with its changes before `before` and its readers. Raises NotFound and
    UsageError."""
    with opened(home.ledger) as db:
        project, _ = chosen(db, asked)
    there, path = Layout(home.project(project)), asked.get("path", "")
    if kind_of(path.removeprefix(QUARANTINE)) is None:
        raise UsageError("not a path of the memory", on=path[:100], hint="nightcrew mem ls")
    with _book(there) as kept:
        data, version = _content(there, kept, path, asked.get("version", ""))
        found = note.page(kept, Wanted(path, CHANGES, number(asked, "before"))) if kept is not None else {"changes": [], "before": None}
        read = kept.db.execute(_READERS, (path, READERS)).fetchall() if kept is not None else []
    changes = []
    for one in found["changes"]:
        at = link(address(asked, version=one["version"], before=None), one["version"], f"version {one['number']}")
        changes.append([moment(one["at"]), one["action"], _author(one), at if one["version"] else "removed", _size(one["size"])])
    readers = [[row["task"], row["given"], row["read"], moment(row["last"])] for row in read]
    facts = f"Version {version}, {size(len(data))}."
    quarantined = el("p", _QUARANTINED, " No agent is given it before somebody approves it.")
    return drawing.page(
        path,
        el("p", link(address(asked, path=None, version=None, before=None), "All notes", "back")),
        quarantined if path.startswith(QUARANTINE) else None,
        said(f"{facts} What follows was written by others: it is shown as it is, without signs that nobody sees."),
        foreign(cleaned(data.decode("utf-8", "replace")), f"Text of {path}"),
        section(
            "Versions",
            table("Versions", ["When", "What", "By", "Version", "#Size"], changes),
            pager(asked, "Older versions", before=found["before"]),
        ),
        section("Who read it", table("Readers", ["Who", "#Before a prompt", "#Asked for", "Last"], readers)) if readers else None,
        drawing.command(f"nightcrew mem log -p {path}"),
    )


def _content(there: Layout, kept: Versions | None, path: str, version: str) -> tuple[bytes, str]:
    """Raises NotFound."""
    if version and kept is not None:
        known = next(iter(kept.versions_like(path, version)), "")
        if (data := kept.content(known) if known else None) is not None:
            return data, known
    found = None if version else files.read(there.root, place(path), limit(path))
    if found is None:
        raise NotFound("no such note, or version of it", on=path, hint=f"nightcrew mem log {quote(path)}")
    return found.data, found.version


# Resources
# ---------
# How many agents the machine and the models carry, what binds, and what each agent takes now.


RESOURCES_AGENTS = 100


def resources(home: Home, found: Shape | None, why: str, reserve: int | None) -> dict[str, Any]:
    """`found`: the supervisor's capacity; None, and `why`, while none answers. `reserve`: the settings' word for the cores."""
    with opened(home.ledger) as db:
        running = [view for view in queries.foremost(db, 0) if view.state is TaskState.RUNNING]
    heads = ["Agent", "~Title", "Kind", "Class", "#Memory", "#At most", "#Expected", "#Processor", "#by tools", "#Time"]
    agents = table("What each takes", heads, [_taken(view) for view in running[:RESOURCES_AGENTS]]) if running else said("None.")
    more = len(running) - RESOURCES_AGENTS
    return drawing.page(
        "Capacity and cores",
        section("Capacity", trouble(why)) if found is None else _capacity(found),
        _cores(reserve),
        section("Agents at work", agents, said(f"and {more} more") if more > 0 else None),
    )


def _capacity(found: Shape) -> Element:
    facts: list[tuple[str, Child]] = [
        ("Slots", f"{found['living']} of {found['slots']} taken"),
        ("Waiting", found["waiting"]),
        ("Binds", found["binding"] or "nothing yet"),
        ("Last one starts in", duration(found["predicted_wait_s"] or None)),
    ]
    held = [el("p", mark("!", f"{name} held back: {one['words']}")) for name, one in found["held"].items()]
    text = "\n".join(capacity.lines(found))
    lines = el("pre", text, class_="ours", tabindex="0", role="region", aria_label="As nightcrew capacity prints it")
    return section("Capacity", drawing.tiles(facts), *held, lines)


def _cores(reserve: int | None) -> Element:
    """Each usable core with its CPU numbers, and whether it is kept for the supervisor."""
    found = cores.topology()
    kept = set(cores.plan(found, reserve).supervisor)
    shared = "No core is kept for the supervisor: agents (A) and supervisor share them all."
    boxes = []
    for core in found:
        is_kept = bool(kept & set(core.cpus))
        letter = el("b", "S" if is_kept else "A")
        boxes.append(el("li", letter, f" {', '.join(map(str, core.cpus))}", class_="kept" if is_kept else ""))
    count = f"{many(len(boxes), 'core')}, {many(len({core.node for core in found}), 'node')}"
    words = "S stays with the supervisor, A is for agents." if kept else shared
    listed = el("ul", *boxes, class_="cores", aria_label="Cores, by the numbers of their threads")
    return section("Cores", said(f"{count}. {words}"), listed)


def _taken(view: TaskView) -> list[Child]:
    account = {**(view.account or {}), "expected_memory": view.memory_expected}
    sizes = [_size(account.get(name)) for name in ("memory", "peak_memory", "expected_memory")]
    times = [duration(account.get(name)) for name in ("cpu_s", "tool_cpu_s", "wall_s")]
    return [agent(view.id), view.title, view.kind, view.task_class, *sizes, *times]


# What other packages show
# ------------------------


def more(home: Home) -> dict[str, Any]:
    """Tables of other packages, in the order of the packages' names; a package that fails is named with its error."""
    found: list[Element] = []
    for feature in contract.others():
        try:
            sections = contract.load(feature.sections)(home) if feature.sections else ()
            found += [section(one.title, table(one.title, one.columns, one.rows)) for one in sections]
        except Exception as error:  # noqa: BLE001 - the code of another package may raise anything, and the other sections are shown
            found.append(section(feature.name, table(feature.name, ["Error"], [[f"{type(error).__name__}: {error}"]])))
    return drawing.page("More", *found)
