"""The pages of rows as trees of elements: the browser makes nodes of them, and every text in them stays a text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from supervisor.kernel.format import UNKNOWN, duration, many, money, percent, short, size
from supervisor.results.comparison import HEADS, cells, reasons
from supervisor.views import figures as spelled

# Elements
# --------


class Element(list[Any]):
    """`[tag, attributes, *children]`; a child is an element or a text. Only this module makes them, so that no list among data becomes an
    element. `static/show.js` knows the tags `table`, `time`, `command` and `load`, and hands the others to the browser."""


Child = Element | str | int | None
Shape = Mapping[str, Any]
Asked = Mapping[str, str]


def el(tag: str, *children: Child, **attributes: object) -> Element:
    """An element. Empty children and attributes are left out; `class_` is the attribute `class`, `data_key` is `data-key`."""
    kept = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value not in (None, "", False)}
    return Element([tag, kept, *(one if isinstance(one, Element) else str(one) for one in children if one is not None and one != "")])


def page(title: str, *nodes: Element | None) -> dict[str, Any]:
    """The answer to a page: its heading, and what stands below it."""
    return {"title": title, "nodes": [node for node in nodes if node is not None]}


def section(title: str, *nodes: Child) -> Element:
    return el("section", el("h2", title), *nodes)


def note(*children: Child) -> Element:
    return el("p", *children, class_="note")


def trouble(text: str) -> Element:
    return el("p", text, class_="trouble")


def span(kind: str, *children: Child) -> Element:
    return el("span", *children, class_=kind)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Child]]) -> Element:
    """A head that begins with `#` is of numbers, one with `~` of long texts. A cell without a value is shown as unknown."""
    return Element(["table", {}, caption, list(heads), [[_cell(cell) for cell in row] for row in rows]])


def _cell(cell: Child) -> Element | str | None:
    if cell in (None, "", UNKNOWN):
        return None
    return cell if isinstance(cell, Element) else str(cell)


def moment(at: float | str | None) -> Element | None:
    """A time, which the browser shows by its own clock; `at` is RFC 3339, or seconds since 1970."""
    return el("time", at=at) if at else None


def mark(letter: str, word: str, ink: str = "bad") -> Element:
    """What a person has to see: its letter, and its word."""
    return span(f"state {ink}", el("b", letter, aria_hidden="true"), f" {word}")


_LETTERS = {
    "D": "done landed passed ended closed read",
    "F": "failed ejected clashes lost bounced",
    "C": "cancelled unwanted dropped",
    "E": "expired",
    "S": "skipped contained",
    "!": "quarantined stopped open",
    "W": "running repairing staged moving making closing given",
    "q": "ready wanted new accepted",
    "a": "waiting",
    "p": "paused",
    "l": "parked",
    "–": "empty",
    "?": "half-open",
}
_OF_WORDS = {word: letter for letter, words in _LETTERS.items() for word in words.split()} | {"nothing new": "S"}
_INKS = {"D": "good", "F": "bad", "!": "bad", "?": "ask", "W": "work", "q": "wait", "a": "wait", "l": "wait", "p": "wait"}


def state(word: str) -> Element:
    """A state as its letter and its word."""
    letter = _OF_WORDS.get(word, "·")
    return mark(letter, word, _INKS.get(letter, "off"))


def command(text: str) -> Element:
    """A command to type, with a button that copies it."""
    return el("command", text)


def commands(texts: Iterable[str]) -> Element | None:
    found = [command(text) for text in texts]
    return el("div", *found, class_="commands") if found else None


def tiles(facts: Iterable[tuple[str, Child]]) -> Element:
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in facts), class_="tiles")


def link(href: str, text: Child, key: str = "", **attributes: object) -> Element:
    return el("a", text, href=href, data_key=key, **attributes)


def agent(task: str, text: str = "") -> Element:
    """A link to the page of a task."""
    return link(f"/agent/{quote(task)}", text or task, task)


def foreign(text: str, label: str) -> Element:
    """Words that others wrote."""
    return el("pre", text, class_="foreign", tabindex="0", role="region", aria_label=label)


def folded(summary: str, key: str, *nodes: Child) -> Element:
    return el("details", el("summary", summary), *nodes, data_key=key)


def address(asked: Asked, **changes: object) -> str:
    """The same page with these words of its address changed; a word that is empty is left out."""
    words = {name: value for name, value in {**asked, **changes}.items() if value not in (None, "") and name not in ("seen", "run")}
    return f"?{urlencode(words)}"


def pager(asked: Asked, words: str, **older: object) -> Element | None:
    """A link to the page of older rows, where there are any, and one back to the first."""
    links = [link(address(asked, **dict.fromkeys(older)), "First page", "first")] if any(asked.get(name) for name in older) else []
    links += [link(address(asked, **older), words, "older", rel="next")] if None not in older.values() else []
    return el("nav", *links, class_="pager", aria_label="Pages of rows") if links else None


def tabs(label: str, *some: tuple[str, str, bool]) -> Element:
    """Links to the kinds of rows that a page has: address, text, and whether it is shown."""
    links = [link(href, text, text, aria_current="true" if here else None) for href, text, here in some]
    return el("nav", *(one for each in links for one in (each, " ")), class_="choice", aria_label=label)


def projects(asked: Asked, shape: Shape) -> Element | None:
    """Which project is shown; nothing where there is only one."""
    if len(shape["projects"]) < 2:
        return None
    left = dict.fromkeys(("before", "after", "path", "thread"))
    options = [
        el(
            "option",
            f"{one['name']}  {one['root']}",
            value=address(asked, **left, project=one["id"]),
            selected=one["id"] == shape["project"],
        )
        for one in shape["projects"]
    ]
    return el("p", el("label", "Project ", el("select", *options, data_key="project")), class_="choice")


# Runs
# ----


_REPORTS = {"report": "Report of the run", "night": "Report of the night"}


def _counts(run: Shape) -> list[Element]:
    return [span("count", state(name), f" {number} ") for name, number in run["counts"].items()]


def _night(run: Shape) -> Element | None:
    night = run["night"]
    return None if night is None else mark("N", f"night, {night['state']}: {night['terms']}", "ask")


def runs(asked: Asked, shape: Shape) -> dict[str, Any]:
    rows = []
    for run in shape["runs"]:
        written = [mark("R", "night report" if kind == "night" else "report", "good") for kind in run["reports"]]
        marks = span("marks", _night(run), *written, mark("–", "archived", "off") if run["archived"] else None)
        name = link(f"/run/{quote(run['id'])}", run["id"], run["id"])
        rows.append([name, run["title"], span("counts", *_counts(run)), moment(run["submitted"]), marks, run["root"]])
    shown = table("Runs, the newest first", ["Run", "~Title", "Tasks", "Submitted", "Marks", "~Repository"], rows)
    nothing = note("No run yet. To begin one: nightcrew run PLAN, or nightcrew start.")
    return page("Runs", shown if rows else nothing, pager(asked, "Older runs", before=shape["older"]))


def run(asked: Asked, shape: Shape, report: Mapping[str, str]) -> dict[str, Any]:
    """`report`: the address of each kind of report that was written."""
    one = shape["run"]
    night = el("p", _night(one), f" {one['night']['why']}") if one["night"] else None
    groups = [
        el("div", el("h3", group["group"]), note(group["said"]), commands(group["commands"]), class_="group") for group in shape["groups"]
    ]
    return page(
        f"Run {one['id']}",
        el("p", el("strong", one["title"]), " ", *_counts(one), class_="lead"),
        note(f"{one['root']}, from {one['base']} ({one['base_oid'][:12]})"),
        night,
        _spent(shape["spent"]),
        section("Tasks", _tasks(shape["tasks"]), pager(asked, "More tasks", after=shape["more"])),
        section("Groups of candidates", *groups) if groups else None,
        _waits(shape["waits"]),
        _reports(one, report),
    )


def _spent(spent: Shape | None) -> Element:
    if spent is None:
        return note("No request of this run went through the gateway, or its account cannot be read.")
    cost = f"more than {money(spent['known_usd'])}" if spent["cost_usd"] is None else money(spent["cost_usd"])
    return tiles(
        [
            ("Cost", cost),
            ("Tokens", short(spent["tokens"])),
            ("from the cache", short(spent["cache_read"])),
            ("Requests", spent["requests"]),
            ("Waited for tokens", duration(spent["wait_s"])),
            ("Under way", spent["under_way"]),
        ]
    )


def _tasks(tasks: Iterable[Shape]) -> Element:
    heads = ["Task", "State", "~What", "Kind", "#Time", "#Queue", "#Tokens wait", "#Person", "#Tokens", "#Cost", "Changes", "Started"]
    rows = [
        [
            agent(one["id"], one["name"]),
            state(one["state"]),
            el("span", el("bdi", one["title"]), " ", el("bdi", one["why"], class_="note")),
            one["kind"],
            *(duration(one[name]) for name in ("seconds", "queue_s", "tokens_s", "human_s")),
            short(one["tokens"]),
            money(one["cost_usd"]),
            None if one["files"] is None else f"{one['files']} files +{one['plus']} −{one['minus']}",
            moment(one["started"]),
        ]
        for one in tasks
    ]
    return table("Tasks, in the plan's order", heads, rows)


def _waits(found: Shape | None) -> Element | None:
    if found is None:
        return None
    rows = [
        [one["task"], one["kind"], one["whom"], one["waits"], duration(one["seconds"]), duration(one["longest_s"])] for one in found["top"]
    ]
    heads = ["Who", "Kind", "For whom", "#Times", "#Together", "#Longest"]
    return section("What agents waited for", note(found["said"]), table("The longest waits", heads, rows))


def _reports(one: Shape, report: Mapping[str, str]) -> Element:
    links = [el("li", link(href, _REPORTS[kind], kind, target="_blank", rel="noopener")) for kind, href in report.items()]
    written = el("ul", *links, class_="links") if links else note("None was written yet. This writes one:")
    return section("Reports", written, command(f"nightcrew {'night ' if one['night'] else ''}report {one['id']}"))


# Trains and maps
# ---------------


def trains(asked: Asked, shape: Shape) -> dict[str, Any]:
    groups = [_group(one) for one in shape["groups"]]
    return page(
        "Trains and candidates",
        projects(asked, shape),
        *([_train(one) for one in shape["trains"]] or [note("No train of merges yet. To try one: nightcrew land --ready --dry-run")]),
        pager(asked, "Older trains", before=shape["older"]),
        section("Groups of candidates", *groups) if groups else None,
    )


def _train(one: Shape) -> Element:
    rows = [
        [
            entry["position"],
            entry["task"],
            entry["title"],
            state(entry["state"]),
            entry["reason"],
            ", ".join(entry["files"]),
            el("code", (entry["staged"] or entry["commit"])[:12]),
            commands(entry["type"]),
        ]
        for entry in one["entries"]
    ]
    heads = ["#", "Task", "~Title", "State", "~Why", "~Files", "Commit", "To type"]
    return el(
        "section",
        el("h2", f"{one['train']} into {one['into']} ", state(one["state"])),
        note(one["said"]),
        commands(one["type"]),
        table(f"Results of {one['train']}", heads, rows),
        note(f"and {one['more_entries']} more: nightcrew land --status") if one["more_entries"] else None,
        note("began ", moment(one["began"]), ", changed ", moment(one["changed"]), f"; gates: {'; '.join(one['gates']) or 'none'}"),
        class_="train",
    )


def _group(one: Shape) -> Element:
    column = HEADS.index("state")
    rows = [[state(cell) if at == column else cell for at, cell in enumerate(row)] for row in cells(one)]
    why = reasons(one)
    return el(
        "div",
        el("h3", one["group"], " ", state(one["state"])),
        note(one["said"]),
        commands(one["commands"]),
        table(f"Candidates of {one['group']}", ["Place", *(name.capitalize() for name in HEADS[1:])], rows),
        folded("Why they stand so", f"why {one['group']}", el("ul", *(el("li", text) for text in why))) if why else None,
        class_="group",
    )


def maps(asked: Asked, shape: Shape) -> dict[str, Any]:
    shown = [_map(one) for one in shape["maps"]] or [note("Nothing was mapped yet: nightcrew map --help")]
    return page("Maps", *shown, pager(asked, "Older maps", skip=shape["older"]))


def _map(one: Shape) -> Element:
    if one["trouble"]:
        return el("section", el("h2", one["id"]), trouble(one["trouble"]), class_="map")
    title, total = one["title"] or one["id"], one["total"] or 1
    ended = one["done"] + one["failed"]
    meter = el("progress", max=str(total), value=str(ended), aria_label=f"Items of {title} that have ended")
    left = f", about {duration(one['left_s'])} left" if one["left_s"] else ""
    pace = f"{duration(one['item_s'])} an item{left}" if one["item_s"] else "nothing was measured yet"
    workers = [[worker["task"], worker["epoch"], worker["shard"], worker["items"]] for worker in one["workers"]]
    failures = [[failure["item"], failure["tries"], failure["why"]] for failure in one["failures"]]
    failed = table(f"Items of {title} that failed", ["~Item", "#Tries", "~Why"], failures)
    run = one["run"]
    return el(
        "section",
        el("h2", title, " ", state(one["state"])),
        el("p", meter, f" {ended} of {one['total']} ({percent(ended / total)})", class_="bar"),
        note(
            f"{one['done']} done, {one['failed']} failed, {one['waiting']} to do; {pace}; began ",
            moment(one["began"]),
            ", ended " if one["ended"] else "",
            moment(one["ended"]),
        ),
        el("p", mark("!", one["why"])) if one["why"] else None,
        el("h3", f"{many(len(workers), 'worker')} at work") if workers else None,
        table("Workers", ["Worker", "#Attempt", "#Shard", "#Items"], workers) if workers else None,
        folded(f"The first {many(len(failures), 'item')} that failed", f"failed {one['id']}", failed) if failures else None,
        el("p", link(f"/run/{quote(run)}", f"Its run {run}", f"run {one['id']}")) if run else None,
        command(f"nightcrew status {run}") if one["failed"] and run else None,
        class_="map",
    )


# Memory and mail
# ---------------


_QUARANTINED = mark("!", "quarantined")


def _who(one: Shape) -> str:
    return f"{one['author']}:{one['epoch']}" if one["epoch"] else str(one["author"])


def _note_link(asked: Asked, path: str) -> Element:
    return link(address(asked, path=path, after=None), path, f"note {path}")


def notes(asked: Asked, shape: Shape) -> dict[str, Any]:
    waiting = [
        [
            _note_link(asked, one["path"]),
            one["title"],
            one["kind"],
            size(one["size"]),
            moment(one["at"]),
            _QUARANTINED,
            commands(one["type"]),
        ]
        for one in shape["waiting"]
    ]
    known = [
        [
            _note_link(asked, one["path"]),
            one["title"],
            one["kind"],
            _who(one),
            one["action"],
            _size(one),
            moment(one["at"]),
            _QUARANTINED if one["quarantined"] else mark("?", "conflict", "ask") if one["conflict"] else None,
        ]
        for one in shape["notes"]
    ]
    changes = [
        [
            moment(one["at"]),
            one["action"],
            _note_link(asked, one["path"]),
            _who(one),
            el("code", one["version"] or "removed"),
            _QUARANTINED if one["quarantined"] else None,
        ]
        for one in shape["changes"]
    ]
    warning = note("Agents wrote this, and no agent is given it before somebody approves it.")
    quarantine = table("Quarantined notes", ["Note", "~Title", "Kind", "#Size", "Written", "Mark", "To type"], waiting)
    listed = table("Notes", ["Note", "~Title", "Kind", "By", "Last", "#Size", "When", "Marks"], known)
    newest = table("Changes", ["When", "What", "Note", "By", "Version", "Mark"], changes)
    return page(
        "Memory",
        projects(asked, shape),
        section("Waiting for a person", warning, quarantine) if waiting else None,
        section(
            "Notes",
            listed if known else note("Nothing is known yet: nightcrew mem put semantic/NAME.md"),
            pager(asked, "More notes", after=shape["more"]),
        ),
        section("The newest changes", newest) if changes else None,
    )


def _size(one: Shape) -> str | None:
    return None if one["size"] is None else size(one["size"])


def one_note(asked: Asked, shape: Shape) -> dict[str, Any]:
    path = shape["path"]
    changes = []
    for one in shape["changes"]:
        version = link(address(asked, version=one["version"], before=None), one["version"], f"version {one['number']}")
        changes.append([moment(one["at"]), one["action"], _who(one), version if one["version"] else "removed", _size(one)])
    readers = [[one["task"], one["given"], one["read"], moment(one["last"])] for one in shape["readers"]]
    facts = f"Version {shape['version']}, {size(shape['bytes'])}."
    versions = table("Versions", ["When", "What", "By", "Version", "#Size"], changes)
    return page(
        path,
        el("p", link(address(asked, path=None, version=None, before=None), "All notes", "back")),
        el("p", _QUARANTINED, " No agent is given it before somebody approves it.") if shape["quarantined"] else None,
        note(f"{facts} What follows was written by others: it is shown as it is, without signs that nobody sees."),
        foreign(shape["text"], f"Text of {path}"),
        section("Versions", versions, pager(asked, "Older versions", before=shape["older"])),
        section("Who read it", table("Readers", ["Who", "#Before a prompt", "#Asked for", "Last"], readers)) if readers else None,
        command(f"nightcrew mem log -p {path}"),
    )


def _mail_marks(one: Shape) -> Element | None:
    marks: list[Child] = []
    if one["needs_reply_by"] and not one["answered"]:
        marks.append(mark("!", "reply overdue") if one["overdue"] else mark("?", "needs a reply", "ask"))
    if one["priority"] != "normal":
        marks.append(mark("·", one["priority"], "off"))
    return span("marks", *marks, one["why"]) if marks or one["why"] else None


def mails(asked: Asked, shape: Shape) -> dict[str, Any]:
    rows = [
        [
            moment(one["sent"]),
            one["from"],
            one["to"],
            one["type"],
            link(address(asked, thread=one["thread"], before=None), one["subject"] or "(no subject)", one["id"]),
            state(one["state"]),
            _mail_marks(one),
            one["tokens"],
            commands(one["type_in"]),
        ]
        for one in shape["mails"]
    ]
    box = shape["box"]
    kinds = (("All", ""), ("For you, unread", "person"))
    heads = ["Sent", "From", "To", "Type", "~Subject", "State", "Marks", "#Tokens", "To type"]
    nothing = note("Nothing waits for you." if box else "Nobody wrote to anybody yet.")
    return page(
        "Mail",
        projects(asked, shape),
        tabs("Which mail", *((address(asked, box=of, before=None), text, box == of) for text, of in kinds)),
        table("Mail, the newest first", heads, rows) if rows else nothing,
        pager(asked, "Older mail", before=shape["older"]),
    )


def thread(asked: Asked, shape: Shape) -> dict[str, Any]:
    messages = [
        el(
            "article",
            el("h2", one["subject"] or "(no subject)"),
            note(moment(one["sent"]), f" {one['from']} to {one['to']}, {one['type']} ", state(one["state"]), " ", _mail_marks(one)),
            foreign(one["text"], f"Words of {one['id']}") if one["text"] else note("Its words are gone."),
            class_="mail",
        )
        for one in shape["mails"]
    ]
    return page(
        "Thread",
        el("p", link(address(asked, thread=None), "All mail", "back")),
        note("Written by others. To look here claims nothing: what waits for an agent, or for you, goes on waiting."),
        note("Only the newest messages of this thread are shown.") if shape["cut"] else None,
        *messages,
    )


# Audit
# -----


def _record_tabs(*, journal: bool) -> Element:
    return tabs("Which records", ("/audit", "Audit log", not journal), ("/audit?of=journal", "Journal", journal))


def _task(one: Shape) -> Element | None:
    return agent(one["task"], f"{one['task']}:{one['epoch']}" if one["epoch"] else one["task"]) if one["task"] else None


def audit(asked: Asked, shape: Shape) -> dict[str, Any]:
    rows = [
        [
            one["seq"],
            moment(one["at"]),
            one["who"],
            mark("A", one["event"], "ask") if one["anchor"] else one["event"],
            _task(one),
            one["said"],
            span("chain", el("code", one["prev"]), " → ", el("code", one["mac"])),
        ]
        for one in shape["records"]
    ]
    head = UNKNOWN if shape["head"] is None else shape["head"]
    foreign_lines = el("p", mark("!", f"{shape['foreign']} lines here are no records of ours")) if shape["foreign"] else None
    explained = "Each record has the mark of the one before; anchors prove rows of the journal and of the account."
    return page(
        "Audit",
        _record_tabs(journal=False),
        section("Is it whole?", el("load", "Check the chain and the rows", href="/data/audit-verify"), command("nightcrew audit verify")),
        section(
            "Records",
            note(f"The head says that the log ends at record {head}. {explained}"),
            foreign_lines,
            table("Records, the newest first", ["#", "When", "Who", "What", "Task", "~More", "Chain"], rows),
            pager(asked, "Older records", before=shape["older"]),
        ),
    )


def verdict(found: Shape) -> dict[str, Any]:
    """What a check of the audit log found."""
    rows = ", ".join(f"{number} rows of the {name}" for name, number in found["proven"].items())
    newer = ", ".join(f"{number} of the {name}" for name, number in found["newer"].items() if number)
    if found["whole"]:
        proven = f", {rows}" if rows else ""
        said = el("p", mark("D", "whole", "good"), f" {found['records']} records{proven}, in {duration(found['took_s'])}")
    else:
        row = f", row {found['row']}" if found["row"] else ""
        where = f"{found['table']}{row}: " if found["table"] else f"line {found['line']}: " if found["line"] else ""
        said = el("p", mark("!", "not whole"), f" {where}{found['why']}")
    warnings = [el("p", mark("?", text, "ask")) for text in found["warnings"]]
    return page("", said, note(f"newer rows, which no record proves yet: {newer}") if newer else None, *warnings)


def journal(asked: Asked, shape: Shape) -> dict[str, Any]:
    rows = [[one["seq"], moment(one["at"]), one["kind"], one["event"], _task(one), one["said"]] for one in shape["rows"]]
    return page(
        "Journal",
        _record_tabs(journal=True),
        table("The journal, the newest first", ["#", "When", "Kind", "What", "Task", "~More"], rows),
        pager(asked, "Older rows", before=shape["older"]),
    )


# Resources, and what other packages show
# ---------------------------------------


def resources(shape: Shape) -> dict[str, Any]:
    return page("Capacity and cores", _capacity(shape), _cores(shape["cores"]), _agents_at_work(shape))


def _capacity(shape: Shape) -> Element:
    found = shape["capacity"]
    if found is None:
        return section("Capacity", trouble(shape["trouble"]))
    facts: list[tuple[str, Child]] = [
        ("Slots", f"{found['living']} of {found['slots']} taken"),
        ("Waiting", found["waiting"]),
        ("Binds", found["binding"] or "nothing yet"),
        ("Last one starts in", duration(found["predicted_wait_s"] or None)),
    ]
    held = [el("p", mark("!", f"{name} held back: {one['words']}")) for name, one in found["held"].items()]
    lines = el("pre", "\n".join(shape["lines"]), class_="ours", tabindex="0", role="region", aria_label="As nightcrew capacity prints it")
    return section("Capacity", tiles(facts), *held, lines)


def _cores(machine: Shape) -> Element:
    shared = "No core is kept for the supervisor: agents (A) and supervisor share them all."
    words = "S stays with the supervisor, A is for agents." if machine["pinned"] else shared
    boxes = [
        el(
            "li",
            el("b", "S" if core["supervisor"] else "A"),
            f" {', '.join(map(str, core['cpus']))}",
            class_="kept" if core["supervisor"] else "",
        )
        for core in machine["cores"]
    ]
    nodes = {core["node"] for core in machine["cores"]}
    count = f"{many(len(boxes), 'core')}, {many(len(nodes), 'node')}"
    return section(
        "Cores", note(f"{count}. {words}"), el("ul", *boxes, class_="cores", aria_label="Cores, by the numbers of their threads")
    )


def _agents_at_work(shape: Shape) -> Element:
    rows = [
        [
            agent(one["id"]),
            one["title"],
            one["kind"],
            one["class"],
            *(size(one[name]) if one[name] is not None else None for name in ("memory", "peak_memory", "expected_memory")),
            *(duration(one[name]) for name in ("cpu_s", "tool_cpu_s", "wall_s")),
        ]
        for one in shape["agents"]
    ]
    heads = ["Agent", "~Title", "Kind", "Class", "#Memory", "#At most", "#Expected", "#Processor", "#by tools", "#Time"]
    more = note(f"and {shape['more_agents']} more") if shape["more_agents"] else None
    return section("Agents at work", table("What each takes", heads, rows) if rows else note("None."), more)


def more(shape: Shape) -> dict[str, Any]:
    """The tables of other packages, in the order of the packages' names."""
    return page("More", *(section(one["title"], table(one["title"], one["columns"], one["rows"])) for one in shape["sections"]))


