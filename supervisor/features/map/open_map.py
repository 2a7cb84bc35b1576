"""One map whose workers live: its board, its file and its output."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shlex
import sqlite3
import sys
from array import array
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.features.map import rules as map_rules
from supervisor.features.map.prompts import ANSWER, NAMES, NoJson, PromptTerms, answers, for_agent, shards, where_to_answer
from supervisor.features.map.rules import Board, Judged, Key, Lease, Outcome, Spent
from supervisor.features.map.worker.check import ANSWER_MAX, ASKED
from supervisor.host import files, untrusted_fs
from supervisor.kernel import codec
from supervisor.kernel.errors import Refused, UsageError, one_line
from supervisor.kernel.retry import TIMEOUT_S
from supervisor.kernel.spec import Submission, TaskSpec
from supervisor.kernel.states import TaskState
from supervisor.store import sqlite

if TYPE_CHECKING:
    from supervisor.host.paths import Home
    from supervisor.store.queries import TaskView


# Agents
# ------
# A map that agents work on: each shard is an ordinary task of the run, and has its items until it has ended, whichever attempt it
# is.
#
# Its answer is what its agent said last; with a schema it is what the agent wrote into `answer.json`, which the task's gate has
# checked.


EXECUTOR = "agents"
TASK = 0
"""In place of an epoch, in the lease of a task."""
TASKS_MAX = 20_000
"""Tasks of a run."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A run that is to be submitted, and the positions of each of its tasks."""

    submission: Submission
    shards: tuple[tuple[int, ...], ...]


def hand_over(name: str, number: int, what: Mapping[str, Any], waiting: Mapping[int, str], submission: Submission) -> Handed:
    """The run of a map's items that are not done. `number`: the map's last shard; `waiting`: items by position; `submission` has one task,
    the pattern of all. The same of all that gives the same key, so that a supervisor that died in between submits it once. Raises
    UsageError for a field that an item does not have, or for too many tasks."""
    groups = [group["items"] for group in what.get("groups") or ()]
    cut = shards(list(waiting), int(what["each"]), groups)
    if len(cut) > TASKS_MAX:
        raise UsageError(
            "too many tasks", on=name, why=f"{len(cut):,} shards, and a run has at most {TASKS_MAX:,}", hint="a larger --shard"
        )
    pattern = submission.spec.tasks[0]
    tasks = tuple(_task(pattern, what, place, [waiting[position] for position in shard]) for place, shard in enumerate(cut, 1))
    key = hashlib.sha256(json.dumps([name, number, tasks], default=codec.brief).encode()).hexdigest()
    return Handed(replace(submission, key=f"map-{key}", spec=replace(submission.spec, tasks=tasks)), tuple(map(tuple, cut)))


def _task(pattern: TaskSpec, what: Mapping[str, Any], place: int, texts: Sequence[str]) -> TaskSpec:
    terms, items = PromptTerms.from_shape(what["terms"]), [fields_of(text, str(what["form"])) for text in texts]
    try:
        prompt = for_agent(terms, items)
    except KeyError as error:
        raise UsageError(
            "no such field", on="{" + str(error.args[0]) + "}", why=f"not every item has it: {one_line(texts[0])[:80]}"
        ) from None
    more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
    made = replace(pattern, name=f"s{place}", title=f"{one_line(items[0]['item'])[:100]}{more}", prompt=prompt)
    return made if terms.schema is None else answering(made, prompt, [one["item"] for one in items], terms.schema)


def answering(task: TaskSpec, prompt: str, names: Sequence[str], schema: Any) -> TaskSpec:
    """The task with a prompt that says where its answer for each of `names` belongs, and with a gate that checks that."""
    asked = json.dumps({"schema": schema, "items": list(names)})
    told = f"{prompt}\n\n{where_to_answer(names, schema)}"
    limit = task.gate_timeout_s or TIMEOUT_S
    return replace(task, prompt=told, gate=_gate(task), gate_timeout_s=limit, params={**task.params, ASKED: asked})


def _gate(pattern: TaskSpec) -> tuple[str, ...]:
    """The check of the answer, before the gate that the project has for every task."""
    check = (sys.executable, "-I", "-m", "supervisor.features.map.worker.check")
    return ("/bin/sh", "-c", f"{shlex.join(check)} && {{ {pattern.gate_words}\n}}") if pattern.gate else check


