"""The verb `mem`: operations on notes, for people and agents."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from memory import listing, note
from memory import search as episodes
from memory.files import Layout, checked
from memory.listing import DAY_S, Candidate, Prune, plan
from memory.note import CHANGES_MAX, Wanted, cleaned, matcher, moment, page
from memory.versions import PERSON, Action, Author, Change, ReadBook, version_of
from memory.versions import PERSON as BY_PERSON
from memory.writing import QUARANTINE, Put, Store
from supervisor.kernel.codec import Bound, Handler, Word, at_most, filled
from supervisor.kernel.errors import NotFound, Refused, TimedOut
from supervisor.kernel.leases import PERSON as WAIT_GRAPH_PERSON
from supervisor.kernel.leases import Wait, WaitKind
from supervisor.kernel.path_globs import DAY_MAX, NOTE_MAX, PATH_MAX, Kind, kind_of
from supervisor.kernel.schedule import PlanWaits
from supervisor.server.request_table import work

if TYPE_CHECKING:
    from memory.listing import Found
    from memory.service.desk import MemoryDesk
    from memory.service.waits import WaitDesk
    from supervisor.kernel.crew import Crew
    from supervisor.kernel.settings import MemoryTerms


# Request
# -------
# One request about the memory of a project: who asks, and what.


REQUEST_PERSON = "person"


@dataclass(frozen=True, slots=True)
class Request:
    desk: MemoryDesk
    project: str
    author: str
    """`person`, or the task of the token."""
    epoch: int | None


NotePath = Annotated[str, Bound(1, PATH_MAX), filled]
AnyPath = Annotated[str, Bound(1, PATH_MAX + len(QUARANTINE)), filled]
"""Also of what waits for a person."""
Version = Annotated[str, Bound(0, 64)]
Text = Annotated[str, Bound(0, NOTE_MAX)]


# Graph
# -----
# The operation `graph` of `mem`: who waits for whom now, in one project.


SHOWN = 300
"""Tasks that have not started and are drawn."""
LOOKED_AT = 5000
"""Unfinished tasks that are looked at for it: whoever asks again and again holds up nobody."""


async def graph(asked: Request) -> dict[str, Any]:
    """`waits`: those of agents, the oldest first, then those that follow from the plan (`number` 0): `number`, `task`, `epoch`, `kind`,
    `what`, `holders`, `any_of` (one of them is enough), `since` and `until` (seconds since 1970, 0: not known, or no end). `nodes`: every
    task in them and `person`, with `state`; `edges`: `from` who waits `to` who must act, with the wait's `number`, `kind` and `what`.
    `more`: tasks that have not started may be missing."""
    return shape(asked.desk.waits, asked.desk.loop.crew, asked.project)


def shape(desk: WaitDesk, crew: Crew, project: str) -> dict[str, Any]:
    """As `graph` returns it."""
    own = desk.open_of(project)
    planned, more = _planned(crew, own, project)
    waits = [*own, *planned]
    names = dict.fromkeys(name for wait in waits for name in (wait.task, *wait.holders))
    return {
        "nodes": [{"id": name, "state": _state(crew, name)} for name in names],
        "edges": [_edge(wait, holder) for wait in waits for holder in wait.holders],
        "waits": [wait.shape() for wait in waits],
        "more": more,
    }


def _planned(crew: Crew, own: Iterable[Wait], project: str) -> tuple[list[Wait], bool]:
    """What tasks wait for that have not started, and whether some are left out: first of those for which somebody waits, then of the
    others in the order of their submission."""
    plan = PlanWaits(crew)
    names = [holder for wait in own for holder in wait.holders]
    found: dict[str, list[Wait]] = {}
    for name in names:  # grows while it is walked
        if name not in found and len(found) < SHOWN:
            found[name] = list(plan.of(name))
            names += [holder for wait in found[name] for holder in wait.holders]
    for task in islice(crew.tasks.values(), LOOKED_AT):
        if len(found) >= SHOWN:
            break
        if task.project == project and task.id not in found and (waits := plan.of(task.id)):
            found[task.id] = list(waits)
    more = len(found) >= SHOWN or len(crew.tasks) > LOOKED_AT
    return [wait for waits in found.values() for wait in waits], more


def _edge(wait: Wait, holder: str) -> dict[str, Any]:
    return {"from": wait.task, "to": holder, "kind": str(wait.kind), "what": wait.what, "number": wait.number}


def _state(crew: Crew, name: str) -> str:
    if name == WAIT_GRAPH_PERSON:
        return WAIT_GRAPH_PERSON
    task = crew.tasks.get(name)
    return str(task.state) if task is not None else "ended"


# Importing
# ---------
# The operation `import`: a file of another memory, for a person.


async def take(asked: Request, *, path: NotePath, text: Annotated[str, Bound(0, DAY_MAX)]) -> dict[str, Any]:
    """`path` and `text`. A file that is here and is not the same stays, and the text is kept beside it; of a day the records are added that
    are not here. Returns `path`, `same`, and `conflict`: the file beside it, or nothing. Raises Refused for an agent."""
    if asked.author != REQUEST_PERSON:
        raise Refused("only a person may do that", on="import", why="it says itself who wrote what")
    kind = checked(path)
    return await asked.desk.of(asked.project, lambda store: _take(store, path, kind, text))


def _take(store: Store, path: str, kind: Kind, text: str) -> dict[str, Any]:
    if kind is Kind.EPISODIC:
        return {"path": path, "same": not store.add_day(path, text, PERSON), "conflict": ""}
    here = store.read(path)
    if here is not None and here.version == version_of(text.encode("utf-8", "replace")):
        return {"path": path, "same": True, "conflict": ""}
    put = store.put(path, text, PERSON, if_version="")
    return {"path": put.path, "same": False, "conflict": put.conflict}


# Note waiting
# ------------
# The operation `wait`: until a file changes whose path a pattern matches.


WAIT_MAX_S = 600.0
"""Of one request; who waits longer asks again with `since`, and misses nothing."""
WAITERS_MAX = 64
"""Requests of one author that wait at the same moment."""
ANSWER_MAX = 100
"""Changes of one answer."""
PAGE = 1_000
NUMBER_MAX = 2**53


async def wait(
    asked: Request,
    *,
    glob: NotePath,
    timeout_s: Annotated[float, Bound(0, WAIT_MAX_S)] = WAIT_MAX_S,
    since: Annotated[int, Bound(0, NUMBER_MAX)] | None = None,
) -> dict[str, Any]:
    """`glob`; `timeout_s`, at most WAIT_MAX_S; `since`: the `number` of an answer before, so that what happened between the two is seen,
    else only what changes from now on. Returns `changes`, oldest first: `number`, `path`, `action`, `author`, `version`, `at`; `number`
    for the next `since`; `timed_out`, then with no change; `polls`: why changes on the disk are seen every 2 s only, or "".
    """
    matches = _matches(glob)
    with _counted(asked.desk, asked.author), _heard(asked.desk, asked.project, matches) as heard:
        newest = await asked.desk.of(asked.project, lambda record: record.newest())
        before = await _before(asked, matches, since) if since is not None else []
        if timeout_s and not before and not heard.changes:
            with contextlib.suppress(TimeoutError, TimedOut):
                async with _parked(asked, glob, timeout_s), asyncio.timeout(timeout_s):
                    await heard.any.wait()
        elif asked.epoch is not None:
            asked.desk.waits.answered(asked.author, asked.epoch, WaitKind.MEMORY, glob)
        changes = before or heard.changes[:ANSWER_MAX]
    return {
        "changes": [_shape_note_waiting(change) for change in changes],
        "number": changes[-1].number if changes else newest,
        "timed_out": not changes,
        "polls": asked.desk.watch.why_polled(asked.project),
    }


def _matches(glob: str) -> Callable[[str], bool]:
    """What waits for a person's word is no note yet: only who names the quarantine is told of it."""
    fits, aside = matcher(glob), glob.startswith(QUARANTINE)
    return lambda path: path.startswith(QUARANTINE) is aside and fits(path)