# Limits
# ------


_UNITS = {
    "requests": "requests a minute",
    "input": "input tokens a minute",
    "output": "output tokens a minute",
    "tokens": "tokens a minute",
}
_WAITS = {"wait": "Waiting for its turn", "first_byte": "To the first byte", "total": "The whole turn"}
_NOTHING_SENT = "Nothing was sent in the last half hour."


def limits(shape: Shape) -> dict[str, Any]:
    """`ends` of the steps, the `charts` over them, and the elements above (`tiles`) and below (`tables`)."""
    now, breakers = shape["now"], shape["breakers"]
    bands = [{**one, "letter": "O" if one["state"] == "open" else "½"} for one in breakers]
    kept = {"trouble": shape["trouble"], "ends": shape["ends"], "charts": _charts(shape, bands)}
    return {**kept, "tiles": _limits_now(now), "tables": _limits_tables(now, breakers)}


def _charts(shape: Shape, bands: Sequence[Shape]) -> list[Shape]:
    rates = shape["rates"]
    admissions = [
        _series("admitted a minute", "A", "c1", rates["admitted"], bars=True),
        _series("waiting now", "Q", "c2", rates["queued"]),
        _series("429 of the provider's", "P", "c6", rates["upstream_429"], dash=[2, 3]),
        _series("429 of ours", "N", "c4", rates["our_429"], dash=[6, 4]),
    ]
    cached = [_series("read from the cache", "C", "c3", rates["cache_hits"])]
    worth = [_series("tokens for a dollar", "T", "c1", rates["tokens_per_usd"])]
    used = [_used(one, bands) for one in shape["charts"]]
    waited = [_waited(name, shape["waits"][key]) for key, name in _WAITS.items()]
    no_price = "Nothing with a known price in the last half hour."
    return [
        _chart("Tokens a minute", used, bands, unit="short", height=260, empty=_NOTHING_SENT, choice="Limit"),
        _chart("Admissions and the queue", [{"series": admissions}], bands, unit="count", least=4, empty=_NOTHING_SENT),
        _chart("Waits", waited, bands, unit="duration", least=0.5, empty="Nothing ended in the last half hour.", choice="Seconds of"),
        _chart(
            "Input read from the provider's cache",
            [{"series": cached}],
            (),
            unit="percent",
            height=150,
            most=1,
            empty="No input in the last half hour.",
        ),
        _chart("Tokens for a dollar", [{"series": worth}], (), unit="short", height=150, empty=no_price),
    ]


