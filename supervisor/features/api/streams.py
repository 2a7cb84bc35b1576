"""Logs and events as they come: server-sent events, each with an id at which a client goes on after a break."""

from __future__ import annotations

import asyncio
import codecs
import json
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from supervisor.features.api import models as api_models
from supervisor.features.api import rows as api_rows
from supervisor.features.api.rules import Token
from supervisor.features.api.server import Api, Failed, query, view_of
from supervisor.host import untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError, NotFound
from supervisor.kernel.format import rfc3339
from supervisor.store import journal, queries
from supervisor.store.queries import TaskView
from supervisor.views.web.sessions import HEADERS

BEAT_S = 15.0
"""Nothing is silent for longer: a comment is sent."""
LOOK_S = 0.2
CHUNK = 65536
ENTRIES = 200
"""Of the journal that are read at once."""


class Event(NamedTuple):
    """One server-sent event."""

    id: str
    name: str
    data: dict[str, Any]

    def wire(self) -> bytes:
        """As it is sent."""
        return f"id: {self.id}\nevent: {self.name}\ndata: {json.dumps(self.data)}\n\n".encode()


async def send(api: Api, request: web.Request, token: Token, events: AsyncIterator[Event | None]) -> web.StreamResponse:
    """Send events until there are no more, the client leaves, or the token is revoked; None is a moment at which nothing came."""
    async with api.desk.held_open(token):
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            await _sent(api, response, token, events)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - the head of the answer is sent: only a break is left to say it with
            if not isinstance(error, NightcrewError):
                traceback.print_exc()
            if request.transport is not None:
                request.transport.abort()
        return response


async def _sent(api: Api, response: web.StreamResponse, token: Token, events: AsyncIterator[Event | None]) -> None:
    clock = asyncio.get_running_loop().time
    said_at = clock()
    async for event in events:
        if event is not None:
            await response.write(event.wire())
            said_at = clock()
        elif not await api.desk.still_holds(token):
            break
        elif clock() - said_at > BEAT_S:
            await response.write(b": nothing new\n\n")
            said_at = clock()


def resumed(request: web.Request) -> str:
    """The id after which the client goes on; empty: from the beginning."""
    return request.headers.get("Last-Event-ID", "")


async def events(api: Api, request: web.Request, token: Token) -> web.StreamResponse:
    """What happens to the tasks that the token may know of, from now on, or from an id on."""
    query(request, api_models.Nothing)
    given = resumed(request)
    if not (given == "" or (given.isascii() and given.isdigit() and len(given) < 19)):
        raise Failed(422, "not an id", errors=[api_models.Wrong(field="Last-Event-ID", why="that of an event that was sent")])
    since = int(given) if given else await api.reader.ask(journal.newest_entry)
    return await send(api, request, token, _happened(api, token, since))


async def _happened(api: Api, token: Token, since: int) -> AsyncIterator[Event | None]:
    known: dict[str, str | None] = {}
    while True:
        seen = api.pulse.seen
        entries = await api.reader.ask(lambda db, since=since: _entries(db, token, since, known))  # type: ignore[misc]  # bound now
        for entry, repository in entries:
            since = entry["seq"]
            if repository is not None:
                shape = {"task": entry["task"], "repository": repository, "attempt": entry["epoch"], "event": entry["event"]}
                yield Event(str(since), "task", {**shape, "at": rfc3339(entry["at"])})
        if len(entries) < ENTRIES:
            yield None
            await api.pulse.next(seen, 1.0)


def _entries(db: Any, token: Token, since: int, known: dict[str, str | None]) -> list[tuple[dict[str, Any], str | None]]:
    """What is new, each with its repository, or None where the token may not know of it."""
    found = journal.after(db, since, ENTRIES)
    for view in queries.several(db, {entry["task"] for entry in found if entry["task"]} - known.keys()):
        known[view.id] = view.project if token.sees(view.project, api_rows.owner(db, view.run)) else None
    return [(entry, known.get(entry["task"] or "")) for entry in found]


async def log(api: Api, request: web.Request, token: Token, where: Home) -> web.StreamResponse:
    """What a task prints, of each of its attempts in turn, until it has ended."""
    asked = query(request, api_models.LogQuery)
    view = await view_of(api, request, token)
    epoch, at = _place(resumed(request), view)
    return await send(api, request, token, _printed(api, where, view, _Log(asked.stream, epoch, at, asked.follow == "true")))


class _Log(NamedTuple):
    """Where a reader of a log is."""

    stream: str
    epoch: int
    at: int
    follow: bool


def _place(given: str, view: TaskView) -> tuple[int, int]:
    """`attempt:bytes`. Without it, the newest attempt from its beginning."""
    epoch, _, at = given.partition(":") if given else (str(max(1, view.epoch)), "", "0")
    if not (epoch.isascii() and epoch.isdigit() and at.isascii() and at.isdigit() and len(given) < 20) or int(epoch) > max(1, view.epoch):
        raise Failed(422, "not an id", errors=[api_models.Wrong(field="Last-Event-ID", why="that of an event that was sent")])
    return int(epoch), int(at)


async def _printed(api: Api, where: Home, view: TaskView, log: _Log) -> AsyncIterator[Event | None]:
    epoch, at = log.epoch, log.at
    while True:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        path = where.attempt(view.id, epoch) / f"{log.stream}.log"
        while True:
            view = await _again(api, view)
            over = view.epoch > epoch or view.end is not None or view.final  # asked before the last look
            data = await asyncio.to_thread(_read, path, at)
            while data:
                at += len(data)
                text = decoder.decode(data)
                held = len(decoder.getstate()[0])  # the beginning of a character whose end has not come
                yield Event(f"{epoch}:{at - held}", log.stream, {"attempt": epoch, "text": text})
                data = await asyncio.to_thread(_read, path, at)
            if over or not log.follow:
                break
            yield None
            await asyncio.sleep(LOOK_S)
        if not log.follow or (view.final and view.epoch <= epoch):
            yield Event(f"{epoch}:{at}", "end", {"attempt": epoch, "state": str(view.state)})
            return
        if view.epoch > epoch:
            epoch, at = epoch + 1, 0
        else:
            yield None
            await asyncio.sleep(LOOK_S)


async def _again(api: Api, view: TaskView) -> TaskView:
    try:
        return await api.reader.ask_of(view.run, lambda db: queries.one(db, view.id))
    except NotFound:
        return view


def _read(path: Path, at: int) -> bytes:
    """The next bytes; none when there are none yet, or an agent without a sandbox put something else there."""
    try:
        with untrusted_fs.open_plain(path) as file:
            file.seek(at)
            return file.read(CHUNK)
    except OSError:
        return b""