def fields_of(text: str, form: str) -> dict[str, Any]:
    """The fields of an item in a prompt."""
    plain = text.encode("utf-8", "backslashreplace").decode()
    found: dict[str, Any] = dict.fromkeys(NAMES, plain)
    return {**found, **json.loads(text)} if form == "jsonl" else found


def outcomes(home: Home, view: TaskView, what: Mapping[str, Any], items: Sequence[tuple[int, str]]) -> list[Outcome]:
    """What came of the items, by position and text, of a task that has ended. Raises ToolFailed when the machine could not look."""
    ms = round(1000 * max(0.0, (view.ended or 0.0) - (view.started or view.ended or 0.0)))
    if view.state is not TaskState.DONE:
        why = f"{view.id} is {view.state}: {view.end_cause or view.reason or 'no reason is known'}"
        return [Outcome(position, False, why, ms) for position, _ in items]
    try:
        values = _values(home, view, what, [str(fields_of(text, str(what["form"]))["item"]) for _, text in items])
    except NoJson as error:
        return [Outcome(position, False, f"{view.id}: its answer cannot be read: {error}", ms) for position, _ in items]
    return [Outcome(position, True, json.dumps(value), ms) for (position, _), value in zip(items, values, strict=True)]


def _values(home: Home, view: TaskView, what: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    result = view.result or {}
    if what["terms"].get("schema") is not None:
        found = answers(untrusted_fs.read_plain(_out(home, view) / ANSWER, ANSWER_MAX), names)
    else:
        said = (result.get("agent") or {}).get("message")
        found = [said if said is not None else result.get("output")] * len(names)
    if not what.get("merge"):
        return found
    edit = {"base": view.base_oid, "commit": result.get("tip") if result.get("tip") != view.base_oid else None}
    return [{"output": one, **edit} for one in found]


def _out(home: Home, view: TaskView) -> Path:
    return home.attempt(view.id, view.epoch) / "out"


# Book
# ----
# `maps/<id>/map.db`: how it is opened, read and filled. The supervisor alone writes it.
#
# A command prepares a workload in a file beside it, which the supervisor takes over by one statement, however many items there are.


BOOK = sqlite.Book(
    name="the map's file",
    schema=1,
    tables=frozenset({"map", "item", "lease", "kept"}),
    package="supervisor.features.map",
    untouched="the ledger, branches and worktrees are untouched",
    goes_on="its workers wait",
    recover="nightcrew map --fresh",
    absent="nothing was ever mapped so",
    first="nightcrew map",
)
_ITEMS = "CREATE TABLE item (position INTEGER PRIMARY KEY, name BLOB, key TEXT, nth INTEGER, size INTEGER)"
_MERGE = """
INSERT INTO item (position, name, key, nth, size, state, tries, deaths, ms, text)
SELECT i.position, i.name, i.key, i.nth, i.size, coalesce(o.state, 'waiting'), coalesce(o.tries, 0), 0, coalesce(o.ms, 0), o.text
FROM incoming.item i LEFT JOIN before o ON o.name = i.name AND o.key = i.key AND o.nth = i.nth
"""
_DIFFER = """
SELECT (SELECT count(*) FROM main.item) <> (SELECT count(*) FROM incoming.item)
OR EXISTS (SELECT 1 FROM incoming.item i LEFT JOIN main.item o USING (position) WHERE o.name IS NOT i.name OR o.key IS NOT i.key)
"""


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a workload."""

    name: bytes
    """A path, a line, or an object as one line of JSON."""
    key: str
    """Of its content: the same key under the same name needs no second look."""
    size: int
    """Bytes: of the file, or of the line."""


def map_id(project: str, source: dict[str, Any], what: dict[str, Any]) -> str:
    """12 hex digits: the same workload with the same done to it is the same map, and goes on where it was."""
    return hashlib.sha256(json.dumps([project, source, what], sort_keys=True).encode()).hexdigest()[:12]


def directory(home: Home, name: str) -> Path:
    """Where all of one map lies."""
    return home.root / "maps" / name


def file(home: Home, name: str) -> Path:
    """Its database."""
    return directory(home, name) / "map.db"


def prepare(home: Home, name: str, items: Iterable[Item]) -> Path:
    """Write a workload into a new file beside the map's, for the supervisor to take over; its path. Raises DiskFull, LedgerError."""
    path = files.private_dir(directory(home, name)) / f"incoming-{os.getpid()}-{os.urandom(4).hex()}.db"
    held = list(items)
    nth = map_rules.occurrences((item.name, item.key) for item in held)
    with sqlite.explained(path, BOOK), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=OFF")  # it is made anew after a crash
        db.execute("BEGIN")
        db.execute(_ITEMS)
        rows = ((at, item.name, item.key, number, item.size) for at, (item, number) in enumerate(zip(held, nth, strict=True)))
        db.executemany("INSERT INTO item VALUES (?, ?, ?, ?, ?)", rows)
        db.execute("COMMIT")
    return path


def connect(path: Path) -> sqlite3.Connection:
    """Open for writing, made when there is none. What was committed outlives every crash of ours; a power cut can cost the newest shards,
    which are then done again. Raises LedgerError."""
    db = sqlite.connect(path, book=BOOK)
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("INSERT OR IGNORE INTO map (one) VALUES (1)")
    return db


def connect_readonly(path: Path) -> sqlite3.Connection:
    """Open for looking. Raises LedgerError as `store.connect_readonly` does."""
    return sqlite.connect_readonly(path, book=BOOK)


transaction = functools.partial(sqlite.transaction, book=BOOK)
"""As it is for the ledger."""


def take_over(db: sqlite3.Connection, path: Path, incoming: Path, *, fresh: bool) -> None:
    """Replace the workload by that in the file `incoming`. Items that are done, and are the same, stay done; with `fresh` none does."""
    db.execute("ATTACH ? AS incoming", (os.fspath(incoming),))
    try:
        with transaction(db, path):
            db.execute("CREATE TEMP TABLE before AS SELECT * FROM item WHERE state = 'done' AND NOT ?", (fresh,))
            db.execute("CREATE INDEX temp.before_by_name ON before (name, key, nth)")
            db.execute("DELETE FROM item")
            db.execute(_MERGE)
            db.execute("DELETE FROM lease")
            if fresh:
                db.execute("DELETE FROM kept")
            db.execute("DROP TABLE temp.before")
    finally:
        db.execute("DETACH incoming")


def is_same(db: sqlite3.Connection, path: Path, incoming: Path) -> bool:
    """Whether the workload in the file `incoming` is the map's. Raises LedgerError."""
    db.execute("ATTACH ? AS incoming", (os.fspath(incoming),))
    try:
        with sqlite.explained(path, BOOK):
            return not db.execute(_DIFFER).fetchone()[0]
    finally:
        db.execute("DETACH incoming")


def counts(db: sqlite3.Connection) -> dict[str, int]:
    """How many items are in each state; `total`."""
    found = {str(row["state"]): int(row["n"]) for row in db.execute("SELECT state, count(*) n FROM item GROUP BY state")}
    return {"total": sum(found.values()), **{state: found.get(state, 0) for state in ("done", "failed", "waiting")}}


def about_book(db: sqlite3.Connection) -> dict[str, Any]:
    """The map's own row."""
    return dict(db.execute("SELECT * FROM map").fetchone())


def set_about(db: sqlite3.Connection, **values: Any) -> None:
    """Change columns of it; the names are ours."""
    db.execute(f"UPDATE map SET {', '.join(f'{name} = ?' for name in values)}", tuple(values.values()))  # noqa: S608 - no text of others


# Output
# ------
# What a map came to, as files: the results in the order of the workload, a summary, and what failed. Each is whole or not there.


RESULTS, SUMMARY, FAILED = "output.jsonl", "summary.json", "failed.jsonl"
SCHEMA = 1


def write(
    db: sqlite3.Connection, about: dict[str, Any], counts: dict[str, int], directory: Path, merge: dict[str, Any] | None = None
) -> None:
    """Write all three: into `directory`, and the results where the map's person wants them, if that is elsewhere and every item has ended.
    Raises DiskFull, ToolFailed; what was there before is then still there."""
    source = json.loads(about["source"])
    objects = source.get("form") == "jsonl"
    stream(target(directory, about["out"], counts["waiting"]), (line(row, objects) for row in _ended(db, "state IN ('done', 'failed')")))
    stream(directory / FAILED, (line(row, objects) for row in _ended(db, "state = 'failed'")))
    files.atomic_write(
        directory / SUMMARY, json.dumps(summary(about, counts, db) | ({"merge": merge} if merge else {}), indent=2).encode() + b"\n"
    )


def target(directory: Path, out: str, missing: int) -> Path:
    """Where the results are. While items are missing the file `out` that a person named stays as it was."""
    return Path(out) if out and not missing else directory / RESULTS


def _ended(db: sqlite3.Connection, which: str) -> sqlite3.Cursor:
    return db.execute(f"SELECT * FROM item WHERE {which} ORDER BY position")  # noqa: S608 - no text of others


def line(row: sqlite3.Row, objects: bool) -> bytes:
    """One item: `item`, `ok`, `result` or `error`, `tries`, `ms`. Names that are no UTF-8 have their bytes as surrogates, as in
    `os.fsdecode`."""
    name = bytes(row["name"])
    item = name.decode() if objects else json.dumps(name.decode("utf-8", "surrogateescape"))
    ok = row["state"] == "done"
    text = row["text"] if ok else json.dumps(row["text"])
    head = f'{{"item": {item}, "ok": {"true" if ok else "false"}, "{"result" if ok else "error"}": {text}'
    return f'{head}, "tries": {row["tries"]}, "ms": {row["ms"]}}}\n'.encode()


def summary(about: dict[str, Any], counts: dict[str, int], db: sqlite3.Connection) -> dict[str, Any]:
    """The figures of it."""
    tried, worked = db.execute("SELECT total(max(tries + deaths - 1, 0)), total(ms) FROM item").fetchone()
    return {
        "schema": SCHEMA,
        "title": about["title"],
        "run": about["run"],
        "items": counts["total"],
        "done": counts["done"],
        "failed": counts["failed"],
        "missing": counts["waiting"],
        "tried_again": int(tried),
        "cleaned": about["undone"],
        "item_ms": int(worked),
        "wall_s": round(max(0.0, about["ended"] - about["began"]), 3),
        "why": about["why"],
    }


def stream(path: Path, lines: Iterator[bytes]) -> None:
    """Write a file that may be large, whole or not at all; it is on the disk before it has its name. Raises DiskFull, ToolFailed."""
    draft = path.with_name(f".{path.name[:200]}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb", 2**20) as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise files.write_error(path, error) from error


# Shards
# ------
# What a worker wrote of its shard: `out/shard-<number>.jsonl`, a line when it begins an item and one when it has ended it.
#
#     {"p": 17}                                               it is at the item with position 17
#     {"p": 17, "ok": true, "text": "[1, 2]", "ms": 3}        `text` is the result as JSON, or says why there is none
#
# A worker can write anything there, so it is read by the door for that, and whatever is off is left out: the item is then done
# again.


TEXT_MAX = 2**20
"""Characters of one result."""
SHARD_MAX = 64 * 2**20
"""Bytes of a file."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a file says."""

    outcomes: tuple[Outcome, ...] = ()
    begun: int | None = None
    """The position of the item that was begun last."""


def name(number: int) -> str:
    """Of the file of a shard."""
    return f"shard-{number}.jsonl"


def read(home: Home, key: Key, number: int) -> Told:
    """What the attempt wrote of the shard; nothing when there is no plain file. Raises ToolFailed when the machine could not look."""
    data = untrusted_fs.read_plain(_place(home, key) / name(number), SHARD_MAX)
    return told(data) if data else Told()


def _place(home: Home, key: Key) -> Path:
    return home.attempt(*key) / "out"


def told(data: bytes) -> Told:
    """The file's content, read. A line that was cut off does not count, and of an item only the first end does."""
    found: dict[int, Outcome] = {}
    begun = None
    for line in data.split(b"\n"):
        one = _line(line)
        if isinstance(one, Outcome):
            found.setdefault(one.position, one)
        elif one is not None:
            begun = one
    return Told(tuple(found.values()), begun)


def _line(line: bytes) -> Outcome | int | None:
    try:
        shape = json.loads(line)
        position = shape["p"]
        if not isinstance(position, int):
            return None
        if "ok" not in shape:
            return position
        text = str(shape["text"])
        text.encode()  # what is no Unicode cannot be kept
        if len(text) > TEXT_MAX:
            return None
        if shape["ok"] is True:
            json.loads(text)
        return Outcome(position, shape["ok"] is True, text, max(0, min(int(shape["ms"]), 2**40)))
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None


# Open map
# --------
# One map whose workers live: its board and its file, changed together. All of it on the desk's thread.
#
# A change of the board is committed before anybody is told. When the commit fails, the board has gone too far: the caller drops
# this object, and the next request reads the file anew.


TRY_THEMSELVES = ("prompt", EXECUTOR)
"""Executors that try an item again themselves, with what was wrong."""
CHUNK = 10_000
"""Items of one statement."""
LEAST = 4
"""Times as many items as its worker does at once make the smallest shard."""


class OpenMap:
    """`name`: its id. Raises LedgerError when there is no such map."""

    def __init__(self, home: Home, name: str, now: float) -> None:
        self._home, self.name = home, name
        self.path = file(home, name)
        if not self.path.exists():
            connect_readonly(self.path)  # says what is missing
        self.db = connect(self.path)
        self.stops: dict[Key, str] = {}
        """Why attempts said that no worker could do any item."""
        self._able: set[Key] = set()
        """Attempts whose worker can work on items; also those that have a shard from the supervisor before this one."""
        self.proven = False
        """An item was done since its workers were started."""
        self._load(now)

    def close(self) -> None:
        self.db.close()

    def _load(self, now: float) -> None:
        self.about = about_book(self.db)
        self.counts = counts(self.db)
        sizes = array("q", (int(row["size"]) for row in self.db.execute("SELECT size FROM item ORDER BY position")))
        what = json.loads(self.about["what"])
        retries = 0 if what.get("executor") in TRY_THEMSELVES else int(self.about["retries"])
        least, groups = LEAST * int(what.get("at_once", 0)) or 1, groups_of(what, len(sizes))
        last, item_s = int(self.about["shard"]), float(self.about["item_s"])
        self.board = Board(sizes, retries, least, groups, last_number=last, item_s=item_s)
        leased: set[int] = set()
        for row in self.db.execute("SELECT * FROM lease"):
            positions = [int(position) for position in json.loads(row["positions"])]
            key = (str(row["task"]), int(row["epoch"]))
            self.board.leases[key] = Lease(int(row["shard"]), positions, now, now)
            self._able.add(key)
            leased.update(positions)
        rows = self.db.execute("SELECT position, tries, deaths FROM item WHERE state = 'waiting' ORDER BY position")
        for position, tries, deaths in map(tuple, rows):
            if tries:
                self.board.tries[position] = tries
            if deaths:
                self.board.deaths[position] = deaths
            if position not in leased:
                (self.board.suspects if deaths else self.board.waiting).append(position)
        if groups:
            self.board.waiting = deque(sorted(self.board.waiting, key=lambda position: (groups[position], position)))

    # The workload ----------------------------------------------------------------------------------------------------------------------

    def take_over(self, incoming: Path, about: dict[str, Any], now: float, *, fresh: bool) -> None:
        """Begin with the workload of the file `incoming`, which is removed."""
        take_over(self.db, self.path, incoming, fresh=fresh)
        incoming.unlink(missing_ok=True)
        left = counts(self.db)["waiting"]
        begun = {"state": "open", "why": "", "ended": 0.0, "undone": 0} if left else {"state": "open"}
        with transaction(self.db, self.path):
            set_about(self.db, **{**about, **begun, **({} if left else {"began": self.about["began"]})})
        self._load(now)

    def has_workload(self, incoming: Path) -> bool:
        """Whether the file `incoming` has the items that it has."""
        return is_same(self.db, self.path, incoming)

    def begun(self, run: str) -> None:
        """Its workers are the tasks of `run`."""
        with transaction(self.db, self.path):
            set_about(self.db, run=run, state="running")
        self.about, self.proven = about_book(self.db), False
        self.stops.clear()
        self._able.clear()

    def waiting(self) -> dict[int, str]:
        """The items that nobody has, by position, in the order in which they are given out."""
        positions = list(self.board.waiting)
        names = {
            position: name for at in range(0, len(positions), CHUNK) for position, name in self._names(positions[at : at + CHUNK]).items()
        }
        return {position: names[position] for position in positions}

    def give_to_tasks(self, run: str, shards: Sequence[Sequence[int]], now: float) -> None:
        """The tasks `s1`, `s2` and so on of `run` have these items until they have ended."""
        self.board.waiting.clear()
        for place, positions in enumerate(shards, 1):
            self.board.last_number += 1
            key = (f"{run}/s{place}", TASK)
            self.board.leases[key] = Lease(self.board.last_number, list(positions), now, now)
            self.board.changed.add(key)
        with transaction(self.db, self.path):
            self._write(())
            set_about(self.db, run=run, state="running")
        self.about = about_book(self.db)

    def task_ended(self, view: TaskView) -> None:
        """The task of an agent has ended: its items are done or failed."""
        key = (view.id, TASK)
        lease = self.board.leases[key]
        texts = self._names(lease.positions)
        found = outcomes(self._home, view, json.loads(self.about["what"]), [(one, texts[one]) for one in lease.positions])
        judged = self.board.settle(key, lease.number, found, Spent())
        with transaction(self.db, self.path):
            self._write(judged)

    # Its workers -----------------------------------------------------------------------------------------------------------------------

    def next(
        self, key: Key, now: float, done: int = 0, spent: Spent | None = None, *, first: bool = False, cleaned: bool = False
    ) -> dict[str, Any]:
        """Settle the shard `done`, after which the worktree was `cleaned` or not, and give the next: `items` and their `shard`; `wait_s`;
        or `over`."""
        lease = self.board.leases.get(key)
        self.stops.pop(key, None)  # it goes on, so it did not say so itself
        if lease is None or lease.number == done:
            lease = self._settle_and_give(key, lease, spent or Spent(), now, cleaned=cleaned)
        if lease is None:
            return {"over": True} if self.board.may_leave() else {"wait_s": 0.5}
        lease.heard = now
        what = {"what": json.loads(self.about["what"])} if first else {}
        return {"shard": lease.number, "items": self._items(lease.positions), **what}

    def _settle_and_give(self, key: Key, lease: Lease | None, spent: Spent, now: float, *, cleaned: bool) -> Lease | None:
        judged = []
        if lease is not None:
            judged = self.board.settle(key, lease.number, read(self._home, key, lease.number).outcomes, spent)
        given = self.board.give(key, now)
        with transaction(self.db, self.path):
            self._write(judged)
            if cleaned:
                self.db.execute("UPDATE map SET undone = undone + 1")
        return given

    def beat(self, key: Key, shard: int, at: int, now: float) -> dict[str, Any]:
        """Return `keep`: how many items of its shard the worker, which is at the item `at`, has still."""
        self.stops.pop(key, None)
        self._able.add(key)
        keep = self.board.beat(key, shard, at, now)
        if self.board.changed:
            with transaction(self.db, self.path):
                self._write(())
        return {"keep": keep}

    def keep(self, key: Key, group: str, data: Any) -> dict[str, Any]:
        """Keep `data` for the workers of the attempt's group of items, in place of earlier data of the group; `group` is `group N`."""
        name = self._group(key, group)
        with transaction(self.db, self.path):
            self.db.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, json.dumps(data)))
        return {}

    def kept(self, key: Key, group: str) -> dict[str, Any]:
        """Return what was kept of the attempt's group last, by any worker; null when nothing was."""
        row = self.db.execute("SELECT data FROM kept WHERE task = ?", (self._group(key, group),)).fetchone()
        return {"kept": json.loads(row["data"]) if row is not None else None}

    def _group(self, key: Key, asked: str) -> str:
        """Return the name under which the attempt may keep something: one a group, so a map keeps no more than a request for each. Raises
        Refused for any other, and in a map that is not asked for in batches: its workers run what the items say."""
        lease, batches = self.board.leases.get(key), "group" in json.loads(self.about["what"])
        group = self.board.groups.get(lease.positions[0]) if batches and lease is not None and lease.positions else None
        name = f"group {group}"
        if group is None or asked != name:
            why = f"it has {name}" if group is not None else "it has no items that are asked for in batches"
            raise Refused("nothing is kept for", on=one_line(asked)[:100], why=why, kept="what was kept before")
        return name

    def stop(self, key: Key, why: str, living: Collection[Key]) -> bool:
        """Note that an attempt says that no worker could do any item; return whether the map ends for it.

        The workers of a map with `--prompt` are believed: nothing of an item is run there. In any other an item could have said so. There
        a worker is believed until it begins with its first item, which its first beat says, and the map ends once all workers that live
        say so and no item was done since they were started.
        """
        if json.loads(self.about["what"])["executor"] == "prompt":
            self.stops[key] = why
            return True
        if key in self._able:
            return False
        self.stops[key] = why
        return not self.proven and all(one in self.stops for one in living)

    @property
    def most_workers(self) -> int:
        """More have nothing to do: an item, or a group, is one worker's."""
        board = self.board
        if not board.groups or not board.waiting:
            return board.left
        return len({board.groups[position] for position in board.waiting})

    def gone(self, key: Key, cause: str, *, charged: bool) -> None:
        """Its attempt has ended: what it wrote counts, the rest waits again. `charged`: it died, maybe of the item that it was at."""
        lease = self.board.leases.get(key)
        told = read(self._home, key, lease.number) if lease is not None else Told()
        judged = self.board.gone(key, told.outcomes, told.begun if charged else None, cause)
        with transaction(self.db, self.path):
            self._write(judged)

    def _items(self, positions: list[int]) -> list[dict[str, Any]]:
        names = self._names(positions)
        return [{"p": position, "i": names[position]} for position in positions]

    def _names(self, positions: list[int]) -> dict[int, str]:
        marks = ",".join("?" * len(positions))
        rows = self.db.execute(f"SELECT position, name FROM item WHERE position IN ({marks})", positions)  # noqa: S608 - marks alone
        return {int(row["position"]): bytes(row["name"]).decode("utf-8", "surrogateescape") for row in rows}

    def _write(self, judged: Sequence[Judged]) -> None:
        """What became of items, and the leases that changed, as the board has them."""
        self.db.executemany(
            "UPDATE item SET state = ?, tries = ?, deaths = ?, ms = ?, text = ? WHERE position = ?",
            [(one.state, one.tries, one.deaths, one.ms, one.text, one.position) for one in judged],
        )
        self._note(judged)
        leases, changed = self.board.leases, list(self.board.changed)
        self.board.changed.clear()
        self.db.executemany("DELETE FROM lease WHERE task = ? AND epoch = ?", [key for key in changed if key not in leases])
        rows = [(*key, leases[key].number, json.dumps(leases[key].positions)) for key in changed if key in leases]
        self.db.executemany("INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)", rows)
        set_about(self.db, shard=self.board.last_number, item_s=self.board.item_s)

    def _note(self, judged: Sequence[Judged]) -> None:
        for one in judged:
            self.proven |= one.state == "done"
            if one.state != "waiting":
                self.counts[one.state] += 1
                self.counts["waiting"] -= 1

    # Its end ---------------------------------------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return str(self.about["state"]) == "ended"

    @property
    def is_open(self) -> bool:
        """Whether nobody has written down yet whose its workers are; `about` has the run of the workers before them."""
        return str(self.about["state"]) == "open"

    @property
    def run(self) -> str:
        """The run of its workers; empty before that is known."""
        return "" if self.is_open else str(self.about["run"])

    def finish(self, wall: float, why: str = "", merge: dict[str, Any] | None = None) -> None:
        """Write the output, then that it has ended: after a crash in between the output is written again, the same. Raises DiskFull,
        ToolFailed."""
        about = {**about_book(self.db), "ended": wall, "why": why}
        write(self.db, about, self.counts, directory(self._home, self.name), merge)
        with transaction(self.db, self.path):
            set_about(self.db, state="ended", ended=wall, why=why)
        self.about = about_book(self.db)

    def look(self, now: float) -> dict[str, Any]:
        """How it stands."""
        leases = self.board.leases.items()
        workers = [
            {"task": key[0], "epoch": key[1], "items": len(lease.positions), "at": lease.at, "silent_s": _silent_s(key, lease, now)}
            for key, lease in sorted(leases)
        ]
        about = {name: self.about[name] for name in ("title", "run", "state", "why", "out", "began", "ended")}
        return {"id": self.name, **about, **self.counts, "item_s": self.board.item_s, "idle": len(self.board.idle), "workers": workers}


def _silent_s(key: Key, lease: Lease, now: float) -> float:
    """For how long nothing was heard of a worker; the tasks of agents say nothing here."""
    return round(now - lease.heard, 1) if key[1] != TASK else 0.0


def groups_of(what: Mapping[str, Any], count: int) -> dict[int, int]:
    """By position of `count` items, the group that a plan put an item into, or that is asked for in batches; else empty."""
    if size := int(what.get("group", 0)):
        return {position: position // size for position in range(count)}
    return {position: number for number, group in enumerate(what.get("groups") or ()) for position in group["items"]}