def _chart(title: str, variants: Sequence[Shape], bands: Sequence[Shape], *, height: int = 200, choice: str = "", **facts: object) -> Shape:
    titled = [{"name": "", "title": title, **one} for one in variants]
    return {"key": title, "title": title, "variants": titled, "bands": bands, "height": height, "choice": choice, **facts}


def _series(name: str, letter: str, ink: str, values: Sequence[float | None], **more: object) -> Shape:
    return {"name": name, "letter": letter, "ink": ink, "values": values, **more}


def _used(one: Shape, bands: Iterable[Shape]) -> Shape:
    """What each agent used of a limit, one upon the other."""
    pool, unit = one["pool"], _UNITS[one["dimension"]]
    agents = [_series(agent["name"], chr(ord("A") + at), f"c{at + 1}", agent["used"], stack=True) for at, agent in enumerate(one["agents"])]
    series = [
        *agents,
        _series("reserved for what is under way", "R", "muted", one["reserved"], stack=True, hatched=6),
        _series("used by others outside", "X", "ink", one["outside"], stack=True, hatched=10),
        _series("limit", "limit", "ink", one["limit"], dash=[10, 4]),
    ]
    title = f"{unit.capitalize()} of {pool}, by agent, in the minute before"
    return {"name": f"{pool}: {unit}", "title": title, "bands": [band for band in bands if band["pool"] == pool], "series": series}


