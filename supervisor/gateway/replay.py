"""The recorded answers of a run, to the same requests, with no provider and no key: `nightcrew gateway replay RUN`."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from supervisor.core.errors import NotFound, Refused, ToolFailed
from supervisor.core.gateway.types import Api
from supervisor.gateway import recording, wire
from supervisor.gateway.wire import Endpoint

BODY_MAX = 64 * 2**20
HEADER = "x-nightcrew-replay"
"""On every answer, with the run that it was recorded in."""


class Shelf:
    """What a run recorded, found by endpoint and body. The same request asked again gets its next answer, at the end the last one again."""

    def __init__(self, db: sqlite3.Connection, recordings: Path, run: str) -> None:
        """Raises NotFound when nothing of the run was recorded."""
        self.run = run
        self._files: dict[tuple[str, str], list[Path]] = {}
        self._played: dict[tuple[str, str], int] = {}
        rows = db.execute("SELECT endpoint, body_sha256, file FROM recording WHERE run = ? ORDER BY request", (run,)).fetchall()
        for row in rows:
            self._files.setdefault((row["endpoint"], row["body_sha256"]), []).append(recordings / row["file"])
        if not rows:
            why = "recording was off, or it was pruned"
            raise NotFound("no recording of", on=run, why=why, hint="set record = true under [gateway], then run it again")

    def __len__(self) -> int:
        """How many answers there are."""
        return sum(map(len, self._files.values()))

    def take(self, endpoint: str, body_sha256: str) -> Path | None:
        """The tape of the next answer to this request; None when it was not recorded."""
        key = (endpoint, body_sha256)
        files = self._files.get(key)
        if files is None:
            return None
        at = self._played[key] = min(self._played.get(key, -1) + 1, len(files) - 1)
        return files[at]


def application(shelf: Shelf, *, paced: bool = False) -> web.Application:
    """Answers any client, whatever its key. `paced`: each piece as long after the first as it came then."""

    async def answer(request: web.Request) -> web.StreamResponse:
        way = wire.recognise(request.method, request.raw_path)
        if way is not None and way.endpoint is Endpoint.PROBE:
            return web.Response(headers={HEADER: shelf.run})
        body = await request.read()
        name = f"{request.method} {request.path}" if way is None else recording.endpoint(request.method, way)
        path = shelf.take(name, hashlib.sha256(body).hexdigest())
        if path is None:
            return _missing(shelf, way.api if way else None, f"run {shelf.run} recorded no such request: {name}")
        try:
            tape = await asyncio.to_thread(recording.read, path)
        except Refused as error:
            return _missing(shelf, way.api if way else None, str(error))
        return await _play(request, shelf, tape, paced=paced)

    app = web.Application(client_max_size=BODY_MAX)
    app.router.add_route("*", "/{path:.*}", answer)
    return app


def _missing(shelf: Shelf, api: Api | None, why: str) -> web.Response:
    headers, body = wire.error(api or Api.ANTHROPIC, 404, why, None)
    return web.Response(status=404, headers={**headers, HEADER: shelf.run}, body=body)


async def _play(request: web.Request, shelf: Shelf, tape: recording.Played, *, paced: bool) -> web.StreamResponse:
    loop = asyncio.get_running_loop()
    response = web.StreamResponse(status=tape.status, headers={**tape.headers, HEADER: shelf.run})
    await response.prepare(request)
    began = loop.time()
    for after_s, piece in tape.pieces:
        if paced:
            await asyncio.sleep(began + after_s - loop.time())
        await response.write(piece)
    if tape.end == "cut" and request.transport is not None:  # as it was then
        request.protocol.force_close()
        return response
    await response.write_eof()
    return response


async def serve(shelf: Shelf, port: int, ready: Callable[[int], None], *, paced: bool = False) -> None:
    """Serve on 127.0.0.1 until cancelled; `ready` is told the port. Raises ToolFailed when the port is taken."""
    runner = web.AppRunner(application(shelf, paced=paced), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        try:
            await site.start()
        except OSError as error:
            raise ToolFailed(
                "cannot listen", on=f"127.0.0.1:{port}", why=error.strerror or str(error), hint="give another --port"
            ) from None
        ready(runner.addresses[0][1])
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
