"""The operation `wait`: until a file changes whose path a pattern matches."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from memory.globs import matcher
from memory.layout import PATH_MAX
from memory.store import QUARANTINE, Change, Store
from supervisor.core.errors import Refused, TimedOut
from supervisor.core.wait_graph import WaitKind
from supervisor.daemon.memory.desk import MemoryDesk
from supervisor.daemon.memory.request import Request

WAIT_MAX_S = 600.0
"""Of one request; who waits longer asks again with `since`, and misses nothing."""
WAITERS_MAX = 64
"""Requests of one author that wait at the same moment."""
ANSWER_MAX = 100
"""Changes of one answer."""
PAGE = 1_000
NUMBER_MAX = 2**53


async def wait(asked: Request) -> dict[str, Any]:
    """`glob`; `timeout_s`, at most WAIT_MAX_S; `since`: the `number` of an answer before, so that what happened between the two is seen,
    else only what changes from now on. Returns `changes`, oldest first: `number`, `path`, `action`, `author`, `version`, `at`; `number`
    for the next `since`; `timed_out`, then with no change; `polls`: why changes on the disk are seen every 2 s only, or "".
    """
    matches = _matches(asked.text("glob", PATH_MAX))
    timeout_s = asked.number("timeout_s", WAIT_MAX_S, WAIT_MAX_S)
    since = None if asked.args.get("since") is None else int(asked.number("since", 0, NUMBER_MAX))
    with _counted(asked.desk, asked.author), _heard(asked.desk, asked.project, matches) as heard:
        newest = await asked.desk.of(asked.project, lambda record: record.newest())
        before = await _before(asked, matches, since) if since is not None else []
        if timeout_s and not before and not heard.changes:
            with contextlib.suppress(TimeoutError, TimedOut):
                async with _parked(asked, timeout_s), asyncio.timeout(timeout_s):
                    await heard.any.wait()
        elif asked.epoch is not None:
            asked.desk.waits.answered(asked.author, asked.epoch, WaitKind.MEMORY, str(asked.args["glob"]))
        changes = before or heard.changes[:ANSWER_MAX]
    return {
        "changes": [_shape(change) for change in changes],
        "number": changes[-1].number if changes else newest,
        "timed_out": not changes,
        "polls": asked.desk.watch.why_polled(asked.project),
    }


def _matches(glob: str) -> Callable[[str], bool]:
    """What waits for a person's word is no note yet: only who names the quarantine is told of it."""
    fits, aside = matcher(glob), glob.startswith(QUARANTINE)
    return lambda path: path.startswith(QUARANTINE) is aside and fits(path)


def _parked(asked: Request, timeout_s: float) -> contextlib.AbstractAsyncContextManager[object]:
    """In the graph of waits, for an agent: it waits for nobody in particular."""
    if asked.epoch is None:
        return contextlib.nullcontext()
    glob = str(asked.args["glob"])
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


def _shape(change: Change) -> dict[str, Any]:
    return {key: getattr(change, key) for key in ("number", "path", "action", "author", "version", "at")}