def _parked(asked: Request, glob: str, timeout_s: float) -> contextlib.AbstractAsyncContextManager[object]:
    """In the graph of waits, for an agent: it waits for nobody in particular."""
    if asked.epoch is None:
        return contextlib.nullcontext()
    return asked.desk.waits.waiting(asked.project, asked.author, asked.epoch, WaitKind.MEMORY, glob, (), timeout_s)


class _Heard:
    def __init__(self, project: str, matches: Callable[[str], bool]) -> None:
        self._project, self._matches = project, matches
        self.changes: list[Change] = []
        self.any = asyncio.Event()

    def __call__(self, project: str, change: Change) -> None:
        if project == self._project and len(self.changes) < ANSWER_MAX and self._matches(change.path):
            self.changes.append(change)
            self.any.set()


@contextlib.contextmanager
def _heard(desk: MemoryDesk, project: str, matches: Callable[[str], bool]) -> Iterator[_Heard]:
    heard = _Heard(project, matches)
    with desk.hearing(heard):
        yield heard


@contextlib.contextmanager
def _counted(desk: MemoryDesk, author: str) -> Iterator[None]:
    if desk.waiting[author] >= WAITERS_MAX:
        raise Refused("too many wait already", on=author, why=f"{WAITERS_MAX} requests")
    desk.waiting[author] += 1
    try:
        yield
    finally:
        desk.waiting[author] -= 1
        if not desk.waiting[author]:
            del desk.waiting[author]


