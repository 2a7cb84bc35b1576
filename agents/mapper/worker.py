"""The loop of a worker: a shard, what came of it on disk, the worktree clean again, the next one.

What came of an item is written into `$NIGHTCREW_OUT` at once (see `supervisor.daemon.mapping.shards`), so that a worker that dies loses
nothing but the item that it was at.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.mapper import asking, executors, leftovers
from agents.mapper.edits import Edits
from agents.mapper.executors import AtOnce, Executor, Item, Result
from agents.mapper.worktree import Worktree
from supervisor.core.errors import NeedsHuman, NightcrewError, UsageError

BEAT_S = 1.0
FULL_S = 1.0
FILE_MAX = 16 * 2**20
"""Bytes of a shard's results from which on the rest of it is given back."""


def work(environ: Mapping[str, str]) -> None:
    """Until the map needs this worker no more; a map whose executor cannot begin ends with its first worker. Raises Refused when its
    attempt has ended or its worktree does not become clean."""
    answer = asking.until_answered({"op": "next", "first": True})
    if answer.get("over"):
        return
    out, tree = Path(environ["NIGHTCREW_OUT"]), Worktree(Path.cwd())
    while "what" not in answer:
        time.sleep(float(answer["wait_s"]))
        answer = asking.until_answered({"op": "next", "first": True})
        if answer.get("over"):
            return
    try:
        executor = executors.make(answer["what"], environ)
    except UsageError as error:  # so it would be in every worker
        _stop(error)
        return
    _say_able(answer)
    leftovers.watch()
    edits = Edits(tree, environ["NIGHTCREW_MAP"]) if answer["what"].get("merge") else None
    said: dict[str, Any] = {}
    while not answer.get("over"):
        if "items" in answer:
            try:
                said = _shard(executor, tree, edits, Shard(answer, out))
            except NeedsHuman as error:
                _stop(error)
                return
        else:
            time.sleep(float(answer["wait_s"]))
        answer = asking.until_answered({"op": "next", **said})


def _say_able(answer: dict[str, Any]) -> None:
    """Tell the supervisor that this worker can work, before its first item can say anything: from now on it believes no `stop`."""
    keep = asking.until_answered({"op": "beat", "shard": answer["shard"], "at": -1}).get("keep", 0)
    answer["items"] = answer["items"][:keep]


def _stop(error: NightcrewError) -> None:
    """No worker could go on with any item: the map ends, and goes on when it is begun again."""
    print(error.line(), file=sys.stderr)
    asking.until_answered({"op": "stop", "why": error.line()})


def _one_by_one(executor: Executor, edits: Edits | None, shard: Shard) -> None:
    while (item := shard.next()) is not None:
        at = time.monotonic()
        result = executor.run(item, shard.still)
        if edits is not None:
            result = edits.kept(item, result)
        shard.write(item, result, time.monotonic() - at)


def _shard(executor: Executor, tree: Worktree, edits: Edits | None, shard: Shard) -> dict[str, Any]:
    """Work on it; what to say of it."""
    began = time.monotonic()
    executor.begin()
    inside = time.monotonic()
    if isinstance(executor, AtOnce):
        executor.work(shard)
    else:
        _one_by_one(executor, edits, shard)
    inside = time.monotonic() - inside
    executor.end()
    undone = tree.clean()
    if undone:
        print(f"the worktree was cleaned after shard {shard.number}: {undone[0][:200]} and {len(undone) - 1} more", file=sys.stderr)
    took = time.monotonic() - began
    shard.close()
    return {"done": shard.number, "shard_s": took, "around_s": took - inside, "undone": len(undone)}


@dataclass(slots=True)
class Shard:
    """The items of one answer, and the file of what came of them."""

    answer: Mapping[str, Any]
    out: Path
    number: int = 0
    _items: list[Item] = field(default_factory=list)
    _at: int = -1
    _keep: int = 0
    _written: int = 0
    _said: float = 0.0
    _file: int = -1

    def __post_init__(self) -> None:
        self.number = int(self.answer["shard"])
        self._items = [Item(int(one["p"]), str(one["i"])) for one in self.answer["items"]]
        self._keep, self._said = len(self._items), time.monotonic()
        for old in self.out.glob("shard-*.jsonl"):  # those before were read: else there were no answer
            old.unlink()
        self._file = _patiently(lambda: os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))

    @property
    def _path(self) -> Path:
        return self.out / f"shard-{self.number}.jsonl"

    def next(self) -> Item | None:
        """The next item that is ours still, written down as begun."""
        self._at += 1
        if time.monotonic() - self._said > BEAT_S:
            self.still()
        if self._at >= min(self._keep, len(self._items)) or self._written > FILE_MAX:
            return None
        item = self._items[self._at]
        self._put({"p": item.index})
        return item

    def still(self) -> None:
        """Say that the worker lives and where it is, and hear which items are ours still."""
        self._said = time.monotonic()
        keep = asking.beat({"shard": self.number, "at": self._at})
        self._said = time.monotonic()
        if keep is not None:
            self._keep = min(self._keep, keep)

    def write(self, item: Item, result: Result, seconds: float) -> None:
        """What came of an item, on disk."""
        self._put({"p": item.index, "ok": result.ok, "text": result.text, "ms": round(1000 * seconds)})

    def close(self) -> None:
        """It stays until the supervisor has read it."""
        os.close(self._file)

    def _put(self, shape: dict[str, Any]) -> None:
        """A whole line. On a full disk it waits for room: what was done is not thrown away."""
        left = json.dumps(shape).encode() + b"\n"
        self._written += len(left)
        while left:
            left = left[_patiently(functools.partial(os.write, self._file, left)) :]


def _patiently(act: Callable[[], int]) -> int:
    said = False
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if not said:
                print("waiting: the disk is full", file=sys.stderr, flush=True)
            said = True
            time.sleep(FULL_S)
