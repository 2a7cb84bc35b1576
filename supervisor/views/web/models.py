"""What the pages about limits, memory, mail and audit show, as small JSON."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from shlex import quote
from typing import Any

from memory import files, note, views
from memory import mail as mail_rows
from memory.files import Layout, is_conflict
from memory.listing import Entry, Listing
from memory.mail import PERSON, Mail
from memory.note import Wanted, cleaned
from memory.versions import Versions
from memory.writing import QUARANTINE, limit, place
from supervisor.features import capacity
from supervisor.features.audit import rules as audit_rules
from supervisor.features.audit.rules import recorded
from supervisor.gateway.account import reading, schema
from supervisor.gateway.account.reading import BreakerChange, Figures, Step
from supervisor.host import audit_log, cores, secrets, untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel.audit import trusted
from supervisor.kernel.errors import NightcrewError, NotFound, UsageError, one_line
from supervisor.kernel.format import rfc3339
from supervisor.kernel.path_globs import kind_of
from supervisor.kernel.states import TaskState
from supervisor.store import queries
from supervisor.store.queries import TaskView
from supervisor.views import gateway
from supervisor.views.web.pages import ROWS, Asked, before, chosen, number, opened

# Audit
# -----
# What was done, the newest first: the records of the audit log, read from its end, and the rows of the journal that they prove.


TAIL = 256 * 2**10
"""Bytes of a look at the log: an anchor has up to some kilobytes, and `ROWS` of other records some 20."""
LONG = 300
"""Characters of a value that are shown."""
Shape = dict[str, Any]


def log(home: Home, asked: Asked) -> Shape:
    """`records`, the newest first, those before the byte `before`; `older`: the byte at which the next page ends; `head`: the number of the
    last record, by the file that says so. `foreign` counts the lines that are no records of ours. Raises NotFound while there is no log, or
    no secret to check it by."""
    secret = _secret(home)
    end = number(asked, "before")
    found = _lines(home, end)
    if found is None:
        raise NotFound("there is no audit log", on=home.audit.name, hint="nightcrew up -d")
    shown, others, oldest = [], 0, 0
    for at, line in reversed(found):
        oldest, shape = at, trusted(secret, line)
        others += shape is None
        shown += [_record(shape)] if shape is not None else []
        if len(shown) == ROWS:
            break
    head = audit_log.read_head(home.audit, secret)
    return {"records": shown, "foreign": others, "older": oldest or None, "head": head.seq if head is not None else None}


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


def _record(shape: Mapping[str, Any]) -> Shape:
    one = recorded(str(shape["event"]), None, None, shape["data"])
    is_anchor = shape["event"] == audit_rules.EVENT
    said = _anchored(shape["data"]) if is_anchor else _said(shape["data"])
    return {
        "seq": shape["seq"], "at": shape["at"], "who": shape["who"], "event": "proves rows" if is_anchor else shape["event"],
        "task": one.task, "epoch": one.epoch, "anchor": is_anchor, "said": said, "mac": str(shape["mac"])[:12],
        "prev": str(shape["prev"])[:12],
    }  # fmt: skip


def _anchored(data: Mapping[str, Any]) -> str:
    ranges = data.get("rows") or []
    first, last = (ranges[0][0], ranges[-1][1]) if ranges else (0, 0)
    return f"{data.get('table')}, rows {first} to {last}, sha256 {str(data.get('sha256'))[:12]}"


def _said(data: Mapping[str, Any]) -> str:
    said = [f"{name} {_short(value)}" for name, value in data.items() if value not in (None, "", {}) and name not in ("task", "epoch")]
    return one_line(", ".join(said))[: 4 * LONG]


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= LONG else f"{text[:LONG]}…"


def journal(home: Home, asked: Asked) -> Shape:
    """`rows` of the ledger's journal, the newest first, those before the number `before`; `older`: the number before which the next page
    begins."""
    with opened(home.ledger) as db:
        found = db.execute("SELECT * FROM journal WHERE seq < ? ORDER BY seq DESC LIMIT ?", (before(asked), ROWS + 1)).fetchall()
    shapes = []
    for row in found[:ROWS]:
        data = json.loads(row["data"])
        one = asdict(recorded(row["event"], row["task"], row["epoch"], data))
        shapes.append({**{name: one[name] for name in ("kind", "task", "epoch")}, "seq": row["seq"], "at": rfc3339(row["at"]),
                       "event": row["event"], "said": _said(data)})  # fmt: skip
    return {"rows": shapes, "older": found[ROWS - 1]["seq"] if len(found) > ROWS else None}


# Limits
# ------
# Tokens against the limits, over time: who used them, what is reserved, what others take, who waited for how long, and every
# breaker.
#
# What was sent comes from the account, in steps of time. What the gateway alone knows (limits, reservations, outside use, the
# queue) is kept from each look, so it begins with the first one.


STEP_S, STEPS, LEAST = 15.0, 120, 20
"""Half an hour; where less is known, from the first request on, and at least five minutes."""
LIMITS_AGENTS = 7
"""That have a colour of their own: those that used most. The others are one."""
OTHERS = "others of the crew"
GATEWAY_S = 1.0
TABLE = 20
"""Agents of the table of now."""


@dataclass(slots=True)
class Looks:
    """What the gateway said, look by look: one for each step of time. One thread at a time."""

    kept: deque[tuple[float, Mapping[str, Any]]] = field(default_factory=lambda: deque(maxlen=STEPS + 1))

    def add(self, shape: Mapping[str, Any] | None, now: float) -> None:
        """Keep what one look says for the end of the last whole step, when it is the first since then."""
        at = now // STEP_S * STEP_S
        if not self.kept or self.kept[-1][0] != at:
            self.kept.append((at, _pools(shape)))

    def of(self, pool: str, dimension: str, ends: Sequence[float]) -> dict[str, list[float | None]]:
        """`limit`, `reserved` and `outside` at the end of each step; None where nobody looked."""
        known = {at: pools.get(pool, {}).get(dimension) for at, pools in self.kept}
        found = [known.get(at) for at in ends]
        return {name: [None if one is None else one[name] for one in found] for name in ("limit", "reserved", "outside")}

    def queued(self, ends: Sequence[float]) -> list[float | None]:
        """How many requests waited at the end of each step; None where nobody looked."""
        known = dict(self.kept)
        return [known.get(at, {}).get("", {}).get("queued") for at in ends]


def _pools(shape: Mapping[str, Any] | None) -> dict[str, Any]:
    """By pool and dimension; below "" what is of no pool."""
    if shape is None or not shape["running"]:
        return {}
    queue = {"queued": sum(lane["queued"] for lane in shape["lanes"])}
    return {"": queue, **{pool["key"]: {one["name"]: _kept(one) for one in pool["dimensions"]} for pool in shape["pools"]}}


def _kept(one: Mapping[str, Any]) -> dict[str, float | None]:
    return {"limit": one["limit_per_minute"], "reserved": one["reserved"], "outside": one["outside_per_minute"]}


def limits(home: Home, looks: Looks, now: float) -> Shape:
    """`now`: the gateway as its status page says it, None where there never was one; `trouble`: why it does not answer; `ends`: the end of
    each step, seconds since 1970; `charts`: one for each pool and dimension, the busiest first; `waits`, `rates`: of all, over time;
    `breakers`: when which breaker was not closed."""
    shape, trouble = _asked(home, now)
    looks.add(shape, now)
    sent, changes = _account(home, now)
    ends = [one.at for one in sent]
    return {
        "now": _now(shape),
        "trouble": trouble,
        "ends": ends,
        "charts": charts(sent, looks, shape),
        "waits": waits(sent),
        "rates": {**rates(sent), "queued": looks.queued(ends)},
        "breakers": bands(changes, now),
    }


def _asked(home: Home, now: float) -> tuple[Mapping[str, Any] | None, str]:
    try:
        shape = gateway.look(home, now, timeout_s=GATEWAY_S)
    except NightcrewError as error:
        return None, error.line()
    if shape is None:
        return None, "no gateway has run here: nightcrew up -d, with a provider's key"
    return shape, "" if shape["running"] else str(shape["why"])


def _account(home: Home, now: float) -> tuple[list[Step], list[BreakerChange]]:
    with contextlib.suppress(NightcrewError), opened(home.gateway_account, schema.ACCOUNT) as db:
        return _known(reading.steps(db, now, STEP_S, STEPS)), reading.breakers(db, now - STEP_S * STEPS)
    return [], []


def _known(sent: list[Step]) -> list[Step]:
    """Without what was before the first request."""
    first = next((at for at, step in enumerate(sent) if step.figures.requests), 0)
    return sent[max(0, min(first - 1, len(sent) - LEAST)) :]


def _now(shape: Mapping[str, Any] | None) -> Shape | None:
    """What a table has room for."""
    if shape is None:
        return None
    agents = sorted(shape["agents"], key=lambda one: (-(one["used_tpm"] or 0.0), -(one["waiting_s"] or 0.0), one["name"]))
    names = ("running", "figures", "lanes", "pools", "problems", "tonight_usd", "caps")
    return {**{name: shape[name] for name in names if name in shape}, "agents": agents[:TABLE], "more_agents": max(0, len(agents) - TABLE)}


# Over time ------------------------------------------------------------------------------------------------------------------------


def charts(sent: Sequence[Step], looks: Looks, shape: Mapping[str, Any] | None) -> list[Shape]:
    """`pool`, `dimension`, `agents` (each `name` and `used`: in the minute that ends with each step), and what `Looks.of` gives."""
    ends = [one.at for one in sent]
    found = []
    for pool, dimension in _wanted(sent, shape):
        used = _used(sent, pool, dimension)
        agents = [{"name": name, "used": values} for name, values in _foremost(used, len(sent))]
        found.append({"pool": pool, "dimension": dimension, "agents": agents, **looks.of(pool, dimension, ends)})
    return sorted(found, key=lambda one: -sum(sum(agent["used"]) for agent in one["agents"]) * (one["dimension"] != "requests"))


def _wanted(sent: Sequence[Step], shape: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Every pool that was used, with the dimensions that it is known to have; input and output where nobody knows."""
    used = {pool for step in sent for pool, _ in step.charged}
    known = {pool["key"]: [one["name"] for one in pool["dimensions"]] for pool in (shape or {}).get("pools", ())}
    busy = {pool["key"] for pool in (shape or {}).get("pools", ()) if pool["in_flight"]}
    return [(pool, name) for pool in sorted(used | busy) for name in known.get(pool) or ("input", "output")]