async def _before(asked: Request, matches: Callable[[str], bool], since: int) -> list[Change]:
    """What changed after `since`."""
    found: list[Change] = []
    while len(found) < ANSWER_MAX:
        page = await asked.desk.of(asked.project, functools.partial(_page, since=since))
        if not page:
            break
        since = page[-1].number
        found += [change for change in page if matches(change.path)]
    return found[:ANSWER_MAX]


def _page(record: Store, since: int) -> list[Change]:
    return record.changes_after(since, PAGE)


def _shape_note_waiting(change: Change) -> dict[str, Any]:
    return {key: getattr(change, key) for key in ("number", "path", "action", "author", "version", "at")}


# Approving
# ---------
# A person decides about what agents wrote: the operations `approve` and `reject` of the verb `mem`.
#
# An agent may replace its proposal at any moment, so an approval is of one version: the one that it names, or that was shown last.


BEGINNING = 400
"""Characters of a text that a refusal has."""
LINES = 5


def note_shown(asked: Request, shape: dict[str, Any]) -> None:
    """Remember which version of what waits a person was shown. One that was cut was not shown."""
    asked.desk.shown[asked.project, shape["path"].removeprefix(QUARANTINE)] = "" if shape["cut"] else shape["version"]


async def approve(asked: Request, path: str, version: str | None) -> Put:
    """Approve what waits for `path` in `version` (none: the one that a person was last shown). Raises Refused when that has changed."""
    path = path.removeprefix(QUARANTINE)
    seen = asked.desk.shown.get((asked.project, path), "") if version is None else version

    def decide(store: Store) -> Put:
        if asked.author != PERSON.name:
            return store.approve(path, Author(asked.author))  # refused there
        waits = store.read(f"{QUARANTINE}{path}")
        if waits is not None and waits.version != seen:
            raise _unseen(path, waits.version, waits.text, seen)
        return store.approve(path, PERSON, waits.version if waits is not None else None)

    done = await asked.desk.of(asked.project, decide)
    asked.desk.shown.pop((asked.project, path), None)
    return done


def _unseen(path: str, version: str, text: str, seen: str) -> Refused:
    begin = " | ".join(cleaned(note.parse(text).body).strip().split("\n")[:LINES])[:BEGINNING]
    return Refused(
        "will not approve what nobody was shown",
        on=path,
        why=f"it is version {version}{f', not {seen}' if seen else ''}, and begins: {begin}",
        kept="it still waits",
        hint=f"nightcrew mem approve {path} --version {version}",
    )


# Notes
# -----
# Operations of the verb `mem` on the files themselves. Each takes a request and returns what memory/writing.py says of it.


def author(asked: Request) -> Author:
    """Who asks. An agent whose task failed before is not trusted, and none is when a person said so."""
    if asked.author == PERSON.name:
        return PERSON
    loop = asked.desk.loop
    task = loop.crew.tasks.get(asked.author)
    kind, failures = (task.kind, task.tally.failures) if task is not None else ("", 0)
    return Author(asked.author, asked.epoch, kind, trusted=failures == 0)