def _waited(name: str, of: Shape) -> Shape:
    lines = [("P50", "50", "c1", None), ("P95", "95", "c2", [8, 4]), ("P99", "99", "c6", [2, 3])]
    series = [_series(part, letter, ink, of[part.lower()], dash=dash) for part, letter, ink, dash in lines]
    return {"name": name, "title": f"{name}: seconds", "series": series}


def _limits_now(found: Shape | None) -> list[Element]:
    """What holds now."""
    if found is None or not found["running"]:
        return []
    pools, figures = found["pools"], found["figures"]
    is_open = sum(pool["breaker"] != "closed" for pool in pools)
    soonest = min((pool["exhausted_in_s"] for pool in pools if pool["exhausted_in_s"] is not None), default=None)
    delay = max((lane["delay_s"] or 0.0 for lane in found["lanes"]), default=0.0)
    cap, tonight = found["caps"].get("cost_per_night"), found["tonight_usd"]
    facts: list[tuple[str, Child]] = [
        ("Breakers", mark("!", f"{is_open} not closed") if is_open else mark("D", "all closed", "good")),
        ("Forecast", "not running out" if soonest is None else f"empty in {duration(soonest)}"),
        ("Waiting", sum(lane["queued"] for lane in found["lanes"])),
        ("A new request waits", duration(delay) if delay >= 1 else "not at all"),
        ("Cache", percent(figures["cache_hits"])),
        ("Tokens for a dollar", short(figures["tokens_per_usd"])),
        ("Tonight", "no cap" if tonight is None else f"{money(tonight)} of {money(cap)}"),
    ]
    return [tiles(facts), *(el("p", mark("!", text)) for text in found["problems"])]