def _used(sent: Sequence[Step], pool: str, dimension: str) -> dict[str, list[float]]:
    """Of each agent what it was charged in the minute that ends with each step."""
    found: dict[str, list[float]] = {}
    for at, step in enumerate(sent):
        for (where, agent), (requests, given, put_out) in step.charged.items():
            if where == pool:
                amount = {"requests": requests, "input": given, "output": put_out}.get(dimension, given + put_out)
                found.setdefault(agent, [0.0] * len(sent))[at] += amount
    wide = round(60 / STEP_S)
    return {agent: [sum(values[max(0, at - wide + 1) : at + 1]) for at in range(len(values))] for agent, values in found.items()}


def _foremost(used: Mapping[str, list[float]], count: int) -> Iterable[tuple[str, list[float]]]:
    ordered = sorted(used.items(), key=lambda one: (-sum(one[1]), one[0]))
    yield from ordered[:LIMITS_AGENTS]
    if rest := [values for _, values in ordered[LIMITS_AGENTS:]]:
        yield OTHERS, [sum(values[at] for values in rest) for at in range(count)]


def waits(sent: Sequence[Step]) -> Shape:
    """P50, P95 and P99 of `wait`, `first_byte` and `total` in each step, in seconds; None where nothing ended."""
    return {
        name: {part: [getattr(getattr(step.figures, name), part) for step in sent] for part in ("p50", "p95", "p99")}
        for name in ("wait", "first_byte", "total")
    }