async def ls(asked: Request, *, prefix: Annotated[str, Bound(0, PATH_MAX)] | None = None) -> dict[str, Any]:
    """`prefix` (none: all) -> `entries`: path, kind, size, mtime, version, title, and of the front matter what is there; `more`: how many
    are not among them; `refused`: path and why of what is no file that anybody reads, and `more_refused`: how many more;
    `polls`: why changes on the disk are seen every 2 s only, or ""; `overflows`: how often the kernel dropped events since the start."""
    found, watch = await asked.desk.of(asked.project, lambda store: listing.listed(store, prefix or "")), asked.desk.watch
    return {**found, "polls": watch.why_polled(asked.project), "overflows": watch.overflows}


async def show(asked: Request, *, path: AnyPath, version: Version | None = None) -> dict[str, Any]:
    """`path` (with `quarantine/` before it: what waits), `version` (none: as it is) -> path, kind, version, title, text, meta, `broken`,
    `superseded_by`. An agent is given the text as data: `quoted`, where it is not its own."""
    if path.startswith(QUARANTINE):
        _check_person(asked, path)
    found = await asked.desk.of(asked.project, lambda store: listing.shown(store, path, version, asked.author))
    if path.startswith(QUARANTINE):
        note_shown(asked, found)
    else:
        await asked.desk.search.read(asked.project, [path], asked.author)
    return found


async def put(
    asked: Request, *, path: NotePath, text: Text, if_version: Version | None = None, supersedes: NotePath | None = None
) -> dict[str, Any]:
    """`path`, `text`, `if_version` (none: whatever is there; "": nothing may be), `supersedes` (a path or an id) -> path, version,
    `conflict` (where the text was kept instead, or ""), `quarantined`."""
    who = author(asked)
    asked.desk.write_budget.take(who, len(text))
    whole = note.rewritten(text, supersedes=supersedes) if supersedes else text
    return _put(await asked.desk.of(asked.project, lambda store: store.put(path, whole, who, if_version=if_version)))


async def append(asked: Request, *, text: Text, type: str = "note", refs: list[str] = []) -> dict[str, Any]:  # noqa: B006 - never changed
    """`text`, `type`, `refs` -> `path` of the day; one that waits for a person has `quarantine/` before it."""
    record = {"text": text, "type": type, "refs": refs}
    who = author(asked)
    asked.desk.write_budget.take(who, len(str(record)))
    return {"path": await asked.desk.of(asked.project, lambda store: store.append(record, who))}


async def rm(asked: Request, *, path: NotePath) -> dict[str, Any]:
    """`path` -> path, `archived`: its path there."""
    who = author(asked)
    return {"path": path, "archived": await asked.desk.of(asked.project, lambda store: store.remove(path, who))}


async def restore(asked: Request, *, path: NotePath, version: Version | None = None) -> dict[str, Any]:
    """`path`, `version` (its first digits, 4 or more; none: the last one that was another) -> as `put`."""
    who = author(asked)
    return _put(await asked.desk.of(asked.project, lambda store: store.restore(path, who, version)))


async def log(
    asked: Request,
    *,
    path: AnyPath | None = None,
    limit: Annotated[int, Bound(0, CHANGES_MAX)] = 100,
    before: Annotated[int, Bound(0)] | None = None,
    patch: bool = False,
) -> dict[str, Any]:
    """`path` (none: all), `limit`, `patch`, `before` (a number; none: the newest) -> `changes`, newest first: number, path, at, author,
    epoch, action, version, before, size, and with `patch` what changed, as `diff -u` says it; `before`: what to give for the next older
    ones, null when there are none. With `patch` an answer has at most 100."""
    wanted, is_person = Wanted(path, limit, before, patch=patch), asked.author == PERSON.name

    def shows(change: Change) -> bool:
        return is_person or not change.path.startswith(QUARANTINE)

    return await asked.desk.of(asked.project, lambda store: page(store.versions, wanted, shows))