def _limits_tables(found: Shape | None, breakers: Sequence[Shape]) -> list[Element]:
    """Limits and agents now, and when a breaker was not closed."""
    made = []
    if found is not None and found["running"]:
        made += [section("Limits now", _pools(found["pools"])), section("Agents now", *_agents(found))]
    if breakers:
        rows = [
            [one["pool"], one["breaker"], state(one["state"]), moment(one["begin"]), moment(one["end"]) or "now", one["why"]]
            for one in breakers
        ]
        made.append(section("When a breaker was not closed", table("Breakers", ["Limit", "Breaker", "State", "From", "To", "~Why"], rows)))
    if found is not None and not found["running"]:
        made.append(note("What only a running gateway knows is not here: limits, reservations, the use of others, the queue."))
    return made


def _pools(pools: Iterable[Shape]) -> Element:
    rows = []
    for pool in pools:
        opens = None if pool["opens_in_s"] is None else f"tries again in {duration(pool['opens_in_s'])}"
        for one in pool["dimensions"] or [{}]:
            figures = [short(one.get(name)) for name in ("limit_per_minute", "reserved", "outside_per_minute")]
            empty = duration(pool["exhausted_in_s"])
            head: list[Child] = [pool["key"], one.get("name"), state(pool["breaker"]), pool["breaker_why"] or opens]
            rows.append([*head, *figures, percent(one.get("saturation")), empty, pool["in_flight"]])
    heads = ["Limit", "Of", "Breaker", "~Why", "#A minute", "#Reserved", "#Others", "#Used", "#Empty in", "#Under way"]
    return table("Limits now", heads, rows)


def _agents(found: Shape) -> list[Child]:
    rows = []
    for one in found["agents"]:
        figures = one["figures"]
        waits = duration(one["waiting_s"]) if one["queued"] else None
        place = f"#{one['place']}" if one["place"] else None
        head = [one["name"], one["task_class"], short(one["used_tpm"]), short(one["share_tpm"]), place]
        times = [spelled.percentiles(figures[name]) for name in ("wait", "first_byte", "total")] if figures else [None] * 3
        cost = [spelled.cost(figures), percent(figures["cache_hits"])] if figures else [None, None]
        rows.append([*head, waits, *times, *cost])
    heads = ["Agent", "Class", "#A minute", "#Share", "Place", "#Waits", "#Wait", "#First byte", "#Turn", "#Cost", "#Cache"]
    more = note(f"and {found['more_agents']} more: nightcrew gateway status") if found["more_agents"] else None
    return [table("Agents now: P50 / P95 / P99 in seconds", heads, rows), more]