def rates(sent: Sequence[Step]) -> Shape:
    """In each step: `admitted` requests a minute, `our_429` and `upstream_429`, `cache_hits` (0 to 1), `tokens_per_usd`."""
    figures = [step.figures for step in sent]
    return {
        "admitted": [60 / STEP_S * _admitted(one) for one in figures],
        "our_429": [one.our_429 for one in figures],
        "upstream_429": [one.upstream_429 for one in figures],
        "cache_hits": [one.cache_hits for one in figures],
        "tokens_per_usd": [one.tokens_per_usd for one in figures],
    }


def _admitted(figures: Figures) -> int:
    return sum(one.requests for one in figures.models)


def bands(changes: Sequence[BreakerChange], now: float) -> list[Shape]:
    """`pool`, `breaker`, `state`, `why`, `begin` and `end`: when a breaker was open or half-open; `end` None: it is so now."""
    found = []
    for key in dict.fromkeys((one.pool, one.breaker) for one in changes):
        own = [one for one in changes if (one.pool, one.breaker) == key]
        for one, then in pairwise([*own, None]):
            if one is not None and one.state != "closed":
                end = None if then is None else then.at
                if end is None or end > now - STEP_S * STEPS:
                    found.append({**asdict(one), "begin": one.at, "end": end})
    return sorted(found, key=lambda one: -one["begin"])