async def quarantine(asked: Request) -> dict[str, Any]:
    """-> `entries` of what waits, as `ls`."""
    _check_person(asked, "the quarantine")
    return await asked.desk.of(asked.project, listing.waiting)


async def approve_at_once(asked: Request, *, path: AnyPath, version: Version | None = None) -> dict[str, Any]:
    """`path` of what waits, `version` (none: the one that was shown last) -> as `put`."""
    return _put(await approve(asked, path, version))


async def reject(asked: Request, *, path: AnyPath, version: Version | None = None) -> dict[str, Any]:  # noqa: ARG001 - as `approve`
    """`path` of what waits -> path, `archived`."""
    path, who = path.removeprefix(QUARANTINE), author(asked)
    return {"path": path, "archived": await asked.desk.of(asked.project, lambda store: store.reject(path, who))}


def _check_person(asked: Request, what: str) -> None:
    if asked.author != PERSON.name:
        raise Refused("only a person sees", on=what, why="nobody approved it")


def _put(done: Put) -> dict[str, Any]:
    return {"path": done.path, "version": done.version, "conflict": done.conflict, "quarantined": done.quarantined}


# Pruning
# -------
# The operation `prune` of the verb `mem`: what would go to the archive, and, when a person says so, that it goes.


SUMMARIES_MAX = 100


async def prune(asked: Request, *, dry: bool = True) -> dict[str, Any]:
    """For people. `dry` (the default): only say. Returns `pruned`: `path`, `why` and `to` (its place in the archive, "" when dry) of each
    note and each day of records; `summaries`: the notes that were made of days; `kept`: what should have gone and why it did not;
    `remarks`; `dead_paths`: False when nobody knew which files the repository has."""
    if asked.author != REQUEST_PERSON:
        raise Refused("a person prunes", on="prune", why="what an agent finds stale another may need", hint="nightcrew mem prune")
    desk, project = asked.desk, asked.project
    tracked = await asyncio.get_running_loop().run_in_executor(None, functools.partial(desk.search.tracked, project))
    layout, terms, now = desk.layout(project), desk.search.terms, desk.loop.clock.wall()
    return await desk.of(project, lambda store: _prune(store, layout, tracked, (now, terms, dry)))


def _prune(store: Store, layout: Layout, tracked: Sequence[str] | None, how: tuple[float, MemoryTerms, bool]) -> dict[str, Any]:
    now, terms, dry = how
    found = [_candidate(store, one) for one in listing.everything(layout)]
    with ReadBook.opened(layout.book) as book:
        read = {path: reads.last for path, reads in book.reads().items()}
    decided = plan(found, read, tracked, now, terms)
    said: dict[str, Any] = {"dry": dry, "pruned": [], "summaries": [], "kept": [], "remarks": list(decided.remarks)}
    for prune in (*decided.days, *decided.prunes):
        try:
            to = "" if dry else _archive(store, layout, prune, said, is_day=prune in decided.days)
        except (Refused, NotFound) as error:
            said["kept"].append({"path": prune.path, "why": error.line()})
        else:
            said["pruned"].append({"path": prune.path, "why": prune.why, "to": to})
    return {**said, "dead_paths": tracked is not None}


def _archive(store: Store, layout: Layout, prune: Prune, said: dict[str, Any], *, is_day: bool) -> str:
    if is_day and (day := listing.one(layout, prune.path)) is not None:
        path, text = _summary(layout, prune.path, day.text)
        store.put(path, text, BY_PERSON)
        said["summaries"].append(path)
    return store.remove(prune.path, BY_PERSON, Action.PRUNE)


def _summary(layout: Layout, day: str, text: str) -> tuple[str, str]:
    """Where the summary of a day goes: beside one of records that came earlier, in the place of one of these."""
    first, summary = episodes.path_of(day), episodes.summary(day, text)
    for number in range(1, SUMMARIES_MAX):
        path = first if number == 1 else first.replace(".md", f"-{number}.md")
        there = listing.one(layout, path)
        if there is None or there.text == summary:
            return path, summary
    raise Refused("too many summaries of one day", on=day, hint=f"nightcrew mem rm {first}")


