"""One map whose workers live: its board and its file, changed together. All of it on the desk's thread.

A change of the board is committed before anybody is told. When the commit fails, the board has gone too far: the caller drops this object,
and the next request reads the file anew.
"""

from __future__ import annotations

import json
from array import array
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from supervisor.core.errors import Refused, one_line
from supervisor.core.mapping import Board, Judged, Key, Lease, Spent
from supervisor.daemon.mapping import agents, book, output, shards
from supervisor.host.paths import Home
from supervisor.ledger.queries import TaskView

TRY_THEMSELVES = ("prompt", agents.EXECUTOR)
"""Executors that try an item again themselves, with what was wrong."""
CHUNK = 10_000
"""Items of one statement."""
LEAST = 4
"""Times as many items as its worker does at once make the smallest shard."""


class OpenMap:
    """`name`: its id. Raises LedgerError when there is no such map."""

    def __init__(self, home: Home, name: str, now: float) -> None:
        self._home, self.name = home, name
        self.path = book.file(home, name)
        if not self.path.exists():
            book.connect_readonly(self.path)  # says what is missing
        self.db = book.connect(self.path)
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
        self.about = book.about(self.db)
        self.counts = book.counts(self.db)
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
        book.take_over(self.db, self.path, incoming, fresh=fresh)
        incoming.unlink(missing_ok=True)
        left = book.counts(self.db)["waiting"]
        begun = {"state": "open", "why": "", "ended": 0.0, "undone": 0} if left else {"state": "open"}
        with book.transaction(self.db, self.path):
            book.set_about(self.db, **{**about, **begun, **({} if left else {"began": self.about["began"]})})
        self._load(now)

    def has_workload(self, incoming: Path) -> bool:
        """Whether the file `incoming` has the items that it has."""
        return book.is_same(self.db, self.path, incoming)

    def begun(self, run: str) -> None:
        """Its workers are the tasks of `run`."""
        with book.transaction(self.db, self.path):
            book.set_about(self.db, run=run, state="running")
        self.about, self.proven = book.about(self.db), False
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
            key = (f"{run}/s{place}", agents.TASK)
            self.board.leases[key] = Lease(self.board.last_number, list(positions), now, now)
            self.board.changed.add(key)
        with book.transaction(self.db, self.path):
            self._write(())
            book.set_about(self.db, run=run, state="running")
        self.about = book.about(self.db)

    def task_ended(self, view: TaskView) -> None:
        """The task of an agent has ended: its items are done or failed."""
        key = (view.id, agents.TASK)
        lease = self.board.leases[key]
        texts = self._names(lease.positions)
        found = agents.outcomes(self._home, view, json.loads(self.about["what"]), [(one, texts[one]) for one in lease.positions])
        judged = self.board.settle(key, lease.number, found, Spent())
        with book.transaction(self.db, self.path):
            self._write(judged)

    # Its workers -----------------------------------------------------------------------------------------------------------------------

    def next(self, key: Key, args: dict[str, Any], now: float) -> dict[str, Any]:
        """What the verb `map` answers to `next`: `items` and their `shard`; `wait_s`; or `over`."""
        lease = self.board.leases.get(key)
        self.stops.pop(key, None)  # it goes on, so it did not say so itself
        if lease is None or lease.number == _number(args.get("done")):
            lease = self._settle_and_give(key, lease, args, now)
        if lease is None:
            return {"over": True} if self.board.may_leave() else {"wait_s": 0.5}
        lease.heard = now
        what = {"what": json.loads(self.about["what"])} if args.get("first") else {}
        return {"shard": lease.number, "items": self._items(lease.positions), **what}

    def _settle_and_give(self, key: Key, lease: Lease | None, args: dict[str, Any], now: float) -> Lease | None:
        judged = []
        if lease is not None:
            spent = Spent(_seconds(args.get("shard_s")), _seconds(args.get("around_s")))
            judged = self.board.settle(key, lease.number, shards.read(self._home, key, lease.number).outcomes, spent)
        given = self.board.give(key, now)
        with book.transaction(self.db, self.path):
            self._write(judged)
            if _number(args.get("undone")):
                self.db.execute("UPDATE map SET undone = undone + 1")
        return given

    def beat(self, key: Key, args: dict[str, Any], now: float) -> dict[str, Any]:
        """What it answers to `beat`: `keep`, how many items of its shard the worker has still."""
        self.stops.pop(key, None)
        self._able.add(key)
        keep = self.board.beat(key, _number(args.get("shard")), _number(args.get("at")), now)
        if self.board.changed:
            with book.transaction(self.db, self.path):
                self._write(())
        return {"keep": keep}

    def keep(self, key: Key, args: dict[str, Any]) -> dict[str, Any]:
        """Keep `data` for the workers of the attempt's group of items, in place of earlier data of the group. `as`: `group N`."""
        name = self._group(key, args)
        with book.transaction(self.db, self.path):
            self.db.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, json.dumps(args.get("data"))))
        return {}

    def kept(self, key: Key, args: dict[str, Any]) -> dict[str, Any]:
        """Return what was kept of the attempt's group last, by any worker; null when nothing was."""
        row = self.db.execute("SELECT data FROM kept WHERE task = ?", (self._group(key, args),)).fetchone()
        return {"kept": json.loads(row["data"]) if row is not None else None}

    def _group(self, key: Key, args: dict[str, Any]) -> str:
        """Return the name under which the attempt may keep something: one a group, so a map keeps no more than a request for each. Raises
        Refused for any other, and in a map that is not asked for in batches: its workers run what the items say."""
        lease, batches = self.board.leases.get(key), "group" in json.loads(self.about["what"])
        group = self.board.groups.get(lease.positions[0]) if batches and lease is not None and lease.positions else None
        name = f"group {group}"
        if group is None or args.get("as") != name:
            why = f"it has {name}" if group is not None else "it has no items that are asked for in batches"
            raise Refused("nothing is kept for", on=one_line(str(args.get("as")))[:100], why=why, kept="what was kept before")
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
        told = shards.read(self._home, key, lease.number) if lease is not None else shards.Told()
        judged = self.board.gone(key, told.outcomes, told.begun if charged else None, cause)
        with book.transaction(self.db, self.path):
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
        book.set_about(self.db, shard=self.board.last_number, item_s=self.board.item_s)

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
        about = {**book.about(self.db), "ended": wall, "why": why}
        output.write(self.db, about, self.counts, book.directory(self._home, self.name), merge)
        with book.transaction(self.db, self.path):
            book.set_about(self.db, state="ended", ended=wall, why=why)
        self.about = book.about(self.db)

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
    return round(now - lease.heard, 1) if key[1] != agents.TASK else 0.0


def _number(given: Any) -> int:
    return given if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**53 else 0


def _seconds(given: Any) -> float:
    return float(given) if isinstance(given, int | float) and 0 <= given < 1e9 else 0.0


def groups_of(what: Mapping[str, Any], count: int) -> dict[int, int]:
    """By position of `count` items, the group that a plan put an item into, or that is asked for in batches; else empty."""
    if size := int(what.get("group", 0)):
        return {position: position // size for position in range(count)}
    return {position: number for number, group in enumerate(what.get("groups") or ()) for position in group["items"]}