# Mails
# -----
# Who wrote to whom: the messages of a project, the newest first, and one thread with its words. To look claims nothing: a message
# that waits for its recipient goes on waiting.


THREAD = 50
"""Messages of a thread, the newest."""


def mails(home: Home, asked: Asked, now: float) -> Shape:
    """`mails` of a project, the newest first, those before the message `before`; with `box=person` what waits for a person alone.
    `older`: the message before which the next page begins."""
    with opened(home.ledger) as db:
        project, projects = chosen(db, asked)
        for_person = asked.get("box") == PERSON
        found = mail_rows.newest(db, project, asked.get("before", ""), ROWS + 1, recipient=PERSON if for_person else "")
        answered = mail_rows.answered(db, [one.id for one in found]) if found else set()
    shown = found[:ROWS]
    return {
        "project": project,
        "projects": projects,
        "box": PERSON if for_person else "",
        "mails": [{**_shape(one, now, answered), "type_in": _commands(one)} for one in shown],
        "older": shown[-1].id if len(found) > ROWS else None,
    }


def _shape(one: Mail, now: float, answered: set[str]) -> Shape:
    return one.shape(now, answered=one.id in answered)


def _commands(one: Mail) -> list[str]:
    """What a person can do about a message to them."""
    name = quote(one.id[-views.SHORT :])
    return [f"nightcrew mail read {name}", f"nightcrew mail reply {name} TEXT"] if one.recipient == PERSON and one.is_open else []


def thread(home: Home, asked: Asked, now: float) -> Shape:
    """The newest messages of a thread, oldest first, each with its `text`; empty for one that a release before this one kept in a file.
    Raises NotFound."""
    with opened(home.ledger) as db:
        found = mail_rows.of_thread(db, asked.get("thread", ""), THREAD)
        answered = mail_rows.answered(db, [one.id for one in found]) if found else set()
        texts = [cleaned(mail_rows.words(db, one.id) or "") for one in found]
    if not found:
        raise NotFound("no such thread", on=asked.get("thread", "")[:40], hint="nightcrew mail ls --all")
    shapes = [{**_shape(one, now, answered), "text": text} for one, text in zip(found, texts, strict=True)]
    return {"thread": found[0].thread, "mails": shapes, "cut": len(found) == THREAD}


# Notes
# -----
# What agents know together: the notes of a project, one note with its versions and who read it, and what waits for a person.
#
# Notes are agents' words: they are shown without what hides from a reader, and beside who wrote them.


READERS, CHANGES, WAITING = 10, 20, 50
_KNOWN = """
SELECT k.path, k.version, c.size, c.number, c.author, c.epoch, c.action, c.at, x.data FROM known k
LEFT JOIN change c ON c.number = (SELECT max(number) FROM change WHERE path = k.path AND state = 'done')
LEFT JOIN content x ON x.version = k.version
WHERE k.path > ? ORDER BY k.path LIMIT ?
"""
_READERS = "SELECT task, given, read, last FROM reading WHERE path = ? ORDER BY given + read DESC, task LIMIT ?"


def notes(home: Home, asked: Asked) -> Shape:
    """`notes` of a project by their paths, those after `after`; `more`: the path after which the next page begins; on the first page
    `waiting`: what is in quarantine until a person says something, and `changes`, the newest."""
    with opened(home.ledger) as db:
        project, projects = chosen(db, asked)
    there, after = Layout(home.project(project)), asked.get("after", "")
    found: list[Shape] = []
    with _book(there) as kept:
        if kept is not None:
            found = [_note(row) for row in kept.db.execute(_KNOWN, (after, ROWS + 1))]
        changes = [] if after or kept is None else [_change(one) for one in note.page(kept, Wanted(limit=CHANGES))["changes"]]
    return {
        "project": project,
        "projects": projects,
        "notes": found[:ROWS],
        "more": found[ROWS - 1]["path"] if len(found) > ROWS else None,
        "waiting": [] if after else _waiting(there),
        "changes": changes,
    }