def _candidate(store: Store, found: Found) -> Candidate:
    kind = kind_of(found.path) or Kind.SEMANTIC
    if kind is Kind.EPISODIC:
        day = moment(found.path.rpartition("/")[2].removesuffix(".jsonl"))
        return Candidate(found.path, kind, found.size, day + DAY_S if day is not None else found.modified)
    meta: Mapping[str, Any] = note.parse(found.text).meta
    instead, globs = str(meta.get("supersedes", "")), tuple(meta.get("paths", ()))
    by_person = bool(instead) and store.versions.by_person(found.path)
    return Candidate(found.path, kind, found.size, found.modified, str(meta.get("id", "")), instead, meta.get("expires"), globs, by_person)


# Search ops
# ----------
# The operations `search` and `brief` of the verb `mem`.


LIMIT_MAX = 100

Query = Annotated[str, at_most(2**20)]
Paths = Annotated[tuple[Annotated[str, Bound(1, 512)], ...], Bound(0, 64)]


async def search(asked: Request, *, query: Query, paths: Paths = (), limit: Annotated[int, Bound(0, LIMIT_MAX)] = 10) -> dict[str, Any]:
    """`query`: any text; `paths`: files of the repository, or patterns, whose notes come first; `limit`. Returns `hits`, the best first:
    `path`, `line` (of a record of a day, else 0), `title`, `score`, `excerpt`, `task` and `at`."""
    hits = await asked.desk.search.search(asked.project, query.strip(), paths=paths, limit=limit)
    return {"hits": [asdict(hit) for hit in hits]}


async def brief(asked: Request, *, task: Word | None = None, prompt: Query | None = None, paths: Paths = ()) -> dict[str, Any]:
    """What an agent is told before its prompt: that of `task` (an agent asks for its own), or one with this `prompt` and these `paths`;
    without either, what everybody is told. Returns `prefix`, which is the same for all agents, and its `digest`; `rest`; `paths` of the
    notes in it; `bytes` of both, and `bytes_max`."""
    title, said, task, paths = _meant(asked, task, prompt, paths)
    found = await asked.desk.search.brief(asked.project, task, f"{title}\n{said}", paths)
    return {
        "task": task,
        "prefix": found.prefix,
        "digest": found.digest,
        "rest": found.rest,
        "paths": list(found.paths),
        "bytes": len(found.prefix.encode()) + len(found.rest.encode()),
        "bytes_max": asked.desk.search.terms.brief,
    }


def _meant(asked: Request, task: str | None, prompt: str | None, paths: tuple[str, ...]) -> tuple[str, str, str, tuple[str, ...]]:
    """Title, prompt, task and files of what it is about."""
    own = asked.author if asked.author != REQUEST_PERSON else ""
    if prompt is not None:
        return "", prompt.strip(), own, paths
    task = own if task is None else task
    if not task:
        return "", "", "", paths
    if own and task != own:
        raise Refused("another agent's task", on=task, why="an agent asks for its own")
    try:
        row = asked.desk.loop.ledger.launch_row(task)
    except KeyError:
        raise NotFound("no such task", on=task, hint="nightcrew status") from None
    if row.project != asked.project:
        raise NotFound("no such task of this repository", on=task)
    return row.spec.title, row.spec.prompt or "", task, (*row.spec.paths, *paths)


# Verbs
# -----
# The verb `mem`: one function an operation, for people at `daemon.sock` and for agents at `agents.sock`.


OPS: Mapping[str, Handler] = {
    "append": append,
    "approve": approve_at_once,
    "brief": brief,
    "graph": graph,
    "import": take,
    "log": log,
    "ls": ls,
    "prune": prune,
    "put": put,
    "quarantine": quarantine,
    "reject": reject,
    "restore": restore,
    "rm": rm,
    "search": search,
    "show": show,
    "wait": wait,
}

_PARKED = ("wait", "graph")
"""What waits for others, or needs nothing of the thread: it would keep its author's other requests waiting."""


async def mem(asked: Request, args: Mapping[str, Any]) -> Any:
    """Do the `op` of a request, one of OPS; what else it takes and returns is said there."""
    if args.get("op") in _PARKED:
        return await work(OPS, asked, args)
    async with asked.desk.turns.of(asked.author):
        return await work(OPS, asked, args)