@contextlib.contextmanager
def _book(there: Layout) -> Iterator[Versions | None]:
    """None where nothing was ever written through nightcrew."""
    if not there.book.exists():
        yield None
        return
    with contextlib.closing(Versions(there.book, reads=True)) as kept:
        yield kept


def _note(row: sqlite3.Row) -> Shape:
    path = str(row["path"])
    kind = kind_of(path.removeprefix(QUARANTINE))
    meta = note.parse(bytes(row["data"]).decode("utf-8", "replace")).meta if row["data"] is not None and path.endswith(".md") else {}
    return {
        "path": path, "kind": str(kind) if kind else "", "size": row["size"],
        "title": str(meta.get("title") or ""),
        "author": row["author"] or "unknown", "epoch": row["epoch"], "action": row["action"], "at": row["at"],
        "quarantined": path.startswith(QUARANTINE), "conflict": is_conflict(path),
    }  # fmt: skip


def _waiting(there: Layout) -> list[Shape]:
    return [_entry(one) for one in Listing(there.root, "quarantine").entries()[:WAITING]]


def _entry(one: Entry) -> Shape:
    path, name = f"{QUARANTINE}{one.path}", quote(one.path)
    return {
        "path": path, "kind": str(one.kind), "size": one.size, "title": one.title, "at": one.mtime,
        "type": [f"nightcrew mem show {quote(path)}", f"nightcrew mem approve {name}", f"nightcrew mem reject {name}"],
    }  # fmt: skip


def _change(one: Shape) -> Shape:
    return {**one, "quarantined": str(one["path"]).startswith(QUARANTINE)}


def one_note(home: Home, asked: Asked) -> Shape:
    """A note of a project as it is, or as it was by `version`: its `text`, cut where it is long; its `changes` before `before`; and on the
    first page its `readers`. Raises NotFound and UsageError."""
    with opened(home.ledger) as db:
        project, _ = chosen(db, asked)
    there, path = Layout(home.project(project)), asked.get("path", "")
    if kind_of(path.removeprefix(QUARANTINE)) is None:
        raise UsageError("not a path of the memory", on=path[:100], hint="nightcrew mem ls")
    with _book(there) as kept:
        data, version = _content(there, kept, path, asked.get("version", ""))
        found = note.page(kept, Wanted(path, CHANGES, number(asked, "before"))) if kept is not None else {"changes": [], "before": None}
        return {
            "project": project,
            "path": path,
            "version": version,
            "quarantined": path.startswith(QUARANTINE),
            "text": cleaned(data.decode("utf-8", "replace")),
            "bytes": len(data),
            "changes": found["changes"],
            "older": found["before"],
            "readers": [dict(row) for row in kept.db.execute(_READERS, (path, READERS))] if kept is not None else [],
        }


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


def resources(home: Home, found: Mapping[str, Any] | None, trouble: str, reserve: int | None) -> Shape:
    """`capacity` as `nightcrew capacity --json` has it and its `lines`, None and `trouble` while no supervisor answers (`found` is its
    answer); `cores` of this machine, where `reserve` is the settings' word; `agents` that run, each with what it takes."""
    with opened(home.ledger) as db:
        running = [view for view in queries.foremost(db, 0) if view.state is TaskState.RUNNING]
    return {
        "capacity": None if found is None else capacity.printed(found),
        "lines": [] if found is None else list(capacity.lines(found)),
        "trouble": trouble,
        "cores": machine(reserve),
        "agents": [_agent(view) for view in running[:RESOURCES_AGENTS]],
        "more_agents": max(0, len(running) - RESOURCES_AGENTS),
    }


def machine(reserve: int | None) -> Shape:
    """Each usable core with its CPU numbers, its node, and whether it is kept for the supervisor."""
    found = cores.topology()
    kept = set(cores.plan(found, reserve).supervisor)
    return {
        "cores": [{"cpus": list(core.cpus), "node": core.node, "supervisor": bool(kept & set(core.cpus))} for core in found],
        "pinned": bool(kept),
    }


def _agent(view: TaskView) -> Shape:
    account = view.account or {}
    return {
        "id": view.id, "title": view.title, "kind": view.kind, "class": view.task_class,
        "memory": account.get("memory"), "peak_memory": account.get("peak_memory"), "expected_memory": view.memory_expected,
        "cpu_s": account.get("cpu_s"), "tool_cpu_s": account.get("tool_cpu_s"), "wall_s": account.get("wall_s"),
    }  # fmt: skip
